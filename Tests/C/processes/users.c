/* Other users: a read-only handle needs permission to read and nothing else; files that another user could have
 * prepared are refused, and so are calls without the permissions, with an error message. Needs root, to become
 * others; skipped without it. */
#include "check.h"
#include "gate.h"
#include "killed.h"

#include <dirent.h>
#include <grp.h>
#include <sys/stat.h>

enum { entries = 500, third_user = 65533, other_user = 65534 };

static const shale_options shared = {.struct_size = sizeof shared, .capacity = 4 << 20, .mode = 0644},
                           read_only = {.struct_size = sizeof read_only, .flags = SHALE_OPEN_READ_ONLY};

static void fill(shale_cache *cache, uint32_t round) {
    for (uint32_t i = 0; i < entries; i++)
        CHECK_STATUS(SHALE_OK, shale_set(cache, &i, sizeof i, &(uint32_t[]){i, round}, 8, NULL));
}

static void check_filled(shale_cache *cache, uint32_t round) {
    shale_value value = SHALE_VALUE_INIT;
    for (uint32_t i = 0; i < entries; i++) {
        CHECK_STATUS(SHALE_OK, shale_get(cache, &i, sizeof i, 0, &value));
        CHECK(holds_bytes(&value, &(uint32_t[]){i, round}, 8));
    }
    shale_value_free(&value);
}

static void become(uid_t user) {
    REQUIRE(setgroups(0, NULL) == 0 && setresgid(user, user, user) == 0 && setresuid(user, user, user) == 0);
}

/* Runs a check as another user. */
static void as(uid_t user, void (*work)(const char *), const char *directory) {
    pid_t child = fork();
    if (child == 0) {
        begin_child(patience);
        become(user);
        work(directory);
        _exit(check_failures != 0);
    }
    CHECK_EQUAL(0, wait_for(child));
}

static void check_refused(shale_status expected, const char *directory, const shale_options *options,
                          const char *words) {
    shale_cache *cache = NULL;
    CHECK_STATUS(expected, shale_open(directory, options, &cache));
    check_that(strstr(shale_last_error(), directory) && strstr(shale_last_error(), words), __FILE__, __LINE__, words,
               ": the sentence is \"%s\"", shale_last_error());
}

static uint32_t round_now;

static void reads(const char *directory) {
    shale_cache *cache = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &read_only, &cache));
    check_filled(cache, round_now);
    CHECK_STATUS(SHALE_E_PERMISSION, set_text(cache, "key", "value", NULL));
    CHECK_STATUS(SHALE_E_PERMISSION, shale_clear(cache));
    shale_report report = {.struct_size = sizeof report};
    CHECK_STATUS(SHALE_OK, shale_verify(cache, &report));
    CHECK_EQUAL(0, report.corrupt_records);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static void may_not_write(const char *directory) {
    check_refused(SHALE_E_PERMISSION, directory, &shared, "denied");
    CHECK_EQUAL(EACCES, shale_last_errno());
}

static void may_do_nothing(const char *directory) {
    check_refused(SHALE_E_PERMISSION, directory, &read_only, "denied");
    check_refused(SHALE_E_PERMISSION, directory, &shared, "denied");
}

static void finds_it_busy(const char *directory) {
    check_refused(SHALE_E_BUSY, directory, &read_only, "index");
}

static void finds_anothers(const char *directory) {
    check_refused(SHALE_E_PERMISSION, directory, &read_only, "belongs to another user");
    CHECK_EQUAL(0, shale_last_errno());
}

static void creates(const char *directory) {
    shale_cache *cache = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &shared, &cache));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
}

static void file_in(char *path, size_t size, const char *directory, const char *file) {
    snprintf(path, size, "%s/%s", directory, file);
}

static int file_count(const char *directory) {
    int count = 0;
    DIR *open = opendir(directory);
    REQUIRE(open != NULL);
    for (struct dirent *entry; (entry = readdir(open));)
        count += entry->d_name[0] != '.';
    closedir(open);
    return count;
}

static void test_reader_of_another_users_cache(void) {
    char *directory = path_to("shared"), index[512];
    file_in(index, sizeof index, directory, "shale.index");
    shale_cache *cache = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &shared, &cache));
    REQUIRE(chmod(directory, 0755) == 0);
    fill(cache, round_now = 1);
    as(other_user, reads, directory); /* beside a writer */
    as(other_user, may_not_write, directory);
    fill(cache, round_now = 2);
    as(other_user, reads, directory);

    kill_a_writer(cache, "killed"); /* a shard that no process has recovered: it is read as it was */
    as(other_user, reads, directory);
    fill(cache, round_now = 3);

    CHECK(unlink(index) == 0);
    as(other_user, finds_it_busy, directory);
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    as(other_user, reads, directory); /* from a private index, in memory */
    CHECK_EQUAL(1, file_count(directory));
    as(other_user, may_not_write, directory);

    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &shared, &cache));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    as(other_user, reads, directory); /* no process is attached, the index is trusted */
    CHECK(chmod(index, 0600) == 0);
    as(other_user, may_do_nothing, directory);
    CHECK(chmod(index, 0644) == 0);
    char data[512];
    file_in(data, sizeof data, directory, "shale.data");
    CHECK(chmod(data, 0600) == 0);
    as(other_user, may_do_nothing, directory);
    CHECK(chmod(data, 0644) == 0);
    CHECK(chmod(directory, 0700) == 0);
    as(other_user, may_do_nothing, directory);
    CHECK(chmod(directory, 0755) == 0);
    as(other_user, reads, directory);
    free(directory);
}

/* Files that another user, who is not root, has put there are used neither by a third user, nor by root. */
static void test_a_prepared_directory(void) {
    char *open_to_all = path_to("open"), *directory = path_to("open/cache");
    CHECK(mkdir(open_to_all, 0777) == 0 && chmod(open_to_all, 01777) == 0);
    as(third_user, creates, directory);
    CHECK(chmod(directory, 0777) == 0);
    as(other_user, finds_anothers, directory);
    finds_anothers(directory);
    char index[512];
    file_in(index, sizeof index, directory, "shale.index");
    CHECK(unlink(index) == 0);
    as(other_user, finds_anothers, directory);
    as(third_user, creates, directory);
    free(open_to_all);
    free(directory);
}

int main(void) {
    watch(patience);
    if (geteuid() != 0) {
        fprintf(stderr, "skipped: only root can become another user\n");
        return SKIPPED;
    }
    char *inside = path_to("inside"); /* makes the temporary directory */
    free(inside);
    REQUIRE(chmod(check_directory, 0755) == 0);
    RUN(test_reader_of_another_users_cache);
    RUN(test_a_prepared_directory);
    return finish();
}
