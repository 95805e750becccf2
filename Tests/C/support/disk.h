/* A disk that loses power: what may be found of a cache's two files afterwards.
 *
 * The test writes as usual, into the page cache. disk_look() keeps each page as it is at that moment; fdatasync()
 * then makes a file's content durable. After a power cut, each later page has the content that it had at any of the
 * looks: the kernel writes pages back when it likes, in any order, also between two stores. The one page that is
 * being written may be torn between its sectors. The file's size, its allocated ranges and the directory's names
 * come from a journal, so they all belong to one moment.
 *
 * The test replaces mmap(), munmap(), fdatasync(), fsync() and getrandom() of libc: they tell which file is synced
 * and where a store goes, and derive the cache's secret from the seed. */
#ifndef DISK_H
#define DISK_H

#include "birth.h"
#include "check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { disk_page = 4096, disk_sector = 512, disk_looks = 1200, disk_files = 12 };

/* A page, valid from one look until a newer version of it. */
typedef struct page_version {
    struct page_version *older;
    int time;
    bool is_hole;
    unsigned char bytes[];
} page_version;

enum { name_none, name_data, name_index, name_new_index, disk_names };
static const char *const disk_name[disk_names] = {"", "shale.data", "shale.index", "shale.index.new"};

typedef struct {
    int descriptor;
    dev_t device;
    ino_t inode;
    int first;   /* the first look that saw it */
    int durable; /* the look of its last fdatasync */
    size_t page_count;
    page_version **pages;
    off_t size[disk_looks];
    uint8_t name[disk_looks];
} disk_file;

static struct {
    char *directory; /* NULL: no looks are taken */
    int now;         /* the last look */
    int names_durable;
    disk_file files[disk_files];
    int file_count;
    struct {
        unsigned char *start;
        size_t size;
        ino_t inode;
    } mappings[8];
    unsigned mapping_count;
    random_source random; /* of getrandom() */
    void (*before_sync)(void);
    unsigned char *earlier; /* the index as a close left it */
    size_t earlier_size;
    ino_t earlier_inode;
} disk;

/* ---- looking ------------------------------------------------------------ */

static page_version *version_at(const disk_file *file, size_t page, int time) {
    page_version *version = page < file->page_count ? file->pages[page] : NULL;
    while (version && version->time > time)
        version = version->older;
    return version;
}

static void keep_version(disk_file *file, size_t page, const unsigned char *bytes) {
    page_version *newest = file->pages[page];
    if (!bytes ? !newest || newest->is_hole
               : newest && !newest->is_hole && memcmp(newest->bytes, bytes, disk_page) == 0)
        return;
    page_version *version = malloc(sizeof *version + (bytes ? disk_page : 0));
    REQUIRE(version != NULL);
    *version = (page_version){newest, disk.now, !bytes};
    if (bytes)
        memcpy(version->bytes, bytes, disk_page);
    file->pages[page] = version;
}

static void look_at_file(disk_file *file) {
    static unsigned char buffer[64 * disk_page];
    struct stat status;
    REQUIRE(fstat(file->descriptor, &status) == 0);
    file->size[disk.now] = status.st_size;
    size_t count = ((size_t)status.st_size + disk_page - 1) / disk_page;
    if (count > file->page_count) {
        file->pages = realloc(file->pages, count * sizeof *file->pages);
        REQUIRE(file->pages != NULL);
        memset(file->pages + file->page_count, 0, (count - file->page_count) * sizeof *file->pages);
        file->page_count = count;
    }
    off_t at = 0;
    while (at < status.st_size) {
        off_t data = lseek(file->descriptor, at, SEEK_DATA);
        if (data < 0)
            data = status.st_size;
        for (; at < data; at += disk_page)
            keep_version(file, (size_t)(at / disk_page), NULL);
        if (at >= status.st_size)
            break;
        off_t hole = lseek(file->descriptor, at, SEEK_HOLE);
        while (at < hole) {
            size_t wanted = (size_t)(hole - at) < sizeof buffer ? (size_t)(hole - at) : sizeof buffer;
            memset(buffer, 0, sizeof buffer);
            ssize_t got = pread(file->descriptor, buffer, wanted, at);
            REQUIRE(got > 0);
            for (ssize_t i = 0; i < got; i += disk_page)
                keep_version(file, (size_t)((at + i) / disk_page), buffer + i);
            at += got + (disk_page - got % disk_page) % disk_page;
        }
    }
}

