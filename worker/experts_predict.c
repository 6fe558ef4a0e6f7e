/* Predicting the layers still to come: the experts' side of prediction.h, and telling memd; see experts_internal.h. */
#include "experts_internal.h"

#include "base/log.h"
#include "model/router.h"
#include "sched/cache.h"

#include <string.h>

/* Whether memd is told of a guess is the assigner's to say. */
static bool worth_copying(struct experts *x, const struct sched_costs *costs, double p)
{
    enum sched_assigner assigner = (enum sched_assigner)atomic_load(&x->assigner);
    enum sched_guess guess = sched_judge_guess(assigner, costs, x->step, p);
    counter_add(x->counters.declined, guess == GUESS_DECLINE);
    return guess == GUESS_COPY;
}

static bool is_on_device(const struct experts *x, uint32_t layer, uint32_t expert)
{
    return x->cache && device_cache_read(x->cache, layer, expert).resident >=
                           x->memory->map.slabs[layer].n_segments;
}

static struct cache_mention mention(const struct predicted *p)
{
    return (struct cache_mention){p->expert, (uint32_t)(p->probability * UINT16_MAX)};
}

/* Where the assigner looks ahead the next layer's plan says what is copied. */
static void keep_for_plan(struct experts *x, const struct predict_target *target,
                          const struct predicted *experts, uint32_t n_experts)
{
    x->ahead_of = *target;
    x->n_ahead = n_experts;
    for (uint32_t i = 0; i < n_experts; i++)
        x->ahead[i] = (struct sched_ahead){.expert = experts[i].expert,
                                           .distance = 1,
                                           .workload = 1,
                                           .probability = (double)experts[i].probability};
}

/* What memd may copy to the device: what is predicted and not there. Its cache policy may want to know all of it. */
static void tell_device(struct experts *x, const struct predict_target *target,
                        const struct predicted *experts, uint32_t n_experts)
{
    if (sched_assigner_looks_ahead((enum sched_assigner)atomic_load(&x->assigner))) {
        keep_for_plan(x, target, experts, n_experts);
        return;
    }
    struct sched_costs costs = experts_costs(x);
    uint32_t n = 0;
    if (device_cache_reads(x->cache) & CACHE_READS_PREDICTIONS) {
        for (uint32_t i = 0; i < n_experts; i++)
            x->mentions[i] = mention(&experts[i]);
        device_cache_expected(x->cache, target->step, target->layer, x->mentions, n_experts);
    }
    for (uint32_t i = 0; i < n_experts; i++)
        if (!is_on_device(x, target->layer, experts[i].expert) &&
            worth_copying(x, &costs, (double)experts[i].probability))
            x->mentions[n++] = mention(&experts[i]);
    if (!n)
        return;
    device_cache_predicted(x->cache, target->step, target->layer, x->mentions, n);
    device_cache_notify(x->cache);
}

/* Of the experts predicted for this layer so far those that were activated. */
static double hit_rate(const struct experts *x, uint32_t layer)
{
    enum { ENOUGH = 100 };
    uint64_t guesses, right;
    prediction_score(x->prediction, layer, &guesses, &right);
    return guesses >= ENOUGH ? (double)right / (double)guesses : 1;
}

void experts_look_ahead(struct experts *x, struct sched_layer *layer)
{
    uint32_t next = x->layer + 1;
    if (!x->n_ahead || x->ahead_of.step != x->step || x->ahead_of.layer != next || x->n_done)
        return;
    uint32_t n_segments = x->memory->map.slabs[next].n_segments;
    for (uint32_t i = 0; i < x->n_ahead; i++) {
        struct sched_ahead *a = &x->ahead[i];
        struct cached_expert there = device_cache_read(x->cache, next, a->expert);
        uint32_t n = there.resident + there.in_flight;
        a->missing = n < n_segments ? n_segments - n : 0;
        a->prefetch = false;
    }
    layer->ahead = x->ahead;
    layer->n_ahead = x->n_ahead;
    layer->attention_s = x->attention_s;
    layer->hit_rate = hit_rate(x, next);
}

void experts_tell_ahead(struct experts *x)
{
    uint32_t n = 0;
    if (x->ahead_of.step != x->step || x->ahead_of.layer != x->layer + 1)
        return;
    for (uint32_t i = 0; i < x->n_ahead; i++)
        if (x->ahead[i].prefetch)
            x->mentions[n++] = (struct cache_mention){
                x->ahead[i].expert, (uint32_t)(x->ahead[i].probability * UINT16_MAX)};
    x->n_ahead = 0;
    if (!n)
        return;
    device_cache_predicted(x->cache, x->step, x->layer + 1, x->mentions, n);
    device_cache_notify(x->cache);
}

