/* Timing of copies over the link; see measure_internal.h. */
#include "measure_internal.h"

#include "worker/links/device_cache.h"
#include "worker/links/host_experts.h"

#include "base/clock.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#define PINNING_S          60   /* the longest wait for memd to pin host memory */
#define LINK_S             0.05 /* of copies asked for at once, about */
#define LINK_UNCONTENDED_S 0.15 /* after that the link is not measured again */
#define LINK_CONTENDED_S   0.1  /* of copies while device and CPU compute */
#define LEAST_JOBS         5    /* of either kind */
#define LINK_REPEATS       25
#define SHORT_S            100e-6 /* of a segment: noticing its arrival may take as long */
#define TIDY_S             3e-3   /* in which memd frees slots again */
#define MOST_LOADED        16     /* segments at once */
#define LOAD_STALL_MS      1000

/* ---- Loads ---- */

/* The next expert of which nothing is on the device, from where the search stopped; its segments
 * are as large as the first layer's. Backwards, because a policy that fills the device begins with
 * the first. */
static bool next_absent(struct measure_bench *b, uint32_t *layer, uint32_t *expert)
{
    const struct memory_client *m = b->parts->memory;
    const struct model_params *p = &m->map.params;
    uint32_t n_all = (p->n_layers - p->n_dense) * p->router.n_experts;
    for (uint32_t looked = 0; looked < n_all; looked++) {
        uint32_t at = n_all - 1 - b->looked++ % n_all;
        *layer = p->n_dense + at / p->router.n_experts;
        *expert = at % p->router.n_experts;
        struct residency r = residency_read(&m->residency, *layer, *expert);
        uint32_t slot;
        if (b->parts->host && !host_experts_find(b->parts->host, *layer, *expert, &slot))
            continue; /* it cannot be copied from memory */
        if (*expert < measure_slabs(b, *layer)->n_experts && r.resident == 0 && r.in_flight == 0 &&
            measure_slabs(b, *layer)->segment_bytes == measure_slabs(b, p->n_dense)->segment_bytes)
            return true;
    }
    return false;
}

static bool await_segments(struct measure_bench *b, uint32_t layer, uint32_t expert,
                           uint32_t segments)
{
    uint64_t since = clock_ns();
    struct spinner spinner;
    spinner_init(&spinner, MEASURE_SPIN_US);
    while (device_cache_read(b->parts->cache, layer, expert).resident < segments) {
        if (clock_ns() - since > LOAD_STALL_MS * 1000000ull)
            return false;
        device_cache_wait(b->parts->cache, layer, expert, segments, &spinner, LOAD_STALL_MS / 4);
    }
    return true;
}

/* Seconds until the first and until all of some segments are there that were asked for at once, as
 * a layer does. */
struct arrivals {
    double first_s, all_s;
};

/* False: too few experts are absent, or the loads do not arrive. */
static bool time_loads(struct measure_bench *b, uint32_t n_segments, struct arrivals *out)
{
    struct device_cache *cache = b->parts->cache;
    struct {
        uint32_t layer, expert, segments;
    } loads[MOST_LOADED];
    uint32_t n = 0, total = 0, pushed = 0;
    while (total < n_segments) {
        uint32_t rest = n_segments - total;
        if (!next_absent(b, &loads[n].layer, &loads[n].expert))
            return false;
        uint32_t there = measure_slabs(b, loads[n].layer)->n_segments;
        loads[n].segments = there < rest ? there : rest;
        total += loads[n++].segments;
    }
    uint64_t asked = clock_ns();
    while (pushed < n && device_cache_load(cache, 0, loads[pushed].layer, loads[pushed].expert,
                                           loads[pushed].segments))
        pushed++;
    device_cache_notify(cache);
    bool ok = pushed == n && await_segments(b, loads[0].layer, loads[0].expert, 1);
    out->first_s = (double)(clock_ns() - asked) * 1e-9;
    for (uint32_t i = 0; i < n && ok; i++)
        ok = await_segments(b, loads[i].layer, loads[i].expert, loads[i].segments);
    out->all_s = (double)(clock_ns() - asked) * 1e-9;
    for (uint32_t i = 0; i < pushed; i++)
        device_cache_consumed(cache);
    return ok;
}

/* The number of segments that may be asked for at once and take about LINK_S. */
static uint32_t loads_at_once(const struct measure_bench *b)
{
    const struct device_spec *d = b->parts->device;
    uint64_t bytes = measure_slabs(b, b->parts->memory->map.params.n_dense)->segment_bytes;
    double one_s = d->link_latency_s + (double)bytes / d->link_bytes_per_s;
    uint64_t slots = residency_n_slots(b->parts->memory->residency.header),
             capacity = slots > 1 ? slots / 2 : 1;
    uint32_t n = one_s * MOST_LOADED < LINK_S ? MOST_LOADED : (uint32_t)(LINK_S / one_s);
    n = n < 3 ? 3 : n;
    return n < capacity ? n : (uint32_t)capacity;
}

/* ---- Link, device and cpuexec at the same time ---- */

enum { MOST_JOBS = 1024 };

struct feeder {
    struct measure_bench *bench;
    _Atomic bool stop;
    /* Jobs that were computed while the device computed: without and with a copy under way, as in
     * the layers' corrections. */
    uint32_t n[2];
    double took[2][MOST_JOBS];
};

