/* The decisions of one MoE layer; see layer.h. */
#include "layer.h"

#include "base/arrays.h"
#include "sched/cache/cache.h"

#include <stdlib.h>
#include <string.h>

struct layer {
    struct layer_options options;
    void *memory; /* of the arrays */
    uint32_t *n_segments;
    uint64_t *last_use;                  /* [n_layers][n_experts]: step; 0: never */
    struct sched_expert *plan;           /* [n_experts] */
    struct prefetch_candidate *missing;  /* [n_experts] */
    struct layer_hint *expected, *fetch; /* [n_experts] */
    /* What the cache prefetches of the next layer in a step that streams (sched_cache_streams). */
    struct {
        uint64_t step;
        uint32_t layer;   /* the next one */
        uint32_t missing; /* segments that it lacked when the layer before it was planned */
        double *share;    /* [n_layers]: of the missing ones, came in the last such step */
    } next;
};

struct layer *layer_new(const struct layer_options *options)
{
    struct layer *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->options = *options;
    size_t experts = options->n_experts;
    l->memory = ARRAYS_NEW(ARRAY(l->n_segments, options->n_layers),
                           ARRAY(l->last_use, options->n_layers * experts), ARRAY(l->plan, experts),
                           ARRAY(l->missing, experts), ARRAY(l->expected, experts),
                           ARRAY(l->fetch, experts), ARRAY(l->next.share, options->n_layers));
    if (!l->memory) {
        free(l);
        return NULL;
    }
    memcpy(l->n_segments, options->n_segments, options->n_layers * sizeof *l->n_segments);
    return l;
}

void layer_free(struct layer *l)
{
    if (!l)
        return;
    free(l->memory);
    free(l);
}

/* ---- The plan ---- */

void layer_used(struct layer *l, uint64_t step, uint32_t layer, uint32_t expert)
{
    l->last_use[(size_t)layer * l->options.n_experts + expert] = step;
}

static bool fill_plan(struct layer *l, const struct layer_state *state,
                      const struct layer_expert *experts, uint32_t n)
{
    const uint64_t *last_use = l->last_use + (size_t)state->layer * l->options.n_experts;
    bool all_resident = true;
    for (uint32_t i = 0; i < n; i++) {
        const struct layer_expert *e = &experts[i];
        l->plan[i] = (struct sched_expert){.expert = e->expert,
                                           .workload = e->workload,
                                           .resident = state->no_device ? 0 : e->there.resident,
                                           .in_flight = state->no_loads ? 0 : e->there.in_flight,
                                           .last_use = last_use[e->expert]};
        layer_used(l, state->step, state->layer, e->expert);
        all_resident &= l->plan[i].resident >= l->n_segments[state->layer];
    }
    return all_resident;
}

static struct layer_residency residency(const struct layer *l, uint32_t layer, uint32_t expert)
{
    return l->options.residency(l->options.residency_arg, layer, expert);
}

static void fill_upcoming(const struct layer *l, const struct layer_state *state)
{
    for (uint32_t i = 0; i < state->n_upcoming; i++) {
        struct sched_upcoming *u = &state->upcoming[i];
        uint32_t layer = state->layer + u->distance, n_segments = l->n_segments[layer];
        struct layer_residency there = residency(l, layer, u->expert);
        uint32_t n = there.resident + there.in_flight;
        u->missing = n < n_segments ? n_segments - n : 0;
    }
}

static uint32_t layer_missing(const struct layer *l, uint32_t layer)
{
    uint32_t n = l->n_segments[layer], missing = 0;
    for (uint32_t e = 0; e < l->options.n_experts; e++) {
        struct layer_residency there = residency(l, layer, e);
        uint32_t come = there.resident + there.in_flight;
        missing += come < n ? n - come : 0;
    }
    return missing;
}

/* How many segments of the next layer the cache will prefetch while this layer is computed: the
 * same share of the missing ones as in the last step that streamed. The cache decides that, in
 * another process, so it is measured; where the layer is planned in rounds, by the last of them. */
static uint32_t prefetches_of_next(struct layer *l, const struct layer_state *state)
{
    uint32_t layer = state->layer, next = layer + 1;
    if (!sched_cache_streams(state->prompt, state->n_activated, l->options.n_experts))
        return 0;
    if (l->next.step == state->step && l->next.layer == layer && l->next.missing) {
        uint32_t missing = layer_missing(l, layer), before = l->next.missing;
        l->next.share[layer] = missing < before ? (double)(before - missing) / before : 0;
    }
    l->next.step = state->step;
    l->next.layer = next;
    l->next.missing = next < l->options.n_layers ? layer_missing(l, next) : 0;
    return l->next.missing ? (uint32_t)(l->next.share[next] * l->next.missing) : 0;
}

static double assign(struct layer *l, const struct layer_state *state,
                     const struct sched_layer *layer, uint32_t n)
{
    const struct layer_options *o = &l->options;
    return o->assign ? o->assign(o->assign_arg, state->assigner, state->costs, layer, l->plan, n)
                     : sched_assign(state->assigner, state->costs, layer, l->plan, n);
}

/* The CPU takes every load while the device computes its part, or takes the whole expert. */
static void drop_loads(struct layer *l, uint32_t n, bool whole)
{
    for (uint32_t i = 0; i < n; i++) {
        if (l->plan[i].load && whole)
            l->plan[i].device = 0;
        l->plan[i].load = 0;
    }
}

