/* The program closes descriptors of the library, as a program does that becomes a daemon, and reuses them for other
 * files. The library notices before each system call, answers an error, and never touches the other file. Reads and
 * writes of mapped memory go on. */
#include "check.h"
#include "layout.h"
#include "gate.h"
#include "killed.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

enum { most_descriptors = 16, entry_count = 200, foreign_size = 5 << 20 };

static const shale_options four_mib = {
    .struct_size = sizeof four_mib, .capacity = 4 << 20, .compression = SHALE_COMPRESSION_NONE};

static uint64_t combinations, refusals;

/* ---- finding the library's descriptors ---- */

typedef struct {
    int count, numbers[most_descriptors];
} descriptors;

static descriptors open_descriptors(void) {
    descriptors found = {0};
    DIR *directory = opendir("/proc/self/fd");
    REQUIRE(directory != NULL);
    for (struct dirent *entry; (entry = readdir(directory)) && found.count < most_descriptors;)
        if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(directory))
            found.numbers[found.count++] = atoi(entry->d_name);
    closedir(directory);
    return found;
}

static shale_cache *open_noting(const char *directory, descriptors *own) {
    descriptors before = open_descriptors();
    shale_cache *cache = NULL;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, &four_mib, &cache));
    descriptors after = open_descriptors();
    own->count = 0;
    for (int i = 0; i < after.count; i++) {
        bool is_new = true;
        for (int j = 0; j < before.count; j++)
            is_new &= after.numbers[i] != before.numbers[j];
        if (is_new)
            own->numbers[own->count++] = after.numbers[i];
    }
    CHECK_EQUAL(3, own->count); /* the directory, the data and the index */
    return cache;
}

/* ---- a foreign file ---- */

static unsigned char foreign_bytes[foreign_size];

static void make_foreign(const char *path) {
    random_source source = {11};
    for (size_t at = 0; at < foreign_size; at += 8)
        memcpy(foreign_bytes + at, &(uint64_t){random_next(&source)}, 8);
    FILE *file = fopen(path, "w");
    REQUIRE(file && fwrite(foreign_bytes, 1, foreign_size, file) == foreign_size);
    fclose(file);
}

