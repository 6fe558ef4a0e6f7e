/* When a plan is done; see assign_internal.h. */
#include "sched/assign/assign_internal.h"

#include <math.h>
#include <stddef.h>

void assign_add(const struct assignment *a, const struct sched_expert *e, struct assign_work *w)
{
    double device_s = sched_device_s(a->costs, e->workload);
    uint32_t on_device = e->device + e->load, cpu = a->layer->n_segments - on_device;
    uint32_t missing = assign_missing(a->layer, e), awaited = a->layer->n_segments - missing;
    uint32_t loads = on_device > awaited ? on_device - awaited : 0;
    w->resident_s += e->device * device_s;
    w->in_flight += e->load - loads;
    w->in_flight_s += (e->load - loads) * device_s;
    w->loaded_s += loads * device_s;
    if (loads && (w->loads == 0 || device_s < w->last_loaded_s))
        w->last_loaded_s = device_s;
    w->loads += loads;
    w->awaited += e->load > 0;
    w->cpu_segments += cpu;
    if (cpu) { /* its costs may be infinite where there is none */
        w->cpu_s += cpu * sched_cpu_s(a->costs, e->workload);
        w->cpu_contended_s += cpu * sched_cpu_contended_s(a->costs, e->workload);
    }
}

/* Two sides slow each other down until the first of them is done. Returns when `mine` is done,
 * given its seconds without contention and with it. */
static double contended_end(double mine_s, double mine_contended_s, double other_contended_s)
{
    if (mine_contended_s <= other_contended_s)
        return mine_contended_s;
    return other_contended_s + (1 - other_contended_s / mine_contended_s) * mine_s;
}

static double later(double x, double y)
{
    return x > y ? x : y;
}

/* The times at which CPU and link are done. */
struct sides_end {
    double cpu_s, link_s;
};

static struct sides_end sides_end(const struct assignment *a, const struct assign_work *w)
{
    const struct sched_layer *layer = a->layer;
    bool cpu = w->cpu_segments > 0;
    double cpu_s = cpu ? layer->cpu_busy_s + w->cpu_s : 0;
    double cpu_contended_s = cpu ? layer->cpu_busy_s + w->cpu_contended_s : 0;
    double link_s = layer->link_busy_s + w->loads * a->costs->load_s;
    double link_contended_s = layer->link_busy_s + w->loads * a->costs->load_contended_s;
    double copying_s = link_contended_s + layer->prefetches * a->costs->load_contended_s;
    struct sides_end end = {0, layer->link_busy_s};
    if (cpu)
        end.cpu_s = contended_end(cpu_s, cpu_contended_s, copying_s);
    if (w->loads)
        end.link_s = contended_end(link_s, link_contended_s, cpu_contended_s);
    return end;
}

/* The loads of a plan on the link. Only free_slots of them can be copied until the device has
 * computed the resident part, and as many more after each further call: the slots of evicted
 * segments are free once the device reads nothing. */
struct arrivals {
    double since_s, step_s;          /* the first of the current run of loads begins; each takes */
    uint32_t before, limit, n, free; /* loads before this run; that have a slot; all */
    uint32_t done;                   /* computed */
};

/* The device's calls are followed one by one up to here: beyond, a plan would take long. */
#define MOST_CALLS 8

/* The n-th load, counted from 1 and at most the limit, is there at this time; before it, if it
 * belongs to an earlier run. */
static double arrival(const struct arrivals *r, uint32_t nth)
{
    return nth > r->before ? r->since_s + (nth - r->before) * r->step_s : r->since_s;
}

/* If no slot is late from now on. */
static double all_arrived(const struct arrivals *r)
{
    return r->since_s + (r->n - r->before) * r->step_s;
}

static uint32_t arrived(const struct arrivals *r, double now_s)
{
    if (!(r->step_s > 0))
        return r->limit;
    return now_s > r->since_s
               ? (uint32_t)fmin(r->before + (now_s - r->since_s) / r->step_s, r->limit)
               : r->before;
}

/* A call has ended. */
static void free_more(struct arrivals *r, double now_s)
{
    if (r->limit >= r->n)
        return;
    double idle_s = arrival(r, r->limit);
    if (idle_s < now_s) {
        r->since_s = now_s;
        r->before = r->limit;
    }
    r->limit = r->n - r->limit > r->free ? r->limit + r->free : r->n;
}

