/* MoEpic's priority of an expert; see lcp_priority.h. */
#include "base/arrays.h"
#include "sched/cache/lcp_priority.h"

#include <math.h>
#include <stdlib.h>

#define OMEGA      128.0
#define LOG_OF_RHO (-2.0) /* log2 0.25 */

bool lcp_priority_init(struct lcp_priority *p, uint32_t n_layers, uint32_t n_experts,
                       uint32_t n_used)
{
    size_t n_slabs = (size_t)n_layers * n_experts;
    *p = (struct lcp_priority){.n_experts = n_experts, .n_used = n_used ? n_used : 1};
    if (!ARRAYS_NEW(ARRAY(p->values, n_slabs), ARRAY(p->counts, n_slabs),
                    ARRAY(p->tokens, n_layers), ARRAY(p->touched, n_experts)))
        return false;
    for (size_t i = 0; i < n_slabs; i++)
        p->values[i] = -INFINITY;
    return true;
}

void lcp_priority_fini(struct lcp_priority *p)
{
    free(p->values); /* the first array: all of them */
}

/* Each token activates n_used. */
static uint64_t tokens_of_step(const struct lcp_priority *p)
{
    return (p->workload + p->n_used - 1) / p->n_used;
}

/* As of the end of the step, as far as known. */
static double value_now(const struct lcp_priority *p, uint32_t slab)
{
    double tokens = p->tokens[slab / p->n_experts] + (double)tokens_of_step(p);
    return log2(p->counts[slab]) - tokens * (LOG_OF_RHO / OMEGA);
}

bool lcp_priority_activated(struct lcp_priority *p, uint32_t slab, uint32_t workload)
{
    bool again = false;
    for (uint32_t i = 0; i < p->n_touched; i++)
        again |= p->touched[i].slab == slab;
    if (!again)
        p->touched[p->n_touched++] = (struct lcp_touched){slab, p->values[slab]};
    p->workload += workload;
    p->counts[slab] += workload;
    p->values[slab] = value_now(p, slab);
    return !again;
}

uint64_t lcp_priority_step_over(struct lcp_priority *p, uint32_t layer)
{
    uint64_t tokens = tokens_of_step(p);
    for (uint32_t i = 0; i < p->n_touched; i++)
        p->values[p->touched[i].slab] = value_now(p, p->touched[i].slab);
    p->tokens[layer] += (double)tokens;
    p->n_touched = 0;
    p->workload = 0;
    return tokens;
}

static bool is_above(double x, uint32_t x_slab, double y, uint32_t y_slab)
{
    return x > y || (x == y && x_slab < y_slab);
}

uint32_t lcp_priority_rank(const struct lcp_priority *p, uint32_t slab)
{
    uint32_t layer = slab / p->n_experts, first = layer * p->n_experts, rank = 0;
    bool in_step = p->n_touched && p->touched[0].slab / p->n_experts == layer;
    double value = p->values[slab];
    for (uint32_t i = first; i < first + p->n_experts; i++)
        rank += is_above(p->values[i], i, value, slab);
    for (uint32_t i = 0; i < p->n_touched && in_step;
         i++) { /* their values before the step differ */
        const struct lcp_touched *t = &p->touched[i];
        rank += is_above(t->before, t->slab, value, slab);
        rank -= is_above(p->values[t->slab], t->slab, value, slab);
    }
    return rank;
}
