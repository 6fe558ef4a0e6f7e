/* Simulates one layer of a step; see simulate.h. The order is that of worker/experts: report the
 * predictions, plan the layer from the residency, start the CPU, compute the resident
 * segments on the device, then each load as it arrives. */
#include "bench/replay/simulation.h"

#include "base/clock.h"
#include "bench/replay/deciding.h"
#include "bench/replay/optimal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The worker splits no expert in a layer with more rows. */
#define CHANNEL_TOKENS 256

/* ---- Predictions ---- */

static bool is_whole(const struct simulation *s, uint32_t layer, uint32_t expert)
{
    return transfer_scheduler_resident(s->engine.transfers, layer, expert) >=
           trace_layer(s->run->trace, layer)->n_segments;
}

/* Sends hints to the transfer scheduler. */
struct hints {
    uint16_t experts[CACHE_PREDICTIONS], values[CACHE_PREDICTIONS];
    uint32_t n;
};

static void take_hints(const struct layer_hint *hints, uint32_t n, struct hints *out)
{
    out->n = n < CACHE_PREDICTIONS ? n : CACHE_PREDICTIONS;
    for (uint32_t i = 0; i < out->n; i++) {
        out->experts[i] = hints[i].expert;
        out->values[i] = hints[i].value;
    }
}

static void report_hints(struct simulation *s, uint64_t step, uint32_t layer,
                         const struct layer_hint *hints, uint32_t n)
{
    struct hints h;
    take_hints(hints, n, &h);
    if (h.n)
        transfer_scheduler_predicted(s->engine.transfers, 0, step, layer, h.experts, h.values, h.n);
    engine_wake(&s->engine);
}

/* Notes the predicted experts for the hit rate, at most as many as can be activated. */
static void note_claim(struct simulation *s, const struct layer_prediction *p)
{
    uint8_t *flags = s->predicted + (size_t)p->target.layer * s->shape->n_experts;
    memset(flags, 0, s->shape->n_experts);
    for (uint32_t i = 0; i < p->n && i < s->n_tokens * s->shape->n_used; i++)
        flags[p->experts[i].expert] = 1;
}

void simulate_layer_predicted(void *simulation, const struct layer_prediction *p)
{
    struct simulation *s = simulation;
    const struct sched_policy *policy = s->run->policy;
    const struct machine *m = s->run->machine;
    struct sched_costs costs = s->costs[p->target.layer];
    costs.cpu_share = s->engine.now_s > 0 ? s->engine.cpu_computed_s / s->engine.now_s : 0;
    const struct layer_judge judge = {
        .assigner = policy->assigner,
        .prefetcher = policy->prefetcher,
        .costs = &costs,
        .call_s = fmax(0, m->cpu_call_s - m->device_call_s),
        .step = s->step,
        .expected = sched_cache_reads(policy->cache) & CACHE_READS_PREDICTIONS,
    };
    struct layer_judgement judgement;
    note_claim(s, p);
    if (sched_assigner_plans_prefetch(policy->assigner))
        return;
    layer_judge(s->layer, &judge, p, &judgement);
    if (judge.expected) {
        struct hints expected;
        take_hints(judgement.expected, judgement.n_expected, &expected);
        transfer_scheduler_expected(s->engine.transfers, p->target.step, p->target.layer,
                                    expected.experts, expected.values, expected.n);
    }
    report_hints(s, p->target.step, p->target.layer, judgement.fetch, judgement.n_fetch);
}

/* Counts the layer's predicted experts: all, resident, and activated. */
static void count_predicted(struct simulation *s, uint32_t layer)
{
    uint8_t *flags = s->predicted + (size_t)layer * s->shape->n_experts;
    if (s->run->policy->predictor == PREDICT_NONE)
        return;
    for (uint32_t i = 0; i < s->n_activated; i++)
        s->predicted_right += flags[s->experts[i]];
    for (uint32_t i = 0; i < s->shape->n_experts; i++) {
        s->fetched_of += flags[i];
        s->fetched += flags[i] && is_whole(s, layer, i);
        flags[i] = 0;
    }
}

