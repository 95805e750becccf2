#ifndef COUNT_ALLOCATIONS_H
#define COUNT_ALLOCATIONS_H

#include <stdint.h>

/* Allocations that the calling thread has made so far; 0 always where the C library is not glibc. */
uint64_t count_allocations(void);

#endif
