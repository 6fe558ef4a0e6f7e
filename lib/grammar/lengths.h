/* How many characters the texts of a dfa over UTF-8 have. A character is counted at its first byte.
 * The dfa is trimmed, and all its states can be reached. */
#ifndef MOED_GRAMMAR_LENGTHS_H
#define MOED_GRAMMAR_LENGTHS_H

#include "base/utf8.h"
#include "grammar/dfa.h"

#include <stdbool.h>
#include <stdint.h>

enum { CHARACTER_BYTES = 4 };

struct schema;

static inline bool begins_character(unsigned byte)
{
    return !utf8_continues((char)byte);
}

/* distance [n_states]: how many characters must still begin from a state to the end of a text, if
 * they are up to `most`; else a larger number. Counts its steps (schema_work). */
enum error_code lengths_to_end(struct schema *s, const struct dfa *d, uint32_t most,
                               uint32_t *distance);
/* The longest text. *out BOUNDS_OPEN: there is none. */
enum error_code lengths_longest(struct schema *s, const struct dfa *d, uint32_t *out);
/* Opens each of the bounds that every text satisfies; a large minimum stays. */
enum error_code lengths_leave_out(struct schema *s, const struct dfa *d,
                                  struct count_bounds *length);

#endif