/* ---- A layer ---- */

/* Finds the activated experts of a layer of the step. */
static void gather(struct simulation *s, uint32_t layer)
{
    s->n_activated = routing_activated(s->routing, s->step - 1, layer, &s->experts, &s->workloads);
}

static void gather_selected(struct simulation *s, uint32_t layer)
{
    for (uint32_t t = 0; t < s->n_tokens; t++)
        trace_selected(s->run->trace, s->tokens[t].sequence, s->tokens[t].token, layer,
                       s->selected + (size_t)t * s->shape->n_used);
}

/* The largest gate probabilities of the batch, for caches that read them: twice as many as a token
 * activates. */
static void report_scores(struct simulation *s, uint32_t layer, uint32_t n_tokens)
{
    if (!(sched_cache_reads(s->run->policy->cache) & CACHE_READS_SCORES) ||
        !(s->shape->has & TRACE_GATE))
        return;
    uint32_t n_experts = s->shape->n_experts, most = 2 * s->shape->n_used;
    memset(s->gate_sum, 0, n_experts * sizeof *s->gate_sum);
    for (uint32_t t = 0; t < n_tokens; t++) {
        trace_gate(s->run->trace, s->tokens[t].sequence, s->tokens[t].token, layer, s->gate);
        for (uint32_t i = 0; i < n_experts; i++)
            s->gate_sum[i] += s->gate[i] / (float)n_tokens;
    }
    for (uint32_t i = 0; i < n_experts; i++)
        s->probability[i] = (double)s->gate_sum[i];
    uint32_t n =
        predict_best(s->probability, n_experts, most < n_experts ? most : n_experts, s->best);
    for (uint32_t i = 0; i < n; i++) {
        uint16_t expert = (uint16_t)s->best[i].expert;
        sched_cache_scored(s->engine.cache, layer, &expert, &s->best[i].probability, 1);
    }
}

static void report_routed(struct simulation *s, uint32_t layer, uint32_t n_tokens)
{
    if (s->future)
        future_advance(s->future, s->step, layer);
    transfer_scheduler_place(s->engine.transfers, 0, s->step << 16 | layer);
    transfer_scheduler_routed(s->engine.transfers, 0, s->step, s->step << 16 | layer, s->prompt,
                              s->experts, s->workloads, s->n_activated);
    report_scores(s, layer, n_tokens);
    engine_wake(&s->engine);
}

/* The exact assignment needs a solver. The search stops at a plan within half a per cent of the
 * optimum, or after 200 nodes with the best plan so far. A longer search changes results by less
 * than that. */
static double assign(void *arg, enum sched_assigner assigner, const struct sched_costs *costs,
                     const struct sched_layer *layer, struct sched_expert *experts, uint32_t n)
{
    const struct optimal_options options = {.gap = 0.005, .max_nodes = 200};
    bool proven;
    if (assigner == ASSIGN_OPTIMAL)
        return optimal_assign(costs, layer, experts, n, &options, &proven);
    return sched_assign(assigner, costs, layer, experts, n);
}

static struct layer_residency residency(void *arg, uint32_t layer, uint32_t expert)
{
    const struct simulation *s = arg;
    return (struct layer_residency){
        .resident = transfer_scheduler_resident(s->engine.transfers, layer, expert),
        .in_flight = transfer_scheduler_filling(s->engine.transfers, layer, expert)};
}

bool simulate_layer_init(struct simulation *s)
{
    uint32_t *n_segments = calloc(s->shape->n_layers, sizeof *n_segments);
    for (uint32_t l = s->shape->first_layer; n_segments && l < s->shape->n_layers; l++)
        n_segments[l] = trace_layer(s->run->trace, l)->n_segments;
    const struct layer_options options = {.n_layers = s->shape->n_layers,
                                          .n_experts = s->shape->n_experts,
                                          .n_segments = n_segments,
                                          .residency = residency,
                                          .residency_arg = s,
                                          .assign = assign};
    s->layer = n_segments ? layer_new(&options) : NULL;
    free(n_segments);
    return s->layer;
}

