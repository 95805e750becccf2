/* Compares results of the cache with the source. */
#ifndef DEMO_CHECK_H
#define DEMO_CHECK_H

#include <stdbool.h>

#include "corpus.h"

/* Whether the value equals the entry's; reports a difference. */
bool check_bytes(const corpus_entry *entry, const shale_value *value);
/* Whether a get returned the expected result: 'p' present without an age, 'a' present with an age, 'm' missing.
 * Reports a difference. */
bool check_answer(const corpus_entry *entry, char expected, shale_status status, const shale_value *value);

#endif
