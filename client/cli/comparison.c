/* Comparisons; see comparison.h. */
#include "client/cli/comparison.h"

#include "base/sort_doubles.h"

#include <math.h>
#include <stdlib.h>

/* Less than this is the rounding of sums of 64 float32 probabilities. */
#define REST_LEAST 1e-7

void comparison_fini(struct comparison *c)
{
    estimate_fini(&c->delta);
    estimate_fini(&c->base);
    free(c->divergences);
    *c = (struct comparison){0};
}

/* The place of a token in a list; n: it has none. */
static uint32_t place_of(const struct comparison_side *side, uint32_t token)
{
    uint32_t k = 0;
    while (k < side->n && side->top[k] != token)
        k++;
    return k;
}

/* One event's part of the sum; *p_left and *q_left lose its probabilities. */
static double part(double log_p, double log_q, double *p_left, double *q_left)
{
    double p = exp(log_p);
    *p_left -= p;
    *q_left -= exp(log_q);
    return p > 0 ? p * (log_p - log_q) : 0;
}

double comparison_divergence(uint32_t token, const struct comparison_side *base,
                             const struct comparison_side *other, double *rest)
{
    double p_left = 1, q_left = 1, sum = 0;
    bool has_token = false;
    for (uint32_t k = 0; k < base->n; k++) {
        uint32_t at = place_of(other, base->top[k]);
        if (at == other->n)
            continue;
        has_token = has_token || base->top[k] == token;
        sum +=
            part((double)base->top_logprobs[k], (double)other->top_logprobs[at], &p_left, &q_left);
    }
    if (!has_token)
        sum += part((double)base->logprob, (double)other->logprob, &p_left, &q_left);
    *rest = p_left > REST_LEAST ? p_left : 0;
    p_left = p_left > REST_LEAST ? p_left : REST_LEAST;
    q_left = q_left > REST_LEAST ? q_left : REST_LEAST;
    sum += p_left * log(p_left / q_left);
    return sum > 0 ? sum : 0;
}

static bool add_divergence(struct comparison *c, double divergence)
{
    size_t at = c->count + c->window;
    if (at == c->capacity) {
        size_t capacity = at ? 2 * at : 1024;
        double *grown = realloc(c->divergences, capacity * sizeof *grown);
        if (!grown)
            return false;
        c->divergences = grown;
        c->capacity = capacity;
    }
    c->divergences[at] = divergence;
    c->window++;
    return true;
}

bool comparison_add(struct comparison *c, uint32_t token, const struct comparison_side *base,
                    const struct comparison_side *other)
{
    double rest;
    if (!add_divergence(c, comparison_divergence(token, base, other, &rest)))
        return false;
    estimate_add(&c->delta, (double)base->logprob - (double)other->logprob);
    estimate_add(&c->base, -(double)base->logprob);
    c->window_rest += rest;
    c->window_same += base->top[0] == other->top[0];
    return true;
}

bool comparison_end_window(struct comparison *c)
{
    c->count += c->window;
    c->same += c->window_same;
    c->rest += c->window_rest;
    c->window = 0;
    c->window_same = 0;
    c->window_rest = 0;
    return estimate_end_window(&c->delta) && estimate_end_window(&c->base);
}

/* The value below which a share of the sorted ones lies. */
static double quantile(const struct comparison *c, double share)
{
    return c->count ? c->divergences[(size_t)(share * (double)(c->count - 1))] : NAN;
}

struct comparison_result comparison_get(struct comparison *c)
{
    double sum = 0, n = (double)c->count;
    for (size_t i = 0; i < c->count; i++)
        sum += c->divergences[i];
    sort_doubles(c->divergences, c->count);
    return (struct comparison_result){.delta = estimate_get(&c->delta),
                                      .base = estimate_get(&c->base),
                                      .mean = sum / n,
                                      .median = quantile(c, 0.5),
                                      .q99 = quantile(c, 0.99),
                                      .most = quantile(c, 1),
                                      .rest = c->rest / n,
                                      .same_top = (double)c->same / n};
}
