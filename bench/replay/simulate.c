/* A policy over a trace in virtual time; see simulate.h. A layer goes as worker/experts*.c has it: the prediction that has come
 * is told, the layer is planned from what is resident, the CPU begins, the device computes what is there and then what it
 * waits for, as it arrives. */
#include "bench/replay/simulate.h"

#include "base/clock.h"
#include "base/sort_doubles.h"
#include "bench/replay/bound.h"
#include "bench/replay/deciding.h"
#include "bench/replay/engine.h"
#include "bench/replay/future.h"
#include "bench/replay/optimal.h"
#include "bench/replay/predicting.h"
#include "bench/replay/steps.h"
#include "sched/guesses.h"
#include "sched/learned.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of the model's weights: multiply and add for each. Q4_K has 4.5 bits a weight. */
#define FLOPS_PER_BYTE (2 * 8 / 4.5)
/* With more rows than that in a layer the worker splits no expert. */
#define CHANNEL_TOKENS 256
/* Of one layer in the mean of layers, as in the worker. */
#define LAYER_WEIGHT (1.0 / 64)

struct simulation {
    const struct replay_run *run;
    const struct trace_shape *shape;
    struct sched_costs *costs; /* [n_layers] */
    struct engine engine;
    struct predicting *predicting;
    struct steps steps;
    struct future future;
    uint64_t step;
    uint32_t n_tokens; /* of the step */
    bool predicts;     /* in the step: it has few enough */
    double layer_s;    /* of steps that do, a layer with its attention: a moving average */

    /* the layer under way */
    uint32_t *selected;            /* [tokens][n_used] */
    uint16_t *experts, *workloads; /* [n_experts] */
    uint32_t *counts;              /* [n_experts]; 0 between layers */
    struct sched_expert *plan;
    uint64_t *last_use; /* [n_layers][n_experts] */
    uint32_t n_activated;
    bool device_waits; /* as in sched_device_waits */
    uint8_t *predicted; /* [n_layers][n_experts]: for the layer's next turn */
    /* scratch, [n_experts] each */
    struct sched_guess *guesses; /* of experts that are missing */
    float *gate, *gate_sum;
    double *probability;
    struct predicted *best;

    /* sums */
    double *step_s; /* of decoding */
    uint64_t n_steps, most_steps, decode_tokens, prefill_tokens, decode_layers;
    double prefill_s, decode_s, outside_s, device_s;
    double *decode_uses; /* [batch + 1]: segments of activated experts, by their tokens */
    double link_busy_s, cpu_busy_s, device_busy_s; /* while decoding */
    uint64_t segments, hits, on_device,
        loaded; /* the last two: computed there, also on_cpu, the rest */
    uint64_t fetched, predicted_right, fetched_of; /* while decoding; of the experts predicted: there, activated, all */
    uint64_t decision_ns, decisions;
};

/* ---- Setting up ---- */

static enum error_code no_memory(struct error *e)
{
    return error_set(e, ERROR_MEMORY, "no memory for the replay");
}

static bool set_costs(struct simulation *s)
{
    s->costs = calloc(s->shape->n_layers, sizeof *s->costs);
    for (uint32_t l = s->shape->first_layer; s->costs && l < s->shape->n_layers; l++)
        s->costs[l] = s->run->costs ? *s->run->costs
                                    : machine_costs(s->run->machine, trace_layer(s->run->trace, l),
                                                    FLOPS_PER_BYTE);
    return s->costs;
}

static uint32_t count_slots(const struct simulation *s, double vram)
{
    uint64_t total = 0, bytes = 0, largest = 1;
    for (uint32_t l = s->shape->first_layer; l < s->shape->n_layers; l++) {
        const struct trace_layer *layer = trace_layer(s->run->trace, l);
        uint64_t n = (uint64_t)layer->n_segments * s->shape->n_experts;
        total += n;
        bytes += n * layer->segment_bytes;
        largest = layer->segment_bytes > largest ? layer->segment_bytes : largest;
    }
    double n = vram * (double)bytes / (double)largest;
    return n >= (double)total ? (uint32_t)total : (uint32_t)n;
}

