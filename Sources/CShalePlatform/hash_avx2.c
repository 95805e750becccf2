/* XXH3 for processors with AVX2, chosen by hash.c. The result is the same. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif
#define XXH_INLINE_ALL 1
#define XXH_VECTOR 2 /* XXH_AVX2, which the header names too late */
#include <xxhash.h>

uint64_t shim_hash_avx2(const void *p, size_t n, uint64_t seed);
uint64_t shim_hash_avx2(const void *p, size_t n, uint64_t seed) {
    if (n <= 240) __builtin_unreachable();
    return XXH3_64bits_withSeed(p, n, seed);
}
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