static disk_file *file_of(const struct stat *status) {
    for (int i = disk.file_count; i-- > 0;)
        if (disk.files[i].inode == status->st_ino && disk.files[i].device == status->st_dev)
            return &disk.files[i];
    return NULL;
}

/* Records everything as it is now. */
static void disk_look(void) {
    REQUIRE(disk.now + 1 < disk_looks);
    disk.now++;
    for (int i = 0; i < disk.file_count; i++)
        disk.files[i].name[disk.now] = name_none;
    for (int name = name_data; name < disk_names; name++) {
        char path[512];
        struct stat status;
        snprintf(path, sizeof path, "%s/%s", disk.directory, disk_name[name]);
        if (stat(path, &status) < 0)
            continue;
        disk_file *file = file_of(&status);
        if (!file) {
            REQUIRE(disk.file_count < disk_files);
            file = &disk.files[disk.file_count++];
            *file = (disk_file){.descriptor = open(path, O_RDONLY | O_CLOEXEC),
                                .device = status.st_dev,
                                .inode = status.st_ino,
                                .first = disk.now,
                                .durable = disk.now};
            REQUIRE(file->descriptor >= 0);
        }
        file->name[disk.now] = (uint8_t)name;
    }
    for (int i = 0; i < disk.file_count; i++)
        look_at_file(&disk.files[i]);
}

/* Watches the directory from now on. Its present contents are on the disk. */
static void disk_attach(const char *directory) {
    disk.directory = strdup(directory);
    disk.now = -1;
    disk.file_count = 0;
    disk.mapping_count = 0;
    disk_look();
    disk.names_durable = 0;
}

static void disk_detach(void) {
    for (int i = 0; i < disk.file_count; i++) {
        disk_file *file = &disk.files[i];
        for (size_t page = 0; page < file->page_count; page++)
            for (page_version *version = file->pages[page]; version;) {
                page_version *older = version->older;
                free(version);
                version = older;
            }
        free(file->pages);
        close(file->descriptor);
    }
    disk.file_count = 0;
    free(disk.directory);
    disk.directory = NULL;
}

static disk_file *disk_data(void) {
    for (int i = 0; i < disk.file_count; i++)
        for (int t = disk.now; t >= disk.files[i].first; t--)
            if (disk.files[i].name[t] == name_data)
                return &disk.files[i];
    return NULL;
}

/* Where in shale.data a store goes, or SIZE_MAX. */
static size_t disk_offset(const void *at) {
    const disk_file *data = disk_data();
    for (unsigned i = disk.mapping_count < 8 ? disk.mapping_count : 8; data && i-- > 0;) {
        size_t offset = (size_t)((const unsigned char *)at - disk.mappings[i].start);
        if (disk.mappings[i].inode == data->inode && offset < disk.mappings[i].size)
            return offset;
    }
    return SIZE_MAX;
}

/* ---- in place of libc's --------------------------------------------------- */

void *mmap(void *at, size_t size, int protection, int flags, int descriptor, off_t offset) {
    unsigned char *start = (unsigned char *)syscall(SYS_mmap, at, size, protection, flags, descriptor, offset);
    struct stat status;
    if (disk.directory && start != MAP_FAILED && descriptor >= 0 && fstat(descriptor, &status) == 0) {
        unsigned i = disk.mapping_count++ % 8;
        disk.mappings[i].start = start;
        disk.mappings[i].size = size;
        disk.mappings[i].inode = status.st_ino;
    }
    return start;
}

int munmap(void *at, size_t size) {
    for (unsigned i = 0; i < 8; i++)
        if (disk.mappings[i].start == at)
            disk.mappings[i].start = NULL, disk.mappings[i].size = 0;
    return (int)syscall(SYS_munmap, at, size);
}

