/* The plan of a layer: who computes which segments of the activated experts, and what memd is told; see
 * experts_internal.h. */
#include "experts_internal.h"

#include "base/clock.h"
#include "base/log.h"

#include <math.h>
#include <string.h>

struct sched_costs experts_costs(const struct experts *x)
{
    struct sched_costs costs = x->costs.now;
    if (!x->channel)
        costs.cpu_s = costs.cpu_contended_s = INFINITY;
    return costs;
}

void experts_set_assigner(struct experts *x, enum sched_assigner assigner)
{
    atomic_store(&x->assigner, (int)assigner);
}

void experts_set_prefetcher(struct experts *x, enum sched_prefetcher prefetcher)
{
    atomic_store(&x->prefetcher, (int)prefetcher);
}

/* The activated experts, ascending, each with its tokens, ascending. */
void experts_gather(struct experts *x, const uint32_t *selected)
{
    uint32_t *next = x->first_row, n_rows = x->n_tokens * x->n_used;
    memset(next, 0, (x->n_experts + 1u) * sizeof *next);
    for (uint32_t i = 0; i < n_rows; i++)
        next[selected[i] + 1]++;
    for (uint32_t expert = 0; expert < x->n_experts; expert++)
        next[expert + 1] += next[expert];
    x->n_activated = 0;
    for (uint32_t expert = 0; expert < x->n_experts; expert++) {
        uint32_t first = next[expert], n = next[expert + 1] - first;
        if (n)
            x->activated[x->n_activated++] =
                (struct activated){.expert = expert, .first_row = first, .n_rows = n};
    }
    for (uint32_t i = 0; i < n_rows; i++) {
        uint32_t row = next[selected[i]]++;
        x->indices[row] = i / x->n_used;
        x->row_of[i] = row;
    }
}

/* What the device has goes into the plan. */
static void plan_from_residency(struct experts *x)
{
    uint32_t n_segments = x->memory->map.slabs[x->layer].n_segments;
    uint64_t *last_use = x->last_use + (size_t)x->layer * x->n_experts;
    x->all_there = x->n_round == x->n_activated && device_cache_holds_all(x->cache);
    for (uint32_t i = 0; i < x->n_round; i++) {
        const struct activated *a = &x->round[i];
        x->plan[i] = (struct sched_expert){.expert = a->expert,
                                           .workload = a->n_rows,
                                           .resident = a->there.resident,
                                           .in_flight = a->there.in_flight,
                                           .last_use = last_use[a->expert]};
        last_use[a->expert] = x->step;
        x->all_there &= a->there.resident == n_segments;
    }
}

static bool cpu_computes(const struct experts *x)
{
    for (uint32_t i = 0; i < x->n_round; i++)
        if (x->round[i].cpu)
            return true;
    return false;
}

/* When what is to be loaded should be there: one segment after the other, in the order in which it is asked for. */
static void expect_loads(struct experts *x, const struct sched_costs *costs,
                         const struct sched_layer *layer)
{
    double due_s = layer->link_busy_s, each_s = cpu_computes(x) ? costs->load_contended_s : costs->load_s;
    for (uint32_t i = 0; i < x->n_round; i++) {
        uint32_t in_flight = x->plan[i].in_flight, load = x->round[i].load;
        due_s += (load > in_flight ? load - in_flight : 0) * each_s;
        x->round[i].due_s = due_s;
    }
}

/* The rest of the copy under way. */
static double link_busy_s(struct experts *x, const struct sched_costs *costs)
{
    x->copying_s = x->copies % 2 ? device_cache_copying_s(x->cache) : 0;
    double rest_s = x->copies % 2 ? costs->load_s - x->copying_s : 0;
    return x->calibration.link_latency_s + (rest_s > 0 ? rest_s : 0);
}

/* What was only activated is read when memd wakes up anyhow: a wake-up costs more than a layer's plan. */
static bool is_time_to_wake(const struct experts *x)
{
    return x->layer % 8 == 7 || x->layer + 1 == x->memory->map.params.n_layers;
}

