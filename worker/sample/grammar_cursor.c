/* The place of an answer in its grammar; see grammar_cursor.h. */
#include "grammar_cursor.h"

#include "base/arrays.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>

struct grammar_cursor {
    struct sampler_guard guard;
    struct shared_grammar *grammar;
    struct grammar_matcher *matcher; /* NULL: not begun */
    char trigger[GRAMMAR_TRIGGER_BYTES];
    bool required; /* the trigger */
    char reasoning_begin[GRAMMAR_TRIGGER_BYTES], reasoning_end[GRAMMAR_TRIGGER_BYTES];
    const struct token_list *stop_tokens;
    struct token_list spelling;      /* memory of forced_tokens_spell */
    struct grammar_cursor_cost cost; /* without steps */
    uint64_t steps;                  /* of the matcher, at the last grammar_cursor_take_cost */
    uint32_t
        *mask; /* [n_words]: of the model's vocabulary, which may be larger than the tokenizer's */
};

static bool is_stop(const struct grammar_cursor *c, uint32_t token)
{
    for (size_t i = 0; i < c->stop_tokens->count; i++)
        if (c->stop_tokens->ids[i] == token)
            return true;
    return false;
}

static bool accepts(void *arg, uint32_t token)
{
    struct grammar_cursor *c = arg;
    uint64_t started = clock_ns();
    bool accepted =
        is_stop(c, token) ? grammar_cursor_may_end(c) : grammar_matcher_accepts(c->matcher, token);
    c->cost.ns += clock_ns() - started;
    return accepted;
}

static const uint32_t *mask_of(void *arg)
{
    struct grammar_cursor *c = arg;
    uint64_t started = clock_ns();
    bool any = grammar_matcher_mask(c->matcher, c->mask), end = grammar_cursor_may_end(c);
    for (size_t i = 0; i < c->stop_tokens->count; i++) {
        uint32_t token = c->stop_tokens->ids[i], bit = 1u << token % 32;
        c->mask[token / 32] = end ? c->mask[token / 32] | bit : c->mask[token / 32] & ~bit;
        any |= end;
    }
    c->cost.ns += clock_ns() - started;
    c->cost.masks++;
    return any ? c->mask : NULL;
}

static void copy_text(char out[GRAMMAR_TRIGGER_BYTES], const char *text)
{
    snprintf(out, GRAMMAR_TRIGGER_BYTES, "%s", text ? text : "");
}

enum error_code grammar_cursor_new(struct shared_grammar *g, const struct grammar_start *start,
                                   const struct token_list *stop_tokens, uint32_t vocab,
                                   struct grammar_cursor **out, struct error *e)
{
    const struct grammar_vocabulary *v = shared_grammar_vocabulary(g);
    enum error_code code = start ? grammar_start_check(start, e) : ERROR_OK;
    struct grammar_cursor *c;
    uint32_t n_words = grammar_mask_words(vocab > v->n_tokens ? vocab : v->n_tokens), *mask;
    if (code) {
        grammars_release(g);
        return code;
    }
    if (!ARRAYS_NEW(ARRAY(c, 1), ARRAY(mask, n_words))) {
        grammars_release(g);
        return error_set(e, ERROR_MEMORY, "no memory for a grammar");
    }
    *c = (struct grammar_cursor){
        .guard = {accepts, mask_of, c}, .grammar = g, .stop_tokens = stop_tokens, .mask = mask};
    if (start) {
        copy_text(c->trigger, start->trigger);
        copy_text(c->reasoning_begin, start->reasoning_begin);
        copy_text(c->reasoning_end, start->reasoning_end);
        c->required = start->required;
    }
    *out = c;
    return ERROR_OK;
}

enum error_code grammar_cursor_begin(struct grammar_cursor *c, const uint32_t *answer, size_t n,
                                     struct error *e)
{
    struct grammar_start start = {.trigger = c->trigger,
                                  .required = c->required,
                                  .reasoning_begin = c->reasoning_begin,
                                  .reasoning_end = c->reasoning_end};
    enum error_code code = shared_grammar_take_matcher(c->grammar, &start, &c->matcher, e);
    for (size_t i = 0; i < n && !code; i++)
        if (!grammar_cursor_advance(c, answer[i]))
            code = error_set(e, ERROR_USAGE,
                             "this generation cannot be continued: its answer does not follow its "
                             "grammar");
    return code;
}

void grammar_cursor_free(struct grammar_cursor *c)
{
    if (!c)
        return;
    if (c->matcher)
        shared_grammar_give_matcher(c->grammar, c->matcher);
    grammars_release(c->grammar);
    token_list_fini(&c->spelling);
    free(c);
}

const struct sampler_guard *grammar_cursor_guard(const struct grammar_cursor *c)
{
    return &c->guard;
}

bool grammar_cursor_advance(struct grammar_cursor *c, uint32_t token)
{
    uint64_t started = clock_ns();
    bool taken = !is_stop(c, token) && grammar_matcher_advance(c->matcher, token);
    c->cost.ns += clock_ns() - started;
    return taken;
}

uint32_t grammar_cursor_try(struct grammar_cursor *c, const uint32_t *tokens, uint32_t n)
{
    uint64_t started = clock_ns();
    uint32_t most = 0;
    while (most < n && !is_stop(c, tokens[most]))
        most++;
    uint32_t taken = grammar_matcher_try(c->matcher, tokens, most);
    c->cost.ns += clock_ns() - started;
    return taken;
}

void grammar_cursor_forced(struct grammar_cursor *c, const struct tokenizer *t,
                           struct forced_tokens *out)
{
    uint8_t bytes[FORCED_BYTES_MOST];
    uint32_t control;
    uint64_t started = clock_ns();
    uint32_t n = grammar_matcher_forced(c->matcher, bytes, sizeof bytes, &control);
    forced_tokens_spell(out, shared_grammar_vocabulary(c->grammar), t, &c->spelling, bytes, n,
                        control);
    c->cost.ns += clock_ns() - started;
}

struct grammar_cursor_cost grammar_cursor_take_cost(struct grammar_cursor *c)
{
    struct grammar_cursor_cost cost = c->cost;
    uint64_t steps = grammar_matcher_steps(c->matcher);
    cost.steps = steps - c->steps;
    c->steps = steps;
    c->cost = (struct grammar_cursor_cost){0};
    return cost;
}

uint64_t grammar_cursor_first_steps(const struct grammar_cursor *c, uint64_t unknown)
{
    return shared_grammar_first_steps(c->grammar, unknown);
}

void grammar_cursor_note_first_steps(const struct grammar_cursor *c, uint64_t steps)
{
    shared_grammar_note_first_steps(c->grammar, steps);
}

bool grammar_cursor_may_end(const struct grammar_cursor *c)
{
    return grammar_matcher_is_complete(c->matcher);
}

bool grammar_cursor_must_end(const struct grammar_cursor *c)
{
    return grammar_matcher_is_final(c->matcher);
}

enum error_code grammar_cursor_error(const struct grammar_cursor *c, struct error *e)
{
    enum error_code code = grammar_matcher_error(c->matcher, e);
    if (code == ERROR_UNAVAILABLE) /* to try again is no use */
        return error_set(e, ERROR_UNSUPPORTED,
                         "the model's vocabulary has no token that continues the answer as the "
                         "grammar asks");
    return code ? code
                : error_set(e, ERROR_USAGE,
                            "every token that the grammar allows is excluded by a logit bias, a "
                            "stop token or min_tokens");
}
