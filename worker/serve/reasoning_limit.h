/* A limit of reasoning. Once the reasoning of an answer has as many tokens, the tokens that end it
 * come next, whatever the model would choose; behind them it chooses again.
 *
 *     BEFORE --begin--> INSIDE --its last token--> FORCED --all forced--> OVER
 *        |                 |                          |                    ^
 *        '--another text---'--one of the ends---------'--another token-----'
 *
 * All of it follows from the tokens of the answer alone. So an answer that another worker began is
 * limited in the same way.
 *
 * Threads: as the request that it belongs to. */
#ifndef MOED_WORKER_SERVE_REASONING_LIMIT_H
#define MOED_WORKER_SERVE_REASONING_LIMIT_H

#include "base/strbuf.h"
#include "tokenizer/stream.h"
#include "tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    REASONING_ENDS_MAX = 8,
    REASONING_MARK_BYTES = 255,
    REASONING_TOKENS_MAX = 64, /* forced, and forbidden */
    REASONING_SPACE_MAX = 64,  /* bytes of whitespace before `begin` */
};

struct reasoning_limit {
    /* What is asked for; fixed. */
    uint32_t tokens;     /* of reasoning, its marks included; at least 1 */
    struct strbuf begin; /* reasoning begins with this text, which stands first in the answer, but
                            for whitespace; empty: with the answer */
    struct strbuf ends[REASONING_ENDS_MAX]; /* each of these texts ends it */
    uint32_t n_ends;
    struct token_list forced;
    struct token_list forbidden; /* behind those that were forced */

    /* Progress. */
    enum reasoning_state {
        REASONING_BEFORE,
        REASONING_INSIDE,
        REASONING_FORCED, /* n_forced of `forced` have come */
        REASONING_OVER,
    } state;
    uint32_t n; /* tokens of reasoning */
    uint32_t n_forced;
    struct token_stream stream;
    struct strbuf text; /* the last of the answer, in which a mark may begin */
};

/* NULL: no memory. The caller fills in what is asked for. */
struct reasoning_limit *reasoning_limit_new(const struct tokenizer *t);
void reasoning_limit_free(struct reasoning_limit *l); /* takes NULL */

/* The token has become part of the answer. True: it was the last that is forced. Sets text.failed
 * where memory is short. */
bool reasoning_limit_push(struct reasoning_limit *l, uint32_t token);
/* Whether a token is forced to come next, and which. */
bool reasoning_limit_forces(const struct reasoning_limit *l, uint32_t *token);
/* The token that is forced cannot come: the limit is over. */
void reasoning_limit_give_up(struct reasoning_limit *l);
/* Tokens that are still to be forced, and come next. */
uint32_t reasoning_limit_left(const struct reasoning_limit *l);
/* Of the next `most` tokens, how many come before one that is forced. */
uint32_t reasoning_limit_free_tokens(const struct reasoning_limit *l, uint32_t most);

#endif
