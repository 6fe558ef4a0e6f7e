/* Byte-level BPE: merges by rank, from a file's tokenizer.ggml.merges.
 *
 * Decisions: a merge without a space between two parts is an error. One whose parts or whole are
 * not in the vocabulary is kept, for a later merge may build on it; what is left of it at the end
 * becomes single bytes. One written outside the byte-level alphabet can never apply and is ignored.
 * Of equal merges the first counts. A byte that is no token becomes the unknown token, or nothing
 * where the file names none.
 */
#ifndef MOED_TOKENIZER_BPE_H
#define MOED_TOKENIZER_BPE_H

#include "tokenizer/merge.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab.h"

struct bpe_merge {
    uint32_t left, right;
    uint32_t rank;
    uint32_t symbol; /* what they become; SYMBOL_NONE: a free slot */
};

struct bpe {
    struct bpe_merge *merges; /* open addressing, a power of two, at most half full */
    uint32_t mask;
    uint64_t seed;
    uint32_t byte_symbols[256]; /* where each byte starts */
};

/* Adds the strings of merges that are no tokens to v->symbols. */
enum error_code bpe_init(struct bpe *b, struct vocab *v, const struct gguf *g, struct error *e);
void bpe_fini(struct bpe *b);

/* Append the ids of one piece. whole: where the piece is a token, that one. False: out of memory.
 */
bool bpe_encode(const struct bpe *b, const struct vocab *v, bool whole, struct merge_space *space,
                const char *piece, size_t len, struct token_list *out);

#endif
