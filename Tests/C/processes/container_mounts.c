/* What a container's mounts and namespaces permit: a volume that is read-only in one container, other users, volumes
 * in and below an overlay, and clocks of uptime that differ. Needs root and the right to create namespaces; skipped
 * without them. */
#include "containers.h"

/* As in <linux/mount.h>, which is not installed for musl. */
struct attributes_of_mount {
    uint64_t set, clear, propagation, user_namespace;
};
enum { clones_tree = 1, maps_users = 0x100000, moves_from_descriptor = 4 };

static const shale_options plain = {.struct_size = sizeof plain, .capacity = 16 << 20},
                           shared = {.struct_size = sizeof shared, .capacity = 16 << 20, .mode = 0666},
                           read_only = {.struct_size = sizeof read_only, .flags = SHALE_OPEN_READ_ONLY};

/* What the work inside a container is about: it is forked, so it has its caller's. */
static char *volume;
static const char *key, *text;
static uid_t as_user; /* inside */
static gate asked, answered;

static char *cache_in(const char *folder) {
    static char path[700];
    snprintf(path, sizeof path, "%s/cache", folder);
    return path;
}

static void check_finds(shale_cache *cache, const char *name, const char *expected) {
    shale_value value = SHALE_VALUE_INIT;
    if (CHECK_STATUS(expected ? SHALE_OK : SHALE_MISS, get_text(cache, name, 0, &value)) && expected)
        CHECK_TEXT(&value, expected);
    shale_value_free(&value);
}

static void become_user(void) {
    if (as_user)
        REQUIRE(setresgid(as_user, as_user, as_user) == 0 && setresuid(as_user, as_user, as_user) == 0);
}

/* Runs it inside to its end. */
static void inside(const container *c, void (*work)(void *context)) {
    pid_t child = start_inside(c, work, NULL);
    CHECK_EQUAL(0, wait_for(child));
}

static container make_container(container c) {
    c.volume = volume;
    if (!start_container(&c)) {
        fprintf(stderr, "skipped: no right to create containers: %s\n", strerror(errno));
        finish();
        exit(SKIPPED);
    }
    return c;
}

static void end_container(const container *c) {
    kill_container(c);
    CHECK_EQUAL(128 + SIGKILL, wait_for(c->init));
}

static void make_volume(const char *name, uid_t owner, mode_t mode) {
    free(volume);
    volume = path_to(name);
    REQUIRE(mkdir(volume, 0755) == 0 && chown(volume, owner, owner) == 0 && chmod(volume, mode) == 0);
}

/* Work */

