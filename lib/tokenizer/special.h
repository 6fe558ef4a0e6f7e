/* Finds special tokens in text: the leftmost, and at its place the longest. (If the texts of two
 * special tokens overlap and neither contains the other, the leftmost wins; no published vocabulary
 * has such tokens.)
 *
 * The time is linear in the text, whatever the tokens are: a file chooses them. The search runs
 * from the right to the left, through an automaton of the reversed texts (Aho and Corasick, 1975).
 * Its state is the longest beginning of the text that some special token ends with, so it knows the
 * longest special token at each byte. */
#ifndef MOED_TOKENIZER_SPECIAL_H
#define MOED_TOKENIZER_SPECIAL_H

#include "tokenizer/symbols.h"

#define SPECIAL_BYTES_MAX (4u << 20) /* of all texts of a set together */

/* Nodes stand in the order of their depth; node 0 is the root. The children of node n are the nodes
 * [child[n], child[n + 1]), in the order of their bytes. */
struct special_set {
    uint32_t n_nodes; /* 1: there are no special tokens */
    uint32_t longest; /* bytes of the longest text */
    uint32_t *child;  /* [n_nodes + 1] */
    uint32_t *next;   /* the longest other node whose text this node's ends with */
    uint32_t *token;  /* the longest special token that this node's text ends with; SYMBOL_NONE */
    uint8_t *byte;
    void *memory;       /* of the four arrays */
    uint32_t root[256]; /* the root's child for a byte; 0: none */
};

/* The special tokens among ids[0..count), whose texts are in symbols; ids with an empty text are
 * none. Of tokens with equal texts the one with the least id is found. Reorders ids. False: no
 * memory, or the texts have more than SPECIAL_BYTES_MAX (then errno is E2BIG). */
bool special_set_init(struct special_set *s, uint32_t *ids, uint32_t count,
                      const struct symbol_table *symbols);
void special_set_fini(struct special_set *s);

#define SPECIAL_BLOCK_BYTES (16u << 10)

/* A search through one text; borrows all. */
struct special_scan {
    const struct special_set *set;
    const struct symbol_table *symbols;
    const uint8_t *text;
    size_t len;
    size_t begin, end;                   /* the block whose tokens are known */
    uint32_t token[SPECIAL_BLOCK_BYTES]; /* the longest that begins at each of its bytes */
    uint64_t n_moves;                    /* of the automaton, for the tests */
};

struct special_match {
    size_t start, length;
    uint32_t id;
};

void special_scan_init(struct special_scan *scan, const struct special_set *s,
                       const struct symbol_table *symbols, const char *text, size_t len);
/* The first special token at or after `from`, which never decreases. False: none. */
bool special_scan_find(struct special_scan *scan, size_t from, struct special_match *out);

#endif
