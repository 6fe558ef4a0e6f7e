/* The plan of a layer: which side computes which segments of the activated experts, and the
 * requests to memd; see experts_internal.h. */
#include "experts_internal.h"

#include "base/clock.h"
#include "base/log.h"

#include <math.h>
#include <string.h>

void experts_gather(struct experts *x, const uint32_t *selected)
{
    uint32_t *next = x->work.first_row, n_rows = x->work.n_tokens * x->n_used;
    memset(next, 0, (x->n_experts + 1u) * sizeof *next);
    for (uint32_t i = 0; i < n_rows; i++)
        next[selected[i] + 1]++;
    for (uint32_t expert = 0; expert < x->n_experts; expert++)
        next[expert + 1] += next[expert];
    x->work.n_activated = 0;
    for (uint32_t expert = 0; expert < x->n_experts; expert++) {
        uint32_t first = next[expert], n = next[expert + 1] - first;
        if (n)
            x->work.activated[x->work.n_activated++] =
                (struct activated){.expert = expert, .first_row = first, .n_rows = n};
    }
    for (uint32_t i = 0; i < n_rows; i++) {
        uint32_t row = next[selected[i]]++;
        x->work.indices[row] = i / x->n_used;
        x->work.row_of[i] = row;
    }
}

static bool cpu_computes(const struct experts *x)
{
    for (uint32_t i = 0; i < x->work.n_round; i++)
        if (x->work.round[i].cpu)
            return true;
    return false;
}

/* When the loads should have arrived: one segment after the other, in the order of the requests. */
static void expect_loads(struct experts *x, const struct sched_costs *costs, double busy_s)
{
    double due_s = busy_s, each_s = cpu_computes(x) ? costs->load_contended_s : costs->load_s;
    for (uint32_t i = 0; i < x->work.n_round; i++) {
        uint32_t in_flight = x->work.round[i].there.in_flight, load = x->work.round[i].load;
        due_s += (load > in_flight ? load - in_flight : 0) * each_s;
        x->work.round[i].due_s = due_s;
    }
}

/* How long the link is busy: the rest of the copy under way. */
static double link_busy_s(struct experts *x, const struct sched_costs *costs)
{
    bool copying = x->work.copies % 2;
    x->work.copying_s = copying ? device_cache_copying_s(x->device.cache) : 0;
    double rest_s = copying ? costs->load_s - x->work.copying_s : 0;
    return x->cost.calibration.link_latency_s + (rest_s > 0 ? rest_s : 0);
}

/* memd reads the activated experts of several layers at one wake-up, because a wake-up costs more
 * than a layer's plan. But in a large step the link brings the next layer's experts while this one
 * is computed (sched_cache_wanted), so memd has to know where the step is. */
static bool is_time_to_wake(const struct experts *x)
{
    return x->work.layer % 8 == 7 || x->work.layer + 1 == x->memory->map.params.n_layers ||
           2 * x->work.n_activated > x->n_experts;
}

static void count_activity(struct experts *x)
{
    struct activity *a = x->activity;
    if (!activity_watched(a, x->work.begun_ns))
        return;
    activity_begin_layer(a, x->work.step, x->work.layer);
    for (uint32_t i = 0; i < x->work.n_activated; i++)
        activity_add(a, x->work.layer, x->work.activated[i].expert);
    activity_end_layer(a);
}

static bool is_prompt(const struct experts *x)
{
    return !x->work.kind.stepwise && 2 * x->work.kind.prompt_rows > x->work.n_tokens;
}

/* For the trial, or by its result. cpuexec may have gone since the step began. */
static bool leaves_device_out(const struct experts *x)
{
    return x->cost.has_cpu && !prefetch_may_use_device(x->prefetch);
}

void experts_report(struct experts *x, const uint32_t *selected)
{
    count_activity(x);
    if (!x->device.cache && !x->host)
        return;
    const struct predict_seen seen = {.step = x->work.step,
                                      .layer = x->work.layer,
                                      .n_tokens = x->work.n_tokens,
                                      .selected = selected};
    prefetch_routed(x->prefetch, &seen);
    for (uint32_t i = 0; i < x->work.n_activated; i++)
        x->hints[i] = (struct cache_hint){x->work.activated[i].expert, x->work.activated[i].n_rows};
    const struct cache_turn turn = {.step = x->work.step,
                                    .layer = x->work.layer,
                                    .prompt = is_prompt(x),
                                    .unused = leaves_device_out(x)};
    if (x->device.cache)
        device_cache_routed(x->device.cache, &turn, x->hints, x->work.n_activated);
    if (x->device.cache && is_time_to_wake(x))
        device_cache_notify(x->device.cache);
    if (x->host)
        host_experts_routed(x->host, &turn, x->hints, x->work.n_activated);
    if (x->host && is_time_to_wake(x))
        host_experts_notify(x->host);
}

