/* Routed experts; see experts.h.
 *
 * An activated expert is computed in up to three parts, in order of its segments: on the device from what is resident, on the
 * device from what it waits for, on the CPU. The device's parts are one running sum; the CPU's rows come apart and are
 * added to it in order, so the sum is the same wherever the cuts are. An expert that the CPU computes whole comes as a
 * sum. The emulated device's arithmetic is that of this process's threads.
 */
#include "experts.h"

#include "calibration.h"
#include "device_cache.h"
#include "expert_link.h"
#include "layer_plan.h"
#include "prediction.h"

#include "base/clock.h"
#include "base/log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOAD_STALL_MS 1000
/* Larger batches activate most of a layer: guessing is of no use. */
#define PREDICT_MAX_TOKENS 32

/* One activated expert of the layer under way. */
struct activated {
    uint32_t expert;
    uint32_t first_row, n_rows; /* of indices and rows */
    uint32_t device, load, cpu; /* segments, in this order */
    uint32_t first_out;         /* of the CPU's rows, in the channel */
};

struct experts {
    const struct memory_client *memory;
    struct exec *own;
    struct experts_options options;
    _Atomic int assigner;
    _Atomic bool predict;
    struct experts_counters counters;
    uint32_t n_used, n_experts, n_segments, d_model;
    struct expert_link *link;
    struct device_cache *cache;     /* NULL: the device has no memory of its own */
    struct calibration calibration; /* where there is a cache */
    struct layer_costs costs;
    _Atomic double device_correction, cpu_correction,
        cpu_contended_correction; /* for others to read */
    uint64_t step;
    uint64_t *last_use; /* [n_layers][n_experts]: step */
    struct prediction *prediction;

    /* the job under way */
    struct expert_channel *channel; /* NULL: not sent */
    uint64_t sequence;
    bool one_request;
    uint32_t layer, n_tokens, n_activated, n_cpu;
    const float *values;
    uint64_t begun_ns;
    double predicted_s;          /* of this layer */
    struct activated *activated; /* [n_experts] */
    struct sched_expert *plan;   /* [n_experts] */
    struct expert_task *tasks;   /* [n_experts] */
    const uint8_t **places;      /* [n_experts][n_segments] */
    uint32_t *indices;           /* [max_tokens * n_used]: token of each row */
    uint32_t *row_of;            /* [max_tokens * n_used]: row of each token and rank */
    uint32_t *first_row;         /* [n_experts + 1] */
    float *rows;                 /* [max_tokens * n_used][d_model] */
    const float **row_at;        /* [max_tokens * n_used]: where the finished row lies */
};

static uint32_t most_segments(const struct pool_map *map)
{
    uint32_t most = 1;
    for (uint32_t layer = 0; layer < map->params.n_layers; layer++)
        most = map->slabs[layer].n_segments > most ? map->slabs[layer].n_segments : most;
    return most;
}

static bool allocate(struct experts *x)
{
    size_t rows = (size_t)x->options.max_tokens * x->n_used;
    x->activated = calloc(x->n_experts, sizeof *x->activated);
    x->plan = calloc(x->n_experts, sizeof *x->plan);
    x->tasks = calloc(x->n_experts, sizeof *x->tasks);
    x->places = calloc((size_t)x->n_experts * x->n_segments, sizeof *x->places);
    x->last_use =
        calloc((size_t)x->memory->map.params.n_layers * x->n_experts, sizeof *x->last_use);
    x->indices = calloc(rows, sizeof *x->indices);
    x->row_of = calloc(rows, sizeof *x->row_of);
    x->first_row = calloc(x->n_experts + 1u, sizeof *x->first_row);
    x->prediction = prediction_new(x->n_experts, x->n_used, PREDICT_MAX_TOKENS);
    x->rows = calloc(rows * x->d_model, sizeof *x->rows);
    x->row_at = calloc(rows, sizeof *x->row_at);
    return x->activated && x->plan && x->tasks && x->places && x->last_use && x->indices &&
           x->row_of && x->first_row && x->rows && x->row_at && x->prediction;
}

