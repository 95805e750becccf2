#include "platform.h"

#if !defined(__GLIBC__)
/* Embedded Swift seeds hash tables by it. The library has none, so nothing calls it, but the linker of a program with
 * libshale.a looks for it, and musl does not have it. */
void arc4random_buf(void *p, size_t n);
void arc4random_buf(void *p, size_t n) {
    for (size_t done = 0; done < n;) {
        long r = shim_sys_random((char *)p + done, n - done);
        if (r < 0) abort();
        done += (size_t)r;
    }
}
#endif
