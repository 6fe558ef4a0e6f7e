/* Compiled grammars and the vocabulary that they need, for all requests of a worker.
 *
 * The vocabulary's trie is built at the first grammar (some 100 ms for 150,000 tokens). The last
 * grammars stay compiled, because agents send the same ones again and again: at most
 * GRAMMARS_CACHED, and no more than GRAMMARS_STATES states together beside the newest. Those that
 * requests hold, also requests that wait, are limited too: GRAMMARS_HELD states with the kept ones.
 *
 * Any thread may call; a call may take seconds, because it compiles. */
#ifndef MOED_WORKER_SAMPLE_GRAMMARS_H
#define MOED_WORKER_SAMPLE_GRAMMARS_H

#include "grammar/grammar.h"
#include "grammar/matcher.h"
#include "grammar/vocabulary.h"
#include "metrics/metrics.h"
#include "tokenizer/tokenizer.h"

enum { GRAMMARS_CACHED = 16, GRAMMARS_STATES = 100000, GRAMMARS_IDLE = 4, GRAMMARS_HELD = 1000000 };

struct grammar_definition {
    enum grammar_kind kind;
    const char *text;
    size_t len;
    const char *const *marks; /* of GRAMMAR_GBNF: grammar_compile_marked */
    uint32_t n_marks;
};

struct grammars;
struct shared_grammar; /* one compiled grammar; counts its users */

/* Borrows both. replaced: counts schemas that a new grammar cannot follow, so that another rule
 * stands for them (grammar_replaced); the log has them, too. NULL: not counted. NULL is returned
 * when out of memory. */
struct grammars *grammars_new(const struct tokenizer *t, struct counter *replaced);
/* After the last release. Takes NULL. */
void grammars_free(struct grammars *s);

/* Compiles the grammar, or finds it. Errors: as grammar_compile; ERROR_BUSY: those that requests
 * hold leave no space for it. */
enum error_code grammars_get(struct grammars *s, const struct grammar_definition *d,
                             struct shared_grammar **out, struct error *e);
void grammars_release(struct shared_grammar *g);

/* A matcher for one answer: new, or one that an earlier answer gave back, which knows much of the
 * grammar already. Each grammar keeps one, and only GRAMMARS_IDLE grammars do. */
enum error_code shared_grammar_take_matcher(struct shared_grammar *g,
                                            const struct grammar_start *start,
                                            struct grammar_matcher **out, struct error *e);
/* Takes m, before the release. */
void shared_grammar_give_matcher(struct shared_grammar *g, struct grammar_matcher *m);

/* The most steps (grammar_matcher_steps) that an answer's first token has needed; `unknown` before
 * the first one. */
uint64_t shared_grammar_first_steps(struct shared_grammar *g, uint64_t unknown);
void shared_grammar_note_first_steps(struct shared_grammar *g, uint64_t steps);

/* Both live until the release. */
const struct grammar *shared_grammar_compiled(const struct shared_grammar *g);
const struct grammar_vocabulary *shared_grammar_vocabulary(const struct shared_grammar *g);

uint64_t grammars_compiled(struct grammars *s); /* how many were compiled, not found */

#endif
