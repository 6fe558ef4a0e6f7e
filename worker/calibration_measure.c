/* Measuring costs; see calibration_measure.h.
 *
 * Weights are computed with as in a token's step: a few experts at once, other ones each time, so that they come from memory;
 * and each has been touched before it is timed, since a page's first use costs more than reading it. The lower quartile of
 * several counts: the machine may be doing something else, which layers will show. Of a job's way there and back, and of a load's, it is the
 * median: how long a thread takes to wake up is no disturbance.
 */
#include "calibration_measure.h"

#include "device_cache.h"
#include "device_compute.h"
#include "expert_link.h"
#include "host_experts.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/sort_doubles.h"
#include "ipc/expert_channel.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define JOB_BYTES     (16u << 20) /* of weights, about: what a layer's experts of one token are */
#define SET_BYTES     (64u << 20) /* that jobs take turns in */
#define MOST_EXPERTS  8
#define MOST_TURNS    64
#define STORED_BYTES  (256u << 20) /* on a device whose caches hold tens of MB */
#define MOST_STORED   256          /* segments of it */
#define PINNING_S     60           /* that memd's pinning is waited for */
#define POINT_S       0.05 /* a point is measured again until so much has gone */
#define LEAST_REPEATS 5
#define MOST_REPEATS  25
#define SIDE_S        0.4  /* after which a side's larger numbers of tokens are left out */
#define AGAIN_S       0.2  /* for what is measured again */
#define LINK_S        0.05 /* of copies at once, about */
#define LINK_ALONE_S  0.15 /* after which the link is not measured again */
#define LINK_BESIDE_S 0.1  /* of copies while device and CPU compute */
#define LEAST_JOBS    5    /* of either kind */
#define LINK_REPEATS  25
#define SHORT_S       100e-6 /* a segment on the link; noticing that it has come takes up to so much */
#define ASIDE_S       200e-6 /* before a job or a load: as long as the dense part of a small model's layer */
#define TIDY_S        3e-3   /* in which memd, left alone, makes room again */
#define MOST_LOADED   16     /* segments at once */
#define LOAD_STALL_MS 1000
/* Not the numbers that the engine's jobs have. */
#define FIRST_SEQUENCE (1ull << 63)

static const uint32_t token_counts[] = {1, 2, 4, 8, 16, 32};
#define N_COUNTS    (sizeof token_counts / sizeof *token_counts)
#define MOST_TOKENS 32

/* A piece of work that is timed: `experts` experts' first `segments` segments, each for some tokens. */
struct bench {
    const struct calibration_parts *parts;
    uint32_t n_experts, n_segments, n_turns;
    uint32_t max_tokens;
    uint32_t indices[MOST_EXPERTS * MOST_TOKENS];
    float *values;                  /* [MOST_TOKENS][d_model] */
    struct expert_channel *channel; /* NULL: no executor */
    uint64_t sequence;
    uint32_t looked; /* how far the search for experts that are not resident has come */
    /* Segments of the first layer of experts on a device that cannot compute with host memory: turns take these. */
    const uint8_t *stored[MOST_STORED];
    uint32_t n_stored;
    struct error lost; /* the device: code not 0 */
};

struct timing {
    double compute_s, trip_s;
    uint32_t segments; /* that were computed */
};

/* The weights that a turn uses. */
struct chosen {
    uint32_t layer, n_segments;
    uint32_t experts[MOST_EXPERTS];
    uint32_t slots[MOST_EXPERTS]; /* of the host tier, where there is one */
};

static const struct pool_slabs *slabs_of(const struct bench *b, uint32_t layer)
{
    return &b->parts->memory->map.slabs[layer];
}

static double quantile(double *values, uint32_t n, double share)
{
    sort_doubles(values, n);
    return values[(uint32_t)(n * share)];
}

/* As the layers' corrections have it (lib/calibration/layer_costs.c): what took more than twice as long as the others was interrupted, and counts
 * as twice. */