/* A device with fewer slots than one expert has segments holds a part of it, or none. */
static void limit_to_slots(struct sched_expert *e, uint32_t n_slots, bool whole)
{
    if (e->device + e->load <= n_slots)
        return;
    e->device = whole ? 0 : e->device < n_slots ? e->device : n_slots;
    e->load = whole ? 0 : n_slots - e->device;
}

/* What the layer would take if all its experts were resident. */
static double resident_s(const struct layer *l, const struct layer_state *state, uint32_t n)
{
    double s = state->device_call_s;
    for (uint32_t i = 0; i < n; i++)
        s += l->n_segments[state->layer] * sched_device_s(state->costs, l->plan[i].workload);
    return s;
}

static uint32_t spare_slots(const struct layer_state *state)
{
    return state->no_loads ? 0 : sched_spare_slots(state->assigner, state->n_slots, state->n_spare);
}

static uint32_t free_slots(const struct layer_state *state)
{
    uint32_t prefetches = state->prefetches ? state->n_spare / 2 : 0;
    return state->no_loads ? 0 : state->n_spare - prefetches;
}

void layer_plan(struct layer *l, const struct layer_state *state,
                const struct layer_expert *experts, uint32_t n, struct layer_plan *out)
{
    struct sched_layer layer = {
        .n_segments = l->n_segments[state->layer],
        .spare_slots = spare_slots(state),
        .free_slots = free_slots(state),
        .whole = state->whole,
        .n_tokens = state->n_tokens,
        .prompt = state->prompt,
        .device_call_s = state->device_call_s,
        .never_waits = state->never_waits,
        .cpu_busy_s = state->cpu_busy_s,
        .link_busy_s = state->link_busy_s,
        .prefetches = prefetches_of_next(l, state),
        .upcoming = state->upcoming,
        .n_upcoming = state->n_upcoming,
        .attention_s = state->attention_s,
    };
    fill_upcoming(l, state);
    out->all_resident = fill_plan(l, state, experts, n);
    out->predicted_s = assign(l, state, &layer, n);
    out->misses_s = fmax(out->predicted_s - resident_s(l, state, n), 0);
    if (state->no_loads)
        drop_loads(l, n, state->whole);
    out->device_waits = sched_device_waits(state->costs, &layer, l->plan, n);
    for (uint32_t i = 0; i < n; i++)
        limit_to_slots(&l->plan[i], state->n_slots, state->whole);
    out->experts = l->plan;
    out->upcoming = state->upcoming;
    out->n_upcoming = state->n_upcoming;
}

/* ---- Hints ---- */

static struct layer_hint hint(uint32_t expert, double probability)
{
    return (struct layer_hint){(uint16_t)expert, (uint16_t)(probability * UINT16_MAX)};
}

bool layer_plan_hints(struct layer *l, const struct layer_state *state,
                      const struct layer_plan *plan, uint32_t *next, struct layer_hints *out)
{
    if (*next >= plan->n_upcoming)
        return false;
    uint32_t n = 0, distance = plan->upcoming[*next].distance;
    for (; *next < plan->n_upcoming && plan->upcoming[*next].distance == distance; ++*next) {
        const struct sched_upcoming *u = &plan->upcoming[*next];
        if (u->prefetch && n < l->options.n_experts)
            l->fetch[n++] = hint(u->expert, u->probability);
    }
    *out = (struct layer_hints){.layer = state->layer + distance, .hints = l->fetch, .n = n};
    return true;
}

/* The experts that are not whole on the device, in the order of the prediction: *n_missing of them.
 * Returns how many of the first may be copied. */
static uint32_t gather_missing(struct layer *l, const struct layer_prediction *p, uint32_t most,
                               uint32_t *n_missing)
{
    uint32_t n_segments = l->n_segments[p->target.layer], n = 0, n_judged = 0;
    for (uint32_t i = 0; i < p->n_known; i++) {
        uint32_t there = residency(l, p->target.layer, p->experts[i].expert).resident;
        if (there >= n_segments)
            continue;
        l->missing[n++] = (struct prefetch_candidate){
            .p = (double)p->experts[i].probability, .missing = n_segments - there, .which = i};
        n_judged += i < p->n && i < most;
    }
    *n_missing = n;
    return n_judged;
}

static void judge_missing(struct layer *l, const struct layer_judge *judge,
                          const struct layer_prediction *p, struct layer_judgement *out)
{
    uint32_t most = sched_prefetch_most(judge->prefetcher, l->options.n_experts);
    uint32_t n_missing, n_judged = gather_missing(l, p, most, &n_missing);
    prefetch_judge_candidates(judge->prefetcher, judge->costs, judge->call_s, judge->step,
                              l->missing, n_judged, n_missing);
    for (uint32_t i = 0; i < n_judged; i++) {
        const struct prefetch_candidate *c = &l->missing[i];
        out->n_declined += c->verdict == CANDIDATE_DECLINE;
        if (c->verdict == CANDIDATE_PREFETCH)
            l->fetch[out->n_fetch++] = hint(p->experts[c->which].expert, c->p);
    }
}

void layer_judge(struct layer *l, const struct layer_judge *judge,
                 const struct layer_prediction *prediction, struct layer_judgement *out)
{
    *out = (struct layer_judgement){.expected = l->expected, .fetch = l->fetch};
    if (sched_assigner_plans_prefetch(judge->assigner))
        return;
    for (uint32_t i = 0; judge->expected && i < prediction->n_known; i++) {
        const struct predicted *e = &prediction->experts[i];
        l->expected[out->n_expected++] = hint(e->expert, (double)e->probability);
    }
    if (!judge->nothing)
        judge_missing(l, judge, prediction, out);
}