static uint64_t next_use(void *arg, uint32_t layer, uint32_t expert)
{
    return future_next_use(arg, layer, expert, true);
}

/* Counted on other text, as what is trained. */
static const uint32_t *profile(const struct simulation *s)
{
    const struct trace_shape *t = s->shape;
    const struct predict_shape shape = {.n_layers = t->n_layers,
                                        .first_layer = t->first_layer,
                                        .n_experts = t->n_experts,
                                        .n_used = t->n_used,
                                        .d_model = t->d_model};
    const struct sched_learned *l = s->run->learned;
    return l && learned_fits_shape(l, &shape) ? learned_activations(l) : NULL;
}

static bool make_engine(struct simulation *s)
{
    const struct sched_policy *p = s->run->policy;
    struct engine_options options = {
        .trace = s->run->trace,
        .costs = s->costs,
        .attention_s = s->run->machine->attention_s,
        .link_call_s = s->run->machine->link_call_s,
        .n_slots = count_slots(s, s->run->vram),
        .cache = p->cache,
        .budget = p->budget,
        .prefetcher = p->prefetcher,
        .cache_options = {.profile = profile(s), .next_use = next_use, .next_use_arg = &s->future},
    };
    return options.n_slots > 0 && engine_init(&s->engine, &options);
}

static void take_prediction(void *arg, const struct predict_target *target,
                            const struct predicted *experts, uint32_t n, uint32_t n_known);

static uint32_t predict_tokens(const struct replay_run *r)
{
    return r->predict_tokens ? r->predict_tokens : REPLAY_PREDICT_TOKENS;
}

static enum error_code begin(struct simulation *s, struct error *e)
{
    const struct replay_run *r = s->run;
    size_t experts = s->shape->n_experts, slabs = experts * s->shape->n_layers;
    if (!steps_init(&s->steps, r->trace, r->batch, r->prompt, r->max_tokens))
        return no_memory(e);
    s->most_steps = trace_tokens(r->trace) + 1;
    s->selected = calloc((size_t)s->steps.room * s->shape->n_used, sizeof *s->selected);
    s->experts = calloc(experts, sizeof *s->experts);
    s->workloads = calloc(experts, sizeof *s->workloads);
    s->counts = calloc(experts, sizeof *s->counts);
    s->plan = calloc(experts, sizeof *s->plan);
    s->last_use = calloc(slabs, sizeof *s->last_use);
    s->predicted = calloc(slabs, sizeof *s->predicted);
    s->step_s = calloc(s->most_steps, sizeof *s->step_s);
    s->decode_uses = calloc(r->batch + 1u, sizeof *s->decode_uses);
    s->gate = calloc(experts, sizeof *s->gate);
    s->gate_sum = calloc(experts, sizeof *s->gate_sum);
    s->probability = calloc(experts, sizeof *s->probability);
    s->best = calloc(experts, sizeof *s->best);
    s->guesses = calloc(experts, sizeof *s->guesses);
    if (!s->selected || !s->experts || !s->workloads || !s->counts || !s->plan || !s->last_use ||
        !s->predicted || !s->step_s || !s->decode_uses || !s->gate || !s->gate_sum || !s->probability || !s->best || !s->guesses ||
        !set_costs(s) ||
        !future_init(&s->future, r->trace, r->batch, r->prompt, r->max_tokens))
        return no_memory(e);
    s->predicting =
        predicting_new(r->policy->predictor, r->trace, predict_tokens(r), r->learned, take_prediction, s);
    if (!s->predicting)
        return no_memory(e);
    enum error_code code = replay_check_batch(r->trace, r->batch, e);
    if (code)
        return code;
    if (!replay_has(r->policy))
        return error_set(e, ERROR_UNSUPPORTED,
                         "policy %s: this build has no solver (package libglpk-dev)",
                         r->policy->name);
    for (uint32_t l = s->shape->first_layer; l < s->shape->n_layers; l++)
        if (trace_layer(r->trace, l)->n_segments > COPIES_MAX_SEGMENTS)
            return error_set(e, ERROR_LIMIT,
                             "the trace's experts have %" PRIu32 " segments; %d are the most",
                             trace_layer(r->trace, l)->n_segments, COPIES_MAX_SEGMENTS);
    if (count_slots(s, r->vram) == 0)
        return error_set(e, ERROR_USAGE, "--vram %g%%: the device holds no segment of an expert",
                         r->vram * 100);
    return make_engine(s) ? ERROR_OK : no_memory(e);
}

