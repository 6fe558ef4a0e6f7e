/* Simulates a policy on a trace; see simulate.h. simulate_layer.c simulates one layer. */
#include "bench/replay/simulation.h"

#include "base/arrays.h"
#include "base/sort_doubles.h"
#include "bench/replay/bound.h"
#include "bench/replay/optimal.h"
#include "sched/predict/trained.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One multiplication and one addition a weight; Q4_K has 4.5 bits a weight. */
#define FLOPS_PER_BYTE (2 * 8 / 4.5)

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
    const struct simulation *s = arg;
    return future_next_use(s->future, layer, expert, true);
}

/* Uses activation counts from other text, which the trained predictors contain. */
static const uint32_t *profile(const struct simulation *s)
{
    const struct trace_shape *t = s->shape;
    const struct predict_shape shape = {.n_layers = t->n_layers,
                                        .first_layer = t->first_layer,
                                        .n_experts = t->n_experts,
                                        .n_used = t->n_used,
                                        .d_model = t->d_model};
    const struct trained_predictors *l = s->run->predictors;
    return l && trained_fits_shape(l, &shape) ? trained_activations(l) : NULL;
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
        .cache_options = {.profile = profile(s),
                          .value_half_life = s->run->half_life,
                          .next_use = next_use,
                          .next_use_arg = s},
    };
    return options.n_slots > 0 && engine_init(&s->engine, &options);
}

static uint32_t predict_tokens(const struct replay_run *r)
{
    return r->predict_tokens ? r->predict_tokens : REPLAY_PREDICT_TOKENS;
}

static struct steps_options steps_of(const struct replay_run *r)
{
    return (struct steps_options){
        .batch = r->batch, .prompt = r->prompt, .chunk = r->chunk, .max_tokens = r->max_tokens};
}

/* Finds the steps, and the future if the policy knows it. False: no memory. */
static bool use_shared(struct simulation *s)
{
    const struct replay_run *r = s->run;
    const struct shared_key key = {.trace = r->trace,
                                   .predictors = r->predictors,
                                   .steps = steps_of(r),
                                   .predict_tokens = predict_tokens(r)};
    s->own_shared = r->shared ? NULL : shared_new();
    s->shared = r->shared ? r->shared : s->own_shared;
    if (!s->shared || !shared_use(s->shared, &key))
        return false;
    s->routing = shared_routing(s->shared);
    bool knows_future = sched_cache_replay_only(r->policy->cache);
    s->future = knows_future ? shared_future(s->shared) : NULL;
    return s->future || !knows_future;
}

static enum error_code begin(struct simulation *s, struct error *e)
{
    const struct replay_run *r = s->run;
    size_t experts = s->shape->n_experts, slabs = experts * s->shape->n_layers;
    if (!use_shared(s))
        return no_memory(e);
    s->most_steps = s->routing->n_steps + 1;
    s->memory = ARRAYS_NEW(ARRAY(s->selected, (size_t)s->routing->most_tokens * s->shape->n_used),
                           ARRAY(s->done, experts), ARRAY(s->place, experts),
                           ARRAY(s->activated, experts), ARRAY(s->predicted, slabs),
                           ARRAY(s->step_s, s->most_steps), ARRAY(s->decode_uses, r->batch + 1u),
                           ARRAY(s->gate, experts), ARRAY(s->gate_sum, experts),
                           ARRAY(s->probability, experts), ARRAY(s->best, experts));
    if (!s->memory || !set_costs(s) || !simulate_layer_init(s))
        return no_memory(e);
    struct recording *recording =
        s->own_shared ? NULL : shared_recording(s->shared, r->policy->predictor);
    s->predicting = predicting_new(r->policy->predictor, r->trace, predict_tokens(r), r->predictors,
                                   recording, simulate_layer_predicted, s);
    if (!s->predicting)
        return no_memory(e);
    enum error_code code = replay_check_batch(r->trace, r->batch, e);
    if (code)
        return code;
    if (!replay_has(r->policy))
        return error_set(e, ERROR_UNSUPPORTED, "this moed-replay has no solver (docs/replay.md)");
    for (uint32_t l = s->shape->first_layer; l < s->shape->n_layers; l++)
        if (trace_layer(r->trace, l)->n_segments > TRANSFER_MAX_SEGMENTS)
            return error_set(e, ERROR_LIMIT,
                             "the trace's experts have %" PRIu32 " segments; %d are the most",
                             trace_layer(r->trace, l)->n_segments, TRANSFER_MAX_SEGMENTS);
    if (count_slots(s, r->vram) == 0)
        return error_set(e, ERROR_USAGE, "--vram %g%%: the device holds no segment of an expert",
                         r->vram * 100);
    return make_engine(s) ? ERROR_OK : no_memory(e);
}

