/* Timing of computation, on the device and on cpuexec; see measure_internal.h. */
#include "measure_internal.h"

#include "worker/links/device_compute.h"
#include "worker/links/expert_link.h"
#include "worker/links/host_experts.h"

#include "base/clock.h"
#include "base/log.h"
#include "ipc/expert_channel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STORED_BYTES  (256u << 20) /* on a device whose caches hold tens of MB */
#define POINT_S       0.05         /* a point is measured until so much time has gone */
#define LEAST_REPEATS 5
#define MOST_REPEATS  25
#define SIDE_S        0.4 /* after that, larger numbers of tokens are left out */
#define AGAIN_S       0.2 /* for repeated measurements */

static const uint32_t token_counts[] = {1, 2, 4, 8, 16, 32};
#define N_COUNTS (sizeof token_counts / sizeof *token_counts)

/* The weights that a turn uses. */
struct chosen {
    uint32_t layer, n_segments;
    uint32_t experts[MEASURE_MOST_EXPERTS];
    uint32_t slots[MEASURE_MOST_EXPERTS]; /* of the host tier, where there is one */
};

/* ---- The choice of weights ---- */

static uint32_t layer_of(const struct measure_bench *b, uint32_t turn)
{
    const struct model_params *p = &b->parts->memory->map.params;
    return p->n_dense + turn % (p->n_layers - p->n_dense);
}

/* Other experts each time that a layer has its turn. */
static uint32_t first_expert(const struct measure_bench *b, uint32_t turn)
{
    const struct model_params *p = &b->parts->memory->map.params;
    return (turn + turn / (p->n_layers - p->n_dense)) * b->n_experts;
}

/* The experts of the turn that are in host memory, repeated where there are too few; of another
 * layer where there are none. Called within an epoch. False: no expert is in memory. */
