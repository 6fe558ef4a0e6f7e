/* Klotski's expert correlation table (Fang et al., ASPLOS 2025, its section 6.2), with a path of
 * one layer: how often a token that activated expert i of a layer activated expert j of the next
 * one. A token tends to the experts that those of its choice lead to most often; "We then aggregate
 * the tendencies of all tokens across multiple batches and select the top-K experts for
 * prefetching", K being the experts that a token activates.
 *
 * Chosen: a token's tendencies are its K best experts by the sum of its experts' rows, each with
 * one vote; of equal ones the lower number. The K experts with the most votes are predicted; their
 * probability is the share of tokens that vote for them; that of other experts is for the cache
 * only. The paper's table begins with a run before serving and goes on with each batch; here it
 * begins empty. A row is halved before a number overflows. */
#include "base/arrays.h"
#include "sched/predict/predict_internal.h"

#include <string.h>

struct correlation {
    uint16_t *counts; /* [n_layers][n_experts][n_experts]: of a layer's experts, then the next's */
    uint32_t *selected; /* [max_tokens][n_used] of the layer shown last */
    double *tendency;   /* [n_experts] scratch */
    bool *chosen;       /* [n_experts] by the last prediction */
    uint64_t step;      /* shown last */
    uint32_t layer, n_tokens;
};

static bool correlation_init(struct predictor *p)
{
    const struct predict_shape *s = &p->shape;
    struct correlation *c, new = {0};
    size_t n = s->n_experts;
    p->state = ARRAYS_NEW(ARRAY(c, 1), ARRAY(new.tendency, n),
                          ARRAY(new.selected, (size_t)s->max_tokens * s->n_used),
                          ARRAY(new.counts, s->n_layers * n * n), ARRAY(new.chosen, n));
    if (!p->state)
        return false;
    *c = new;
    return true;
}

static uint16_t *row_of(const struct predictor *p, uint32_t layer, uint32_t expert)
{
    const struct correlation *c = p->state;
    return c->counts + ((size_t)layer * p->shape.n_experts + expert) * p->shape.n_experts;
}

static void count(const struct predictor *p, uint32_t layer, uint32_t from, uint32_t to)
{
    uint16_t *row = row_of(p, layer, from);
    if (row[to] == UINT16_MAX)
        for (uint32_t i = 0; i < p->shape.n_experts; i++)
            row[i] /= 2;
    row[to]++;
}

static void correlation_observe(struct predictor *p, const struct predict_seen *seen)
{
    struct correlation *c = p->state;
    uint32_t k = p->shape.n_used;
    if (seen->n_tokens > p->shape.max_tokens)
        return;
    bool follows =
        c->step == seen->step && c->layer + 1 == seen->layer && c->n_tokens == seen->n_tokens;
    for (uint32_t i = 0; follows && i < seen->n_tokens * k; i++)
        for (uint32_t j = 0; j < k; j++)
            count(p, c->layer, c->selected[i], seen->selected[i / k * k + j]);
    memcpy(c->selected, seen->selected, (size_t)seen->n_tokens * k * sizeof *c->selected);
    c->step = seen->step;
    c->layer = seen->layer;
    c->n_tokens = seen->n_tokens;
}

/* The expert with the largest value, which is taken out; n_experts: none has more than 0. */
static uint32_t take_best(uint32_t n_experts, double *value)
{
    uint32_t best = 0;
    for (uint32_t e = 1; e < n_experts; e++)
        if (value[e] > value[best])
            best = e;
    if (!(value[best] > 0))
        return n_experts;
    value[best] = 0;
    return best;
}

static void correlation_predict(struct predictor *p, const struct predict_seen *seen,
                                const struct predict_target *target,
                                const uint32_t *predicted_routing, double *probability)
{
    struct correlation *c = p->state;
    uint32_t n = p->shape.n_experts, k = p->shape.n_used;
    predict_nothing(&p->shape, probability);
    for (uint32_t t = 0; t < seen->n_tokens; t++) {
        for (uint32_t i = 0; i < k; i++) {
            const uint16_t *row = row_of(p, seen->layer, seen->selected[t * k + i]);
            for (uint32_t e = 0; e < n; e++)
                c->tendency[e] += row[e];
        }
        for (uint32_t i = 0, best; i < k && (best = take_best(n, c->tendency)) < n; i++)
            probability[best] += 1;
        memset(c->tendency, 0, n * sizeof *c->tendency);
    }
    memcpy(c->tendency, probability, n * sizeof *probability);
    for (uint32_t e = 0; e < n; e++)
        c->chosen[e] = false;
    for (uint32_t i = 0, best; i < k && (best = take_best(n, c->tendency)) < n; i++)
        c->chosen[best] = true;
    memset(c->tendency, 0, n * sizeof *c->tendency);
    for (uint32_t e = 0; e < n; e++)
        probability[e] /= seen->n_tokens;
}

static bool correlation_chose(const struct predictor *p, uint32_t expert)
{
    const struct correlation *c = p->state;
    return c->chosen[expert];
}

static const struct predictor_rule background = {
    .init = correlation_init,
    .observe = correlation_observe,
    .predict = correlation_predict,
    .chose = correlation_chose,
};

const struct predictor_kind predictor_correlation = {
    .traits = {.answers = true,
               .reads = PREDICT_READS_SELECTED,
               .distance_first = 1,
               .distance_last = 1},
    .background = &background,
};
