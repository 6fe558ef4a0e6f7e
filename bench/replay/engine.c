/* The simulated hardware; see engine.h. */
#include "bench/replay/engine.h"

#include <math.h>
#include <stdlib.h>

#define POLL_S 100e-6 /* memd's interval of polling while a load finds no free slot */
#define TINY_S 1e-12

static uint32_t free_slots(void *arg)
{
    return ((struct engine *)arg)->n_free;
}

static uint32_t retired_slots(void *arg)
{
    return ((struct engine *)arg)->n_retired;
}

static void reclaim(void *arg)
{
    struct engine *e = arg;
    if (e->reading)
        return;
    e->n_free += e->n_retired;
    e->n_retired = 0;
}

static void evict(void *arg, uint32_t layer, uint32_t expert, uint32_t segment)
{
    ((struct engine *)arg)->n_retired++;
}

static bool make_parts(struct engine *e, const struct engine_options *o, uint8_t *segments,
                       uint64_t *bytes)
{
    const struct trace_shape *s = e->shape;
    uint64_t total = 0;
    uint32_t most = 1;
    for (uint32_t l = s->first_layer; l < s->n_layers; l++) {
        const struct trace_layer *layer = trace_layer(o->trace, l);
        segments[l] = (uint8_t)layer->n_segments;
        bytes[l] = layer->segment_bytes;
        most = layer->n_segments > most ? layer->n_segments : most;
        total += (uint64_t)layer->n_segments * s->n_experts;
    }
    e->reserve = transfer_scheduler_reserve(o->n_slots, total, s->n_used * most);
    struct transfer_shape transfers = {.n_layers = s->n_layers,
                                       .n_experts = s->n_experts,
                                       .n_slots = o->n_slots,
                                       .reserve = e->reserve,
                                       .layer_segments = segments,
                                       .segment_bytes = bytes};
    struct transfer_owner owner = {.arg = e,
                                   .free_slots = free_slots,
                                   .retired_slots = retired_slots,
                                   .reclaim = reclaim,
                                   .evict = evict};
    struct sched_cache_shape cache = {.n_layers = s->n_layers,
                                      .n_experts = s->n_experts,
                                      .n_segments = most,
                                      .first_layer = s->first_layer,
                                      .n_used = s->n_used,
                                      .capacity = o->n_slots - e->reserve,
                                      .layer_segments = segments};
    struct sched_cache_options options = o->cache_options;
    options.budget = o->budget;
    options.buffers = sched_prefetch_buffers(o->prefetcher, e->reserve);
    e->transfers = transfer_scheduler_new(&transfers, &owner);
    e->cache = sched_cache_new(o->cache, &cache, &options);
    return e->transfers && e->cache;
}

bool engine_init(struct engine *e, const struct engine_options *o)
{
    e->shape = trace_shape(o->trace);
    e->costs = o->costs;
    e->n_slots = e->n_free = o->n_slots;
    e->cpu_slowdown = 1;
    e->rested = true;
    e->link_call_s = o->link_call_s;
    uint8_t *segments = calloc(e->shape->n_layers, sizeof *segments);
    uint64_t *bytes = calloc(e->shape->n_layers, sizeof *bytes);
    bool ok = segments && bytes && make_parts(e, o, segments, bytes);
    free(segments);
    free(bytes);
    if (!ok)
        return false;
    transfer_scheduler_use(e->transfers, e->cache);
    transfer_scheduler_order(e->transfers, o->prefetcher);
    const struct sched_costs *costs = &o->costs[e->shape->first_layer];
    struct sched_cache_costs cache = {.load_s = costs->load_s,
                                      .compute_s = sched_device_s(costs, 1),
                                      .attention_s = o->attention_s,
                                      .head_s = o->attention_s,
                                      .cpu_s = costs->cpu_s,
                                      .cpu_token_s = costs->cpu_token_s};
    transfer_scheduler_costs(e->transfers, costs);
    sched_cache_costs(e->cache, &cache);
    transfer_scheduler_join(e->transfers, 0, &e->queue);
    return true;
}

void engine_fini(struct engine *e)
{
    transfer_scheduler_free(e->transfers);
    sched_cache_free(e->cache);
}

void engine_wake(struct engine *e)
{
    e->asleep = e->stuck = false;
}

/* A load that found no slot finds none at the next poll, unless something was evicted for it. A
 * cache that keeps no loads evicts after some time (transfer_slots.c). */
static bool is_stuck(const struct engine *e, enum transfer_next next, uint64_t evictions)
{
    return next == TRANSFER_BLOCKED && sched_cache_keeps_loads(e->cache) &&
           transfer_scheduler_counts(e->transfers)->evictions == evictions;
}