enum error_code experts_new(const char *run, const struct memory_client *memory, struct exec *own,
                            const struct experts_options *options,
                            const struct experts_counters *counters, struct experts **out,
                            struct error *e)
{
    const struct model_params *p = &memory->map.params;
    struct experts *x = calloc(1, sizeof *x);
    if (!x)
        return error_set(e, ERROR_MEMORY, "no memory for the experts' tables");
    x->memory = memory;
    x->own = own;
    x->options = *options;
    atomic_init(&x->assigner, (int)options->assigner);
    atomic_init(&x->predict, options->predict);
    x->counters = *counters;
    x->n_used = p->router.n_used;
    x->n_experts = p->router.n_experts;
    x->n_segments = most_segments(&memory->map);
    x->d_model = p->d_model;
    enum error_code code = ERROR_OK;
    if (!allocate(x))
        code = error_set(e, ERROR_MEMORY, "no memory for the experts' tables");
    if (!code && memory->arena.base)
        code = device_cache_new(memory, &x->cache, e);
    if (!code)
        code = expert_link_new(run, memory, options->max_tokens, &x->link, e);
    if (code) {
        experts_free(x);
        return code;
    }
    *out = x;
    return ERROR_OK;
}

void experts_free(struct experts *x)
{
    if (!x)
        return;
    expert_link_free(x->link);
    device_cache_free(x->cache);
    prediction_free(x->prediction);
    free(x->activated);
    free(x->plan);
    free(x->tasks);
    free(x->places);
    free(x->last_use);
    free(x->indices);
    free(x->row_of);
    free(x->first_row);
    free(x->rows);
    free(x->row_at);
    free(x);
}

bool experts_wait(struct experts *x, int timeout_ms)
{
    return expert_link_wait(x->link, timeout_ms);
}

static void publish_corrections(struct experts *x)
{
    atomic_store_explicit(&x->device_correction, x->costs.device, memory_order_relaxed);
    atomic_store_explicit(&x->cpu_correction, x->costs.cpu, memory_order_relaxed);
    atomic_store_explicit(&x->cpu_contended_correction, x->costs.cpu_contended,
                          memory_order_relaxed);
}

enum error_code experts_calibrate(struct experts *x, const char *device_text, bool anew,
                                  struct error *e)
{
    if (!x->cache)
        return ERROR_OK;
    struct calibration_parts parts = {.memory = x->memory,
                                      .own = x->own,
                                      .cache = x->cache,
                                      .link = x->link,
                                      .device = &x->options.device,
                                      .device_text = device_text,
                                      .max_tokens = x->options.max_tokens,
                                      .anew = anew};
    enum error_code code = calibrate(&parts, &x->calibration, e);
    if (code)
        return code;
    struct sched_costs first = calibration_costs(&x->calibration, &x->options.device);
    layer_costs_init(&x->costs, &first);
    publish_corrections(x);
    log_info("a segment of %.2f MB for one token: %.3f ms on the device, %.3f ms on the CPU, "
             "%.3f ms over the link",
             (double)x->calibration.segment_bytes * 1e-6,
             (first.device_s + first.device_token_s) * 1e3, (first.cpu_s + first.cpu_token_s) * 1e3,
             first.load_s * 1e3);
    return ERROR_OK;
}

const struct calibration *experts_calibration(const struct experts *x)
{
    return x->cache ? &x->calibration : NULL;
}

struct experts_corrections experts_corrections(const struct experts *x)
{
    return (struct experts_corrections){
        atomic_load_explicit(&x->device_correction, memory_order_relaxed),
        atomic_load_explicit(&x->cpu_correction, memory_order_relaxed),
        atomic_load_explicit(&x->cpu_contended_correction, memory_order_relaxed)};
}

void experts_set_assigner(struct experts *x, enum sched_assigner assigner, bool predict)
{
    atomic_store(&x->assigner, (int)assigner);
    atomic_store(&x->predict, predict);
}

bool experts_predict(const struct experts *x, uint32_t n_tokens)
{
    return x->cache && n_tokens <= PREDICT_MAX_TOKENS && atomic_load(&x->predict);
}

void experts_predicted(struct experts *x, uint32_t layer, const uint32_t *guessed)
{
    struct cache_mention mentions[16];
    uint32_t n = 0;
    bool missing = false;
    prediction_make(x->prediction, layer, guessed, x->n_tokens);
    for (uint32_t expert = 0; expert < x->n_experts; expert++) {
        double p = prediction_of(x->prediction, expert);
        if (p > 0 && device_cache_read(x->cache, layer, expert).resident <
                         x->memory->map.slabs[layer].n_segments)
            mentions[n++] = (struct cache_mention){expert, (uint32_t)(p * UINT16_MAX)};
        if (n && (n == 16 || expert + 1 == x->n_experts)) {
            if (!device_cache_predicted(x->cache, x->step, layer, mentions, n))
                break;
            missing = true;
            n = 0;
        }
    }
    if (missing)
        device_cache_notify(x->cache);
}