static double usual_mean(double *values, uint32_t n)
{
    double mean = quantile(values, n, 0.5);
    for (int round = 0; round < 10; round++) { /* it grows towards where it stays */
        double sum = 0;
        for (uint32_t i = 0; i < n; i++)
            sum += fmin(values[i], 2 * mean);
        mean = sum / n;
    }
    return mean;
}

static bool bench_init(struct bench *b, const struct calibration_parts *p)
{
    const struct model_params *params = &p->memory->map.params;
    const struct pool_slabs *s = &p->memory->map.slabs[params->n_dense];
    uint64_t most = JOB_BYTES / s->segment_bytes;
    uint32_t experts = params->router.n_used < s->n_experts ? params->router.n_used : s->n_experts;
    experts = experts < MOST_EXPERTS ? experts : MOST_EXPERTS;
    most = most < 2 ? 2 : most;
    experts = experts < most ? experts : (uint32_t)most;
    uint64_t each = most / experts;
    uint32_t segments = each < s->n_segments ? (uint32_t)each : s->n_segments;
    uint64_t turns = SET_BYTES / (s->segment_bytes * experts * segments);
    *b = (struct bench){.parts = p,
                        .n_experts = experts,
                        .n_segments = segments,
                        .n_turns = turns < 2            ? 2
                                   : turns < MOST_TURNS ? (uint32_t)turns
                                                        : MOST_TURNS,
                        .max_tokens = p->max_tokens < MOST_TOKENS ? p->max_tokens : MOST_TOKENS,
                        .sequence = FIRST_SEQUENCE};
    b->values = calloc((size_t)MOST_TOKENS * params->d_model, sizeof *b->values);
    for (size_t i = 0; b->values && i < (size_t)MOST_TOKENS * params->d_model; i++)
        b->values[i] = (float)((int)(i * 37 % 17) - 8) / 8;
    return b->values != NULL;
}

static void bench_fini(struct bench *b)
{
    device_compute_drop(b->parts->compute);
    free(b->values);
}

static uint32_t layer_of(const struct bench *b, uint32_t turn)
{
    const struct model_params *p = &b->parts->memory->map.params;
    return p->n_dense + turn % (p->n_layers - p->n_dense);
}

/* Other ones each time that a layer's turn comes. */
static uint32_t first_expert(const struct bench *b, uint32_t turn)
{
    const struct model_params *p = &b->parts->memory->map.params;
    return (turn + turn / (p->n_layers - p->n_dense)) * b->n_experts;
}

/* Those of the turn's experts that are in host memory, the same again where they are too few; of another layer where none of
 * them is. Within an epoch. False: there is none at all. */
static bool choose_in_memory(const struct bench *b, uint32_t turn, struct chosen *c)
{
    const struct model_params *p = &b->parts->memory->map.params;
    for (uint32_t more = 0; more < p->n_layers - p->n_dense; more++) {
        uint32_t n = 0;
        c->layer = layer_of(b, turn + more);
        uint32_t n_all = slabs_of(b, c->layer)->n_experts;
        for (uint32_t i = 0; i < n_all && n < b->n_experts; i++) {
            c->experts[n] = (first_expert(b, turn) + i) % n_all;
            n += host_experts_find(b->parts->host, c->layer, c->experts[n], &c->slots[n]);
        }
        for (uint32_t i = n; n && i < b->n_experts; i++) {
            c->experts[i] = c->experts[i % n];
            c->slots[i] = c->slots[i % n];
        }
        if (n)
            return true;
    }
    return false;
}

