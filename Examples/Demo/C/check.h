/* Comparing what the cache returns with the source. */
#ifndef DEMO_CHECK_H
#define DEMO_CHECK_H

#include <stdbool.h>

#include "corpus.h"

/* Whether the value is the entry's, byte for byte; says the difference where it is not. */
bool check_bytes(const corpus_entry *entry, const shale_value *value);
/* Whether the answer of a get is the one that is expected: 'p' there without an
 * age, 'a' there with an age, 'g' gone. Says the difference where it is not. */
bool check_answer(const corpus_entry *entry, char expected, shale_status status, const shale_value *value);

#endif