static int durable_now(int descriptor) {
    struct stat status;
    if (!disk.directory || fstat(descriptor, &status) < 0)
        return 0;
    disk_look();
    if (disk.before_sync)
        disk.before_sync();
    if (!disk.directory)
        return 0;
    if (S_ISDIR(status.st_mode)) {
        disk.names_durable = disk.now;
        return 0;
    }
    disk_file *file = file_of(&status);
    if (!file)
        return 0;
    file->durable = disk.now;
    for (size_t page = 0; page < file->page_count; page++) { /* an older version cannot be asked for */
        page_version *newest = version_at(file, page, disk.now);
        for (page_version *version = newest ? newest->older : NULL; version;) {
            page_version *older = version->older;
            free(version);
            version = older;
        }
        if (newest)
            newest->older = NULL;
    }
    if (file->name[disk.now] == name_index) {
        disk.earlier_size = (size_t)file->size[disk.now];
        disk.earlier = realloc(disk.earlier, disk.earlier_size);
        REQUIRE(disk.earlier != NULL);
        memset(disk.earlier, 0, disk.earlier_size);
        for (size_t page = 0; page < disk.earlier_size / disk_page; page++)
            if (file->pages[page] && !file->pages[page]->is_hole)
                memcpy(disk.earlier + page * disk_page, file->pages[page]->bytes, disk_page);
        disk.earlier_inode = file->inode;
    }
    return 0;
}

int fdatasync(int descriptor) {
    return durable_now(descriptor);
}

int fsync(int descriptor) {
    return durable_now(descriptor);
}

ssize_t getrandom(void *bytes, size_t size, unsigned flags UNUSED) {
    for (size_t i = 0; i < size; i++)
        ((unsigned char *)bytes)[i] = (unsigned char)random_next(&disk.random);
    return (ssize_t)size;
}

/* ---- a power cut ---------------------------------------------------------- */

/* Which versions of the pages are found. */
typedef enum {
    all_old,      /* nothing was written back since the last sync */
    all_new,      /* everything was */
    one_moment,   /* everything as it was at one moment */
    any,          /* each page has its own moment */
    mostly_old,
    mostly_new,
    one_missing,
    headers_missing, /* the first page of each segment */
    headers_alone,
    by_segment, /* each segment old or new, with its header or without */
    page_styles,
} page_style;

typedef enum { index_any, index_newest, index_absent, index_earlier, index_styles } index_style;

typedef struct {
    page_style pages;
    index_style index;
    int journal; /* the moment of sizes, holes and names */
    int moment;  /* for one_moment */
    size_t segments, segment_size; /* where they begin in shale.data */
    size_t missing;                /* for one_missing */
    bool tears;
    uint64_t salt;                 /* for by_segment */
} power_cut;

static int between(random_source *source, int low, int high) {
    return low + (int)random_below(source, (uint64_t)(high - low + 1));
}

static int moment_of(const power_cut *cut, const disk_file *file, size_t page, bool is_data, random_source *source) {
    int old = file->durable, new = disk.now;
    size_t at = page * disk_page;
    bool is_header = is_data && at >= cut->segments && (at - cut->segments) % cut->segment_size == 0;
    switch (cut->pages) {
    case all_old: return old;
    case all_new: return new;
    case one_moment: return cut->moment > old ? cut->moment : old;
    case mostly_old: return random_below(source, 8) ? old : between(source, old, new);
    case mostly_new: return random_below(source, 8) ? new : between(source, old, new);
    case one_missing: return page == cut->missing ? between(source, old, new - (new > old)) : new;
    case headers_missing: return is_header ? old : random_below(source, 8) ? new : between(source, old, new);
    case by_segment: {
        random_source choice = {cut->salt +
                                (is_data && at >= cut->segments ? 1 + (at - cut->segments) / cut->segment_size : 0)};
        uint64_t which = random_next(&choice);
        if (random_below(source, 16) == 0)
            return between(source, old, new);
        return which >> is_header & 1 ? new : old;
    }
    case headers_alone: return is_header ? new : random_below(source, 8) ? old : between(source, old, new);
    default: return between(source, old, new);
    }
}

