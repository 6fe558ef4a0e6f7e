/* Merge neighbours of a row of symbols, best pair first, until no pair may merge: what byte-level
 * BPE and SentencePiece's BPE share. A linked list of the symbols and a binary heap of the pairs:
 * O(n log n) for n symbols. Of pairs of equal rank the leftmost merges first.
 */
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
    uint64_t priority; /* rank, then position: the smallest merges first */
    uint32_t left, right;
    uint32_t length; /* of both together when the pair was seen: tells a stale pair */
    uint32_t symbol;
};

/* Scratch memory of one call of encode, reused for its pieces. Zero it first. */
struct merge_space {
    struct merge_node *nodes;
    struct merge_pair *heap;
    size_t capacity, heap_count;
};

/* Room for count nodes in s->nodes. False when out of memory. */
bool merge_space_reserve(struct merge_space *s, size_t count);
void merge_space_fini(struct merge_space *s);

/* May left and right merge? Sets the rank (lower merges first) and the symbol that they become. */
typedef bool merge_lookup(const void *context, const struct merge_node *left,
                          const struct merge_node *right, uint32_t *rank, uint32_t *symbol);

/* s->nodes[0..count) hold start, length and symbol. Afterwards the row is nodes[0] and its nexts.
 */
void merge_run(struct merge_space *s, uint32_t count, merge_lookup *lookup, const void *context);

#endif