static void end(struct simulation *s)
{
    engine_fini(&s->engine);
    predicting_free(s->predicting);
    future_fini(&s->future);
    steps_fini(&s->steps);
    free(s->costs);
    free(s->selected);
    free(s->experts);
    free(s->workloads);
    free(s->counts);
    free(s->plan);
    free(s->last_use);
    free(s->predicted);
    free(s->step_s);
    free(s->decode_uses);
    free(s->gate);
    free(s->gate_sum);
    free(s->probability);
    free(s->best);
    free(s->guesses);
}

/* ---- Predictions ---- */

static bool is_whole(const struct simulation *s, uint32_t layer, uint32_t expert)
{
    return sched_copies_resident(s->engine.copies, layer, expert) >=
           trace_layer(s->run->trace, layer)->n_segments;
}

/* Experts of a layer, to be told at once. */
struct told {
    uint16_t experts[CACHE_PREDICTIONS], probabilities[CACHE_PREDICTIONS];
    uint32_t n;
};

static void add_told(struct told *t, uint32_t expert, double probability)
{
    if (t->n == CACHE_PREDICTIONS)
        return;
    t->experts[t->n] = (uint16_t)expert;
    t->probabilities[t->n++] = (uint16_t)(probability * UINT16_MAX);
}

static void tell(struct simulation *s, uint64_t step, uint32_t layer, const struct told *t)
{
    if (t->n)
        sched_copies_predicted(s->engine.copies, 0, step, layer, t->experts, t->probabilities,
                               t->n);
    engine_wake(&s->engine);
}

static void judge(struct simulation *s, uint32_t layer, uint32_t n, uint32_t n_known)
{
    const struct machine *m = s->run->machine;
    struct sched_costs costs = s->costs[layer];
    costs.cpu_share = s->engine.now_s > 0 ? s->engine.cpu_busy_s / s->engine.now_s : 0;
    sched_judge_guesses(s->run->policy->assigner, &costs, fmax(0, m->cpu_call_s - m->device_call_s), s->step, s->guesses,
                        n, n_known);
}

static void take_prediction(void *arg, const struct predict_target *target,
                            const struct predicted *experts, uint32_t n, uint32_t n_known)
{
    struct simulation *s = arg;
    enum sched_assigner assigner = s->run->policy->assigner;
    uint8_t *flags = s->predicted + (size_t)target->layer * s->shape->n_experts;
    memset(flags, 0, s->shape->n_experts);
    for (uint32_t i = 0; i < n && i < s->n_tokens * s->shape->n_used; i++)
        flags[experts[i].expert] = 1; /* what is known beyond what can be activated is no claim */
    if (sched_assigner_looks_ahead(assigner)) /* the plan says what is copied */
        return;
    struct told worth = {.n = 0}, all = {.n = 0};
    uint32_t most = sched_prefetch_most(s->run->policy->prefetcher, s->shape->n_experts), n_missing = 0, n_judged = 0;
    uint32_t n_segments = trace_layer(s->run->trace, target->layer)->n_segments;
    for (uint32_t i = 0; i < n_known; i++) {
        double p = (double)experts[i].probability;
        uint32_t there = sched_copies_resident(s->engine.copies, target->layer, experts[i].expert);
        add_told(&all, experts[i].expert, p);
        if (there >= n_segments)
            continue;
        s->guesses[n_missing++] =
            (struct sched_guess){.p = p, .missing = n_segments - there, .which = experts[i].expert};
        n_judged += i < n && i < most;
    }
    judge(s, target->layer, n_judged, n_missing);
    for (uint32_t i = 0; i < n_judged; i++)
        if (s->guesses[i].verdict == GUESS_COPY)
            add_told(&worth, s->guesses[i].which, s->guesses[i].p);
    if (sched_cache_reads(s->run->policy->cache) & CACHE_READS_PREDICTIONS)
        sched_copies_expected(s->engine.copies, target->step, target->layer, all.experts,
                              all.probabilities, all.n);
    tell(s, target->step, target->layer, &worth);
}

