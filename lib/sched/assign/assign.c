/* Assigning a layer's experts: the entry point, and the assigners that have nothing to decide
 * (layerwise). */
#include "sched/assign/assign_internal.h"

#include <math.h>
#include <stddef.h>

static void assign_layerwise(const struct assignment *a)
{
    for (uint32_t i = 0; i < a->n; i++) {
        struct sched_expert *e = &a->experts[i];
        if (e->resident >= a->layer->n_segments)
            assign_to_device(a->layer, e);
        else
            assign_all_to_cpu(e);
    }
}

/* The same in a step of fewer tokens than these. A larger one is computed on the device, experts
 * that are not there included. */
static void assign_layerwise_below(const struct assignment *a, uint32_t n_tokens)
{
    if (a->layer->n_tokens >= n_tokens)
        assign_load_all(a);
    else
        assign_layerwise(a);
}

/* KTransformers' --kt-gpu-prefill-token-threshold; this value is its tutorial's. */
static void assign_layerwise_stream(const struct assignment *a)
{
    assign_layerwise_below(a, 512);
}

/* llama.cpp: an operation on a batch of 32 tokens or more copies weights in host memory to the GPU
 * (pull request 6083), of a layer's experts those that are used (15346). --no-op-offload switches
 * that off: ASSIGN_LAYERWISE. */
static void assign_layerwise_offload(const struct assignment *a)
{
    assign_layerwise_below(a, 32);
}

double sched_assign(enum sched_assigner kind, const struct sched_costs *costs,
                    const struct sched_layer *layer, struct sched_expert *experts, uint32_t n)
{
    static void (*const assigners[])(const struct assignment *) = {
        [ASSIGN_LOAD_ALL] = assign_load_all,
        [ASSIGN_THRESHOLD] = assign_threshold,
        [ASSIGN_QSTAR] = assign_qstar,
        [ASSIGN_GREEDY] = assign_greedy,
        [ASSIGN_LAYERWISE] = assign_layerwise,
        [ASSIGN_PRESCHED] = assign_presched,
        [ASSIGN_SCORE_QUEUE] = assign_score_queue,
        [ASSIGN_BALANCE] = assign_balance,
        [ASSIGN_QSTAR_STREAM] = assign_qstar_stream,
        [ASSIGN_GREEDY_UNBOUND] = assign_greedy,
        [ASSIGN_LAYERWISE_STREAM] = assign_layerwise_stream,
        [ASSIGN_LAYERWISE_OFFLOAD] = assign_layerwise_offload,
        [ASSIGN_OPTIMAL] = assign_greedy,
    };
    struct assignment a = {costs, layer, experts, n < SCHED_MAX_EXPERTS ? n : SCHED_MAX_EXPERTS,
                           NULL};
    bool has_cpu = isfinite(costs->cpu_s) && isfinite(costs->cpu_contended_s);
    (has_cpu ? assigners[kind] : assign_load_all)(&a);
    struct assign_work work = {0};
    for (uint32_t i = 0; i < a.n; i++)
        assign_add(&a, &experts[i], &work);
    return assign_finish(&a, &work);
}
