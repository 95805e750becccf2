#ifndef SHALE_TOOL_H
#define SHALE_TOOL_H

#include <stdint.h>

/* Functions that Swift cannot import: macros, and headers that the Glibc module lacks. */

/* The version of the sources that the tool was built from: a static string. */
const char *tool_version(void);
/* The magic number of a path's file system (statfs(2)), or -1 with errno. */
int64_t tool_file_system(const char *path);
/* The first lock from a byte on that another description of the file has: its byte, -1 if there is none, or -2 with
 * errno. Changes nothing. */
int64_t tool_next_lock(int file, int64_t from);
/* The errors of what a cache needs of a file system and of the kernel; 0: it works. */
struct tool_abilities {
    int file, lock, allocation, hole, wiping;
};
/* Tries it in a file without a name in the directory, which leaves no trace. Nothing else is tried if `file` fails. */
struct tool_abilities tool_try_abilities(const char *directory);

#endif