static bool begin_copy(struct engine *e, bool *blocked)
{
    *blocked = e->stuck;
    if (e->asleep || e->stuck)
        return false;
    uint64_t evictions = transfer_scheduler_counts(e->transfers)->evictions;
    enum transfer_next next =
        transfer_scheduler_next(e->transfers, (uint64_t)(e->now_s * 1e9), &e->job);
    *blocked = next == TRANSFER_BLOCKED;
    e->stuck = is_stuck(e, next, evictions);
    e->rested = e->rested || next == TRANSFER_NOTHING;
    e->asleep = next == TRANSFER_NOTHING && !(e->n_retired && e->reading);
    if (next != TRANSFER_JOB)
        return false;
    transfer_scheduler_begin(e->transfers, &e->job);
    e->n_free--;
    e->copying = true;
    e->job_left_s = e->costs[e->job.layer].load_s + (e->rested ? e->link_call_s : 0);
    e->rested = false;
    return true;
}

static bool cpu_computes(const struct engine *e)
{
    return e->cpu_left_s > 0 && !(e->cpu_call_left_s > 0);
}

static double link_pace(const struct engine *e)
{
    const struct sched_costs *c = &e->costs[e->job.layer];
    return cpu_computes(e) && c->load_contended_s > 0 ? c->load_s / c->load_contended_s : 1;
}

/* The CPU's call waits for no memory. */
static double cpu_pace(const struct engine *e)
{
    return e->copying && cpu_computes(e) ? 1 / e->cpu_slowdown : 1;
}

/* What is left of the CPU's call, or else of its work; NULL: it is idle. */
static double *cpu_phase_left(struct engine *e)
{
    if (e->cpu_left_s > 0)
        return e->cpu_call_left_s > 0 ? &e->cpu_call_left_s : &e->cpu_left_s;
    return NULL;
}

static void finish_copy(struct engine *e)
{
    e->copying = false;
    e->arrivals[e->copies_made++ % ENGINE_ARRIVALS] =
        (struct engine_arrival){(uint16_t)e->job.layer, (uint16_t)e->job.expert};
    transfer_scheduler_end(e->transfers, &e->job);
    engine_wake(e);
}

bool engine_advance(struct engine *e, double until_s)
{
    bool blocked = false;
    if (!e->copying)
        begin_copy(e, &blocked);
    double link = link_pace(e), cpu = cpu_pace(e), dt = until_s - e->now_s;
    double *left_s = cpu_phase_left(e);
    if (blocked && dt > POLL_S)
        dt = POLL_S;
    if (e->copying && e->job_left_s < dt * link)
        dt = e->job_left_s / link;
    if (left_s && *left_s < dt * cpu)
        dt = *left_s / cpu;
    if (dt < 0)
        dt = 0;
    bool copied = false, computed = false;
    if (e->copying) {
        e->link_busy_s += dt;
        e->job_left_s -= dt * link;
        copied = e->job_left_s <= TINY_S;
    }
    if (left_s) {
        e->cpu_busy_s += dt;
        e->cpu_computed_s += left_s == &e->cpu_left_s ? dt : 0;
        *left_s -= dt * cpu;
        computed = *left_s <= TINY_S;
        if (computed)
            *left_s = 0;
    }
    e->now_s += dt;
    if (copied)
        finish_copy(e);
    return e->now_s < until_s - TINY_S || copied || computed;
}

void engine_give_cpu(struct engine *e, double call_s, double uncontended_s, double slowdown)
{
    e->cpu_call_left_s += call_s;
    e->cpu_left_s += uncontended_s;
    e->cpu_slowdown = slowdown > 1 ? slowdown : 1;
}

void engine_await_cpu(struct engine *e)
{
    while (e->cpu_left_s > 0)
        engine_advance(e, e->now_s + e->cpu_call_left_s + e->cpu_left_s * e->cpu_slowdown);
}

void engine_load(struct engine *e, uint32_t layer, uint32_t expert, uint32_t prefix)
{
    transfer_scheduler_load(e->transfers, 0, layer, expert, prefix, (uint64_t)(e->now_s * 1e9));
    e->asked++;
    engine_wake(e);
}

void engine_consumed(struct engine *e)
{
    transfer_scheduler_consumed(e->transfers, 0, ++e->consumed);
    engine_wake(e);
}

bool engine_await(struct engine *e, uint32_t layer, uint32_t expert, uint32_t prefix)
{
    uint64_t transfers = e->copies_made;
    double since_s = e->now_s;
    while (transfer_scheduler_resident(e->transfers, layer, expert) < prefix) {
        engine_advance(e, e->now_s + 1);
        if (e->copies_made != transfers) {
            transfers = e->copies_made;
            since_s = e->now_s;
        } else if (e->now_s - since_s > 10 && !e->copying) {
            return false;
        }
    }
    return true;
}

void engine_begin_reading(struct engine *e)
{
    reclaim(e);
    e->stuck = false;
    e->reading = true;
}

void engine_end_reading(struct engine *e)
{
    e->reading = e->stuck = false;
    e->asleep = e->asleep && !e->n_retired;
}