/* A page as it is found; false if it is a hole. */
static bool find_page(const power_cut *cut, const disk_file *file, size_t page, int time, unsigned char *bytes) {
    int journal = cut->journal > file->durable ? cut->journal : file->durable;
    const page_version *allocated = version_at(file, page, journal);
    if (!allocated || allocated->is_hole)
        return false;
    const page_version *found = version_at(file, page, time);
    /* Punching a hole removes what lay there, with its blocks; later stores are in blocks that the journal does not
     * have. */
    for (const page_version *v = version_at(file, page, time > journal ? time : journal);
         v && v->time > (time < journal ? time : journal); v = v->older)
        if (v->is_hole) {
            if (time < journal)
                return false;
            found = allocated;
        }
    if (!found || found->is_hole)
        return false;
    memcpy(bytes, found->bytes, disk_page);
    return true;
}

/* The words of an index that name files are those of the copies, which represent the same files. */
static void rename_file(unsigned char *head, size_t inode, size_t birth, ino_t old, ino_t new, uint64_t new_birth) {
    uint64_t word;
    memcpy(&word, head + inode, 8);
    if (word != old)
        return;
    memcpy(head + inode, &(uint64_t){new}, 8);
    memcpy(head + birth, &new_birth, 8);
}

typedef struct {
    ino_t inode;
    uint64_t birth, changed;
} file_identity;

static file_identity write_file(const power_cut *cut, const disk_file *file, const char *directory, int name,
                                file_identity new_data, bool is_earlier, random_source *source) {
    static const unsigned char nothing[disk_page];
    char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, disk_name[name]);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    struct stat status;
    REQUIRE(fd >= 0 && fstat(fd, &status) == 0);
    int journal = cut->journal > file->durable ? cut->journal : file->durable;
    off_t size = is_earlier ? (off_t)disk.earlier_size : file->size[journal];
    REQUIRE(ftruncate(fd, size) == 0);
    for (size_t page = 0; page < (size_t)size / disk_page; page++) {
        unsigned char bytes[disk_page], older[disk_page];
        if (is_earlier)
            memcpy(bytes, disk.earlier + page * disk_page, disk_page);
        else {
            int time = moment_of(cut, file, page, name == name_data, source);
            if (!find_page(cut, file, page, time, bytes))
                continue;
            if (cut->tears && time > file->durable && random_below(source, 4) == 0) {
                if (!find_page(cut, file, page, between(source, file->durable, time - 1), older))
                    memset(older, 0, sizeof older);
                for (size_t at = 0; at < disk_page; at += disk_sector)
                    if (random_below(source, 2))
                        memcpy(bytes + at, older + at, disk_sector);
            }
        }
        if (page == 0 && name != name_data) {
            rename_file(bytes, 56, 120, is_earlier ? disk.earlier_inode : file->inode, status.st_ino, birth_of(fd));
            rename_file(bytes, 72, 128, disk_data()->inode, new_data.inode, new_data.birth);
            memcpy(bytes + 144, &new_data.changed, 8); /* (only the cut has changed them) */
        }
        if (memcmp(bytes, nothing, disk_page) != 0)
            REQUIRE(pwrite(fd, bytes, disk_page, (off_t)(page * disk_page)) == disk_page);
    }
    file_identity own = {status.st_ino, birth_of(fd), change_of(fd)};
    close(fd);
    return own;
}

/* Writes the state after the cut into another directory, which is empty. */
static void disk_cut(const power_cut *cut, const char *directory, random_source *source) {
    int names = cut->journal > disk.names_durable ? cut->journal : disk.names_durable;
    const disk_file *data = disk_data();
    if (!data || data->name[names] != name_data)
        return; /* not even the name */
    file_identity new_data = write_file(cut, data, directory, name_data, (file_identity){0}, false, source);
    for (int i = 0; i < disk.file_count; i++) {
        const disk_file *file = &disk.files[i];
        int name = names >= file->first ? file->name[names] : name_none;
        if (name == name_new_index || (name == name_index && cut->index != index_absent)) {
            bool is_earlier = name == name_index && cut->index == index_earlier && disk.earlier;
            power_cut how = *cut;
            if (cut->index == index_newest)
                how.pages = all_new, how.journal = disk.now, how.tears = false;
            else if (how.pages == one_missing || how.pages > mostly_new)
                how.pages = any;
            write_file(&how, file, directory, name, new_data, is_earlier, source);
        }
    }
}

#endif
