#ifndef SHALE_TOOL_H
#define SHALE_TOOL_H

#include <stdint.h>

/* Functions that Swift cannot import: a macro of several literals, and a header that the Glibc module lacks. */

/* The version of the sources that the tool was built from: a static string. */
const char *tool_version(void);
/* The magic number of a path's file system (statfs(2)), or -1 with errno. */
int64_t tool_file_system(const char *path);

#endif
