/* Virtual time; see engine.h. */
#include "bench/replay/engine.h"

#include <math.h>
#include <stdlib.h>

#define POLL_S 100e-6 /* memd looks again so often while a load has no room */
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
    e->reserve = sched_copies_reserve(o->n_slots, total, s->n_used * most);
    struct copies_shape copies = {.n_layers = s->n_layers,
                                  .n_experts = s->n_experts,
                                  .n_slots = o->n_slots,
                                  .reserve = e->reserve,
                                  .layer_segments = segments,
                                  .segment_bytes = bytes};
    struct copies_owner owner = {.arg = e,
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
    e->copies = sched_copies_new(&copies, &owner);
    e->cache = sched_cache_new(o->cache, &cache, &options);
    return e->copies && e->cache;
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
    sched_copies_use(e->copies, e->cache);
    sched_copies_order(e->copies, o->prefetcher);
    const struct sched_costs *costs = &o->costs[e->shape->first_layer];
    struct sched_cache_costs cache = {.load_s = costs->load_s,
                                      .compute_s = sched_device_s(costs, 1),
                                      .attention_s = o->attention_s,
                                      .head_s = o->attention_s,
                                      .cpu_s = costs->cpu_s,
                                      .cpu_token_s = costs->cpu_token_s};
    sched_copies_costs(e->copies, costs);
    sched_cache_costs(e->cache, &cache);
    sched_copies_join(e->copies, 0, &e->queue);
    return true;
}

void engine_fini(struct engine *e)
{
    sched_copies_free(e->copies);
    sched_cache_free(e->cache);
}

void engine_wake(struct engine *e)
{
    e->asleep = false;
}

static bool begin_copy(struct engine *e, bool *blocked)
{
    *blocked = false;
    if (e->asleep)
        return false;
    enum copies_next next = sched_copies_next(e->copies, (uint64_t)(e->now_s * 1e9), &e->job);
    *blocked = next == COPIES_BLOCKED;
    e->rested = e->rested || next == COPIES_NOTHING;
    e->asleep = next == COPIES_NOTHING && !(e->n_retired && e->reading);
    if (next != COPIES_JOB)
        return false;
    sched_copies_begin(e->copies, &e->job);
    e->n_free--;
    e->copying = true;
    e->job_left_s = e->costs[e->job.layer].load_s + (e->rested ? e->link_call_s : 0);
    e->rested = false;
    return true;
}

static double link_pace(const struct engine *e)
{
    const struct sched_costs *c = &e->costs[e->job.layer];
    return e->cpu_left_s > 0 && c->load_contended_s > 0 ? c->load_s / c->load_contended_s : 1;
}

static double cpu_pace(const struct engine *e)
{
    return e->copying ? 1 / e->cpu_slowdown : 1;
}

static void finish_copy(struct engine *e)
{
    e->copying = false;
    e->copies_made++;
    sched_copies_end(e->copies, &e->job);
    e->asleep = false;
}

bool engine_advance(struct engine *e, double until_s)
{
    bool blocked = false;
    if (!e->copying)
        begin_copy(e, &blocked);
    double link = link_pace(e), cpu = cpu_pace(e), dt = until_s - e->now_s;
    if (blocked && dt > POLL_S)
        dt = POLL_S;
    if (e->copying && e->job_left_s < dt * link)
        dt = e->job_left_s / link;
    if (e->cpu_left_s > 0 && e->cpu_left_s < dt * cpu)
        dt = e->cpu_left_s / cpu;
    if (dt < 0)
        dt = 0;
    bool copied = false, computed = false;
    if (e->copying) {
        e->link_busy_s += dt;
        e->job_left_s -= dt * link;
        copied = e->job_left_s <= TINY_S;
    }
    if (e->cpu_left_s > 0) {
        e->cpu_busy_s += dt;
        e->cpu_left_s -= dt * cpu;
        computed = e->cpu_left_s <= TINY_S;
        if (computed)
            e->cpu_left_s = 0;
    }
    e->now_s += dt;
    if (copied)
        finish_copy(e);
    return e->now_s < until_s - TINY_S || copied || computed;
}

void engine_give_cpu(struct engine *e, double alone_s, double slowdown)
{
    e->cpu_left_s += alone_s;
    e->cpu_slowdown = slowdown > 1 ? slowdown : 1;
}

void engine_load(struct engine *e, uint32_t layer, uint32_t expert, uint32_t prefix)
{
    sched_copies_load(e->copies, 0, layer, expert, prefix, (uint64_t)(e->now_s * 1e9));
    e->asked++;
    e->asleep = false;
}

void engine_consumed(struct engine *e)
{
    sched_copies_consumed(e->copies, 0, ++e->consumed);
    e->asleep = false;
}

bool engine_await(struct engine *e, uint32_t layer, uint32_t expert, uint32_t prefix)
{
    uint64_t copies = e->copies_made;
    double since_s = e->now_s;
    while (sched_copies_resident(e->copies, layer, expert) < prefix) {
        engine_advance(e, e->now_s + 1);
        if (e->copies_made != copies) {
            copies = e->copies_made;
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
    e->reading = true;
}

void engine_end_reading(struct engine *e)
{
    e->reading = false;
    e->asleep = e->asleep && !e->n_retired;
}