static void check_foreign(const char *path) {
    static unsigned char found[foreign_size];
    struct stat status;
    FILE *file = fopen(path, "r");
    REQUIRE(file && fread(found, 1, foreign_size, file) == foreign_size);
    CHECK(fstat(fileno(file), &status) == 0 && status.st_size == foreign_size);
    CHECK(status.st_blocks * 512 >= foreign_size); /* no hole was punched */
    CHECK(memcmp(found, foreign_bytes, foreign_size) == 0);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    CHECK(fcntl(fileno(file), F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK);
    fclose(file);
}

/* The number, which the program has closed, now refers to the other file. */
static void reuse(int number, const char *path) {
    int fd = open(path, O_RDWR);
    REQUIRE(fd >= 0 && dup2(fd, number) == number);
    if (fd != number)
        close(fd);
}

/* ---- calls that work, and calls that are refused ---- */

static void fill(shale_cache *cache) {
    for (uint32_t i = 0; i < entry_count; i++)
        CHECK_STATUS(SHALE_OK, shale_set(cache, &i, sizeof i, foreign_bytes + i, 100 + i, NULL));
}

static void check_entries(shale_cache *cache) {
    shale_value value = SHALE_VALUE_INIT;
    for (uint32_t i = 0; i < entry_count; i++) {
        CHECK_STATUS(SHALE_OK, shale_get(cache, &i, sizeof i, 0, &value));
        CHECK_BYTES(&value, foreign_bytes + i, 100 + i);
    }
    shale_value_free(&value);
}

static bool is_refusal(shale_status status, const char *directory) {
    if (status != SHALE_E_IO)
        return false;
    refusals++;
    CHECK_EQUAL(EBADF, shale_last_errno());
    CHECK(strstr(shale_last_error(), directory) && strstr(shale_last_error(), "open the cache again"));
    return true;
}

/* Sets until the log needs more of the file. */
static void write_until_refused(shale_cache *cache, const char *directory) {
    shale_value value = SHALE_VALUE_INIT;
    bool refused = false;
    for (uint32_t i = 0; i < 1000 && !refused; i++) {
        uint32_t key = 1000000 + i;
        shale_status status = shale_set(cache, &key, sizeof key, foreign_bytes, 10000, NULL);
        refused = is_refusal(status, directory);
        if (!refused && !CHECK_STATUS(SHALE_OK, status))
            break;
        CHECK_STATUS(refused ? SHALE_MISS : SHALE_OK, shale_get(cache, &key, sizeof key, 0, &value));
    }
    CHECK(refused);
    shale_value_free(&value);
}

/* Each of the handle's descriptors is left alone, closed, or reused for the other file. */
static void test_every_combination(void) {
    char *foreign = path_to("foreign");
    make_foreign(foreign);
    for (int combination = 1; combination < 27; combination++, combinations++) {
        char name[32];
        snprintf(name, sizeof name, "combination-%d", combination);
        char *directory = path_to(name);
        descriptors own;
        shale_cache *cache = open_noting(directory, &own);
        fill(cache);
        bool is_lost[3];
        for (int i = 0, rest = combination; i < 3; i++, rest /= 3) {
            is_lost[i] = rest % 3 != 0;
            if (is_lost[i])
                close(own.numbers[i]);
            if (rest % 3 == 2)
                reuse(own.numbers[i], foreign);
        }
        check_entries(cache);
        CHECK_STATUS(SHALE_OK, shale_verify(cache, NULL));
        if (is_lost[1]) { /* the data */
            write_until_refused(cache, directory);
            CHECK(is_refusal(shale_sync(cache), directory));
        }
        check_entries(cache);
        CHECK_STATUS(SHALE_OK, shale_purge(cache, NULL));
        shale_stats stats = stats_of(cache);
        CHECK(stats.data_bytes <= 4 << 20 && stats.index_bytes <= 4 << 20);
        shale_status cleared = shale_clear(cache); /* begins a segment */
        CHECK(cleared == SHALE_OK || (is_lost[1] && is_refusal(cleared, directory)));
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        check_foreign(foreign);
        for (int i = 0, rest = combination; i < 3; i++, rest /= 3) {
            CHECK_EQUAL(rest % 3 == 2, fcntl(own.numbers[i], F_GETFD) >= 0); /* the other file is still open */
            if (rest % 3 == 2)
                close(own.numbers[i]);
        }

        REQUIRE_STATUS(SHALE_OK, shale_open(directory, NULL, &cache));
        stats = stats_of(cache);
        CHECK_EQUAL(0, stats.rebuilds);
        if (cleared == SHALE_OK)
            CHECK_EQUAL(0, stats.entries);
        else
            check_entries(cache);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        remove_tree(directory);
        free(directory);
    }
    free(foreign);
}

/* A table that grows takes the room of free segments, whose blocks are freed; a clear frees the table's blocks. */
static void test_room_that_changes_hands(void) {
    char *foreign = path_to("foreign");
    for (int taken = 1; taken < 4; taken++, combinations++) {
        char *directory = path_to("room");
        descriptors own;
        shale_cache *cache = open_noting(directory, &own);
        for (uint32_t i = 0; i < 1000; i++)
            CHECK_STATUS(SHALE_OK, shale_set(cache, &i, sizeof i, foreign_bytes, 10000, NULL));
        if (taken & 1)
            reuse(own.numbers[1], foreign);
        if (taken & 2)
            reuse(own.numbers[2], foreign);
        uint64_t stored = 0;
        for (uint32_t i = 10000; i < 20000; i++) {
            shale_status status = shale_set(cache, &i, sizeof i, &i, sizeof i, NULL);
            CHECK(status == SHALE_OK || is_refusal(status, directory));
            stored += status == SHALE_OK;
        }
        CHECK(stored > 1000);
        shale_status cleared = shale_clear(cache);
        CHECK(cleared == SHALE_OK || is_refusal(cleared, directory));
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        check_foreign(foreign);
        for (int i = 1; i < 3; i++)
            if (taken & i)
                CHECK_EQUAL(0, close(own.numbers[i]));
        shale_report report = {.struct_size = sizeof report};
        REQUIRE_STATUS(SHALE_OK, shale_open(directory, NULL, &cache));
        CHECK_STATUS(SHALE_OK, shale_verify(cache, &report));
        CHECK_EQUAL(0, report.corrupt_records);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        remove_tree(directory);
        free(directory);
    }
    free(foreign);
}

/* A shard whose index is half rebuilt needs the data file to finish; it must not count as empty, or be read from
 * another file. */
static void test_a_rebuild_without_the_file(void) {
    char *foreign = path_to("foreign");
    for (int taken = 0; taken < 2; taken++, combinations++) {
        char *directory = path_to(taken ? "rebuild-taken" : "rebuild-closed");
        descriptors own;
        shale_cache *cache = open_noting(directory, &own);
        fill(cache);
        mark_as_being_rebuilt(directory);
        for (int i = 0; i < own.count; i++) {
            close(own.numbers[i]);
            if (taken)
                reuse(own.numbers[i], foreign);
        }
        CHECK(is_refusal(set_text(cache, "key", "value", NULL), directory));
        CHECK(is_refusal(shale_sync(cache), directory));
        check_entries(cache); /* readers keep the index as it was */

        shale_cache *other = NULL;
        REQUIRE_STATUS(SHALE_OK, shale_open(directory, NULL, &other));
        CHECK_STATUS(SHALE_OK, set_text(other, "key", "value", NULL));
        check_entries(other);
        shale_stats stats = stats_of(other);
        CHECK_EQUAL(1, stats.rebuilds);
        CHECK_EQUAL(0, stats.corrupt_records);
        CHECK_STATUS(SHALE_OK, shale_close(other));
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        check_foreign(foreign);
        for (int i = 0; taken && i < own.count; i++)
            CHECK_EQUAL(0, close(own.numbers[i]));
        free(directory);
    }
    free(foreign);
}

/* What daemons do: fork twice, close every descriptor, open others. */
static void test_a_daemon(void) {
    char *directory = path_to("daemon"), *log = path_to("daemon.log");
    gate done = make_gate();
    int report = fcntl(done.ends[1], F_DUPFD, 200);
    pid_t parent = fork();
    if (parent == 0) {
        begin_child(patience);
        shale_cache *cache = NULL;
        REQUIRE_STATUS(SHALE_OK, shale_open(directory, &four_mib, &cache));
        fill(cache);
        if (fork() != 0)
            _exit(0);
        begin_child(patience);
        setsid();
        if (fork() != 0)
            _exit(0);
        begin_child(patience);
        for (int fd = 0; fd < 200; fd++)
            close(fd);
        for (int fd = 0; fd < 10; fd++)
            if (open(log, O_RDWR | O_CREAT, 0600) != fd)
                _exit(1);
        check_entries(cache);
        write_until_refused(cache, directory);
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        REQUIRE_STATUS(SHALE_OK, shale_open(directory, NULL, &cache)); /* "open the cache again" */
        check_entries(cache);
        CHECK_STATUS(SHALE_OK, set_text(cache, "daemon", "was here", NULL));
        CHECK_STATUS(SHALE_OK, shale_close(cache));
        for (int fd = 0; fd < 10; fd++)
            CHECK(fcntl(fd, F_GETFD) >= 0);
        struct stat status;
        CHECK(stat(log, &status) == 0 && status.st_blocks == 0 && status.st_size == 0);
        char answer = check_failures ? 'n' : 'y';
        _exit(write(report, &answer, 1) != 1);
    }
    CHECK_EQUAL(0, wait_for(parent));
    close(report);
    close(done.ends[1]); /* only the daemon holds the other end now: end of file if it fails */
    char answer = 0;
    CHECK(read(done.ends[0], &answer, 1) == 1 && answer == 'y');
    close(done.ends[0]);
    shale_cache *cache = NULL;
    shale_value value = SHALE_VALUE_INIT;
    REQUIRE_STATUS(SHALE_OK, shale_open(directory, NULL, &cache));
    check_entries(cache);
    CHECK_STATUS(SHALE_OK, get_text(cache, "daemon", 0, &value));
    CHECK_STATUS(SHALE_OK, shale_close(cache));
    shale_value_free(&value);
    free(directory);
    free(log);
}

int main(void) {
    watch(patience);
    RUN(test_every_combination);
    RUN(test_room_that_changes_hands);
    RUN(test_a_rebuild_without_the_file);
    RUN(test_a_daemon);
    printf("%" PRIu64 " ways to lose descriptors, %" PRIu64 " calls refused\n", combinations, refusals);
    return finish();
}
