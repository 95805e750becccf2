#include "platform.h"

#if !defined(__GLIBC__)
/* Embedded Swift seeds hash tables with it. The library has none, so nothing calls it, but a program that links
 * libshale.a needs the symbol, and musl does not have it. */
void arc4random_buf(void *p, size_t n);
void arc4random_buf(void *p, size_t n) {
    for (size_t done = 0; done < n;) {
        long r = shim_sys_random((char *)p + done, n - done);
        if (r < 0) abort();
        done += (size_t)r;
    }
}
#endif