/* Of what was predicted for this layer, what is there and what is activated. */
static void count_predicted(struct simulation *s, uint32_t layer)
{
    uint8_t *flags = s->predicted + (size_t)layer * s->shape->n_experts;
    for (uint32_t i = 0; i < s->n_activated; i++)
        s->predicted_right += flags[s->experts[i]];
    for (uint32_t i = 0; i < s->shape->n_experts; i++) {
        s->fetched_of += flags[i];
        s->fetched += flags[i] && is_whole(s, layer, i);
        flags[i] = 0;
    }
}

/* ---- A layer ---- */

static void gather(struct simulation *s, uint32_t layer, uint32_t n_tokens)
{
    for (uint32_t t = 0; t < n_tokens; t++) {
        uint32_t *row = s->selected + (size_t)t * s->shape->n_used;
        trace_selected(s->run->trace, s->steps.tokens[t].sequence, s->steps.tokens[t].token, layer,
                       row);
        for (uint32_t k = 0; k < s->shape->n_used; k++)
            s->counts[row[k]]++;
    }
    s->n_activated = 0;
    for (uint32_t i = 0; i < s->shape->n_experts; i++)
        if (s->counts[i]) {
            s->experts[s->n_activated] = (uint16_t)i;
            s->workloads[s->n_activated++] =
                (uint16_t)(s->counts[i] < UINT16_MAX ? s->counts[i] : UINT16_MAX);
            s->counts[i] = 0;
        }
}