/* And read into host memory: what is neither there nor whole on the device. */
static void tell_host(struct experts *x, const struct predict_target *target,
                      const struct predicted *experts, uint32_t n_experts)
{
    uint32_t n = 0, slot;
    for (uint32_t i = 0; i < n_experts; i++)
        if (!host_experts_find(x->host, target->layer, experts[i].expert, &slot) &&
            !is_on_device(x, target->layer, experts[i].expert))
            x->mentions[n++] = (struct cache_mention){
                experts[i].expert, (uint32_t)(experts[i].probability * UINT16_MAX)};
    if (!n)
        return;
    host_experts_predicted(x->host, target->step, target->layer, x->mentions, n);
    host_experts_notify(x->host);
}

static void tell_memd(void *arg, const struct predict_target *target,
                      const struct predicted *experts, uint32_t n_experts)
{
    struct experts *x = arg;
    if (x->host)
        tell_host(x, target, experts, n_experts);
    if (x->cache)
        tell_device(x, target, experts, n_experts);
}

/* What was trained, as memd lends it. */
static const struct sched_learned *open_learned(struct experts *x)
{
    const struct shm *s = &x->memory->learned_shm;
    char why[LEARNED_WHY];
    if (!s->base)
        return NULL;
    if (learned_view(s->base, s->bytes, &x->learned, why))
        return &x->learned;
    log_warn("what was trained for the model is not used: %s", why);
    return NULL;
}

enum error_code experts_predict_init(struct experts *x, struct error *e)
{
    const struct model_params *p = &x->memory->map.params;
    struct prediction_options options = {.shape = {.n_layers = p->n_layers,
                                                   .first_layer = p->n_dense,
                                                   .n_experts = x->n_experts,
                                                   .n_used = x->n_used,
                                                   .d_model = x->d_model,
                                                   .max_tokens = PREDICT_MAX_TOKENS,
                                                   .learned = open_learned(x),
                                                   .fine_tune = x->options.fine_tune},
                                         .predictor = x->options.predictor,
                                         .gate_is_logits = router_leaves_logits(p->router.kind),
                                         .tell = tell_memd,
                                         .tell_arg = x,
                                         .counters = x->options.prediction_counters};
    return prediction_new(&options, &x->prediction, e);
}

enum error_code experts_set_predictor(struct experts *x, enum sched_predictor predictor,
                                      struct error *e)
{
    return x->prediction ? prediction_choose(x->prediction, predictor, e) : ERROR_OK;
}

const struct prediction *experts_prediction(const struct experts *x)
{
    return x->prediction;
}

void experts_look(struct experts *x, uint32_t layer)
{
    bool is_next_step = layer <= x->layer || x->step == 0; /* as experts_begin counts */
    if (x->prediction && !x->all_there)
        prediction_look(x->prediction, x->step + is_next_step, layer);
}

/* The largest probabilities of the batch's gate, for a cache that reads them: twice as many as a token activates. */
static void tell_scores(struct experts *x, const struct predict_seen *seen)
{
    if (!x->cache || !seen->gate || seen->n_tokens > PREDICT_MAX_TOKENS ||
        !(device_cache_reads(x->cache) & CACHE_READS_SCORES))
        return;
    uint32_t most = 2 * x->n_used < x->n_experts ? 2 * x->n_used : x->n_experts;
    memset(x->scores, 0, x->n_experts * sizeof *x->scores);
    for (uint32_t t = 0; t < seen->n_tokens; t++) {
        memcpy(x->gate, seen->gate + (size_t)t * x->n_experts, x->n_experts * sizeof *x->gate);
        if (router_leaves_logits(x->memory->map.params.router.kind))
            router_logits_to_probabilities(x->gate, 1, x->n_experts);
        for (uint32_t i = 0; i < x->n_experts; i++)
            x->scores[i] += (double)x->gate[i] / seen->n_tokens;
    }
    uint32_t n = predict_best(x->scores, x->n_experts, most, x->best);
    for (uint32_t i = 0; i < n; i++)
        x->mentions[i] = mention(&x->best[i]);
    device_cache_scores(x->cache, x->step, seen->layer, x->mentions, n);
}

void experts_show(struct experts *x, struct predict_seen seen)
{
    if (seen.layer != PREDICT_EMBEDDING)
        tell_scores(x, &seen);
    if (!x->prediction || x->all_there)
        return;
    seen.step = x->step + (seen.layer == PREDICT_EMBEDDING); /* begin has not counted it yet */
    prediction_show(x->prediction, &seen);
}

bool experts_predict_gate(struct experts *x, struct predict_seen seen, uint32_t i,
                          struct predict_target *target, const float **input)
{
    seen.step = x->step;
    return x->prediction && !x->all_there && /* else nothing is left to copy ahead */
           prediction_gate(x->prediction, &seen, i, target, input);
}

void experts_predict_guess(struct experts *x, struct predict_seen seen,
                           const struct predict_target *target, const uint32_t *guessed)
{
    seen.step = x->step;
    prediction_guess(x->prediction, &seen, target, guessed);
}
