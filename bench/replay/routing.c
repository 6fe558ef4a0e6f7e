/* The steps of a replay and their activated experts; see routing.h. */
#include "bench/replay/routing.h"

#include <stdlib.h>
#include <string.h>

/* Makes space for `more` entries after the first n. */
static bool reserve(void **list, uint64_t n, uint64_t more, uint64_t *capacity, size_t size)
{
    if (n + more <= *capacity)
        return true;
    uint64_t grown = 2 * *capacity + more;
    void *memory = grown > SIZE_MAX / size ? NULL : realloc(*list, grown * size);
    if (!memory)
        return false;
    *list = memory;
    *capacity = grown;
    return true;
}

/* Copies the steps of the trace, without their experts. */
static bool take_steps(struct routing *r, struct steps *from)
{
    bool decoding;
    uint32_t n;
    while ((n = steps_next(from, &decoding))) {
        if (!reserve((void **)&r->steps, r->n_steps, 1, &r->capacity_steps, sizeof *r->steps) ||
            !reserve((void **)&r->tokens, r->n_tokens, n, &r->capacity_tokens, sizeof *r->tokens))
            return false;
        r->steps[r->n_steps++] = (struct routing_step){r->n_tokens, n, decoding};
        memcpy(r->tokens + r->n_tokens, from->tokens, n * sizeof *r->tokens);
        r->n_tokens += n;
        r->most_tokens = n > r->most_tokens ? n : r->most_tokens;
    }
    return true;
}

static bool reserve_activated(struct routing *r, uint32_t n)
{
    uint64_t capacity = r->capacity_activated;
    if (!reserve((void **)&r->experts, r->n_activated, n, &capacity, sizeof *r->experts))
        return false;
    return reserve((void **)&r->workloads, r->n_activated, n, &r->capacity_activated,
                   sizeof *r->workloads);
}

/* Appends the experts of one layer in one step. counts: [n_experts], 0 before and after. */
static bool take_layer(struct routing *r, const struct trace *trace,
                       const struct routing_step *step, uint32_t layer, uint32_t *selected,
                       uint32_t *counts)
{
    const struct trace_shape *shape = trace_shape(trace);
    if (!reserve_activated(r, shape->n_experts))
        return false;
    for (uint32_t t = 0; t < step->n_tokens; t++) {
        const struct predicting_token *token = &r->tokens[step->first_token + t];
        trace_selected(trace, token->sequence, token->token, layer, selected);
        for (uint32_t k = 0; k < shape->n_used; k++)
            counts[selected[k]]++;
    }
    for (uint32_t i = 0; i < shape->n_experts; i++)
        if (counts[i]) {
            r->experts[r->n_activated] = (uint16_t)i;
            r->workloads[r->n_activated++] =
                (uint16_t)(counts[i] < UINT16_MAX ? counts[i] : UINT16_MAX);
            counts[i] = 0;
        }
    return true;
}

static bool take_activated(struct routing *r, const struct trace *trace)
{
    const struct trace_shape *shape = trace_shape(trace);
    uint32_t *selected = calloc(shape->n_used, sizeof *selected);
    uint32_t *counts = calloc(shape->n_experts, sizeof *counts);
    uint64_t at = 0;
    r->first = calloc(r->n_steps * (r->n_layers - r->first_layer) + 1, sizeof *r->first);
    bool ok = selected && counts && r->first && reserve_activated(r, shape->n_experts);
    for (uint64_t step = 0; ok && step < r->n_steps; step++)
        for (uint32_t layer = r->first_layer; ok && layer < r->n_layers; layer++) {
            ok = take_layer(r, trace, &r->steps[step], layer, selected, counts);
            r->first[++at] = r->n_activated;
        }
    free(selected);
    free(counts);
    return ok;
}

bool routing_init(struct routing *r, const struct trace *trace, const struct steps_options *options)
{
    struct steps steps = {0};
    r->n_layers = trace_shape(trace)->n_layers;
    r->first_layer = trace_shape(trace)->first_layer;
    bool ok = steps_init(&steps, trace, options) && take_steps(r, &steps);
    steps_fini(&steps);
    return ok && take_activated(r, trace);
}

void routing_fini(struct routing *r)
{
    free(r->steps);
    free(r->tokens);
    free(r->first);
    free(r->experts);
    free(r->workloads);
    *r = (struct routing){0};
}