/* The largest gate probabilities of the batch, for caches that read them: twice what a token activates. */
static void tell_scores(struct simulation *s, uint32_t layer, uint32_t n_tokens)
{
    if (!(sched_cache_reads(s->run->policy->cache) & CACHE_READS_SCORES) ||
        !(s->shape->has & TRACE_GATE) || !s->predicts)
        return;
    uint32_t n_experts = s->shape->n_experts, most = 2 * s->shape->n_used;
    memset(s->gate_sum, 0, n_experts * sizeof *s->gate_sum);
    for (uint32_t t = 0; t < n_tokens; t++) {
        trace_gate(s->run->trace, s->steps.tokens[t].sequence, s->steps.tokens[t].token, layer,
                   s->gate);
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

static void tell_routed(struct simulation *s, uint32_t layer, uint32_t n_tokens)
{
    future_advance(&s->future, s->step, layer);
    sched_copies_place(s->engine.copies, 0, s->step << 16 | layer);
    sched_copies_routed(s->engine.copies, 0, s->step, s->step << 16 | layer, s->experts,
                        s->workloads, s->n_activated);
    tell_scores(s, layer, n_tokens);
    engine_wake(&s->engine);
}

static double call_s(const struct simulation *s, bool device)
{
    return device ? s->run->machine->device_call_s : s->run->machine->cpu_call_s;
}

/* What was predicted for the next layers, as it is now. */
static void look_ahead(struct simulation *s, uint32_t layer, struct sched_layer *l)
{
    if (!sched_assigner_looks_ahead(s->run->policy->assigner) || !s->predicts)
        return;
    l->ahead = predicting_ahead(s->predicting, layer, &l->n_ahead);
    for (uint32_t i = 0; i < l->n_ahead; i++) {
        struct sched_ahead *a = &l->ahead[i];
        uint32_t of = layer + a->distance, n_segments = trace_layer(s->run->trace, of)->n_segments;
        uint32_t there = sched_copies_resident(s->engine.copies, of, a->expert) +
                         sched_copies_filling(s->engine.copies, of, a->expert);
        a->missing = there < n_segments ? n_segments - there : 0;
    }
}

/* What the plan copies ahead, a layer at a time. */
static void tell_ahead(struct simulation *s, uint32_t layer, const struct sched_layer *l)
{
    for (uint32_t i = 0; i < l->n_ahead;) {
        struct told told = {.n = 0};
        uint32_t distance = l->ahead[i].distance;
        for (; i < l->n_ahead && l->ahead[i].distance == distance; i++)
            if (l->ahead[i].prefetch)
                add_told(&told, l->ahead[i].expert, l->ahead[i].probability);
        tell(s, s->step, layer + distance, &told);
    }
}

/* The exact assignment needs a solver. A plan that is within half a per cent of the best is taken, and past so many nodes of
 * the search the best so far: with ten times as many and no gap it took three times as long, for a difference of as little. */
static void assign(struct simulation *s, const struct sched_costs *costs,
                   const struct sched_layer *layer)
{
#ifdef MOED_HAS_GLPK
    const struct optimal_options options = {.gap = 0.005, .max_nodes = 200};
    bool proven;
    if (s->run->policy->assigner == ASSIGN_OPTIMAL) {
        optimal_assign(costs, layer, s->plan, s->n_activated, &options, &proven);
        return;
    }
#endif
    sched_assign(s->run->policy->assigner, costs, layer, s->plan, s->n_activated);
}

static void plan(struct simulation *s, uint32_t layer, uint32_t n_tokens)
{
    struct engine *e = &s->engine;
    const struct sched_costs *costs = &s->costs[layer];
    uint64_t *last_use = s->last_use + (size_t)layer * s->shape->n_experts;
    double rest_s = e->copying ? e->job_left_s : 0;
    uint64_t started = clock_ns();
    struct sched_layer l = {
        .n_segments = trace_layer(s->run->trace, layer)->n_segments,
        .spare_slots = sched_spare_slots(s->run->policy->assigner, e->n_slots, e->reserve),
        .whole =
            (uint64_t)n_tokens * trace_layer(s->run->trace, layer)->n_segments > CHANNEL_TOKENS,
        .device_call_s = call_s(s, true),
        .cpu_busy_s = call_s(s, false),
        .link_busy_s = rest_s + s->run->machine->link_call_s,
        .attention_s = s->run->machine->attention_s,
    };
    look_ahead(s, layer, &l);
    for (uint32_t i = 0; i < s->n_activated; i++) {
        uint32_t expert = s->experts[i];
        s->plan[i] = (struct sched_expert){
            .expert = expert,
            .workload = s->workloads[i],
            .resident = sched_copies_resident(e->copies, layer, expert),
            .in_flight = sched_copies_filling(e->copies, layer, expert),
            .last_use = last_use[expert],
        };
        last_use[expert] = s->step;
        s->segments += l.n_segments;
        s->hits += s->plan[i].resident;
    }
    assign(s, costs, &l);
    for (uint32_t i = 0; i < s->n_activated; i++) { /* a device with less room than one expert */
        struct sched_expert *p = &s->plan[i];
        if (p->device + p->load > e->n_slots)
            p->load = e->n_slots > p->device ? e->n_slots - p->device : 0;
        s->on_device += p->device;
        s->loaded += p->load;
    }
    s->device_waits = sched_device_waits(costs, &l, s->plan, s->n_activated);
    s->decision_ns += clock_ns() - started;
    s->decisions++;
    tell_ahead(s, layer, &l);
}

static void advance(struct simulation *s, double until_s)
{
    while (engine_advance(&s->engine, until_s))
        ;
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
    double alone_s = 0, contended_s = 0;
    for (uint32_t i = 0; i < s->n_activated; i++) {
        uint32_t n = n_segments - s->plan[i].device - s->plan[i].load;
        alone_s += n * sched_cpu_s(c, s->plan[i].workload);
        contended_s += n * sched_cpu_contended_s(c, s->plan[i].workload);
    }
    if (alone_s > 0)
        engine_give_cpu(&s->engine, call_s(s, false) + alone_s, contended_s / alone_s);
}

static void compute_loads(struct simulation *s, uint32_t layer)
{
    struct engine *e = &s->engine;
    for (uint32_t i = 0; i < s->n_activated; i++) {
        const struct sched_expert *p = &s->plan[i];
        uint32_t done = p->device, target = p->device + p->load;
        while (done < target && engine_await(e, layer, p->expert, done + 1)) {
            uint32_t there = sched_copies_resident(e->copies, layer, p->expert);
            there = there < target ? there : target;
            engine_begin_reading(e);
            advance(s, e->now_s + call_s(s, true) +
                           compute_on_device(s, layer, there - done, p->workload));
            engine_end_reading(e);
            done = there;
        }
        if (p->load)
            engine_consumed(e);
    }
}

/* What is resident and the one load, when that is there. */
static void compute_at_once(struct simulation *s, uint32_t layer)
{
    struct engine *e = &s->engine;
    double took_s = call_s(s, true);
    engine_end_reading(e);
    for (uint32_t i = 0; i < s->n_activated; i++) {
        const struct sched_expert *p = &s->plan[i];
        if (p->load)
            engine_await(e, layer, p->expert, p->device + p->load);
        took_s += compute_on_device(s, layer, p->device + p->load, p->workload);
    }
    engine_begin_reading(e);
    advance(s, e->now_s + took_s);
    engine_end_reading(e);
    engine_consumed(e);
}

/* Predicting takes the engine's thread, beside what the device has been given, device_s of it, and behind that a coming layer's gate.
 * Copies and the CPU are under way meanwhile. */
static void predict(struct simulation *s, uint32_t layer, uint32_t n_tokens, double device_s)
{
    const struct machine *m = s->run->machine;
    enum sched_predictor predictor = s->run->policy->predictor;
    double call_s = s->predicts ? deciding_call_s(m, predictor) : 0;
    double gate_s = s->predicts ? deciding_gate_s(m, predictor, s->shape, layer, n_tokens) : 0;
    bool gates = sched_guess_pays(s->run->policy->assigner, predicting_early(s->predicting), gate_s, s->layer_s);
    gate_s = gates ? gate_s : 0;
    advance(s, s->engine.now_s + (device_s > call_s ? device_s : call_s) + gate_s);
    if (s->predicts)
        predicting_show(s->predicting, layer, s->selected, gates);
}

static void compute_resident(struct simulation *s, uint32_t layer, uint32_t n_tokens)
{
    double resident_s = 0;
    for (uint32_t i = 0; i < s->n_activated; i++)
        resident_s += compute_on_device(s, layer, s->plan[i].device, s->plan[i].workload);
    predict(s, layer, n_tokens, resident_s > 0 ? call_s(s, true) + resident_s : 0);
    engine_end_reading(&s->engine);
}

static void run_layer(struct simulation *s, uint32_t layer, uint32_t n_tokens)
{
    struct engine *e = &s->engine;
    if (s->predicts)
        predicting_look(s->predicting, layer);
    gather(s, layer, n_tokens);
    if (s->predicts)
        predicting_routed(s->predicting, layer, s->selected);
    count_predicted(s, layer);
    tell_routed(s, layer, n_tokens);
    engine_begin_reading(e);
    advance(s, e->now_s + deciding_plan_s(s->run->machine, s->run->policy->assigner, s->n_activated));
    plan(s, layer, n_tokens);
    for (uint32_t i = 0; i < s->n_activated; i++)
        if (s->plan[i].load)
            engine_load(e, layer, s->plan[i].expert, s->plan[i].device + s->plan[i].load);
    give_cpu(s, layer);
    if (s->device_waits) {
        predict(s, layer, n_tokens, 0);
        compute_at_once(s, layer);
    } else {
        compute_resident(s, layer, n_tokens);
        compute_loads(s, layer);
    }
    while (e->cpu_left_s > 0)
        engine_advance(e, e->now_s + e->cpu_left_s * e->cpu_slowdown);
}

/* ---- Steps ---- */

static double outside_of_layer_s(const struct simulation *s, uint32_t n_tokens)
{
    return machine_dense_s(s->run->machine, (double)s->shape->dense_bytes / s->shape->n_layers,
                           n_tokens);
}

static void run_step(struct simulation *s, uint32_t n_tokens, bool decoding)
{
    struct engine *e = &s->engine;
    double began_s = e->now_s, outside_s = 0, link_s = e->link_busy_s, cpu_s = e->cpu_busy_s,
           device_s = s->device_s;
    uint64_t segments = s->segments, hits = s->hits, on_device = s->on_device, loaded = s->loaded;
    uint64_t fetched = s->fetched, right = s->predicted_right, fetched_of = s->fetched_of;
    s->step++;
    s->n_tokens = n_tokens;
    s->predicts = n_tokens <= predict_tokens(s->run);
    if (s->predicts)
        predicting_step(s->predicting, s->step, s->steps.tokens, n_tokens);
    for (uint32_t layer = 0; layer < s->shape->n_layers; layer++) {
        double dense_s = outside_of_layer_s(s, n_tokens), layer_began_s = e->now_s;
        outside_s += dense_s;
        if (s->predicts)
            predicting_look(s->predicting, layer);
        advance(s, e->now_s + dense_s);
        if (layer < s->shape->first_layer)
            continue;
        run_layer(s, layer, n_tokens);
        double layer_s = e->now_s - layer_began_s;
        if (s->predicts)
            s->layer_s += (layer_s - s->layer_s) * (s->layer_s > 0 ? LAYER_WEIGHT : 1);
        for (uint32_t i = 0; decoding && i < s->n_activated; i++)
            s->decode_uses[s->workloads[i]] += trace_layer(s->run->trace, layer)->n_segments;
    }
    double took_s = e->now_s - began_s;
    if (!decoding) {
        s->prefill_tokens += n_tokens;
        s->prefill_s += took_s;
        s->segments = segments; /* the figures are of decoding */
        s->hits = hits;
        s->on_device = on_device;
        s->loaded = loaded;
        s->fetched = fetched;
        s->predicted_right = right;
        s->fetched_of = fetched_of;
        return;
    }
    s->decode_layers += s->shape->n_layers - s->shape->first_layer;
    s->decode_tokens += n_tokens;
    s->decode_s += took_s;
    s->outside_s += outside_s;
    s->link_busy_s += e->link_busy_s - link_s;
    s->cpu_busy_s += e->cpu_busy_s - cpu_s;
    s->device_busy_s += s->device_s - device_s + outside_s;
    if (s->n_steps < s->most_steps)
        s->step_s[s->n_steps++] = took_s;
}

/* ---- The row ---- */

static double ratio(double a, double b)
{
    return b > 0 ? a / b : NAN;
}

static double percentile(const double *sorted, uint64_t n, double share)
{
    return n ? sorted[(uint64_t)(share * (double)(n - 1) + 0.5)] : NAN;
}

/* Of the layers, which may differ, the least of each. */
static struct sched_costs least_costs(const struct simulation *s, uint32_t *n_segments)
{
    uint32_t first = s->shape->first_layer;
    struct sched_costs m = s->costs[first];
    *n_segments = trace_layer(s->run->trace, first)->n_segments;
    for (uint32_t l = first + 1; l < s->shape->n_layers; l++) {
        const struct sched_costs *c = &s->costs[l];
        uint32_t n = trace_layer(s->run->trace, l)->n_segments;
        *n_segments = n < *n_segments ? n : *n_segments;
        m.load_s = fmin(m.load_s, c->load_s);
        m.load_contended_s = fmin(m.load_contended_s, c->load_contended_s);
        m.device_s = fmin(m.device_s, c->device_s);
        m.device_token_s = fmin(m.device_token_s, c->device_token_s);
        m.cpu_s = fmin(m.cpu_s, c->cpu_s);
        m.cpu_token_s = fmin(m.cpu_token_s, c->cpu_token_s);
        m.cpu_contended_s = fmin(m.cpu_contended_s, c->cpu_contended_s);
        m.cpu_contended_token_s = fmin(m.cpu_contended_token_s, c->cpu_contended_token_s);
    }
    return m;
}

static bool count_misses(struct simulation *s, uint32_t n_segments, struct replay_cell *cell)
{
    const struct replay_run *r = s->run;
    uint64_t capacity = (s->engine.n_slots + n_segments - 1) / n_segments, uses;
    if (!cell->counted)
        cell->counted = future_least_misses(&s->future, r->trace, r->batch, r->prompt,
                                            r->max_tokens, capacity, &cell->misses, &uses);
    return cell->counted;
}

static bool set_bound(struct simulation *s, struct replay_result *out)
{
    uint32_t n_segments;
    struct sched_costs costs = least_costs(s, &n_segments);
    struct replay_cell own = {0}, *cell = s->run->cell ? s->run->cell : &own;
    if (!count_misses(s, n_segments, cell))
        return false;
    double least_call_s = fmin(call_s(s, true), call_s(s, false)); /* computed somewhere */
    struct bound_work work = {.outside_s = s->outside_s + (double)s->decode_layers * least_call_s,
                              .misses = (double)cell->misses * n_segments,
                              .uses = s->decode_uses,
                              .most_tokens = s->run->batch};
    if (s->decode_s > 0)
        out->bound = bound_seconds(&costs, &work) / s->decode_s;
    return true;
}

static enum error_code fill(struct simulation *s, struct replay_result *out, struct error *e)
{
    const struct replay_run *r = s->run;
    const struct copies_counts *c = sched_copies_counts(s->engine.copies);
    *out = (struct replay_result){
        .vram = r->vram,
        .batch = r->batch,
        .decode_tokens = s->decode_tokens,
        .prefill_tokens = s->prefill_tokens,
        .decode_tokens_per_s = ratio((double)s->decode_tokens, s->decode_s),
        .prefill_tokens_per_s = ratio((double)s->prefill_tokens, s->prefill_s),
        .hit_rate = ratio((double)s->hits, (double)s->segments),
        .prefetch_accuracy = ratio((double)s->predicted_right, (double)s->fetched_of),
        .fetch_rate = ratio((double)s->fetched, (double)s->fetched_of),
        .moved_bytes = (double)(c->demanded_bytes + c->prefetched_bytes),
        .wasted_bytes = (double)c->wasted_bytes,
        .cpu_busy = ratio(s->cpu_busy_s, s->decode_s),
        .link_busy = ratio(s->link_busy_s, s->decode_s),
        .device_busy = ratio(s->device_busy_s, s->decode_s),
        .decision_s = ratio((double)s->decision_ns * 1e-9, (double)s->decisions),
        .on_device = ratio((double)s->on_device, (double)s->segments),
        .loaded = ratio((double)s->loaded, (double)s->segments),
        .on_cpu = 1 - ratio((double)(s->on_device + s->loaded), (double)s->segments),
        .layer_s = ratio(s->decode_s - s->outside_s, (double)s->decode_layers),
        .bound = NAN,
    };
    out->good_pred = out->prefetch_accuracy * out->fetch_rate;
    strncpy(out->policy, r->policy->name, sizeof out->policy - 1);
    sort_doubles(s->step_s, s->n_steps);
    out->tpot_p50_s = percentile(s->step_s, s->n_steps, 0.5);
    out->tpot_p99_s = percentile(s->step_s, s->n_steps, 0.99);
    return set_bound(s, out) ? ERROR_OK : no_memory(e);
}

enum error_code replay_check_batch(const struct trace *trace, uint32_t batch, struct error *e)
{
    if (batch <= trace_sequences(trace))
        return ERROR_OK;
    return error_set(e, ERROR_USAGE,
                     "--batch %" PRIu32 ": the trace has %" PRIu32
                     " sequences, fewer than are to be decoded at once",
                     batch, trace_sequences(trace));
}

bool replay_has(const struct sched_policy *policy)
{
#ifdef MOED_HAS_GLPK
    return true;
#else
    return policy->assigner != ASSIGN_OPTIMAL;
#endif
}

enum error_code replay_simulate(const struct replay_run *run, struct replay_result *out,
                                struct error *e)
{
    struct simulation *s = calloc(1, sizeof *s);
    if (!s)
        return no_memory(e);
    s->run = run;
    s->shape = trace_shape(run->trace);
    enum error_code code = begin(s, e);
    bool decoding;
    uint32_t n;
    while (!code && (n = steps_next(&s->steps, &decoding)))
        run_step(s, n, decoding);
    if (!code)
        code = fill(s, out, e);
    end(s);
    free(s);
    return code;
}