/* Requests the loads from memd. The CPU takes those for which the ring has no place. */
static void request_loads(struct experts *x)
{
    bool reported = true;
    uint64_t before = x->work.loads;
    for (uint32_t i = 0; i < x->work.n_round; i++) {
        struct activated *a = &x->work.round[i];
        if (a->load &&
            !(reported = reported && device_cache_load(x->device.cache, x->work.step, x->work.layer,
                                                       a->expert, a->device + a->load))) {
            a->cpu += a->load;
            a->load = 0;
        }
        x->work.loads += a->load;
    }
    if (x->work.loads > before)
        device_cache_notify(x->device.cache);
}

static bool loads_are_stopped(struct experts *x)
{
    if (!x->device.breaker.on)
        return false;
    struct cache_heartbeat now = device_cache_heartbeat(x->device.cache);
    bool alive =
        now.copies != x->device.heartbeat.copies || now.records != x->device.heartbeat.records;
    if (circuit_breaker_try_close(&x->device.breaker, alive, clock_ns()))
        log_info("memd copies again: the worker requests loads again");
    return x->device.breaker.on;
}

static bool leaves_loads_out(const struct experts *x)
{
    return x->cost.has_cpu && !prefetch_may_load(x->prefetch);
}

double experts_cpu_only_s(const struct experts *x)
{
    double s = x->cost.costs.job_s + x->cost.calibration.cpu_call_s;
    for (uint32_t i = 0; i < x->work.n_activated; i++)
        s += x->memory->map.slabs[x->work.layer].n_segments *
             sched_cpu_s(&x->cost.costs.now, x->work.activated[i].n_rows);
    return s;
}

static void fill_inputs(struct experts *x)
{
    for (uint32_t i = 0; i < x->work.n_round; i++) {
        const struct activated *a = &x->work.round[i];
        x->inputs[i] = (struct layer_expert){
            .expert = a->expert,
            .workload = a->n_rows,
            .there = {.resident = a->there.resident, .in_flight = a->there.in_flight}};
    }
}

static void take_plan(struct experts *x, const struct layer_plan *plan)
{
    uint32_t n_segments = x->memory->map.slabs[x->work.layer].n_segments;
    bool whole_layer = x->work.n_round == x->work.n_activated;
    x->work.predicted_s += plan->predicted_s;
    prefetch_missed(x->prefetch, plan->misses_s);
    x->work.device_waits = plan->device_waits;
    if (x->work.n_tokens <= PREDICT_MAX_TOKENS)
        layer_mean_add(&x->cost.misses_s, plan->misses_s);
    prefetch_set_all_resident(x->prefetch, plan->all_resident && whole_layer &&
                                               device_cache_holds_all(x->device.cache));
    x->work.found = 0;
    for (uint32_t i = 0; i < x->work.n_round; i++) {
        struct activated *a = &x->work.round[i];
        x->work.found += a->there.resident;
        bool nowhere_else = x->host && !a->slab; /* it is whole on the device */
        a->device = nowhere_else ? n_segments : plan->experts[i].device;
        a->load = nowhere_else ? 0 : plan->experts[i].load;
        a->cpu = n_segments - a->device - a->load;
    }
}

void experts_plan(struct experts *x)
{
    uint64_t started = clock_ns();
    struct sched_costs costs = cost_model_now(&x->cost);
    const struct residency_header *residency = x->memory->residency.header;
    uint32_t n_segments = x->memory->map.slabs[x->work.layer].n_segments;
    const struct predict_target now = {x->work.step, x->work.layer};
    struct layer_state state = {
        .step = x->work.step,
        .layer = x->work.layer,
        .assigner = (enum sched_assigner)atomic_load(&x->assigner),
        .costs = &costs,
        .n_slots = (uint32_t)residency_n_slots(residency),
        .n_spare = (uint32_t)residency_n_spare(residency),
        .n_tokens = x->work.n_tokens,
        .prompt = is_prompt(x),
        .n_activated = x->work.n_activated,
        /* an expert that is split has a row for each segment in the channel */
        .whole = (uint64_t)x->work.n_tokens * n_segments > x->options.max_tokens,
        .no_loads = loads_are_stopped(x) || leaves_loads_out(x),
        .no_device = leaves_device_out(x),
        .prefetches = x->work.n_tokens <= PREDICT_MAX_TOKENS &&
                      prediction_is_on(prefetch_prediction(x->prefetch)),
        /* an expert on the device may be nowhere else, and must not go while the device waits */
        .never_waits = x->host,
        .device_call_s = x->cost.calibration.device_call_s,
        /* before anything is computed or has come: to the executor and back, to memd and back */
        .cpu_busy_s = x->cost.costs.job_s + x->cost.calibration.cpu_call_s,
        .link_busy_s = link_busy_s(x, &costs),
        .attention_s = x->cost.attention_s,
    };
    struct layer_plan plan;
    if (x->work.n_done == 0)
        state.upcoming = prefetch_upcoming(x->prefetch, &now, x->work.n_tokens, &state.n_upcoming);
    fill_inputs(x);
    layer_plan(x->layer, &state, x->inputs, x->work.n_round, &plan);
    take_plan(x, &plan);
    request_loads(x);
    prefetch_send_plan(x->prefetch, &state, &plan);
    expect_loads(x, &costs, state.link_busy_s);
    histogram_observe(x->counters.plan_seconds, (double)(clock_ns() - started) * 1e-9);
}
