/* HybriMoE's cache: the moving average of gate probabilities. At each step of a layer
 *
 *     S = alpha TopP(s) + (1 - alpha) S
 *
 * for all of its experts, TopP(s) the gate's probability of those that the gate ranks high, 0 for
 * the others. The lowest S of the layer goes; each layer has an equal share of the device.
 *
 * Chosen where the paper, as we have it, leaves it open: the owner's report (sched_cache_scored),
 * at least the activated experts, decides which ones count as high. A batch counts with the mean
 * of its tokens' probabilities. alpha is 0.5, as in the authors' published code, and an option
 * (0.1 finds up to 8 % less where the text is local: bench/results/policy-grid.md).
 * Without scores all are 0, and the least recently used goes.
 *
 * Nothing is multiplied by (1 - alpha): later probabilities count more instead, which leaves the
 * order in a layer the same. Before the numbers overflow a layer's are divided by the same factor.
 */
#include "base/arrays.h"
#include "sched/cache/cache_internal.h"

#include <math.h>

#define ALPHA   0.5
#define LARGEST 0x1p500

struct score_cache {
    double *values; /* [layer][expert] S / (1 - alpha)^steps */
    double *now;    /* [layer] alpha / (1 - alpha)^steps: the weight of a probability */
    double growth;  /* 1 / (1 - alpha) */
};

static bool score_init(struct sched_cache *c, const struct sched_cache_options *o)
{
    struct score_cache *v, new = {0};
    c->state =
        ARRAYS_NEW(ARRAY(v, 1), ARRAY(new.values, c->n_slabs), ARRAY(new.now, c->shape.n_layers));
    if (!c->state)
        return false;
    *v = new;
    double alpha = o && o->score_alpha > 0 ? fmin(o->score_alpha, 0.999) : ALPHA;
    v->growth = 1 / (1 - alpha);
    for (uint32_t i = 0; i < c->shape.n_layers; i++)
        v->now[i] = alpha;
    return true;
}

static void score_scored(struct sched_cache *c, uint32_t slab, float score)
{
    struct score_cache *v = c->state;
    if (score > 0 && isfinite(score))
        v->values[slab] += v->now[cache_layer_of(c, slab)] * (double)score;
}

static void shrink(struct sched_cache *c, uint32_t layer)
{
    struct score_cache *v = c->state;
    uint32_t first = cache_slab(c, layer, 0);
    for (uint32_t i = first; i < first + c->shape.n_experts; i++)
        v->values[i] *= 1 / LARGEST;
    v->now[layer] *= 1 / LARGEST;
}

static void score_step_over(struct sched_cache *c, uint32_t layer)
{
    struct score_cache *v = c->state;
    v->now[layer] *= v->growth;
    if (v->now[layer] >= LARGEST)
        shrink(c, layer);
}

static bool score_victim(const struct sched_cache *c, const struct cache_search *s, uint32_t *slab)
{
    const struct score_cache *v = c->state;
    return cache_least_of_share(c, s, v->values, slab);
}

const struct cache_policy cache_policy_score = {
    .keeps_loads = true,
    .resizes = true,
    .init = score_init,
    .step_over = score_step_over,
    .victim = score_victim,
    .scored = score_scored,
};
