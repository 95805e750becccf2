/* The share of refused fenced sets of unchanged keys, and of keys that are loaded twice at once. Rare ones do no
 * harm; frequent ones make the cache useless. */
#ifndef SHARES_H
#define SHARES_H

#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct {
    _Atomic uint64_t fenced, refused; /* sets of keys that were unchanged since their token */
    _Atomic uint64_t loads, duplicates; /* leases granted; and those granted while a live holder's lease was valid */
} shares;

/* Limits in thousandths; the first as if 100 more fenced sets had been stored, for short runs. Ends the last line of
 * a suite's output. */
static inline bool print_shares(shares *s, uint64_t most_refused, uint64_t most_duplicates) {
    uint64_t fenced = atomic_load(&s->fenced), refused = atomic_load(&s->refused), loads = atomic_load(&s->loads),
             duplicates = atomic_load(&s->duplicates);
    bool holds = refused * 1000 <= (fenced + 100) * most_refused && duplicates * 1000 <= loads * most_duplicates;
    printf("; %" PRIu64 " of %" PRIu64 " fenced sets refused (%.2f %%, at most %.1f), %" PRIu64 " of %" PRIu64
           " loads beside another (%.2f %%, at most %.1f)%s\n",
           refused, fenced, fenced ? 100.0 * (double)refused / (double)fenced : 0, (double)most_refused / 10,
           duplicates, loads, loads ? 100.0 * (double)duplicates / (double)loads : 0, (double)most_duplicates / 10,
           holds ? "" : ": TOO MANY");
    return holds;
}

#endif