/* False: there is nothing to compute with. Within an epoch, where there is a host tier. */
static bool choose_within(const struct bench *b, uint32_t turn, struct chosen *c)
{
    bool found = true;
    *c = (struct chosen){.layer = layer_of(b, turn)};
    if (b->parts->host) {
        found = choose_in_memory(b, turn, c);
    } else {
        for (uint32_t i = 0; i < b->n_experts; i++)
            c->experts[i] = (first_expert(b, turn) + i) % slabs_of(b, c->layer)->n_experts;
    }
    uint32_t there = slabs_of(b, c->layer)->n_segments;
    c->n_segments = b->n_segments < there ? b->n_segments : there;
    return found;
}

/* Likewise, and enters the epoch: release is to follow, if there is something. */
static bool choose(const struct bench *b, uint32_t turn, struct chosen *c)
{
    if (b->parts->host)
        host_experts_enter(b->parts->host, 0, 0);
    bool found = choose_within(b, turn, c);
    if (!found && b->parts->host)
        host_experts_leave(b->parts->host);
    return found;
}

static void release(const struct bench *b)
{
    if (b->parts->host)
        host_experts_leave(b->parts->host);
}

static void nap(double seconds)
{
    if (seconds <= 1e-6)
        return;
    struct timespec t = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};
    nanosleep(&t, NULL);
}

/* -- computing -- */

/* Where a segment lies in host memory, to be copied; NULL: it does not. Within an epoch, where there is a host tier. */
static const uint8_t *find_in_memory(const struct bench *b, uint32_t layer, uint32_t expert,
                                     uint32_t segment)
{
    const struct calibration_parts *p = b->parts;
    uint32_t slot;
    if (!p->host)
        return pool_map_segment_place(&p->memory->map, layer, expert, segment);
    if (!host_experts_find(p->host, layer, expert, &slot))
        return NULL;
    return host_experts_slab(p->host, slot) + segment * slabs_of(b, layer)->segment_bytes;
}

/* What a segment's bytes are makes no difference to the time: as many copies as there is room for, of one that is in memory, or
 * else of zeros. */
static void store_segments(struct bench *b)
{
    uint32_t layer = layer_of(b, 0);
    const struct pool_slabs *s = slabs_of(b, layer);
    uint64_t most = STORED_BYTES / s->segment_bytes;
    most = most < 1 ? 1 : most < MOST_STORED ? most : MOST_STORED;
    uint8_t *zeros = calloc(1, s->segment_bytes);
    if (b->parts->host)
        host_experts_enter(b->parts->host, 0, 0);
    const uint8_t *from = NULL;
    for (uint32_t i = 0; i < s->n_experts && !from; i++)
        from = find_in_memory(b, layer, i, 0);
    from = from ? from : zeros;
    while (from && b->n_stored < most &&
           (b->stored[b->n_stored] =
                device_compute_store(b->parts->compute, from, s->segment_bytes)))
        b->n_stored++;
    release(b);
    free(zeros);
}

/* False: the device is lost. */
static bool compute_chosen(struct bench *b, uint32_t turn, const struct chosen *c,
                           uint32_t n_tokens, struct timing *took)
{
    const struct calibration_parts *p = b->parts;
    uint32_t d_model = p->memory->map.params.d_model;
    const uint8_t *places[MOST_EXPERTS][POOL_MAX_SEGMENTS];
    struct expert_task tasks[MOST_EXPERTS];
    bool fetch[MOST_EXPERTS];
    for (uint32_t i = 0; i < b->n_experts; i++) {
        fetch[i] = !p->rows_stay;
        tasks[i] = (struct expert_task){
            .expert = c->experts[i],
            .n_segments = c->n_segments,
            .n_tokens = n_tokens,
            .tokens = b->indices,
            .out = device_compute_rows(p->compute) + (size_t)i * n_tokens * d_model,
            .slab = p->host ? host_experts_slab(p->host, c->slots[i]) : NULL};
        for (uint32_t s = 0; b->n_stored && s < c->n_segments; s++)
            places[i][s] = b->stored[((turn * b->n_experts + i) * c->n_segments + s) % b->n_stored];
        tasks[i].places = b->n_stored ? places[i] : NULL;
    }
    for (uint32_t i = 0; i < n_tokens; i++)
        b->indices[i] = i;
    device_compute_input(p->compute, b->n_stored ? layer_of(b, 0) : c->layer, b->values, NULL,
                         n_tokens);
    uint64_t started = clock_ns();
    if (device_compute_run(p->compute, tasks, fetch, b->n_experts, &b->lost))
        return false;
    took->compute_s = took->trip_s = (double)(clock_ns() - started) * 1e-9;
    took->segments = b->n_experts * c->n_segments;
    return true;
}

