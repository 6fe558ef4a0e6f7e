/* A set of code points, for the classes of regular expressions and GBNF. */
#ifndef MOED_GRAMMAR_CHARSET_H
#define MOED_GRAMMAR_CHARSET_H

#include "grammar/network.h"

#include <stdbool.h>
#include <stdint.h>

#define CODE_POINT_MAX 0x10ffffu

struct code_range {
    uint32_t low, high;
};

struct charset {
    struct code_range *ranges;
    uint32_t n, capacity;
    bool failed; /* no memory */
};

void charset_fini(struct charset *s);
void charset_add(struct charset *s, uint32_t low, uint32_t high);
/* The class of an escape: 'd', 's', 'w' by ECMA-262, or a capital for what is outside of it. */
void charset_add_class(struct charset *s, char letter);
void charset_negate(struct charset *s);
/* Edges from `from` to `to` for each code point. */
void charset_emit(struct charset *s, struct network *n, uint32_t from, uint32_t to);

/* The code point at text[*at..len), which moves behind it. False: not UTF-8, or the end. */
bool code_point_next(const char *text, size_t len, size_t *at, uint32_t *out);

#endif