/* How the guess for this layer has turned out. */
static void check_prediction(struct experts *x, const uint32_t *selected)
{
    uint64_t guesses = prediction_guesses(x->prediction), hits = prediction_hits(x->prediction);
    prediction_check(x->prediction, x->layer, selected, x->n_tokens);
    counter_add(x->counters.guesses, prediction_guesses(x->prediction) - guesses);
    counter_add(x->counters.guesses_right, prediction_hits(x->prediction) - hits);
}

/* The activated experts, ascending, each with its tokens, ascending. */
static void gather(struct experts *x, const uint32_t *selected)
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

/* What the device has goes into the plan. True: something of it is in flight. */
static bool read_residency(struct experts *x)
{
    bool in_flight = false;
    uint64_t *last_use = x->last_use + (size_t)x->layer * x->n_experts;
    for (uint32_t i = 0; i < x->n_activated; i++) {
        uint32_t expert = x->activated[i].expert;
        struct cached_expert there = device_cache_read(x->cache, x->layer, expert);
        x->plan[i] = (struct sched_expert){.expert = expert,
                                           .workload = x->activated[i].n_rows,
                                           .resident = there.resident,
                                           .in_flight = there.in_flight,
                                           .last_use = last_use[expert]};
        last_use[expert] = x->step;
        in_flight |= there.in_flight > 0;
    }
    return in_flight;
}

/* Tell memd what is activated and what is to be loaded. What cannot be said is the CPU's. */
static void ask_memd(struct experts *x)
{
    bool said = true, urgent = x->layer % 8 == 7 || x->layer + 1 == x->memory->map.params.n_layers;
    for (uint32_t i = 0; i < x->n_activated && said; i += 16) {
        struct cache_mention mentions[16];
        uint32_t n = x->n_activated - i < 16 ? x->n_activated - i : 16;
        for (uint32_t j = 0; j < n; j++)
            mentions[j] = (struct cache_mention){x->plan[i + j].expert, x->plan[i + j].workload};
        said = device_cache_routed(x->cache, x->step, x->layer, mentions, n);
    }
    for (uint32_t i = 0; i < x->n_activated; i++) {
        struct activated *a = &x->activated[i];
        if (a->load && !(said = said && device_cache_load(x->cache, x->step, x->layer, a->expert,
                                                          a->device + a->load))) {
            a->cpu += a->load;
            a->load = 0;
        }
        urgent |= a->load > 0;
    }
    if (urgent) /* what was only activated is read when memd wakes up anyhow: a wake-up costs more than a layer's plan */
        device_cache_notify(x->cache);
}

/* Segments that may be loaded for a layer at once. DALI loads into slots beside its cache. */
static uint32_t spare_slots(const struct experts *x)
{
    const struct residency_header *h = x->memory->residency.header;
    bool beside = atomic_load(&x->assigner) == ASSIGN_GREEDY && h->n_spare;
    return (uint32_t)(beside ? h->n_spare : h->n_slots / 2);
}

/* What a device with less room than one expert can hold of it. */
static void limit_to_slots(const struct experts *x, struct sched_expert *s, bool whole)
{
    uint32_t n_slots = (uint32_t)x->memory->residency.header->n_slots;
    if (s->device + s->load <= n_slots)
        return;
    s->device = whole ? 0 : s->device < n_slots ? s->device : n_slots;
    s->load = whole ? 0 : n_slots - s->device;
}

