/* The header is self-contained, in C11 and in C++17: it needs nothing included before it, and its initialisers and
 * constants work in both. */
#include "shale.h"
#include "shale.h"

#include <string.h>

/* The sizes and offsets that the bindings of other languages rely on. */
#ifdef __cplusplus
#define ASSERT(condition) static_assert(condition, #condition)
#else
#define ASSERT(condition) _Static_assert(condition, #condition)
#endif

ASSERT(sizeof(shale_status) == 4);
ASSERT(sizeof(shale_bytes) == 2 * sizeof(void *));
ASSERT(offsetof(shale_options, struct_size) == 0 && offsetof(shale_set_options, struct_size) == 0);
ASSERT(offsetof(shale_value, struct_size) == 0 && offsetof(shale_stats, struct_size) == 0);
ASSERT(offsetof(shale_report, struct_size) == 0);
#if UINTPTR_MAX == UINT64_MAX
ASSERT(sizeof(shale_options) == 112);
ASSERT(sizeof(shale_set_options) == 72);
ASSERT(sizeof(shale_value) == 80);
ASSERT(sizeof(shale_stats) == 296);
ASSERT(sizeof(shale_report) == 32);
#endif

ASSERT(SHALE_OK == 0 && SHALE_MISS == 1 && SHALE_STALE == 2 && SHALE_CONFLICT == 3 && SHALE_END == 4);
ASSERT(SHALE_E_INVALID == -1 && SHALE_E_TOO_LARGE == -2 && SHALE_E_FULL == -3 && SHALE_E_MEMORY == -4);
ASSERT(SHALE_E_IO == -5 && SHALE_E_FORMAT == -6 && SHALE_E_VERSION == -7 && SHALE_E_BUSY == -8);
ASSERT(SHALE_E_FILESYSTEM == -9 && SHALE_E_PERMISSION == -10);

ASSERT(SHALE_VERSION_MAJOR >= 0 && SHALE_VERSION_MINOR >= 0 && SHALE_VERSION_PATCH >= 0);
ASSERT(sizeof SHALE_VERSION >= sizeof "0.0.0");

int main(void) {
    shale_value value = SHALE_VALUE_INIT;
    shale_options options;
    shale_cache *cache = NULL;
    memset(&options, 0, sizeof options);
    options.struct_size = (uint32_t)sizeof options;
    options.capacity = 1u << 20;
    if (shale_open(NULL, &options, &cache) != SHALE_OK)
        return 1;
    if (shale_set(cache, "key", 3, "value", 5, NULL) != SHALE_OK)
        return 2;
    if (shale_get(cache, "key", 3, 0, &value) != SHALE_OK || value.size != 5)
        return 3;
    shale_value_free(&value);
    return shale_close(cache) == SHALE_OK ? 0 : 4;
}
