/* Requests as turns of conversations, on an engine bench; answers compared to the bit. */
#ifndef MOED_TESTS_ENGINE_TURNS_H
#define MOED_TESTS_ENGINE_TURNS_H

#include "engine_bench.h"

#include "model/speculate.h"

enum { N = 4, LENGTH = 40 }; /* requests at once; tokens of an answer */

static uint32_t turns_context = 512;
static bool turns_groups;
static struct kv_store turns_store;
static struct engine_bench b;

static inline void open_bench_stopped(const char *model, uint32_t n_pages)
{
    bench_open_with(&b, &(struct bench_options){.path = model,
                                                .parallel = N,
                                                .n_pages = n_pages,
                                                .speculate = SPECULATE_MOST,
                                                .kv_type = TENSOR_F16,
                                                .context = turns_context,
                                                .groups = turns_groups,
                                                .store = turns_store});
}

static inline void open_bench(const char *model, uint32_t n_pages)
{
    open_bench_stopped(model, n_pages);
    bench_start(&b);
}

/* The golden tokens, turned by one at each repetition, so that no page is like another; from token
 * `differs` on another sequence. */
static inline struct request *request_of_kind(struct recorder *c, enum request_kind kind,
                                              uint32_t n_prompt, uint32_t differs)
{
    struct request *r = bench_request(&b, c, kind, GOLDEN_TOKENS);
    for (uint32_t i = GOLDEN_TOKENS; i < n_prompt; i++)
        assert_true(
            token_list_push(&r->tokens, r->tokens.ids[(i + i / GOLDEN_TOKENS) % GOLDEN_TOKENS]));
    for (uint32_t i = differs; i < n_prompt; i++)
        r->tokens.ids[i] = (r->tokens.ids[i] + differs) % 256;
    bench_set_prompt(r);
    r->max_tokens = LENGTH;
    r->logprobs = true;
    return r;
}

static inline struct request *request_of(struct recorder *c, uint32_t n_prompt, uint32_t differs)
{
    return request_of_kind(c, REQUEST_GENERATE, n_prompt, differs);
}

/* Appends a turn: the answer of `before` and some tokens. */
static inline void continue_turn(struct request *r, const struct recorder *before)
{
    for (uint32_t i = 0; i < before->n_tokens; i++)
        assert_true(token_list_push(&r->tokens, before->tokens[i]));
    for (uint32_t i = 0; i < 20; i++)
        assert_true(token_list_push(&r->tokens, 65 + i));
    r->n_prompt = r->n_prefill = (uint32_t)r->tokens.count;
}

static inline void answer(struct recorder *c)
{
    bench_submit(c);
    check_done(c, FINISH_LENGTH);
    assert_int_equal(c->n_tokens, LENGTH);
    if (b.snapshots) /* no draft can be undone in their states */
        assert_int_equal(c->summary.drafted_tokens, 0);
}

static inline void assert_same(const struct recorder *a, const struct recorder *reference)
{
    assert_int_equal(a->n_tokens, reference->n_tokens);
    assert_memory_equal(a->tokens, reference->tokens, a->n_tokens * sizeof *a->tokens);
    assert_memory_equal(a->token_logprobs, reference->token_logprobs, sizeof a->token_logprobs);
}

/* In an engine of its own. */
static inline void answer_cold(const char *model, struct recorder *c, uint32_t n_prompt,
                               uint32_t differs, const struct recorder *before)
{
    open_bench(model, 0);
    struct request *r = request_of(c, n_prompt, differs);
    if (before)
        continue_turn(r, before);
    answer(c);
    assert_int_equal(c->summary.cached_tokens, 0);
    bench_close(&b);
}

#endif