static void plan_for_device(struct experts *x)
{
    uint64_t started = clock_ns();
    uint32_t n_segments = x->memory->map.slabs[x->layer].n_segments;
    struct sched_costs costs = x->costs.now;
    struct sched_layer layer = {
        .n_segments = n_segments,
        .spare_slots = spare_slots(x),
        /* rows apart need room in the channel: one for each segment */
        .whole = (uint64_t)x->n_tokens * n_segments > x->options.max_tokens,
        /* before anything is computed or has come: to the executor and back, to memd and back */
        .cpu_busy_s = x->calibration.job_overhead_s + x->calibration.cpu_call_s,
        .link_busy_s = x->calibration.link_latency_s,
    };
    if (!x->channel)
        costs.cpu_s = costs.cpu_contended_s = INFINITY;
    device_cache_enter(x->cache, x->step, x->layer);
    if (read_residency(x)) /* it is half way, on average */
        layer.link_busy_s += costs.load_s / 2;
    x->predicted_s = sched_assign((enum sched_assigner)atomic_load(&x->assigner), &costs, &layer,
                                  x->plan, x->n_activated);
    for (uint32_t i = 0; i < x->n_activated; i++) {
        struct activated *a = &x->activated[i];
        limit_to_slots(x, &x->plan[i], layer.whole);
        a->device = x->plan[i].device;
        a->load = x->plan[i].load;
        a->cpu = n_segments - a->device - a->load;
    }
    ask_memd(x);
    histogram_observe(x->counters.plan_seconds, (double)(clock_ns() - started) * 1e-9);
}

/* The CPU's parts, to the executor. */
static bool send_job(struct experts *x)
{
    struct expert_channel *ch = x->channel;
    uint32_t first_out = 0;
    x->n_cpu = 0;
    for (uint32_t i = 0; i < x->n_activated; i++) {
        struct activated *a = &x->activated[i];
        uint32_t first = a->device + a->load;
        if (!a->cpu)
            continue;
        a->first_out = first_out;
        first_out += first ? a->cpu * a->n_rows : a->n_rows;
        ch->tasks[x->n_cpu++] = (struct expert_task_record){
            .expert = a->expert,
            .first_segment = first,
            .n_segments = a->cpu,
            .first_row = a->first_row,
            .n_rows = a->n_rows,
            .first_out = a->first_out,
            .apart = first > 0,
        };
    }
    if (!x->n_cpu)
        return true;
    struct expert_job job = {.sequence = ++x->sequence,
                             .layer = x->layer,
                             .n_tokens = x->n_tokens,
                             .n_tasks = x->n_cpu,
                             .flags = x->one_request ? EXPERT_JOB_ONE_REQUEST : 0};
    memcpy(ch->indices, x->indices, (size_t)x->n_tokens * x->n_used * sizeof *ch->indices);
    memcpy(ch->x, x->values, (size_t)x->n_tokens * x->d_model * sizeof *ch->x);
    if (ring_push(&ch->jobs, &job) != 1)
        return false;
    ring_notify(&ch->jobs);
    return true;
}

static void abandon_channel(struct experts *x)
{
    expert_link_abandon(x->link);
    x->channel = NULL;
    counter_add(x->counters.taken_back, 1);
}

void experts_begin(struct experts *x, uint32_t layer, const float *values, uint32_t n_tokens,
                   const uint32_t *selected, bool one_request)
{
    x->begun_ns = clock_ns();
    if (layer <= x->layer || x->step == 0)
        x->step++;
    x->layer = layer;
    x->one_request = one_request;
    x->n_tokens = n_tokens;
    x->values = values;
    gather(x, selected);
    x->channel = expert_link_channel(x->link);
    if (x->cache) {
        check_prediction(x, selected);
        plan_for_device(x);
    } else
        for (uint32_t i = 0; i < x->n_activated; i++)
            x->activated[i].cpu = x->memory->map.slabs[layer].n_segments;
    if (x->channel && !send_job(x))
        abandon_channel(x);
}

static const struct activations *prepare_input(struct experts *x)
{
    const struct pool_slabs *slabs = &x->memory->map.slabs[x->layer];
    bool quantize = exec_quantizes((enum tensor_type)slabs->gate_type) ||
                    exec_quantizes((enum tensor_type)slabs->up_type);
    return exec_prepare(x->own, 1, x->values, x->d_model, x->n_tokens, x->d_model, quantize);
}

/* Segments [first, first + n) of an activated expert, onto its running sum. */
static struct expert_task task_of(struct experts *x, const struct activated *a, uint32_t first,
                                  uint32_t n)
{
    return (struct expert_task){.expert = a->expert,
                                .first_segment = first,
                                .n_segments = n,
                                .n_tokens = a->n_rows,
                                .tokens = x->indices + a->first_row,
                                .out = x->rows + (size_t)a->first_row * x->d_model,
                                .output = first ? EXPERT_CONTINUE : EXPERT_SUM};
}