static void count_plan(struct simulation *s, uint32_t n_segments)
{
    for (uint32_t i = 0; i < s->n_activated; i++) {
        const struct sched_expert *e = &s->plan.experts[i];
        s->segments += n_segments;
        s->hits += e->resident;
        s->on_device += e->device;
        s->loaded += e->load;
    }
}

static void plan(struct simulation *s, uint32_t layer, uint32_t n_tokens)
{
    struct engine *e = &s->engine;
    uint32_t n_segments = trace_layer(s->run->trace, layer)->n_segments, next = 0;
    double rest_s = e->copying ? e->job_left_s : 0;
    uint64_t started = clock_ns();
    struct layer_state state = {
        .step = s->step,
        .layer = layer,
        .assigner = s->run->policy->assigner,
        .costs = &s->costs[layer],
        .n_slots = e->n_slots,
        .n_spare = e->reserve,
        .n_tokens = n_tokens,
        .prompt = s->prompt,
        .n_activated = s->n_activated,
        .prefetches = s->predicts && s->run->policy->predictor != PREDICT_NONE,
        .whole = (uint64_t)n_tokens * n_segments > CHANNEL_TOKENS,
        .device_call_s = simulate_call_s(s, true),
        .cpu_busy_s = simulate_call_s(s, false),
        .link_busy_s = rest_s + s->run->machine->link_call_s,
        .attention_s = s->run->machine->attention_s,
    };
    if (sched_assigner_plans_prefetch(state.assigner) && s->predicts)
        state.upcoming = predicting_upcoming(s->predicting, layer, &state.n_upcoming);
    for (uint32_t i = 0; i < s->n_activated; i++)
        s->activated[i] = (struct layer_expert){.expert = s->experts[i],
                                                .workload = s->workloads[i],
                                                .there = residency(s, layer, s->experts[i])};
    layer_plan(s->layer, &state, s->activated, s->n_activated, &s->plan);
    if (s->predicts)
        layer_mean_add(&s->misses_s, s->plan.misses_s);
    s->decision_ns += clock_ns() - started;
    s->decisions++;
    count_plan(s, n_segments);
    struct layer_hints hints;
    while (layer_plan_hints(s->layer, &state, &s->plan, &next, &hints))
        report_hints(s, s->step, hints.layer, hints.hints, hints.n);
}

static double compute_on_device(struct simulation *s, uint32_t layer, uint32_t segments,
                                uint32_t workload)
{
    double t = segments * sched_device_s(&s->costs[layer], workload);
    s->device_s += t;
    return t;
}

static void give_cpu(struct simulation *s, uint32_t layer)
{
    const struct sched_costs *c = &s->costs[layer];
    uint32_t n_segments = trace_layer(s->run->trace, layer)->n_segments;
    double uncontended_s = 0, contended_s = 0;
    for (uint32_t i = 0; i < s->n_activated; i++) {
        uint32_t n = n_segments - s->plan.experts[i].device - s->plan.experts[i].load;
        uncontended_s += n * sched_cpu_s(c, s->plan.experts[i].workload);
        contended_s += n * sched_cpu_contended_s(c, s->plan.experts[i].workload);
    }
    if (uncontended_s > 0)
        engine_give_cpu(&s->engine, simulate_call_s(s, false), uncontended_s,
                        contended_s / uncontended_s);
}

/* Computes what has arrived of the load of expert i. */
static double compute_load(struct simulation *s, uint32_t layer, uint32_t i)
{
    const struct sched_expert *p = &s->plan.experts[i];
    uint32_t there = transfer_scheduler_resident(s->engine.transfers, layer, p->expert);
    uint32_t before = s->done[i];
    there = there < p->device + p->load ? there : p->device + p->load;
    if (there <= before)
        return 0;
    s->done[i] = there;
    return compute_on_device(s, layer, there - before, p->workload);
}