void experts_tell(struct experts *x, const uint32_t *selected)
{
    if (!x->cache && !x->host)
        return;
    experts_predict_begin(x, selected);
    for (uint32_t i = 0; i < x->n_activated; i++)
        x->mentions[i] = (struct cache_mention){x->activated[i].expert, x->activated[i].n_rows};
    if (x->cache)
        device_cache_routed(x->cache, x->step, x->layer, x->mentions, x->n_activated);
    if (x->cache && is_time_to_wake(x))
        device_cache_notify(x->cache);
    if (x->host)
        host_experts_routed(x->host, x->step, x->layer, x->mentions, x->n_activated);
    if (x->host && is_time_to_wake(x))
        host_experts_notify(x->host);
}

/* Tell memd what is to be loaded. What cannot be said is the CPU's. */
static void ask_for_loads(struct experts *x)
{
    bool said = true;
    uint64_t before = x->loads;
    for (uint32_t i = 0; i < x->n_round; i++) {
        struct activated *a = &x->round[i];
        if (a->load && !(said = said && device_cache_load(x->cache, x->step, x->layer, a->expert,
                                                          a->device + a->load))) {
            a->cpu += a->load;
            a->load = 0;
        }
        x->loads += a->load;
    }
    if (x->loads > before)
        device_cache_notify(x->cache);
}

/* What a device with less room than one expert can hold of it. */
static void limit_to_slots(const struct experts *x, struct sched_expert *s, bool whole)
{
    uint32_t n_slots = (uint32_t)residency_n_slots(x->memory->residency.header);
    if (s->device + s->load <= n_slots)
        return;
    s->device = whole ? 0 : s->device < n_slots ? s->device : n_slots;
    s->load = whole ? 0 : n_slots - s->device;
}

/* memd does not copy at present: what it was to load is the CPU's, beside what is on the device, or whole. */
static void plan_without_loads(struct sched_expert *plan, uint32_t n, bool whole)
{
    for (uint32_t i = 0; i < n; i++) {
        if (plan[i].load && whole)
            plan[i].device = 0;
        plan[i].load = 0;
    }
}

static bool loads_are_paused(struct experts *x)
{
    if (!x->no_loads.on)
        return false;
    struct cache_pulse now = device_cache_pulse(x->cache);
    bool alive = now.copies != x->pulse.copies || now.records != x->pulse.records;
    if (pause_end(&x->no_loads, alive, clock_ns()))
        log_info("memd moves again: experts are loaded onto the device as before");
    return x->no_loads.on;
}

void experts_plan(struct experts *x)
{
    uint64_t started = clock_ns();
    uint32_t n_segments = x->memory->map.slabs[x->layer].n_segments;
    struct sched_costs costs = experts_costs(x);
    enum sched_assigner assigner = (enum sched_assigner)atomic_load(&x->assigner);
    const struct residency_header *residency = x->memory->residency.header;
    struct sched_layer layer = {
        .n_segments = n_segments,
        .spare_slots = sched_spare_slots(assigner, residency_n_slots(residency),
                                         residency_n_spare(residency)),
        /* rows apart need room in the channel: one for each segment */
        .whole = (uint64_t)x->n_tokens * n_segments > x->options.max_tokens,
        .device_call_s = x->calibration.device_call_s,
        .never_waits = x->host, /* what is on the device may be nowhere else, and must not go meanwhile */
        /* before anything is computed or has come: to the executor and back, to memd and back */
        .cpu_busy_s = x->costs.job_s + x->calibration.cpu_call_s,
        .link_busy_s = link_busy_s(x, &costs),
    };
    plan_from_residency(x);
    experts_look_ahead(x, &layer);
    x->predicted_s += sched_assign(assigner, &costs, &layer, x->plan, x->n_round);
    if (loads_are_paused(x))
        plan_without_loads(x->plan, x->n_round, layer.whole);
    x->device_waits = sched_device_waits(&costs, &layer, x->plan, x->n_round);
    for (uint32_t i = 0; i < x->n_round; i++) {
        struct activated *a = &x->round[i];
        limit_to_slots(x, &x->plan[i], layer.whole);
        bool nowhere_else = x->host && !a->slab; /* it is whole on the device */
        a->device = nowhere_else ? n_segments : x->plan[i].device;
        a->load = nowhere_else ? 0 : x->plan[i].load;
        a->cpu = n_segments - a->device - a->load;
    }
    ask_for_loads(x);
    experts_tell_ahead(x);
    expect_loads(x, &costs, &layer);
    histogram_observe(x->counters.plan_seconds, (double)(clock_ns() - started) * 1e-9);
}
