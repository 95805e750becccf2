/* A cache in a lower layer of an overlay: its sole writer gets a copy of the files, and mappings that a reader made
 * before do not show it. Such a reader answers SHALE_E_BUSY from then on, and never an old value. Needs the right to
 * mount; skipped without it. */
#include "check.h"

#include <sched.h>
#include <sys/mount.h>

static const shale_options four_mib = {.struct_size = sizeof four_mib, .capacity = 4 << 20},
                           read_only = {.struct_size = sizeof read_only, .flags = SHALE_OPEN_READ_ONLY};

static char *root, *lower, *merged, *fixed;

static bool mount_all(void) {
    char layers[1600], *upper = path_to("root/upper"), *work = path_to("root/work");
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", root, "tmpfs", 0, "size=64m") < 0)
        return false;
    char *const made[] = {lower, upper, work, merged, fixed};
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++)
        REQUIRE(mkdir(made[i], 0700) == 0);
    shale_cache *cache = NULL;
    char cache_path[700];
    snprintf(cache_path, sizeof cache_path, "%s/cache", lower);
    REQUIRE_STATUS(SHALE_OK, shale_open(cache_path, &four_mib, &cache));
    REQUIRE_STATUS(SHALE_OK, set_text(cache, "key", "old", NULL));
    REQUIRE_STATUS(SHALE_OK, shale_close(cache));
    snprintf(layers, sizeof layers, "lowerdir=%s:%s", lower, work);
    if (mount("overlay", fixed, "overlay", MS_RDONLY, layers) < 0)
        return false;
    snprintf(layers, sizeof layers, "lowerdir=%s,upperdir=%s,workdir=%s", lower, upper, work);
    return mount("overlay", merged, "overlay", 0, layers) == 0;
}

static shale_cache *open_in(const char *layer, shale_options options) {
    char path[700];
    snprintf(path, sizeof path, "%s/cache", layer);
    return require_open(path, options);
}

static void check_holds(shale_cache *cache, const char *text) {
    shale_value value = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_OK, get_text(cache, "key", 0, &value));
    CHECK_TEXT(&value, text);
    shale_value_free(&value);
}

static void check_refused(shale_cache *cache) {
    shale_value value = SHALE_VALUE_INIT, key = SHALE_VALUE_INIT;
    CHECK_STATUS(SHALE_E_BUSY, get_text(cache, "key", 0, &value));
    CHECK(strstr(shale_last_error(), merged) && strstr(shale_last_error(), "open it again"));
    shale_bytes keys = {"key", 3};
    shale_status status = SHALE_OK;
    shale_get_many(cache, 1, &keys, 0, &value, &status);
    CHECK_STATUS(SHALE_E_BUSY, status);
    shale_cursor *cursor = NULL;
    if (shale_cursor_open(cache, &cursor) == SHALE_OK)
        CHECK_STATUS(SHALE_E_BUSY, shale_cursor_next(cursor, 0, &key, &value));
    shale_cursor_close(cursor);
    shale_value_free(&key);
    shale_value_free(&value);
}

static int run(void) {
    if (!mount_all())
        return SKIPPED;
    shale_cache *early = open_in(merged, read_only), *still = open_in(fixed, read_only);
    check_holds(early, "old");
    check_holds(still, "old");

    shale_cache *writer = open_in(merged, four_mib);
    CHECK_STATUS(SHALE_OK, set_text(writer, "key", "new", NULL));
    check_refused(early);
    CHECK_STATUS(SHALE_OK, shale_close(early));

    /* A reader that opens beside the writer maps the copy. */
    shale_cache *late = open_in(merged, read_only);
    check_holds(late, "new");
    CHECK_STATUS(SHALE_OK, set_text(writer, "key", "newer", NULL));
    check_holds(late, "newer");
    CHECK_STATUS(SHALE_OK, shale_close(writer));
    check_holds(late, "newer");

    /* The copy is made once: later writers use it. */
    shale_cache *later = open_in(merged, read_only);
    writer = open_in(merged, four_mib);
    CHECK_STATUS(SHALE_OK, set_text(writer, "key", "newest", NULL));
    check_holds(later, "newest");
    check_holds(late, "newest");
    CHECK_STATUS(SHALE_OK, shale_close(later));
    CHECK_STATUS(SHALE_OK, shale_close(late));
    CHECK_STATUS(SHALE_OK, shale_close(writer));

    /* No process writes through this mount. */
    check_holds(still, "old");
    CHECK_STATUS(SHALE_OK, shale_close(still));
    return check_failures != 0;
}

int main(void) {
    watch(patience);
    root = path_to("root");
    lower = path_to("root/lower");
    merged = path_to("root/merged");
    fixed = path_to("root/fixed");
    REQUIRE(mkdir(root, 0700) == 0);
    pid_t child = fork(); /* its mounts go with it */
    if (child == 0) {
        begin_child(patience);
        _exit(run());
    }
    int code = wait_for(child);
    if (code == SKIPPED) {
        fprintf(stderr, "skipped: no right to mount an overlay\n");
        finish();
        return SKIPPED;
    }
    CHECK_EQUAL(0, code);
    return finish();
}
