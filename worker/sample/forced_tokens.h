/* The tokens of what a grammar leaves as the only continuation (grammar_matcher_forced), for
 * drafts. The sampler still chooses each token, and may spell the same bytes with other ones. */
#ifndef MOED_WORKER_SAMPLE_FORCED_TOKENS_H
#define MOED_WORKER_SAMPLE_FORCED_TOKENS_H

#include "grammar/vocabulary.h"
#include "tokenizer/token_list.h"
#include "tokenizer/tokenizer.h"

#include <stdint.h>

enum {
    FORCED_TOKENS_MOST = 15, /* as many drafts as a step may have */
    FORCED_BYTES_MOST = 96,  /* that they are made of */
};

/* Ways to spell: as the tokenizer does, and with the shortest tokens, which a model often chooses
 * that would rather write something else. */
enum forced_spelling { SPELLING_WHOLE, SPELLING_SHORT, SPELLINGS };

struct forced_tokens {
    uint32_t n[SPELLINGS];
    uint32_t tokens[SPELLINGS][FORCED_TOKENS_MOST];
};

/* bytes [n]; control: the token that follows them, or GRAMMAR_NO_TOKEN. list: memory for the
 * tokenizer, the caller's; it grows to some 100 tokens. Where the tokenizer fails, its spelling has
 * no tokens. */
void forced_tokens_spell(struct forced_tokens *f, const struct grammar_vocabulary *v,
                         const struct tokenizer *t, struct token_list *list, const uint8_t *bytes,
                         uint32_t n, uint32_t control);

#endif
