/* The place of one answer in a grammar. One thread at a time; it borrows the grammar and the
 * vocabulary.
 *
 * Use for each token of an answer:
 *
 *     the sampler chooses a token of all
 *     if (!grammar_matcher_accepts(m, token)) {
 *         if (!grammar_matcher_mask(m, mask)) no token may come: grammar_matcher_error says why
 *         the sampler chooses one of the mask's tokens
 *     }
 *     if (!grammar_matcher_advance(m, token)) the same
 *     if (grammar_matcher_is_final(m)) the answer can only end: stop
 *
 * In the worker the matcher is a sampler's guard (worker/sample/grammar_cursor.c).
 * With pure temperature sampling this is exact: a refused draw and a draw from the masked row
 * together give each allowed token its masked probability.
 *
 * A matcher allocates its memory at creation and nothing later. It stores the configurations of the
 * automaton that it has met, at most GRAMMAR_CONFIGURATIONS of them; when they are full it keeps
 * those that rollback needs and forgets the others. To restore an answer, advance a new matcher by
 * the answer's tokens. It has up to some 10 MiB, of which most answers touch less than one. */
#ifndef MOED_GRAMMAR_MATCHER_H
#define MOED_GRAMMAR_MATCHER_H

#include "base/error.h"
#include "grammar/grammar.h"
#include "grammar/vocabulary.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    GRAMMAR_ROLLBACK = 64,         /* tokens that grammar_matcher_rollback can withdraw */
    GRAMMAR_CONFIGURATIONS = 8192, /* at most, fewer where the grammar has many classes of bytes */
    GRAMMAR_TRIGGER_BYTES = 256,
};

struct grammar_start {
    /* The grammar binds from the first byte after the first occurrence of this text in the answer,
     * also within a token; until then every token is allowed. Texts of control tokens count. NULL
     * or empty: it binds from the first token. */
    const char *trigger;
    /* The answer may not end before the trigger: reasoning comes first, then the grammar. */
    bool required;
    /* The trigger does not count in reasoning. This begins with reasoning_begin at the answer's
     * start, behind white space; NULL or empty: with the answer. It ends with reasoning_end; NULL
     * or empty: there is none. Each is as long as a trigger at most, and reasoning_begin does
     * not contain the trigger. */
    const char *reasoning_begin, *reasoning_end;
};

struct grammar_matcher;

enum error_code grammar_start_check(const struct grammar_start *start, struct error *e);

/* ERROR_USAGE: the start is wrong. ERROR_MEMORY. */
enum error_code grammar_matcher_new(const struct grammar *g, const struct grammar_vocabulary *v,
                                    const struct grammar_start *start, struct grammar_matcher **out,
                                    struct error *e);
void grammar_matcher_free(struct grammar_matcher *m); /* takes NULL */
/* Begins another answer. What was computed for earlier ones is kept, which makes this one cheaper.
 * After grammar_matcher_error was ERROR_LIMIT it stays so. ERROR_USAGE: as grammar_matcher_new; the
 * matcher is as before. */
enum error_code grammar_matcher_restart(struct grammar_matcher *m,
                                        const struct grammar_start *start, struct error *e);

/* Can this token come next? False also after an error. */
bool grammar_matcher_accepts(struct grammar_matcher *m, uint32_t token);
/* Takes the token. False: the grammar does not allow it, and the matcher is as before. */
bool grammar_matcher_advance(struct grammar_matcher *m, uint32_t token);
/* Withdraws the last n tokens. False: more than were taken or than GRAMMAR_ROLLBACK. */
bool grammar_matcher_rollback(struct grammar_matcher *m, uint32_t n);

/* How many of tokens [n], at most GRAMMAR_ROLLBACK, can come next, one after the other. Where the
 * look takes long it stops before: it has no part in the limits of an answer. */
uint32_t grammar_matcher_try(struct grammar_matcher *m, const uint32_t *tokens, uint32_t n);
/* The only bytes that can come next: bytes [returned], at most `most`. They end where there is a
 * choice, or where the answer may end. Where a literal may also be spelt with a control token, that
 * token is *token, and the bytes are those before it; else GRAMMAR_NO_TOKEN. Before the trigger
 * there are none. It may stop before, as grammar_matcher_try. */
uint32_t grammar_matcher_forced(struct grammar_matcher *m, uint8_t *bytes, uint32_t most,
                                uint32_t *token);

/* mask [grammar_mask_words(n_tokens)]: bit i % 32 of word i / 32 is set where token i can come
 * next. False: no token can, or an error; grammar_matcher_error says which. */
bool grammar_matcher_mask(struct grammar_matcher *m, uint32_t *mask);

bool grammar_matcher_is_active(const struct grammar_matcher *m);   /* the trigger has occurred */
bool grammar_matcher_is_complete(const struct grammar_matcher *m); /* the answer may end here */
bool grammar_matcher_is_final(const struct grammar_matcher *m);    /* it must end here */

/* What the answer has needed so far: about 80 ns each on a slow core. More than the limit of
 * ERROR_LIMIT counts. */
uint64_t grammar_matcher_steps(const struct grammar_matcher *m);

/* ERROR_OK; ERROR_LIMIT: a step needed too much work or memory, for good; ERROR_UNAVAILABLE: the
 * vocabulary has no token that continues the answer. */
enum error_code grammar_matcher_error(const struct grammar_matcher *m, struct error *e);

static inline uint32_t grammar_mask_words(uint32_t n_tokens)
{
    return (n_tokens + 31) / 32;
}

#endif