static bool compute_here(struct bench *b, uint32_t turn, uint32_t n_tokens, struct timing *took)
{
    struct chosen c;
    if (!choose(b, turn, &c))
        return false;
    bool ok = compute_chosen(b, turn, &c, n_tokens, took);
    release(b);
    return ok;
}

static bool push_job(struct bench *b, const struct chosen *c, uint32_t n_tokens)
{
    struct expert_channel *ch = b->channel;
    for (uint32_t i = 0; i < b->n_experts; i++) {
        ch->tasks[i] = (struct expert_task_record){.expert = c->experts[i],
                                                   .n_segments = c->n_segments,
                                                   .first_row = i * n_tokens,
                                                   .n_rows = n_tokens,
                                                   .first_out = i * n_tokens,
                                                   .slot = c->slots[i]};
        for (uint32_t t = 0; t < n_tokens; t++)
            ch->indices[i * n_tokens + t] = t;
    }
    memcpy(ch->x, b->values, (size_t)n_tokens * ch->d_model * sizeof *ch->x);
    struct expert_job job = {.sequence = ++b->sequence,
                             .layer = c->layer,
                             .n_tokens = n_tokens,
                             .n_tasks = b->n_experts};
    if (ring_push(&ch->jobs, &job) != 1)
        return false;
    ring_notify(&ch->jobs);
    return true;
}

/* The device computes other experts beside, as many, at the pace of the device that is emulated; once, as in a layer: over and over an
 * emulated one would take a core from whoever copies. */
static void compute_meanwhile(struct bench *b, uint32_t turn, uint32_t n_tokens)
{
    struct timing took;
    struct chosen c;
    turn += b->n_turns / 2;
    if (choose_within(b, turn, &c) && compute_chosen(b, turn, &c, n_tokens, &took))
        nap(took.compute_s * (1 / b->parts->device->speed - 1));
}

/* A job to the executor and back. Without its answer the channel is of no more use. */
static bool run_job(struct bench *b, uint32_t turn, uint32_t n_tokens, bool beside_device,
                    struct timing *took)
{
    struct expert_channel *ch = b->channel;
    struct expert_completion done;
    struct chosen c;
    if (!choose(b, turn, &c))
        return false;
    uint64_t started = clock_ns();
    bool ok = push_job(b, &c, n_tokens);
    if (ok && beside_device)
        compute_meanwhile(b, turn, n_tokens);
    ok = ok && ring_wait(&ch->completions, expert_link_dead(b->parts->link), 20, EXPERT_STALL_MS) &&
         ring_pop(&ch->completions, &done) == 1 && done.sequence == b->sequence &&
         done.status == ERROR_OK;
    release(b);
    if (!ok) {
        log_warn("calibration: cpuexec does not answer");
        expert_link_abandon(b->parts->link);
        b->channel = NULL;
        return false;
    }
    took->trip_s = (double)(clock_ns() - started) * 1e-9;
    took->compute_s = (double)done.compute_ns * 1e-9;
    took->segments = b->n_experts * c.n_segments;
    return true;
}

/* As between two layers, this thread has its own to do for a while: whom it then asks has gone to sleep, and his caches hold
 * other things. */
static void compute_aside(void)
{
    for (uint64_t since = clock_ns(); (double)(clock_ns() - since) * 1e-9 < ASIDE_S;)
        ;
}

