/* What an answer counts; see answer_usage.h. */
#include "client/http/api/answer_usage.h"

uint32_t choice_cached_tokens(const struct choice *c)
{
    uint32_t in = c->result.prompt_tokens, cached = c->result.cached_tokens;
    if (c->scored && c->scored_cached < cached)
        cached = c->scored_cached; /* the others are of this request */
    return cached < in ? cached : in;
}

size_t choice_shown(const struct choice *c, size_t n)
{
    size_t pending = output_pending(&c->output);
    return n - (pending < n ? pending : n);
}

/* Of the first n scores those whose token's text has come. In the end also one of which a part is
 * shown, and the other part is of the stop string. */
static size_t come_scores(const struct choice *c, size_t n)
{
    const struct scores *s = &c->scores;
    uint32_t end = c->text_of_tokens;
    if (c->done && c->result.reason != MOED_REASON_STOP)
        return n;
    for (; n > 0 && end > c->text_come; n--) {
        if (c->done && s->offsets[n - 1] < c->text_come)
            break;
        end = s->offsets[n - 1];
    }
    return n;
}

size_t choice_settled_scores(const struct choice *c)
{
    size_t settled = choice_shown(c, c->scores.count);
    if (!c->output.parser && !c->answer->dialect->has_end_token)
        settled = come_scores(c, settled); /* a parser knows its pending tokens itself */
    return settled > c->scores.written ? settled : c->scores.written;
}

/* The tokens of a prompt that no choice had to compute, by its choices from `first` on; 0 until all
 * are done. Choices that begin later find in the cache what the first one has computed. */
static uint64_t cached_of_prompt(const struct answer *a, unsigned first)
{
    uint64_t least = UINT64_MAX;
    for (unsigned i = first; i < a->n_choices; i++) {
        const struct choice *c = &a->choices[i];
        uint64_t cached = c->done ? choice_cached_tokens(c) : 0;
        if (c->prompt != a->choices[first].prompt)
            break;
        least = cached < least ? cached : least;
    }
    return least;
}

uint64_t choice_prompt_tokens(const struct choice *c)
{
    return c->done ? c->result.prompt_tokens : c->answer->ask.prompts[c->prompt].token_count;
}

/* Of a choice's prompt, as any of its choices knows them. */
static uint64_t known_prompt_tokens(const struct answer *a, unsigned first)
{
    uint64_t known = 0;
    for (unsigned i = first; i < a->n_choices && !known; i++)
        if (a->choices[i].prompt == a->choices[first].prompt)
            known = choice_prompt_tokens(&a->choices[i]);
    return known;
}

struct answer_usage answer_usage(const struct answer *a)
{
    struct answer_usage u = {0};
    u.in_known = u.cached_known = true;
    for (unsigned i = 0; i < a->n_choices; i++) {
        const struct choice *c = &a->choices[i];
        u.out += c->done ? c->result.generated_tokens : choice_shown(c, c->tokens);
        u.cached_known &= c->done;
        u.reasoning += output_reasoning_tokens(&c->output);
        u.drafted += c->result.drafted_tokens;
        u.accepted += c->result.accepted_tokens;
        u.prediction += c->result.prediction_tokens;
        u.predicted += c->result.predicted_tokens;
        if (i > 0 && c->prompt == a->choices[i - 1].prompt)
            continue; /* they share it */
        uint64_t in = known_prompt_tokens(a, i);
        u.in += in;
        u.in_known &= in > 0;
        u.cached += cached_of_prompt(a, i);
    }
    u.reasoning = u.reasoning < u.out ? u.reasoning : u.out;
    return u;
}