/* The end after MOST_CALLS calls, of which the last has ended now. The calls follow each other
 * without a pause. Each computes as many loads as get slots at once; or, where those suffice, the
 * last call begins half a call after the last arrival, in the mean. */
static double after_many_calls(const struct arrivals *r, double now_s, double call_s, double each_s)
{
    uint32_t left = r->n - r->done, copies = r->n - arrived(r, now_s);
    if (r->limit < r->n && call_s + r->free * each_s >= r->free * r->step_s)
        return now_s + (1 + copies / r->free + (copies % r->free > 0)) * call_s + left * each_s;
    double computed_s = now_s + (copies ? 2 : 1) * call_s + left * each_s;
    return copies ? later(computed_s, all_arrived(r) + 1.5 * call_s + each_s) : computed_s;
}

/* As device_end, call by call. now_s: when the resident part is computed. */
static double device_end_by_calls(const struct assignment *a, const struct assign_work *w,
                                  double now_s, double link_s)
{
    const struct sched_layer *l = a->layer;
    double each_s = w->loads ? w->loaded_s / w->loads : 0, call_s = l->device_call_s;
    uint32_t free = l->free_slots ? l->free_slots : UINT32_MAX;
    struct arrivals r = {.since_s = l->link_busy_s,
                         .step_s = w->loads ? (link_s - l->link_busy_s) / w->loads : 0,
                         .limit = w->loads < free ? w->loads : free,
                         .n = w->loads,
                         .free = free};
    free_more(&r, now_s);
    if (w->in_flight) {
        double begins_s = later(now_s, l->link_busy_s);
        r.done = arrived(&r, begins_s);
        now_s = begins_s + call_s + w->in_flight_s + r.done * each_s;
        free_more(&r, now_s);
    }
    for (uint32_t calls = 0; r.done < r.n; calls++) {
        double next_s = arrival(&r, r.done + 1);
        bool waits = now_s <= next_s;
        if (waits && r.step_s >= call_s + each_s) /* and for each of the others, whose slot is free
                                                     by then */
            return all_arrived(&r) + call_s + each_s;
        if (calls == MOST_CALLS)
            return after_many_calls(&r, now_s, call_s, each_s);
        uint32_t there = waits ? r.done + 1 : arrived(&r, now_s);
        now_s = later(now_s, next_s) + call_s + (there - r.done) * each_s;
        r.done = there;
        free_more(&r, now_s);
    }
    return now_s;
}

/* When the device is done if it computes the resident part, and then in each call all that has
 * arrived. The loads arrive evenly spaced until link_s. If calls take time, loads count with their
 * mean time on the device. */
static double device_end(const struct assignment *a, const struct assign_work *w, double link_s)
{
    double busy_s = a->layer->link_busy_s, call_s = a->layer->device_call_s;
    double resident = w->resident_s > 0 ? call_s + w->resident_s : 0, end = resident;
    if (call_s > 0)
        return device_end_by_calls(a, w, resident, link_s);
    if (w->in_flight)
        end = later(resident, busy_s) + w->in_flight_s + w->loaded_s;
    if (w->loads) {
        /* The longest are computed first, so the device waits for the first, the last, or none. */
        double first = busy_s + (link_s - busy_s) / w->loads;
        end = later(end, later(resident, first) + w->loaded_s);
        end = later(end, link_s + w->last_loaded_s);
    }
    return end;
}

/* When the device is done if it computes all in one call. It never waits for more than one expert:
 * the first would keep its slots while the next one needs some. */
static double device_end_at_once(const struct assignment *a, const struct assign_work *w,
                                 double link_s)
{
    if (w->awaited != 1 || a->layer->never_waits)
        return INFINITY;
    return link_s + a->layer->device_call_s + w->resident_s + w->in_flight_s + w->loaded_s;
}

double assign_finish(const struct assignment *a, const struct assign_work *w)
{
    struct sides_end end = sides_end(a, w);
    double device_s = fmin(device_end(a, w, end.link_s), device_end_at_once(a, w, end.link_s));
    return later(end.cpu_s, device_s);
}

bool sched_device_waits(const struct sched_costs *costs, const struct sched_layer *layer,
                        const struct sched_expert *experts, uint32_t n)
{
    struct assignment a = {.costs = costs, .layer = layer, .n = n};
    struct assign_work work = {0};
    for (uint32_t i = 0; i < n; i++)
        assign_add(&a, &experts[i], &work);
    double link_s = sides_end(&a, &work).link_s;
    return device_end_at_once(&a, &work, link_s) < device_end(&a, &work, link_s);
}