static bool compute_there(struct bench *b, uint32_t turn, uint32_t n_tokens, struct timing *took)
{
    compute_aside();
    return run_job(b, turn, n_tokens, false, took);
}

/* There while the device computes, as in a layer. */
static bool compute_beside(struct bench *b, uint32_t turn, uint32_t n_tokens, struct timing *took)
{
    return run_job(b, turn, n_tokens, true, took);
}

typedef bool compute_fn(struct bench *b, uint32_t turn, uint32_t n_tokens, struct timing *took);

/* Seconds of a segment; the overhead of a job in *overhead_s. False: it failed. */
static bool measure_point(struct bench *b, compute_fn *compute, uint32_t n_tokens,
                          double *segment_s, double *overhead_s)
{
    double took[MOST_REPEATS], overhead[MOST_REPEATS], spent = 0;
    uint32_t n = 0;
    for (; n < MOST_REPEATS && (n < LEAST_REPEATS || spent < POINT_S); n++) {
        uint32_t turn = n % b->n_turns;
        struct timing t;
        if (!compute(b, turn, n_tokens, &t))
            return false;
        took[n] = t.compute_s / t.segments;
        overhead[n] = t.trip_s - t.compute_s;
        spent += t.trip_s;
    }
    *segment_s = fmax(quantile(took, n, 0.25), 1e-9);
    *overhead_s = fmax(quantile(overhead, n, 0.5), 0); /* waking up takes now this, now that */
    return true;
}

/* More tokens cannot take less time: where they seem to, the fewer ones were disturbed and are measured again. */
static bool measure_again(struct bench *b, compute_fn *compute, struct calibration_side *side,
                          double *overhead_s)
{
    uint64_t started = clock_ns();
    for (uint32_t i = side->n_points - 1; i-- > 0;) {
        struct calibration_point *p = &side->points[i];
        double seconds, overhead;
        if (p->seconds <= p[1].seconds || (double)(clock_ns() - started) * 1e-9 > AGAIN_S)
            continue;
        if (!measure_point(b, compute, p->tokens, &seconds, &overhead))
            return false;
        p->seconds = fmin(p->seconds, seconds);
        if (i == 0)
            *overhead_s = fmin(*overhead_s, overhead);
    }
    return true;
}

/* What a call takes beside its segments: a single one's time, less what it is among others. */
static bool measure_call(struct bench *b, compute_fn *compute, double segment_s, double *call_s)
{
    uint32_t experts = b->n_experts, segments = b->n_segments;
    double single_s, overhead;
    b->n_experts = b->n_segments = 1;
    bool ok = measure_point(b, compute, 1, &single_s, &overhead);
    b->n_experts = experts;
    b->n_segments = segments;
    *call_s = ok ? fmax(0, single_s - segment_s) : 0;
    return ok;
}

static bool measure_side(struct bench *b, compute_fn *compute, struct calibration_side *side,
                         double *call_s, double *overhead_s)
{
    uint64_t started = clock_ns();
    struct timing unused;
    for (uint32_t turn = 0; turn < b->n_turns; turn++) /* to touch the weights */
        if (!compute(b, turn, 1, &unused))
            return false;
    for (size_t i = 0; i < N_COUNTS && token_counts[i] <= b->max_tokens; i++) {
        if (side->n_points >= 3 && (double)(clock_ns() - started) * 1e-9 > SIDE_S)
            break;
        struct calibration_point point = {.tokens = token_counts[i]};
        double overhead;
        if (!measure_point(b, compute, point.tokens, &point.seconds, &overhead))
            return false;
        if (i == 0)
            *overhead_s = overhead;
        side->points[side->n_points++] = point;
    }
    return measure_again(b, compute, side, overhead_s) &&
           measure_call(b, compute, side->points[0].seconds, call_s);
}

/* -- the link -- */