/* The places, ascending, of the activated experts from place `first` on of which a segment has
 * arrived since copy `since`. */
static uint32_t find_arrived(const struct simulation *s, uint32_t layer, uint32_t first,
                             uint64_t since, uint32_t places[ENGINE_ARRIVALS])
{
    const struct engine *e = &s->engine;
    uint32_t n = 0;
    for (uint64_t k = since; k < e->copies_made; k++) {
        const struct engine_arrival *a = &e->arrivals[k % ENGINE_ARRIVALS];
        uint32_t place = s->place[a->expert], at = n;
        if (a->layer != layer || place < first || place >= s->n_activated ||
            s->experts[place] != a->expert)
            continue;
        while (at > 0 && places[at - 1] > place)
            at--;
        if (at > 0 && places[at - 1] == place)
            continue;
        memmove(&places[at + 1], &places[at], (n++ - at) * sizeof *places);
        places[at] = place;
    }
    return n;
}

/* Computes in one call what has arrived of the loads of experts [first, n_activated). *since: the
 * copies that have been looked at; UINT64_MAX: none. */
static void compute_arrived(struct simulation *s, uint32_t layer, uint32_t first, uint64_t *since)
{
    struct engine *e = &s->engine;
    double took_s = simulate_call_s(s, true);
    uint32_t places[ENGINE_ARRIVALS];
    engine_begin_reading(e);
    if (*since != UINT64_MAX && e->copies_made - *since <= ENGINE_ARRIVALS) {
        uint32_t n = find_arrived(s, layer, first, *since, places);
        for (uint32_t i = 0; i < n; i++)
            took_s += compute_load(s, layer, places[i]);
    } else {
        for (uint32_t i = first; i < s->n_activated; i++)
            took_s += compute_load(s, layer, i);
    }
    *since = e->copies_made;
    engine_advance_to(e, e->now_s + took_s);
    engine_end_reading(e);
}

static void compute_loads(struct simulation *s, uint32_t layer)
{
    struct engine *e = &s->engine;
    uint64_t since = UINT64_MAX;
    for (uint32_t i = 0; i < s->n_activated; i++) {
        s->done[i] = s->plan.experts[i].device;
        s->place[s->experts[i]] = i;
    }
    for (uint32_t i = 0; i < s->n_activated; i++) {
        const struct sched_expert *p = &s->plan.experts[i];
        while (s->done[i] < p->device + p->load &&
               engine_await(e, layer, p->expert, s->done[i] + 1))
            compute_arrived(s, layer, i, &since);
        if (p->load)
            engine_consumed(e);
    }
}

static double predict_call_s(const struct simulation *s)
{
    return s->predicts ? deciding_call_s(s->run->machine, s->run->policy->predictor) : 0;
}

/* The plan's loads on an idle link. */
static double loads_s(const struct simulation *s, uint32_t layer)
{
    double took_s = s->run->machine->link_call_s;
    for (uint32_t i = 0; i < s->n_activated; i++)
        took_s += s->plan.experts[i].load * s->costs[layer].load_s;
    return took_s;
}

/* The prediction occupies the engine's thread while the device computes for device_s; then the
 * device evaluates the later layer's gate. Copies and the CPU continue. */
static void predict(struct simulation *s, uint32_t layer, uint32_t n_tokens, double device_s)
{
    const struct machine *m = s->run->machine;
    enum sched_predictor predictor = s->run->policy->predictor;
    double call_s = predict_call_s(s);
    double gate_s = s->predicts ? deciding_gate_s(m, predictor, s->shape, layer, n_tokens) : 0;
    bool gates = prefetch_gate_pays(s->run->policy->prefetcher, predicting_early(s->predicting),
                                    gate_s, s->layer_s, s->misses_s);
    gate_s = gates ? gate_s : 0;
    engine_advance_to(&s->engine,
                      s->engine.now_s + (device_s > call_s ? device_s : call_s) + gate_s);
    if (s->predicts)
        predicting_show(s->predicting, layer, s->selected, gates);
}

