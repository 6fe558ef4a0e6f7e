/* Texts of a counted number of characters, as rules of a network: a few states for each bit of the
 * count, where a deterministic automaton has its states once for each character (dfa_limit_length).
 *
 * The rules read 1, 2, 4, ... characters of the texts of a dfa. Each begins in one of the dfa's
 * states between two characters, its points, and has them as its exits (network.h). */
#ifndef MOED_GRAMMAR_COUNTED_H
#define MOED_GRAMMAR_COUNTED_H

#include "grammar/dfa.h"
#include "grammar/network.h"

#include <stdbool.h>
#include <stdint.h>

enum { COUNTED_BITS = 32 };

struct counted {
    uint32_t points;              /* 0: the rules are not made */
    uint32_t bits;                /* of exact and less that are made */
    uint32_t end;                 /* of all rules */
    uint32_t exact[COUNTED_BITS]; /* the first of points rules: 2^i characters */
    uint32_t less[COUNTED_BITS];  /* the same: fewer than 2^i characters, to the end of a text */
    uint32_t rest;                /* the same: the rest of a text */
};

/* A trimmed dfa, over UTF-8, whose texts can be counted: it has few points, and from each state a
 * character, or the rest of one, leads to a text. Else what remains of a count could be too little
 * to reach one. json: as in dfa_emit; what is escaped must lead to a text. */
bool counted_fits(const struct dfa *d, bool json);
/* Makes the rules of a dfa that fits. */
void counted_init(struct counted *c, const struct dfa *d, bool json, struct network *n);
/* Adds the texts of min to max characters between two states; max NETWORK_NONE: without end. */
void counted_add(struct counted *c, struct network *n, uint32_t from, uint32_t min, uint32_t max,
                 uint32_t to);

#endif
