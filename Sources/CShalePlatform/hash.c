#include "platform.h"

uint64_t shim_hash_avx2(const void *p, size_t n, uint64_t seed);

/* A portable build of XXH3 uses only SSE2 on x86-64, which takes 1.5 times as long as AVX2 for a kilobyte. Up to 240
 * bytes XXH3 uses no vectors. */
uint64_t shim_hash(const void *p, size_t n, uint64_t seed) {
    SHIM_LOOK(p, n);
#if defined(__x86_64__)
    if (n > 240 && __builtin_cpu_supports("avx2")) return shim_hash_avx2(p, n, seed);
#endif
    return XXH3_64bits_withSeed(p, n, seed);
}
