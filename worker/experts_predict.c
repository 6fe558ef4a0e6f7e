/* Predicting the layers still to come: the experts' side of prediction.h, and telling memd; see experts_internal.h. */
#include "experts_internal.h"

#define EXPLORE_STEPS 32

/* moed's currency: a guess is worth what copying it ahead saves. One step in EXPLORE_STEPS copies nothing ahead and one
 * copies all that is guessed, so that it stays known how much copies slow the CPU down. The papers' policies copy all
 * that they predict. */
static bool worth_copying(struct experts *x, const struct sched_costs *costs, double p)
{
    uint64_t turn = x->step % EXPLORE_STEPS;
    if (atomic_load(&x->assigner) != ASSIGN_BALANCE || turn == EXPLORE_STEPS / 2)
        return true;
    if (turn == 0)
        return false;
    if (sched_prefetch_gain(costs, p) > 0)
        return true;
    counter_add(x->counters.declined, 1);
    return false;
}

static bool is_on_device(const struct experts *x, uint32_t layer, uint32_t expert)
{
    return x->cache && device_cache_read(x->cache, layer, expert).resident >=
                           x->memory->map.slabs[layer].n_segments;
}

/* What memd may copy to the device: what is predicted and not there. */
static void tell_device(struct experts *x, const struct predict_target *target,
                        const struct predicted *experts, uint32_t n_experts)
{
    struct sched_costs costs = experts_costs(x);
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_experts; i++)
        if (!is_on_device(x, target->layer, experts[i].expert) &&
            worth_copying(x, &costs, experts[i].probability))
            x->mentions[n++] = (struct cache_mention){
                experts[i].expert, (uint32_t)(experts[i].probability * UINT16_MAX)};
    if (!n)
        return;
    device_cache_predicted(x->cache, target->step, target->layer, x->mentions, n);
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

enum error_code experts_predict_init(struct experts *x, struct error *e)
{
    const struct model_params *p = &x->memory->map.params;
    struct prediction_options options = {.shape = {.n_layers = p->n_layers,
                                                   .first_layer = p->n_dense,
                                                   .n_experts = x->n_experts,
                                                   .n_used = x->n_used,
                                                   .d_model = x->d_model,
                                                   .max_tokens = PREDICT_MAX_TOKENS},
                                         .predictor = x->options.predictor,
                                         .gate_is_logits =
                                             p->router.kind == ROUTER_SOFTMAX_SELECTED ||
                                             p->router.kind == ROUTER_SPARSE_MIXER,
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

void experts_show(struct experts *x, struct predict_seen seen)
{
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
