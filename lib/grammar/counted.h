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
    uint32_t tail;                /* the same: up to tail_length characters, to the end of a text */
    uint32_t tail_length;
    bool any_count; /* the rules are for any least and largest number of characters */
    bool goes_on;   /* a character may follow each text, and each beginning of one */
};

struct schema;

/* Makes the rules for a trimmed dfa over UTF-8 in the network of a schema, and counts the steps
 * (schema_work). json: as in dfa_emit. *fits false: texts of so many characters cannot be counted
 * so, and nothing is added. Then there are too many points, or from some point texts of this length
 * might not end. */
enum error_code counted_init(struct counted *c, struct schema *s, const struct dfa *d, bool json,
                             struct count_bounds length, bool *fits);
/* Are the rules made, and are they for so many characters? */
bool counted_fits(const struct counted *c, struct count_bounds length);
/* Adds the texts of so many characters, which fit, between two states. */
void counted_add(struct counted *c, struct network *n, uint32_t from, struct count_bounds length,
                 uint32_t to);

#endif
