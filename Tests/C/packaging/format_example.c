/* The library writes exactly the example of format.md: its program runs here, with the secret that the text names,
 * and every line of bytes in the text is compared with the file, as are the numbers that it derives from them. */
#include "check.h"
#include "faults.h"
#include "layout.h"

#include <ctype.h>
#include <sys/stat.h>

char *example_path;
int example_main(void); /* CMake generates it from the text */

static unsigned long long the_secret(void) {
    return 0xa0d89a030c53422e;
}

static unsigned char *load(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    struct stat status;
    REQUIRE(file && fstat(fileno(file), &status) == 0);
    *size = (size_t)status.st_size;
    unsigned char *bytes = calloc(1, *size + 1);
    REQUIRE(bytes && fread(bytes, 1, *size, file) == *size);
    fclose(file);
    return bytes;
}

/* A line such as 00002000: 5348 4c45 ...  SHLE: compares the bytes, and the text beside them. */
static bool check_line(const char *line, const unsigned char *data, size_t size) {
    size_t at = strtoul(line, NULL, 16), count = 0;
    const char *p = line + 9;
    for (; p[0] == ' ' && p[1] != ' '; p++)
        for (; isxdigit(p[1]) && isxdigit(p[2]); p += 2, count++) {
            char digits[3] = {p[1], p[2], 0};
            unsigned shown = (unsigned)strtoul(digits, NULL, 16), is = at + count < size ? data[at + count] : 256;
            check_that(shown == is, __FILE__, __LINE__, "the text shows what the file has",
                       ": byte 0x%zx is %02x, shown as %02x", at + count, is, shown);
        }
    p += strspn(p, " ");
    CHECK_EQUAL(count, strlen(p));
    for (size_t i = 0; i < count && p[i]; i++)
        CHECK_EQUAL(isprint(data[at + i]) ? data[at + i] : '.', p[i]);
    return count > 0;
}

static void check_text(const char *text, const char *format, uint64_t number) {
    char words[64];
    snprintf(words, sizeof words, format, number);
    check_that(strstr(text, words) != NULL, __FILE__, __LINE__, "the text names it", ": %s", words);
}

int main(void) {
    example_path = path_to("example");
    shim_faults.random = the_secret;
    CHECK_EQUAL(0, example_main());

    char path[512];
    size_t size, index_size, text_size;
    snprintf(path, sizeof path, "%s/shale.data", example_path);
    unsigned char *data = load(path, &size);
    snprintf(path, sizeof path, "%s/shale.index", example_path);
    unsigned char *index = load(path, &index_size);
    char *text = (char *)load(FORMAT_MD, &text_size), *example = strstr(text, "\n## An example\n");
    REQUIRE(example != NULL);
    *strstr(example + 4, "\n## ") = 0;

    unsigned lines = 0;
    for (char *line = strtok(strdup(example), "\n"); line; line = strtok(NULL, "\n"))
        if (strlen(line) > 10 && line[8] == ':' && strspn(line, "0123456789abcdef") == 8)
            lines += check_line(line, data, size);
    CHECK_EQUAL(12, lines);

    layout l = layout_of(data);
    const unsigned char *shard = index + index_head_bytes;
    check_text(example, "`shale.data` is %" PRIu64 ",", size / 1000);
    check_text(example, ",%03" PRIu64 " bytes then", size % 1000);
    check_text(example, "here it is `%016" PRIx64 "`", word_at(data + super_copy + 24));
    unsigned slots = 0;
    for (uint64_t i = 0; i < buckets_of(shard) * 4; i++) {
        const unsigned char *slot = index + slot_offset(&l, 0, i);
        if ((uint32_t)word_at(slot) == 0)
            continue;
        slots++;
        check_text(example, "`%016" PRIx64 "`", word_at(slot));
        check_text(example, "`%016" PRIx64 "`", word_at(slot + 8));
        check_text(example, "= %" PRIu64 ".", i / 4);
    }
    CHECK_EQUAL(1, slots);
    return finish();
}
