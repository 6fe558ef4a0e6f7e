/* Byte-level BPE: merges by rank, from a file's tokenizer.ggml.merges. `gemma4` merges characters
 * instead of bytes, from merges that are plain text with U+2581 for a space.
 *
 *  - A merge without a space between two parts is an error.
 *  - bpe keeps a merge whose parts or result are not in the vocabulary, because a later merge may
 *    build on it. If such a result remains at the end, it becomes single bytes.
 *  - bpe ignores a merge with characters outside the byte-level alphabet: it can never apply.
 *  - The first of equal merges counts.
 *  - A byte that is no token becomes the unknown token, or nothing if the file has none. */
#ifndef MOED_TOKENIZER_BPE_H
#define MOED_TOKENIZER_BPE_H

#include "tokenizer/merge.h"
#include "tokenizer/token_list.h"
#include "tokenizer/vocab.h"

struct bpe_merge {
    uint32_t left, right;
    uint32_t rank;
    uint32_t symbol; /* the result; SYMBOL_NONE: a free slot */
};

struct bpe {
    struct bpe_merge *merges; /* open addressing, a power of two, at most half full */
    uint32_t mask;
    uint64_t seed;
    uint32_t byte_symbols[256]; /* the symbol of each byte */
    bool characters;            /* a text's symbols are its characters; else its bytes */
};

/* Reads the merges. Adds their strings that are no tokens to v->symbols. */
enum error_code bpe_init(struct bpe *b, struct vocab *v, const struct gguf *g, struct error *e);
void bpe_fini(struct bpe *b);

/* Appends the ids of one piece. whole: take the piece as one token, if it is one. False: out of
 * memory. */
bool bpe_encode(const struct bpe *b, const struct vocab *v, bool whole, struct merge_space *space,
                const char *piece, size_t len, struct token_list *out);

#endif
