/* Merges neighbours in a row of symbols, best pair first, until no pair may merge. Byte-level BPE
 * and SentencePiece's BPE share it. It keeps a linked list of the symbols and a binary heap of the
 * pairs: O(n log n) for n symbols. Among pairs of equal rank the leftmost merges first. */
#ifndef MOED_TOKENIZER_MERGE_H
#define MOED_TOKENIZER_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MERGE_END UINT32_MAX

struct merge_node {
    uint32_t start, length; /* bytes of the text; length 0: merged into the node before */
    uint32_t symbol;
    uint32_t prev, next; /* set by merge_run; MERGE_END at the ends */
};

struct merge_pair {
    uint64_t priority; /* rank, then position: the lowest merges first */
    uint32_t left, right;
    uint32_t length; /* of both when the pair entered the heap: detects a stale pair */
    uint32_t symbol;
};

/* Scratch memory of one call of encode, reused for its pieces of text. Zero it first. */
struct merge_space {
    struct merge_node *nodes;
    struct merge_pair *heap;
    size_t capacity, heap_count;
};

/* Makes space for count nodes in s->nodes. False: out of memory. */
bool merge_space_reserve(struct merge_space *s, size_t count);
void merge_space_fini(struct merge_space *s);

/* May left and right merge? Sets the rank (lower merges first) and the symbol that they become. */
typedef bool merge_lookup(const void *context, const struct merge_node *left,
                          const struct merge_node *right, uint32_t *rank, uint32_t *symbol);

/* In: s->nodes[0..count) with start, length and symbol. Out: the list from nodes[0] by `next`. */
void merge_run(struct merge_space *s, uint32_t count, merge_lookup *lookup, const void *context);

#endif
