#include "tool.h"

#include <sys/vfs.h>

#include "../../../Include/shale.h"

const char *tool_version(void) {
    return SHALE_VERSION;
}

int64_t tool_file_system(const char *path) {
    struct statfs found;
    return statfs(path, &found) ? -1 : (int64_t)(uint32_t)found.f_type;
}
