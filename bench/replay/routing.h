/* The steps of a replay and the experts that each of them activates. They depend on the trace and
 * on the batch, not on the policy, so all runs of a batch share them (shared.h). */
#ifndef MOED_REPLAY_ROUTING_H
#define MOED_REPLAY_ROUTING_H

#include "bench/replay/steps.h"

struct routing_step {
    uint64_t first_token; /* in tokens */
    uint32_t n_tokens;
    bool decoding; /* not a prompt */
};

struct routing {
    struct routing_step *steps;
    struct predicting_token *tokens;
    uint64_t *first;               /* [n_steps * layers with experts + 1]: in the next two arrays */
    uint16_t *experts, *workloads; /* activated experts, ascending, and their tokens */
    uint64_t n_steps, n_tokens, n_activated;
    uint64_t capacity_steps, capacity_tokens, capacity_activated; /* of experts and workloads */
    uint32_t n_layers, first_layer, most_tokens;                  /* of a step */
};

/* r must be zeroed. False: no memory. */
bool routing_init(struct routing *r, const struct trace *trace,
                  const struct steps_options *options);
void routing_fini(struct routing *r); /* takes a zeroed one */

/* The activated experts of a layer with experts in steps[step]. */
static inline uint32_t routing_activated(const struct routing *r, uint64_t step, uint32_t layer,
                                         const uint16_t **experts, const uint16_t **workloads)
{
    uint64_t i = step * (r->n_layers - r->first_layer) + (layer - r->first_layer);
    *experts = r->experts + r->first[i];
    *workloads = r->workloads + r->first[i];
    return (uint32_t)(r->first[i + 1] - r->first[i]);
}

#endif