static bool choose_in_memory(const struct measure_bench *b, uint32_t turn, struct chosen *c)
{
    const struct model_params *p = &b->parts->memory->map.params;
    for (uint32_t more = 0; more < p->n_layers - p->n_dense; more++) {
        uint32_t n = 0;
        c->layer = layer_of(b, turn + more);
        uint32_t n_all = measure_slabs(b, c->layer)->n_experts;
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

/* Called within an epoch, where there is a host tier. False: no expert is in memory. */
static bool choose_within(const struct measure_bench *b, uint32_t turn, struct chosen *c)
{
    bool found = true;
    *c = (struct chosen){.layer = layer_of(b, turn)};
    if (b->parts->host) {
        found = choose_in_memory(b, turn, c);
    } else {
        for (uint32_t i = 0; i < b->n_experts; i++)
            c->experts[i] = (first_expert(b, turn) + i) % measure_slabs(b, c->layer)->n_experts;
    }
    uint32_t there = measure_slabs(b, c->layer)->n_segments;
    c->n_segments = b->n_segments < there ? b->n_segments : there;
    return found;
}

/* Also enters the epoch; if it returns true, release must follow. */
static bool choose(const struct measure_bench *b, uint32_t turn, struct chosen *c)
{
    if (b->parts->host)
        host_experts_enter(b->parts->host, 0, 0);
    bool found = choose_within(b, turn, c);
    if (!found && b->parts->host)
        host_experts_leave(b->parts->host);
    return found;
}

static void release(const struct measure_bench *b)
{
    if (b->parts->host)
        host_experts_leave(b->parts->host);
}

/* ---- The device ---- */

/* A segment's place in host memory; NULL: it is not there. Called within an epoch, where there is a
 * host tier. */
static const uint8_t *find_in_memory(const struct measure_bench *b, uint32_t layer, uint32_t expert,
                                     uint32_t segment)
{
    const struct calibration_parts *p = b->parts;
    uint32_t slot;
    if (!p->host)
        return pool_map_segment_place(&p->memory->map, layer, expert, segment);
    if (!host_experts_find(p->host, layer, expert, &slot))
        return NULL;
    return host_experts_slab(p->host, slot) + segment * measure_slabs(b, layer)->segment_bytes;
}

/* The values of a segment do not change its time: all are copies of one that is in memory, or
 * zeros.
 */
void measure_store_segments(struct measure_bench *b)
{
    uint32_t layer = layer_of(b, 0);
    const struct pool_slabs *s = measure_slabs(b, layer);
    uint64_t most = STORED_BYTES / s->segment_bytes;
    most = most < 1 ? 1 : most < MEASURE_MOST_STORED ? most : MEASURE_MOST_STORED;
    uint8_t *zeros = calloc(1, s->segment_bytes);
    if (b->parts->host)
        host_experts_enter(b->parts->host, 0, 0);
    const uint8_t *from = NULL;
    for (uint32_t i = 0; i < s->n_experts && !from; i++)
        from = find_in_memory(b, layer, i, 0);
    from = from ? from : zeros;
    while (
        from && b->n_stored < most &&
        (b->stored[b->n_stored] = device_compute_store(b->parts->compute, from, s->segment_bytes)))
        b->n_stored++;
    release(b);
    free(zeros);
}

/* False: the device is lost. */
static bool compute_chosen(struct measure_bench *b, uint32_t turn, const struct chosen *c,
                           uint32_t n_tokens, struct measure_timing *took)
{
    const struct calibration_parts *p = b->parts;
    uint32_t d_model = p->memory->map.params.d_model;
    const uint8_t *places[MEASURE_MOST_EXPERTS][POOL_MAX_SEGMENTS];
    struct expert_task tasks[MEASURE_MOST_EXPERTS];
    bool fetch[MEASURE_MOST_EXPERTS];
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

static bool compute_here(struct measure_bench *b, uint32_t turn, uint32_t n_tokens,
                         struct measure_timing *took)
{
    struct chosen c;
    if (!choose(b, turn, &c))
        return false;
    bool ok = compute_chosen(b, turn, &c, n_tokens, took);
    release(b);
    return ok;
}

/* ---- cpuexec ---- */

static bool push_job(struct measure_bench *b, const struct chosen *c, uint32_t n_tokens)
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

/* The device computes as many other experts, at the pace of the emulated device. Once, as in a
 * layer: repeated computing of an emulated device would take a core from memd's copies. */
static void compute_overlap(struct measure_bench *b, uint32_t turn, uint32_t n_tokens)
{
    struct measure_timing took;
    struct chosen c;
    turn += b->n_turns / 2;
    if (choose_within(b, turn, &c) && compute_chosen(b, turn, &c, n_tokens, &took))
        measure_nap(took.compute_s * (1 / b->parts->device->speed - 1));
}

/* A job to the executor and back. Without an answer the channel is not used again. */
static bool run_job(struct measure_bench *b, uint32_t turn, uint32_t n_tokens, bool overlap_device,
                    struct measure_timing *took)
{
    struct expert_channel *ch = b->channel;
    struct expert_completion done;
    struct chosen c;
    if (!choose(b, turn, &c))
        return false;
    uint64_t started = clock_ns();
    bool ok = push_job(b, &c, n_tokens);
    if (ok && overlap_device)
        compute_overlap(b, turn, n_tokens);
    ok = ok &&
         ring_wait(&ch->completions, expert_link_dead(b->parts->link), &b->spinner,
                   EXPERT_STALL_MS) &&
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

static bool compute_there(struct measure_bench *b, uint32_t turn, uint32_t n_tokens,
                          struct measure_timing *took)
{
    measure_pass_time();
    return run_job(b, turn, n_tokens, false, took);
}

bool measure_overlapped_job(struct measure_bench *b, uint32_t turn, uint32_t n_tokens,
                            struct measure_timing *took)
{
    return run_job(b, turn, n_tokens, true, took);
}

/* ---- Points and sides ---- */

typedef bool compute_fn(struct measure_bench *b, uint32_t turn, uint32_t n_tokens,
                        struct measure_timing *took);

/* Seconds of a segment; the overhead of a job in *overhead_s. False: it failed. */
static bool measure_point(struct measure_bench *b, compute_fn *compute, uint32_t n_tokens,
                          double *segment_s, double *overhead_s)
{
    double took[MOST_REPEATS], overhead[MOST_REPEATS], spent = 0;
    uint32_t n = 0;
    for (; n < MOST_REPEATS && (n < LEAST_REPEATS || spent < POINT_S); n++) {
        uint32_t turn = n % b->n_turns;
        struct measure_timing t;
        if (!compute(b, turn, n_tokens, &t))
            return false;
        took[n] = t.compute_s / t.segments;
        overhead[n] = t.trip_s - t.compute_s;
        spent += t.trip_s;
    }
    *segment_s = fmax(measure_quantile(took, n, 0.25), 1e-9);
    *overhead_s = fmax(measure_quantile(overhead, n, 0.5), 0); /* the time to wake up varies */
    return true;
}

/* More tokens cannot take less time. Where they seem to, the measurement of fewer tokens was
 * disturbed and is repeated. */
static bool measure_again(struct measure_bench *b, compute_fn *compute,
                          struct calibration_side *side, double *overhead_s)
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

/* The time of a call besides its segments: a call of one segment, less that segment's time among
 * others. */
static bool measure_call(struct measure_bench *b, compute_fn *compute, double segment_s,
                         double *call_s)
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

static bool measure_side(struct measure_bench *b, compute_fn *compute,
                         struct calibration_side *side, double *call_s, double *overhead_s)
{
    uint64_t started = clock_ns();
    struct measure_timing unused;
    for (uint32_t turn = 0; turn < b->n_turns; turn++) /* touch the weights */
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

bool measure_device(struct measure_bench *b, struct calibration_side *side, double *call_s)
{
    double overhead_s;
    return measure_side(b, compute_here, side, call_s, &overhead_s);
}

bool measure_cpu(struct measure_bench *b, struct calibration_side *side, double *call_s,
                 double *overhead_s)
{
    return measure_side(b, compute_there, side, call_s, overhead_s);
}