/* The device's arithmetic: our threads, then the rest of the time that a slower device would take. */
static void compute_on_device(struct experts *x, const struct activations *in, uint32_t n_tasks)
{
    uint64_t started = clock_ns();
    double predicted = x->calibration.device_call_s;
    for (uint32_t i = 0; i < n_tasks; i++)
        predicted += x->tasks[i].n_segments *
                     (x->costs.now.device_s + x->tasks[i].n_tokens * x->costs.now.device_token_s);
    exec_experts(x->own, &x->memory->map, x->layer, in, x->tasks, n_tasks);
    double took = (double)(clock_ns() - started) * 1e-9, slow = took / x->options.device.speed;
    if (slow - took > 1e-6) {
        double rest = slow - took;
        struct timespec t = {(time_t)rest, (long)((rest - floor(rest)) * 1e9)};
        nanosleep(&t, NULL);
    }
    layer_costs_device(&x->costs, predicted, slow);
    counter_add(x->counters.device_ns, (uint64_t)(slow * 1e9));
}

/* Where segments [first, first + n) lie on the device; within the epoch. */
static const uint8_t *const *find_places(struct experts *x, uint32_t at, uint32_t expert,
                                         uint32_t first, uint32_t n)
{
    const uint8_t **places = x->places + (size_t)at * x->n_segments;
    for (uint32_t s = 0; s < n; s++)
        places[s] = device_cache_place(x->cache, x->layer, expert, first + s);
    return places;
}

static void compute_resident(struct experts *x, const struct activations *in)
{
    uint32_t n = 0;
    uint64_t segments = 0;
    for (uint32_t i = 0; i < x->n_activated; i++) {
        const struct activated *a = &x->activated[i];
        if (!a->device)
            continue;
        x->tasks[n] = task_of(x, a, 0, a->device);
        x->tasks[n++].places = find_places(x, i, a->expert, 0, a->device);
        segments += a->device;
    }
    if (n)
        compute_on_device(x, in, n);
    counter_add(x->counters.resident, segments);
}

/* An expert whose missing segments were asked for: computed as they arrive. */
static void compute_load(struct experts *x, uint32_t at, const struct activations *in)
{
    const struct activated *a = &x->activated[at];
    uint32_t done = a->device, target = a->device + a->load;
    uint64_t since = clock_ns();
    while (done < target) {
        device_cache_enter(x->cache, x->step, x->layer);
        uint32_t there = device_cache_read(x->cache, x->layer, a->expert).resident;
        there = there < target ? there : target;
        if (there > done) {
            x->tasks[0] = task_of(x, a, done, there - done);
            x->tasks[0].places = find_places(x, at, a->expert, done, there - done);
            compute_on_device(x, in, 1);
            counter_add(x->counters.loaded, there - done);
            done = there;
            since = clock_ns();
        }
        device_cache_leave(x->cache);
        if (done == target)
            break;
        if (clock_ns() - since > LOAD_STALL_MS * 1000000ull) {
            x->tasks[0] = task_of(x, a, done, target - done);
            exec_experts(x->own, &x->memory->map, x->layer, in, x->tasks, 1);
            counter_add(x->counters.loads_taken_back, target - done);
            break;
        }
        uint64_t waited = clock_ns();
        device_cache_wait(x->cache, x->layer, a->expert, done + 1, x->options.spin_us,
                          LOAD_STALL_MS / 4);
        counter_add(x->counters.load_wait_ns, clock_ns() - waited);
    }
    device_cache_consumed(x->cache);
}

static void compute_device_share(struct experts *x)
{
    const struct activations *in = prepare_input(x);
    compute_resident(x, in);
    device_cache_leave(x->cache);
    for (uint32_t i = 0; i < x->n_activated; i++)
        if (x->activated[i].load)
            compute_load(x, i, in);
}

/* The completion of the job under way; false when the executor died or stalled first. */
static bool await_completion(struct experts *x, struct expert_completion *done)
{
    struct expert_channel *ch = x->channel;
    const _Atomic bool *dead = expert_link_dead(x->link);
    uint64_t progress = atomic_load(&ch->header->progress), since = clock_ns();
    for (;;) {
        if (ring_wait(&ch->completions, dead, x->options.spin_us, EXPERT_STALL_MS / 4)) {
            if (ring_pop(&ch->completions, done) != 1)
                return false;
            if (done->sequence == x->sequence)
                return done->status == ERROR_OK;
            continue;
        }
        if (atomic_load(dead))
            return false;
        uint64_t now = atomic_load(&ch->header->progress);
        if (now != progress) {
            progress = now;
            since = clock_ns();
        } else if (clock_ns() - since > EXPERT_STALL_MS * 1000000ull) {
            log_warn("cpuexec makes no progress: its work is taken back");
            return false;
        }
    }
}