/* Runs one job after the other while the main thread waits for loads. The channel is this thread's
 * until it ends. */
static void *feed(void *arg)
{
    struct feeder *f = arg;
    struct measure_bench *b = f->bench;
    struct measure_timing t;
    for (uint32_t turn = 0; !atomic_load(&f->stop); turn++) {
        uint64_t copies = device_cache_copies(b->parts->cache);
        if (!measure_overlapped_job(b, turn % b->n_turns, 1, &t))
            break;
        bool copying = copies % 2 || device_cache_copies(b->parts->cache) != copies;
        if (f->n[copying] < MOST_JOBS)
            f->took[copying][f->n[copying]++] = t.compute_s / t.segments;
    }
    return NULL;
}

/* Loads and naps in turn, so that both kinds of jobs are measured at the same time. Returns the
 * best time of a batch of loads; INFINITY: there was none. */
static double load_in_turns(struct measure_bench *b, uint32_t n_loads)
{
    struct arrivals took;
    double best_s = INFINITY, spent_s = 0;
    while (spent_s < LINK_CONTENDED_S && time_loads(b, n_loads, &took)) {
        best_s = fmin(best_s, took.all_s);
        spent_s += took.all_s;
        measure_nap(fmin(took.all_s, LINK_S));
    }
    return best_s;
}

/* As the layers' corrections (lib/calibration/layer_costs.c): a job that took more than twice the
 * mean was interrupted, and counts as twice the mean. */
static double usual_mean(double *values, uint32_t n)
{
    double mean = measure_quantile(values, n, 0.5);
    for (int round = 0; round < 10; round++) { /* towards the fixed point */
        double sum = 0;
        for (uint32_t i = 0; i < n; i++)
            sum += fmin(values[i], 2 * mean);
        mean = sum / n;
    }
    return mean;
}

/* The CPU's time while the device computes, then while the link copies too, and the link's while
 * both compute. The device computes in every layer, so a copy's slowdown is relative to that.
 * Means: a copy slows some jobs down much, and others not at all. */
static void measure_together(struct measure_bench *b, uint32_t n_loads, struct calibration *c)
{
    struct feeder *f = calloc(1, sizeof *f);
    pthread_t thread;
    if (!f)
        return;
    f->bench = b;
    if (pthread_create(&thread, NULL, feed, f) == 0) {
        double best_s = load_in_turns(b, n_loads);
        atomic_store(&f->stop, true);
        pthread_join(thread, NULL);
        if (isfinite(best_s) && f->n[false] >= LEAST_JOBS && f->n[true] >= LEAST_JOBS) {
            double uncontended_s = c->cpu_side.points[0].seconds;
            double overlap_s = measure_quantile(f->took[false], f->n[false], 0.25);
            c->cpu_overlap = fmax(1, overlap_s / uncontended_s);
            c->cpu_slowdown = fmax(1, usual_mean(f->took[true], f->n[true]) /
                                          usual_mean(f->took[false], f->n[false]));
            c->link_slowdown = fmax(1, best_s / (c->link_latency_s + n_loads * c->link_segment_s));
        }
    }
    free(f);
}

/* ---- The link ---- */

static void await_pinning(const struct measure_bench *b)
{
    uint64_t since = clock_ns();
    while (device_cache_pinning(b->parts->cache) && clock_ns() - since < PINNING_S * 1000000000ull)
        measure_nap(0.02);
}

/* Loads one segment, and many. Between the arrivals of the first and the last of many the link
 * serves no one else. The time of short segments is the difference of many and one instead, because
 * noticing the first arrival takes a while. */
void measure_link(struct measure_bench *b, struct calibration *c)
{
    await_pinning(b);
    uint32_t n = loads_at_once(b), repeats = 0;
    double least_s = INFINITY, many_s = INFINITY, spent_s = 0, single[LINK_REPEATS],
           between[LINK_REPEATS];
    while (repeats < LINK_REPEATS && (repeats < 2 || spent_s < LINK_UNCONTENDED_S)) {
        struct arrivals one, many;
        measure_nap(TIDY_S); /* so that no load waits for a free slot, which is rare in a layer */
        measure_pass_time();
        if (!time_loads(b, 1, &one) || !time_loads(b, n, &many))
            break;
        single[repeats] = one.all_s;
        least_s = fmin(least_s, one.all_s);
        many_s = fmin(many_s, many.all_s);
        spent_s += one.all_s + many.all_s;
        between[repeats++] = n > 1 ? (many.all_s - many.first_s) / (n - 1) : many.all_s;
    }
    if (repeats < 2)
        return;
    double segment_s = measure_quantile(between, repeats, 0.5);
    if (n > 1 && segment_s < SHORT_S)
        segment_s = (many_s - least_s) / (n - 1);
    if (!(segment_s > 0))
        return;
    /* An emulated link catches up after a delay, so some copies seem faster than the link. */
    const struct device_spec *d = b->parts->device;
    if (d->kind == DEVICE_EMU)
        segment_s = fmax(segment_s, (double)c->segment_bytes / d->link_bytes_per_s);
    c->link_segment_s = segment_s;
    c->link_latency_s = fmax(0, measure_quantile(single, repeats, 0.5) - segment_s);
    if (b->channel)
        measure_together(b, n, c);
}
