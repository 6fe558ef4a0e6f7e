/* The breakers of DRY (worker/sample/sampler.h): texts that a repetition does not cross, such as
 * the end of a line. They are searched in the conversation's text as its tokens come, so one that
 * several tokens spell is found too. */
#ifndef MOED_WORKER_SAMPLE_BREAKERS_H
#define MOED_WORKER_SAMPLE_BREAKERS_H

#include "base/strbuf.h"
#include "tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

#define BREAKERS_MOST 16
#define BREAKER_BYTES 40

struct breakers {
    uint32_t n;
    size_t lengths[BREAKERS_MOST];
    char texts[BREAKERS_MOST][BREAKER_BYTES];
    const struct tokenizer *tokenizer; /* of breakers_follow */
    struct strbuf text;                /* the end of the conversation's text */
    struct strbuf piece;               /* the text of breakers_has's token */
    uint32_t n_tokens;                 /* of the conversation, seen */
    uint32_t n_unbroken;               /* of those, after the token in which a breaker last ended */
};

/* Adds "\n", ":", "\"" and "*". */
void breakers_add_usual(struct breakers *b);
/* False: the text is empty or longer than BREAKER_BYTES, or there are BREAKERS_MOST. */
bool breakers_add(struct breakers *b, const char *text, size_t n);
void breakers_fini(struct breakers *b);

/* Feeds the tokens that come after the n_tokens seen. Allocates only for a token whose text is
 * longer than all before. */
void breakers_follow(struct breakers *b, const struct tokenizer *t, const uint32_t *tokens,
                     uint32_t n_tokens);

/* Whether the token's own text has a breaker. After breakers_follow; b: a struct breakers. */
bool breakers_has(void *b, uint32_t token);

#endif