static void sets(void *context UNUSED) {
    become_user();
    shale_cache *cache = require_open(cache_in(volume), plain);
    CHECK_STATUS(SHALE_OK, set_text(cache, key, text, NULL));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static void gets(void *context UNUSED) {
    become_user();
    shale_cache *cache = require_open(cache_in(volume), plain);
    check_finds(cache, key, text);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static void looks(void *context UNUSED) {
    shale_cache *cache = require_open(cache_in(volume), read_only);
    check_finds(cache, key, text);
    CHECK_STATUS(SHALE_E_PERMISSION, set_text(cache, key, "other", NULL));
    CHECK_STATUS(SHALE_OK, shale_verify(cache, NULL));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

/* Sets, and once more when it is asked. */
static void sets_twice(void *context UNUSED) {
    become_user();
    shale_cache *cache = require_open(cache_in(volume), plain);
    CHECK_STATUS(SHALE_OK, set_text(cache, key, text, NULL));
    pass(&answered);
    await(&asked);
    CHECK_STATUS(SHALE_OK, set_text(cache, key, "again", NULL));
    pass(&answered);
    await(&asked);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static void check_refused(const shale_options *options, const char *words) {
    shale_cache *cache = NULL;
    CHECK_STATUS(SHALE_E_PERMISSION, shale_open(cache_in(volume), options, &cache));
    check_that(strstr(shale_last_error(), words) != NULL, __FILE__, __LINE__, words, ": the sentence is \"%s\"",
               shale_last_error());
}

static void may_not_write(void *context UNUSED) {
    check_refused(&plain, "read-only");
}

static void finds_anothers(void *context UNUSED) {
    check_refused(&plain, "belongs to another user");
    check_refused(&read_only, "belongs to another user");
}

static void finds_no_way_in(void *context UNUSED) {
    check_refused(&plain, "denied");
    check_refused(&read_only, "denied");
}

/* Cases */

static void test_read_only_volume(void) {
    make_volume("read-only", 0, 0700);
    container writer = make_container((container){0}), reader = make_container((container){.is_read_only = true});
    key = "key", text = "value";
    pid_t child = start_inside(&writer, sets_twice, NULL);
    await(&answered);
    inside(&reader, may_not_write);
    inside(&reader, looks);
    pass(&asked);
    await(&answered);
    text = "again";
    inside(&reader, looks);
    pass(&asked);
    CHECK_EQUAL(0, wait_for(child));
    inside(&reader, looks);
    char index[750];
    snprintf(index, sizeof index, "%s/shale.index", cache_in(volume));
    CHECK(unlink(index) == 0);
    inside(&reader, looks); /* makes one in its own memory */
    CHECK(access(index, F_OK) != 0);
    end_container(&writer);
    end_container(&reader);
}

/* One writes while another one reads and writes. */
static void check_shared_by(const container *first, const container *second) {
    key = "key", text = "value";
    pid_t child = start_inside(first, sets_twice, NULL);
    await(&answered);
    inside(second, gets);
    pass(&asked);
    await(&answered);
    text = "again";
    inside(second, gets);
    text = "other";
    inside(second, sets);
    pass(&asked);
    CHECK_EQUAL(0, wait_for(child));
    inside(first, gets);
}

static void test_without_proc(void) {
    make_volume("no-proc", 0, 0700);
    container with = make_container((container){0}), without = make_container((container){.has_no_proc = true}),
              other = make_container((container){.has_no_proc = true});
    check_shared_by(&with, &without);
    check_shared_by(&without, &with);
    check_shared_by(&without, &other);
    end_container(&with);
    end_container(&without);
    end_container(&other);
}

/* Who owns a file is a user of this system; containers whose numbers stand for the same users see the same. */
static void test_users(void) {
    enum { these = 100000, those = 300000 };
    make_volume("users", these, 0777);
    container first = make_container((container){.first_user = these}),
              second = make_container((container){.first_user = these}),
              other = make_container((container){.first_user = those}), same = make_container((container){0});
    check_shared_by(&first, &second);
    inside(&other, finds_no_way_in); /* the files' mode is 0600 */
    char path[750];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", cache_in(volume), i ? "shale.index" : "shale.data");
        CHECK(chmod(path, 0666) == 0);
    }
    REQUIRE(chmod(cache_in(volume), 0777) == 0);
    inside(&other, finds_anothers);
    inside(&same, finds_anothers); /* this system's root as well */

    /* The files of this system's root belong to nobody inside. */
    make_volume("of-root", 0, 0777);
    shale_cache *cache = require_open(cache_in(volume), shared);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    REQUIRE(chmod(cache_in(volume), 0777) == 0);
    container mapped = make_container((container){.first_user = these}), alike = make_container((container){0});
    inside(&mapped, finds_anothers);
    as_user = these;
    check_shared_by(&same, &alike); /* another user than root */
    as_user = 0;
    end_container(&alike);
    end_container(&first);
    end_container(&second);
    end_container(&other);
    end_container(&same);
    end_container(&mapped);
}

/* Mounts the folder once more, with this system's root as the users' first one. */
static bool mount_for(const char *folder, const char *at, unsigned first_user) {
    container users = {.volume = folder, .first_user = first_user};
    char path[64];
    if (!start_container(&users))
        return false;
    snprintf(path, sizeof path, "/proc/%d/ns/user", (int)users.init);
    int space = open(path, O_RDONLY | O_CLOEXEC),
        tree = (int)syscall(SYS_open_tree, AT_FDCWD, folder, clones_tree | O_CLOEXEC);
    struct attributes_of_mount attributes = {.set = maps_users, .user_namespace = (uint64_t)space};
    bool is_mounted = tree >= 0 &&
                      syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attributes, sizeof attributes) == 0 &&
                      syscall(SYS_move_mount, tree, "", AT_FDCWD, at, moves_from_descriptor) == 0;
    close(space);
    close(tree);
    end_container(&users);
    return is_mounted;
}

/* With idmapped mounts, as Kubernetes makes them for pods with users of their own, all see the files as theirs. */
static void test_mounts_with_mapped_users(void) {
    enum { these = 100000, those = 300000 };
    make_volume("mapped", 0, 0700);
    char *at[] = {path_to("mapped-for-these"), path_to("mapped-for-those")}, *real = volume;
    unsigned first_users[] = {these, those};
    for (int i = 0; i < 2; i++) {
        REQUIRE(mkdir(at[i], 0700) == 0);
        if (!mount_for(real, at[i], first_users[i])) {
            fprintf(stderr, "no idmapped mounts here: %s\n", strerror(errno));
            return;
        }
    }
    container containers[2];
    for (int i = 0; i < 2; i++) {
        volume = at[i];
        containers[i] = make_container((container){.first_user = first_users[i]});
    }
    key = "key", text = "value";
    volume = at[0];
    pid_t child = start_inside(&containers[0], sets_twice, NULL);
    await(&answered);
    volume = at[1];
    inside(&containers[1], gets);
    pass(&asked);
    await(&answered);
    text = "again";
    inside(&containers[1], gets);
    text = "other";
    inside(&containers[1], sets);
    pass(&asked);
    CHECK_EQUAL(0, wait_for(child));
    volume = real;
    gets(NULL); /* this system's root, too */
    for (int i = 0; i < 2; i++) {
        end_container(&containers[i]);
        CHECK(umount(at[i]) == 0);
    }
    free(at[0]);
    volume = at[1];
    free(real);
}

static bool mount_overlay(const char *at, const char *lower, const char *upper, const char *work) {
    char layers[2200];
    snprintf(layers, sizeof layers, "lowerdir=%s,upperdir=%s,workdir=%s", lower, upper, work);
    return mount("overlay", at, "overlay", 0, layers) == 0;
}

static char *made(const char *name) {
    char *path = path_to(name);
    REQUIRE(mkdir(path, 0755) == 0);
    return path;
}

static void test_overlays(void) {
    char *all = made("overlays");
    REQUIRE(mount("tmpfs", all, "tmpfs", 0, "size=512m") == 0);
    char *lower = made("overlays/lower"), *merged[] = {made("overlays/merged-0"), made("overlays/merged-1")};
    shale_cache *cache = require_open(cache_in(lower), plain);
    CHECK_STATUS(SHALE_OK, set_text(cache, "key", "of the image", NULL));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    for (int i = 0; i < 2; i++) {
        char *upper = made(i ? "overlays/upper-1" : "overlays/upper-0"),
             *work = made(i ? "overlays/work-1" : "overlays/work-0");
        if (!mount_overlay(merged[i], lower, upper, work)) {
            fprintf(stderr, "no overlays here: %s\n", strerror(errno));
            umount2(all, MNT_DETACH);
            return;
        }
        free(upper);
        free(work);
    }

    /* Two containers see one overlay. */
    free(volume);
    volume = merged[0];
    container first = make_container((container){0}), second = make_container((container){0});
    check_shared_by(&first, &second);
    end_container(&first);
    end_container(&second);

    /* Another overlay of the same image has a cache of its own. */
    volume = merged[1];
    container third = make_container((container){0});
    text = "of the image";
    inside(&third, gets);
    text = "its own";
    inside(&third, sets);
    inside(&third, gets);
    end_container(&third);
    volume = merged[0];
    text = "other";
    gets(NULL);
    volume = lower;
    text = "of the image";
    gets(NULL);
    volume = NULL;
    CHECK(umount2(merged[0], MNT_DETACH) == 0 && umount2(merged[1], MNT_DETACH) == 0);
    CHECK(umount2(all, MNT_DETACH) == 0);
    free(merged[0]);
    free(merged[1]);
    free(lower);
    free(all);
}

/* Times: a lease ends at a time of uptime, which differs between time namespaces. */

static const shale_lease_options minute = {.struct_size = sizeof minute, .lease_ms = 60000};

static uint64_t lease_now(shale_cache *cache) {
    shale_value value = SHALE_VALUE_INIT;
    uint64_t lease = 0;
    CHECK_STATUS(SHALE_MISS, shale_lease(cache, key, strlen(key), &minute, &value, &lease));
    shale_value_free(&value);
    return lease;
}

static bool expects_lease;

static void holds_lease(void *context UNUSED) {
    shale_cache *cache = require_open(cache_in(volume), plain);
    uint64_t lease = lease_now(cache);
    CHECK(lease != 0);
    pass(&answered);
    await(&asked);
    CHECK_STATUS(SHALE_OK, shale_release(cache, key, strlen(key), lease));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static void asks_for_lease(void *context UNUSED) {
    shale_cache *cache = require_open(cache_in(volume), plain);
    uint64_t lease = lease_now(cache);
    CHECK((lease != 0) == expects_lease);
    if (lease)
        CHECK_STATUS(SHALE_OK, shale_release(cache, key, strlen(key), lease));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static void try_leases(const container *holder, const container *asker) {
    key = "leased";
    pid_t child = start_inside(holder, holds_lease, NULL);
    await(&answered);
    expects_lease = false;
    inside(asker, asks_for_lease);
    pass(&asked);
    CHECK_EQUAL(0, wait_for(child));
    expects_lease = true;
    inside(asker, asks_for_lease); /* it was released */

    key = "leased by a killed one";
    child = start_inside(holder, holds_lease, NULL);
    await(&answered);
    kill(child, SIGKILL);
    CHECK_EQUAL(128 + SIGKILL, wait_for(child));
    inside(asker, asks_for_lease);
    key = "later", text = "value";
    inside(holder, sets);
    inside(asker, gets);
}

static void test_times(void) {
    make_volume("times", 0, 0700);
    container here = make_container((container){0}), too = make_container((container){0}),
              ahead = make_container((container){.ahead_s = 86400});
    try_leases(&here, &too);
    try_leases(&ahead, &here);
    try_leases(&here, &ahead);
    end_container(&here);
    end_container(&too);
    end_container(&ahead);
}

int main(void) {
    watch(patience);
    asked = make_gate();
    answered = make_gate();
    if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        fprintf(stderr, "skipped: no right to mount\n");
        finish();
        return SKIPPED;
    }
    /* Containers with other users look into it. */
    free(path_to(""));
    REQUIRE(chmod(check_directory, 0755) == 0);
    RUN(test_read_only_volume);
    RUN(test_without_proc);
    RUN(test_users);
    RUN(test_mounts_with_mapped_users);
    RUN(test_overlays);
    RUN(test_times);
    close_gate(&asked);
    close_gate(&answered);
    free(volume);
    return finish();
}