/* The next expert of which nothing is on the device, on from where the search stopped; of segments of the first's size. From
 * the last one on: a policy that fills the device by itself begins with the first. */
static bool next_absent(struct bench *b, uint32_t *layer, uint32_t *expert)
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
            continue; /* it is not in memory to be copied from */
        if (*expert < slabs_of(b, *layer)->n_experts && r.resident == 0 && r.in_flight == 0 &&
            slabs_of(b, *layer)->segment_bytes == slabs_of(b, p->n_dense)->segment_bytes)
            return true;
    }
    return false;
}

static bool await_segments(struct bench *b, uint32_t layer, uint32_t expert, uint32_t segments)
{
    uint64_t since = clock_ns();
    while (device_cache_read(b->parts->cache, layer, expert).resident < segments) {
        if (clock_ns() - since > LOAD_STALL_MS * 1000000ull)
            return false;
        device_cache_wait(b->parts->cache, layer, expert, segments, 20, LOAD_STALL_MS / 4);
    }
    return true;
}

/* Seconds until the first and all of so many segments are there, asked for at once as a layer does. */
struct arrivals {
    double first_s, all_s;
};

/* False: there are no more to ask for, or they do not come. */
static bool time_loads(struct bench *b, uint32_t n_segments, struct arrivals *out)
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
        uint32_t there = slabs_of(b, loads[n].layer)->n_segments;
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

/* Segments that may be asked for at once, and take about LINK_S. */
static uint32_t loads_at_once(const struct bench *b)
{
    const struct device_spec *d = b->parts->device;
    uint64_t bytes = slabs_of(b, b->parts->memory->map.params.n_dense)->segment_bytes;
    double one_s = d->link_latency_s + (double)bytes / d->link_bytes_per_s;
    uint64_t slots = residency_n_slots(b->parts->memory->residency.header), room = slots > 1 ? slots / 2 : 1;
    uint32_t n = one_s * MOST_LOADED < LINK_S ? MOST_LOADED : (uint32_t)(LINK_S / one_s);
    n = n < 3 ? 3 : n;
    return n < room ? n : (uint32_t)room;
}

/* -- all at once -- */

enum { MOST_JOBS = 1024 };

struct feeder {
    struct bench *bench;
    _Atomic bool stop;
    /* Jobs that were computed while the device computed: without and with a copy under way, as the layers' corrections tell
     * them apart. */
    uint32_t n[2];
    double took[2][MOST_JOBS];
};

/* Jobs one after the other while the main thread waits for loads. The channel is this thread's meanwhile. */
static void *feed(void *arg)
{
    struct feeder *f = arg;
    struct bench *b = f->bench;
    struct timing t;
    for (uint32_t turn = 0; !atomic_load(&f->stop); turn++) {
        uint64_t copies = device_cache_copies(b->parts->cache);
        if (!compute_beside(b, turn % b->n_turns, 1, &t))
            break;
        bool copying = copies % 2 || device_cache_copies(b->parts->cache) != copies;
        if (f->n[copying] < MOST_JOBS)
            f->took[copying][f->n[copying]++] = t.compute_s / t.segments;
    }
    return NULL;
}

/* Loads and pauses in turn, so that both kinds of jobs are of the same time. What a batch of loads takes at best; INFINITY: there
 * was none. */
static double load_in_turns(struct bench *b, uint32_t n_loads)
{
    struct arrivals took;
    double best_s = INFINITY, spent_s = 0;
    while (spent_s < LINK_BESIDE_S && time_loads(b, n_loads, &took)) {
        best_s = fmin(best_s, took.all_s);
        spent_s += took.all_s;
        nap(fmin(took.all_s, LINK_S));
    }
    return best_s;
}

/* What the CPU takes beside the device, then beside the device and the link, and the link beside both: a layer has the device
 * computing at any rate, so a copy is to be weighed against that. Means: a copy slows some jobs down much, others not at all. */