/* The CPU's parts are ours: nobody else is there. */
static void compute_cpu_share(struct experts *x)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < x->n_activated; i++) {
        const struct activated *a = &x->activated[i];
        if (a->cpu)
            x->tasks[n++] = task_of(x, a, a->device + a->load, a->cpu);
    }
    if (n)
        exec_experts(x->own, &x->memory->map, x->layer, prepare_input(x), x->tasks, n);
    counter_add(x->counters.local, n);
}

/* The executor's rows: apart, added to the device's sum in order; or the sum, where it lies. */
static void take_cpu_rows(struct experts *x)
{
    const struct kernels *k = kernels_get();
    size_t d = x->d_model;
    for (uint32_t i = 0; i < x->n_activated; i++) {
        const struct activated *a = &x->activated[i];
        const float *from = x->channel->out + a->first_out * d;
        bool apart = a->device + a->load > 0;
        for (uint32_t row = 0; row < a->n_rows && a->cpu; row++) {
            if (!apart)
                x->row_at[a->first_row + row] = from + row * d;
            for (uint32_t s = 0; apart && s < a->cpu; s++)
                k->add(from + ((size_t)s * a->n_rows + row) * d, x->rows + (a->first_row + row) * d,
                       d);
        }
    }
}

static void correct_cpu_costs(struct experts *x, const struct expert_completion *done)
{
    const struct sched_costs *now = &x->costs.now;
    double alone_s = x->calibration.cpu_call_s, contended_s = alone_s;
    bool contended = false;
    uint64_t segments = 0;
    for (uint32_t i = 0; i < x->n_activated; i++) {
        const struct activated *a = &x->activated[i];
        alone_s += a->cpu * (now->cpu_s + a->n_rows * now->cpu_token_s);
        contended_s += a->cpu * (now->cpu_contended_s + a->n_rows * now->cpu_contended_token_s);
        contended |= a->load > 0;
        segments += a->cpu;
    }
    layer_costs_cpu(&x->costs, contended ? contended_s : alone_s, (double)done->compute_ns * 1e-9,
                    contended);
    counter_add(x->counters.on_cpu, segments);
    counter_add(x->counters.cpu_ns, done->compute_ns);
}

/* False: it went otherwise than was planned. */
static bool finish_layer(struct experts *x)
{
    uint32_t n_rows = x->n_tokens * x->n_used;
    for (uint32_t row = 0; row < n_rows; row++)
        x->row_at[row] = x->rows + (size_t)row * x->d_model;
    if (x->cache)
        compute_device_share(x);
    if (x->channel && !x->n_cpu)
        return true;
    struct expert_completion done;
    uint64_t started = clock_ns();
    bool answered = x->channel && await_completion(x, &done);
    counter_add(x->counters.wait_ns, clock_ns() - started);
    if (!answered) {
        if (x->channel)
            abandon_channel(x);
        compute_cpu_share(x);
        return false;
    }
    take_cpu_rows(x);
    counter_add(x->counters.sent, x->n_cpu);
    if (x->cache)
        correct_cpu_costs(x, &done);
    return true;
}

void experts_finish(struct experts *x)
{
    bool as_planned = finish_layer(x);
    if (!x->cache)
        return;
    publish_corrections(x);
    if (!as_planned || !isfinite(x->predicted_s))
        return;
    double took_s = (double)(clock_ns() - x->begun_ns) * 1e-9;
    counter_add(x->counters.layers, 1);
    counter_add(x->counters.layer_ns, (uint64_t)(took_s * 1e9));
    counter_add(x->counters.predicted_ns, (uint64_t)(x->predicted_s * 1e9));
    counter_add(x->counters.wrong_ns, (uint64_t)(fabs(took_s - x->predicted_s) * 1e9));
}

const float *experts_row(const struct experts *x, uint32_t token, uint32_t rank)
{
    return x->row_at[x->row_of[token * x->n_used + rank]];
}