/* Computes the resident segments and the one load together, after its arrival. The prediction comes
 * first if the load takes longer. If not, it overlaps the device's call: most of its time is taken
 * by receiving, judging and hinting, which the worker does while the device computes. */
static void compute_at_once(struct simulation *s, uint32_t layer, uint32_t n_tokens)
{
    struct engine *e = &s->engine;
    double took_s = simulate_call_s(s, true);
    bool late = loads_s(s, layer) < predict_call_s(s);
    if (!late)
        predict(s, layer, n_tokens, 0);
    engine_end_reading(e);
    for (uint32_t i = 0; i < s->n_activated; i++) {
        const struct sched_expert *p = &s->plan.experts[i];
        if (p->load)
            engine_await(e, layer, p->expert, p->device + p->load);
        took_s += compute_on_device(s, layer, p->device + p->load, p->workload);
    }
    engine_begin_reading(e);
    if (late)
        predict(s, layer, n_tokens, took_s);
    else
        engine_advance_to(e, e->now_s + took_s);
    engine_end_reading(e);
    engine_consumed(e);
}

static void compute_resident(struct simulation *s, uint32_t layer, uint32_t n_tokens)
{
    double resident_s = 0;
    for (uint32_t i = 0; i < s->n_activated; i++)
        resident_s +=
            compute_on_device(s, layer, s->plan.experts[i].device, s->plan.experts[i].workload);
    predict(s, layer, n_tokens, resident_s > 0 ? simulate_call_s(s, true) + resident_s : 0);
    engine_end_reading(&s->engine);
}

double simulate_prompt_bound(struct simulation *s, double dense_s)
{
    double device_s = s->shape->n_layers * dense_s, link_s = 0;
    for (uint32_t layer = s->shape->first_layer; layer < s->shape->n_layers; layer++) {
        uint32_t n_segments = trace_layer(s->run->trace, layer)->n_segments;
        gather(s, layer);
        for (uint32_t i = 0; i < s->n_activated; i++) {
            struct layer_residency there = residency(s, layer, s->experts[i]);
            device_s += n_segments * sched_device_s(&s->costs[layer], s->workloads[i]);
            link_s += (n_segments - there.resident) * s->costs[layer].load_s;
        }
    }
    return fmax(device_s, link_s);
}

/* As the worker after a layer of a large step: its slots may go to the next layer's experts. */
static void pass_layer(struct simulation *s, uint32_t layer)
{
    if (2 * s->n_activated <= s->shape->n_experts || layer + 1 == s->shape->n_layers)
        return;
    transfer_scheduler_place(s->engine.transfers, 0, s->step << 16 | (layer + 1));
    engine_wake(&s->engine);
}

void simulate_layer(struct simulation *s, uint32_t layer, uint32_t n_tokens)
{
    struct engine *e = &s->engine;
    if (s->predicts)
        predicting_look(s->predicting, layer);
    gather(s, layer);
    if (s->predicts && s->run->policy->predictor != PREDICT_NONE) {
        gather_selected(s, layer);
        predicting_routed(s->predicting, layer, s->selected);
    }
    count_predicted(s, layer);
    report_routed(s, layer, n_tokens);
    engine_begin_reading(e);
    engine_advance_to(
        e, e->now_s + deciding_plan_s(s->run->machine, s->run->policy->assigner, s->n_activated));
    plan(s, layer, n_tokens);
    for (uint32_t i = 0; i < s->n_activated; i++)
        if (s->plan.experts[i].load)
            engine_load(e, layer, s->plan.experts[i].expert,
                        s->plan.experts[i].device + s->plan.experts[i].load);
    give_cpu(s, layer);
    if (s->plan.device_waits) {
        compute_at_once(s, layer, n_tokens);
    } else {
        compute_resident(s, layer, n_tokens);
        compute_loads(s, layer);
    }
    engine_await_cpu(e);
    pass_layer(s, layer);
}