static void measure_together(struct bench *b, uint32_t n_loads, struct calibration *c)
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
            double alone_s = c->cpu_side.points[0].seconds;
            double beside_s = quantile(f->took[false], f->n[false], 0.25);
            c->cpu_beside_device = fmax(1, beside_s / alone_s);
            c->cpu_slowdown = fmax(1, usual_mean(f->took[true], f->n[true]) /
                                          usual_mean(f->took[false], f->n[false]));
            c->link_slowdown = fmax(1, best_s / (c->link_latency_s + n_loads * c->link_segment_s));
        }
    }
    free(f);
}

/* One segment, and many. From the first of many to the last the link is ours alone, whatever it copied when they were asked
 * for; only short segments are rather told by the difference of many and one, since noticing the first takes a while. */
static void await_pinning(const struct bench *b)
{
    uint64_t since = clock_ns();
    while (device_cache_pinning(b->parts->cache) &&
           clock_ns() - since < PINNING_S * 1000000000ull)
        nap(0.02);
}

static void measure_link(struct bench *b, struct calibration *c)
{
    await_pinning(b);
    uint32_t n = loads_at_once(b), repeats = 0;
    double least_s = INFINITY, many_s = INFINITY, spent_s = 0, single[LINK_REPEATS], between[LINK_REPEATS];
    while (repeats < LINK_REPEATS && (repeats < 2 || spent_s < LINK_ALONE_S)) {
        struct arrivals one, many;
        nap(TIDY_S); /* a load for which room has to be made first takes longer, and there seldom is one */
        compute_aside();
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
    double segment_s = quantile(between, repeats, 0.5);
    if (n > 1 && segment_s < SHORT_S)
        segment_s = (many_s - least_s) / (n - 1);
    if (!(segment_s > 0))
        return;
    /* An emulated link makes up for what it was late, so some copies seem quicker than it is. */
    const struct device_spec *d = b->parts->device;
    if (d->kind == DEVICE_EMU)
        segment_s = fmax(segment_s, d->link_latency_s + (double)c->segment_bytes / d->link_bytes_per_s);
    c->link_segment_s = segment_s;
    c->link_latency_s = fmax(0, quantile(single, repeats, 0.5) - segment_s);
    if (b->channel)
        measure_together(b, n, c);
}

/* -- all of it -- */

static void scale(struct calibration_side *side, double by)
{
    for (uint32_t i = 0; i < side->n_points; i++)
        side->points[i].seconds *= by;
}

enum error_code calibration_measure(const struct calibration_parts *p, struct calibration *c,
                                    bool *whole, struct error *e)
{
    struct bench b;
    double none;
    if (!bench_init(&b, p)) {
        bench_fini(&b);
        return error_set(e, ERROR_MEMORY, "no memory for the calibration");
    }
    b.channel = expert_link_channel(p->link);
    exec_allow_blas(p->own, false);
    if (p->device->kind == DEVICE_CUDA) {
        store_segments(&b);
        if (!b.n_stored) {
            bench_fini(&b);
            return error_set(e, ERROR_MEMORY,
                             "the device has no room beside memd's arena: give a smaller vram=");
        }
    }
    measure_side(&b, compute_here, &c->device_side, &c->device_call_s, &none);
    *whole = b.channel &&
             measure_side(&b, compute_there, &c->cpu_side, &c->cpu_call_s, &c->job_overhead_s);
    if (!*whole) {
        c->cpu_side = c->device_side;
        c->cpu_call_s = c->device_call_s;
        c->job_overhead_s = 0;
    }
    scale(&c->device_side, 1 / p->device->speed);
    c->device_call_s /= p->device->speed;
    measure_link(&b, c);
    device_cache_measured(p->cache);
    bench_fini(&b);
    if (b.lost.code) {
        if (e)
            *e = b.lost;
        return b.lost.code;
    }
    c->measured_at = (int64_t)time(NULL);
    return ERROR_OK;
}
