/* Fetch hints: the messages of prefetch control to memd; see prefetch_internal.h. */
#include "prefetch_internal.h"

#include "model/router.h"
#include "sched/cache/cache.h"

#include <string.h>

/* Of a worker's first steps one in four runs without prefetch, to measure soon what copies cost.
 * These are not the steps in which prefetch_judge_candidates copies everything. */
#define EARLY_STEPS       64
#define EARLY_STEPS_APART 4
#define EARLY_STEPS_AT    (EARLY_STEPS_APART / 2)
_Static_assert(PREFETCH_EXPLORE_STEPS / 2 % EARLY_STEPS_APART != EARLY_STEPS_AT,
               "a step that copies everything is none without prefetch");
_Static_assert(COST_MODEL_TIMED_STEPS % (PREFETCH_EXPLORE_STEPS / 2) == 0 &&
                   COST_MODEL_TIMED % (PREFETCH_EXPLORE_STEPS / 2) != 0 &&
                   COST_MODEL_TIMED % EARLY_STEPS_APART != EARLY_STEPS_AT,
               "a timed step prefetches as most steps do");

static uint32_t take_hints(struct prefetch *p, const struct layer_hint *hints, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        p->hints[i] = (struct cache_hint){hints[i].expert, hints[i].value};
    return n;
}

static bool is_early_step_without(const struct prefetch *p)
{
    return sched_prefetch_selects(prefetch_prefetcher(p)) && p->step < EARLY_STEPS &&
           p->step % EARLY_STEPS_APART == EARLY_STEPS_AT;
}

/* memd copies the hinted experts to the device. Its cache policy may read the whole prediction. */
static void report_device(struct prefetch *p, const struct layer_prediction *prediction)
{
    const struct predict_target *target = &prediction->target;
    struct device_cache *cache = p->options.cache;
    enum sched_assigner assigner = prefetch_assigner(p);
    if (p->use != DEVICE_PREFETCHES || sched_assigner_plans_prefetch(assigner))
        return;
    struct sched_costs costs = cost_model_now(p->options.costs);
    const struct layer_judge judge = {
        .assigner = assigner,
        .prefetcher = prefetch_prefetcher(p),
        .costs = &costs,
        .call_s = cost_model_call_s(p->options.costs),
        .step = p->step,
        .expected = device_cache_reads(cache) & CACHE_READS_PREDICTIONS,
        .nothing = is_early_step_without(p),
    };
    struct layer_judgement judgement;
    layer_judge(p->options.layer, &judge, prediction, &judgement);
    counter_add(p->options.counters.declined, judgement.n_declined);
    if (judge.expected)
        device_cache_expected(cache, target->step, target->layer, p->hints,
                              take_hints(p, judgement.expected, judgement.n_expected));
    if (!judgement.n_fetch)
        return;
    device_cache_predicted(cache, target->step, target->layer, p->hints,
                           take_hints(p, judgement.fetch, judgement.n_fetch));
    device_cache_notify(cache);
}

static bool is_on_device(const struct prefetch *p, uint32_t layer, uint32_t expert)
{
    const struct device_cache *cache = p->options.cache;
    return cache && device_cache_read(cache, layer, expert).resident >=
                        p->options.memory->map.slabs[layer].n_segments;
}

/* memd reads the hinted experts from the model file: those neither in memory nor whole on the
 * device. */
static void report_host(struct prefetch *p, const struct layer_prediction *prediction)
{
    uint32_t n = 0, slot, layer = prediction->target.layer;
    for (uint32_t i = 0; i < prediction->n; i++) {
        const struct predicted *e = &prediction->experts[i];
        if (!host_experts_find(p->options.host, layer, e->expert, &slot) &&
            !is_on_device(p, layer, e->expert))
            p->hints[n++] = (struct cache_hint){e->expert, (uint32_t)(e->probability * UINT16_MAX)};
    }
    if (!n)
        return;
    host_experts_predicted(p->options.host, prediction->target.step, layer, p->hints, n);
    host_experts_notify(p->options.host);
}

void prefetch_report(void *arg, const struct layer_prediction *prediction)
{
    struct prefetch *p = arg;
    if (p->options.host)
        report_host(p, prediction);
    if (p->options.cache)
        report_device(p, prediction);
}

void prefetch_send_plan(struct prefetch *p, const struct layer_state *state,
                        const struct layer_plan *plan)
{
    struct layer_hints hints;
    uint32_t next = 0;
    bool sent = false;
    while (layer_plan_hints(p->options.layer, state, plan, &next, &hints)) {
        uint32_t n = take_hints(p, hints.hints, hints.n);
        if (n)
            device_cache_predicted(p->options.cache, state->step, hints.layer, p->hints, n);
        sent |= n > 0;
    }
    if (sent)
        device_cache_notify(p->options.cache);
}

void prefetch_report_scores(struct prefetch *p, const struct predict_seen *seen)
{
    uint32_t n_experts = p->params->router.n_experts, n_used = p->params->router.n_used;
    if (!p->options.cache || !seen->gate ||
        !(device_cache_reads(p->options.cache) & CACHE_READS_SCORES))
        return;
    uint32_t most = 2 * n_used < n_experts ? 2 * n_used : n_experts;
    memset(p->scores, 0, n_experts * sizeof *p->scores);
    for (uint32_t t = 0; t < seen->n_tokens; t++) {
        memcpy(p->gate, seen->gate + (size_t)t * n_experts, n_experts * sizeof *p->gate);
        if (router_leaves_logits(p->params->router.kind))
            router_logits_to_probabilities(p->gate, 1, n_experts);
        for (uint32_t i = 0; i < n_experts; i++)
            p->scores[i] += (double)p->gate[i] / seen->n_tokens;
    }
    uint32_t n = predict_best(p->scores, n_experts, most, p->best);
    for (uint32_t i = 0; i < n; i++)
        p->hints[i] =
            (struct cache_hint){p->best[i].expert, (uint32_t)(p->best[i].probability * UINT16_MAX)};
    device_cache_scores(p->options.cache, seen->step, seen->layer, p->hints, n);
}
