/* Routing; see router.h. */
#include "model/router.h"

#include <math.h>
#include <string.h>

/* Twice the router_jitter_noise of the only model that has it. */
#define SPARSE_MIXER_REACH 0.02f

static bool taken(uint32_t expert, const uint32_t *selected, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (selected[i] == expert)
            return true;
    return false;
}

/* The largest value that is not taken. A NaN is never larger. */
static uint32_t largest(const float *value, uint32_t n, const uint32_t *selected, uint32_t rank)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < n; i++)
        if ((best == UINT32_MAX || value[i] > value[best]) && !taken(i, selected, rank))
            best = i;
    return best;
}

/* A group's score: its largest value, or the sum of its two largest. */
static float group_score(const float *value, uint32_t n, bool two)
{
    float first = -INFINITY, second = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        if (value[i] > first) {
            second = first;
            first = value[i];
        } else if (value[i] > second)
            second = value[i];
    }
    return two && n > 1 ? first + second : first;
}

/* Sets the selection values of all but the best groups to minus infinity. */
static void keep_best_groups(const struct router_params *p, float *selection)
{
    uint32_t size = p->n_experts / p->n_groups;
    float score[ROUTER_MAX_GROUPS];
    uint32_t kept[ROUTER_MAX_GROUPS];
    for (uint32_t g = 0; g < p->n_groups; g++)
        score[g] = group_score(selection + g * size, size, p->kind == ROUTER_SIGMOID);
    for (uint32_t rank = 0; rank < p->n_groups_used; rank++)
        kept[rank] = largest(score, p->n_groups, kept, rank);
    for (uint32_t g = 0; g < p->n_groups; g++)
        for (uint32_t i = 0; i < size && !taken(g, kept, p->n_groups_used); i++)
            selection[g * size + i] = -INFINITY;
}

/* For each rank: the largest remaining logit, and its share of the softmax over the logits near it.
 */
static void sparse_mixer(const struct router_params *p, const float *logits, uint32_t *selected,
                         float *weights)
{
    for (uint32_t rank = 0; rank < p->n_used; rank++) {
        uint32_t best = largest(logits, p->n_experts, selected, rank);
        float top = logits[best], sum = 0;
        for (uint32_t i = 0; i < p->n_experts; i++) {
            float size = fabsf(logits[i]) > top ? fabsf(logits[i]) : top;
            if (!taken(i, selected, rank) && !((top - logits[i]) / size > SPARSE_MIXER_REACH))
                sum += kernels_exp(logits[i] - top);
        }
        selected[rank] = best;
        weights[rank] = 1.0f / sum;
    }
}

bool router_leaves_logits(enum router_kind kind)
{
    return kind == ROUTER_SOFTMAX_SELECTED || kind == ROUTER_SPARSE_MIXER;
}

void router_logits_to_probabilities(float *rows, uint32_t n, uint32_t n_experts)
{
    for (uint32_t i = 0; i < n; i++)
        kernels_get()->softmax(rows + (size_t)i * n_experts, n_experts);
}

static void to_probabilities(const struct router_params *p, float *logits)
{
    if (p->kind == ROUTER_SOFTMAX)
        kernels_get()->softmax(logits, p->n_experts);
    else if (p->kind == ROUTER_SIGMOID)
        kernels_get()->sigmoid(logits, p->n_experts);
}

static void select_largest(const struct router_params *p, const float *value,
                           const float *selection_bias, uint32_t *selected)
{
    float selection[ROUTER_MAX_EXPERTS];
    if (selection_bias || p->n_groups) {
        for (uint32_t i = 0; i < p->n_experts; i++)
            selection[i] = value[i] + (selection_bias ? selection_bias[i] : 0);
        value = selection;
    }
    if (p->n_groups)
        keep_best_groups(p, selection);
    for (uint32_t rank = 0; rank < p->n_used; rank++)
        selected[rank] = largest(value, p->n_experts, selected, rank);
}

/* Of weights that are all 0: 1, so that they stay 0. */
static float divisor(const struct router_params *p, const float *weights)
{
    float sum = 0;
    for (uint32_t rank = 0; rank < p->n_used; rank++)
        sum += weights[rank];
    sum += p->weight_sum_eps;
    if (sum < p->weight_sum_least)
        sum = p->weight_sum_least;
    return sum == 0 ? 1 : sum;
}

void router_select(const struct router_params *p, float *logits, const float *selection_bias,
                   uint32_t *selected, float *weights)
{
    if (p->kind == ROUTER_SPARSE_MIXER)
        sparse_mixer(p, logits, selected, weights);
    else {
        bool by_logit = p->kind == ROUTER_SIGMOID && !selection_bias && !p->n_groups;
        if (!by_logit)
            to_probabilities(p, logits);
        select_largest(p, logits, selection_bias, selected);
        if (by_logit)
            to_probabilities(p, logits);
        for (uint32_t rank = 0; rank < p->n_used; rank++)
            weights[rank] = logits[selected[rank]];
        if (p->kind == ROUTER_SOFTMAX_SELECTED)
            kernels_get()->softmax(weights, p->n_used);
    }
    float by = p->renormalise ? divisor(p, weights) : 1;
    for (uint32_t rank = 0; rank < p->n_used; rank++)
        weights[rank] = weights[rank] / by * p->scale;
}