static void end(struct simulation *s)
{
    engine_fini(&s->engine);
    predicting_free(s->predicting);
    shared_free(s->own_shared);
    free(s->costs);
    layer_free(s->layer);
    free(s->memory);
}

/* ---- Steps ---- */

static double outside_of_layer_s(const struct simulation *s, uint32_t n_tokens)
{
    return machine_dense_s(s->run->machine, (double)s->shape->dense_bytes / s->shape->n_layers,
                           n_tokens);
}

static void run_step(struct simulation *s, const struct routing_step *step)
{
    struct engine *e = &s->engine;
    uint32_t n_tokens = step->n_tokens;
    bool decoding = step->decoding;
    double began_s = e->now_s, outside_s = 0, link_s = e->link_busy_s, cpu_s = e->cpu_busy_s,
           device_s = s->device_s;
    uint64_t segments = s->segments, hits = s->hits, on_device = s->on_device, loaded = s->loaded;
    uint64_t fetched = s->fetched, right = s->predicted_right, fetched_of = s->fetched_of;
    s->step++;
    s->tokens = s->routing->tokens + step->first_token;
    s->n_tokens = n_tokens;
    s->prompt = !decoding;
    s->predicts = n_tokens <= predict_tokens(s->run);
    if (!decoding)
        s->prefill_bound_s += simulate_prompt_bound(s, outside_of_layer_s(s, n_tokens));
    if (s->predicts)
        predicting_step(s->predicting, s->step, s->tokens, n_tokens);
    for (uint32_t layer = 0; layer < s->shape->n_layers; layer++) {
        double dense_s = outside_of_layer_s(s, n_tokens), layer_began_s = e->now_s;
        outside_s += dense_s;
        if (s->predicts)
            predicting_look(s->predicting, layer);
        engine_advance_to(e, e->now_s + dense_s);
        if (layer < s->shape->first_layer)
            continue;
        simulate_layer(s, layer, n_tokens);
        double layer_s = e->now_s - layer_began_s;
        if (s->predicts)
            layer_mean_add(&s->layer_s, layer_s);
        for (uint32_t i = 0; decoding && i < s->n_activated; i++)
            s->decode_uses[s->workloads[i]] += trace_layer(s->run->trace, layer)->n_segments;
    }
    double took_s = e->now_s - began_s;
    if (!decoding) {
        s->prefill_tokens += n_tokens;
        s->prefill_s += took_s;
        s->segments = segments; /* the results cover decoding only */
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

/* The minimum of each cost over the layers. */
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

/* The same for all policies of a cell, because they compute the same steps. */
static bool find_bound(struct simulation *s, struct replay_cell *cell)
{
    uint32_t n_segments;
    struct sched_costs costs = least_costs(s, &n_segments);
    uint64_t capacity = (s->engine.n_slots + n_segments - 1) / n_segments, misses;
    if (!shared_least_misses(s->shared, capacity, &misses))
        return false;
    double least_call_s =
        fmin(simulate_call_s(s, true), simulate_call_s(s, false)); /* one side computes */
    struct bound_work work = {.outside_s = s->outside_s + (double)s->decode_layers * least_call_s,
                              .misses = (double)misses * n_segments,
                              .uses = s->decode_uses,
                              .most_tokens = s->run->batch};
    cell->bound_s = bound_seconds(&costs, &work);
    cell->known = true;
    return true;
}

static bool set_bound(struct simulation *s, struct replay_result *out)
{
    struct replay_cell own = {0}, *cell = s->run->cell ? s->run->cell : &own;
    if (!cell->known && !find_bound(s, cell))
        return false;
    if (s->decode_s > 0)
        out->bound = cell->bound_s / s->decode_s;
    return true;
}

static enum error_code fill(struct simulation *s, struct replay_result *out, struct error *e)
{
    const struct replay_run *r = s->run;
    const struct transfer_counts *c = transfer_scheduler_counts(s->engine.transfers);
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
        .prefill_bound = ratio(s->prefill_bound_s, s->prefill_s),
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
    return policy->assigner != ASSIGN_OPTIMAL || optimal_is_built();
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
    for (uint64_t i = 0; !code && i < s->routing->n_steps; i++)
        run_step(s, &s->routing->steps[i]);
    if (!code) {
        predicting_end(s->predicting);
        code = fill(s, out, e);
    }
    end(s);
    free(s);
    return code;
}
