/* Finds special tokens in text: the leftmost, and at its place the longest. (If the texts of two
 * special tokens overlap and neither contains the other, the leftmost wins; no published vocabulary
 * has such tokens.)
 *
 * The search walks a sorted array byte by byte. Most bytes of the text cost one look-up in a table,
 * the others at most the length of the longest special token. */
#ifndef MOED_TOKENIZER_SPECIAL_H
#define MOED_TOKENIZER_SPECIAL_H

#include "tokenizer/symbols.h"

struct special_set {
    uint32_t *ids; /* sorted by text, then id */
    uint32_t count;
    uint32_t first[257]; /* ids[first[b]..first[b + 1]) begin with byte b */
};

struct special_match {
    size_t start, length;
    uint32_t id;
};

/* Takes ids (from malloc), whose texts are in symbols. Drops ids with an empty text. */
void special_set_init(struct special_set *s, uint32_t *ids, uint32_t count,
                      const struct symbol_table *symbols);
void special_set_fini(struct special_set *s);

/* The first special token in text[from..len). False: none. */
bool special_find(const struct special_set *s, const struct symbol_table *symbols, const char *text,
                  size_t len, size_t from, struct special_match *out);

#endif
