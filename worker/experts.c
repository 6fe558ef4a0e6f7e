/* Routed experts; see experts.h.
 *
 * An activated expert is computed in up to three parts, in order of its segments: on the device from what is resident, on the
 * device from what it waits for, on the CPU. The device's parts are one running sum; the CPU's rows come apart and are
 * added to it in order, so the sum is the same wherever the cuts are. An expert that the CPU computes whole comes as a
 * sum. experts_plan.c decides who computes what, experts_device.c is the device's part.
 */
#include "experts_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "dense.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Between two layers there is no more than that, but where nobody asks anything. */
#define OUTSIDE_MOST_S 1.0
#define STEP_MOST_S    10.0 /* nor a step, likewise */
/* memd is told what things cost once in so many steps. */
#define COSTS_STEPS 16
/* A job of cpuexec's that takes so many times what it should, and so long, is taken back. */
#define SLOW_TIMES   50
#define SLOW_LEAST_S 1.0

static bool allocate(struct experts *x)
{
    size_t rows = (size_t)x->options.max_tokens * x->n_used;
    x->activated = calloc(x->n_experts, sizeof *x->activated);
    x->plan = calloc(x->n_experts, sizeof *x->plan);
    x->tasks = calloc(x->n_experts, sizeof *x->tasks);
    x->fetch = calloc(x->n_experts, sizeof *x->fetch);
    x->places = calloc((size_t)x->n_experts * x->n_segments, sizeof *x->places);
    x->last_use =
        calloc((size_t)x->memory->map.params.n_layers * x->n_experts, sizeof *x->last_use);
    x->indices = calloc(rows, sizeof *x->indices);
    x->row_of = calloc(rows, sizeof *x->row_of);
    x->first_row = calloc(x->n_experts + 1u, sizeof *x->first_row);
    x->mentions = calloc(x->n_experts, sizeof *x->mentions);
    x->guesses = calloc(x->n_experts, sizeof *x->guesses);
    x->fetch_used = calloc(x->n_experts, sizeof *x->fetch_used);
    x->scores = calloc(x->n_experts, sizeof *x->scores);
    x->gate = calloc(x->n_experts, sizeof *x->gate);
    x->best = calloc(x->n_experts, sizeof *x->best);
    x->row_at = calloc(rows, sizeof *x->row_at);
    return x->activated && x->plan && x->tasks && x->fetch && x->places && x->last_use && x->indices &&
           x->row_of && x->first_row && x->row_at && x->mentions && x->fetch_used &&
           x->scores && x->gate && x->best && x->guesses;
}

/* What memd is told through, of what there is. */
static enum error_code make_caches(struct experts *x, struct error *e)
{
    bool device = x->memory->arena_bytes > 0, host = x->memory->tier.slots;
    if (!device && !host)
        return ERROR_OK;
    enum error_code code = cache_link_open(x->memory, &x->cache_link, e);
    if (!code && device)
        code = device_compute_new(x->memory, x->own, x->options.cuda, x->options.device.call_s,
                                  x->options.max_tokens, x->options.max_tokens * x->n_used,
                                  &x->compute, e);
    if (code)
        return code;
    if (device)
        code = device_cache_new(x->memory, x->compute, &x->cache_link, &x->cache, e);
    if (code)
        return code;
    if (host)
        x->host = host_experts_new(x->memory, &x->cache_link);
    if (host && !x->host)
        return error_set(e, ERROR_MEMORY, "no memory for the caches' tables");
    code = experts_alone_new(x, e);
    return code ? code : experts_predict_init(x, e);
}

static enum error_code make_rows(struct experts *x, struct error *e)
{
    size_t rows = (size_t)x->options.max_tokens * x->n_used;
    x->rows =
        x->compute ? device_compute_rows(x->compute) : calloc(rows * x->d_model, sizeof *x->rows);
    return x->rows ? ERROR_OK : error_set(e, ERROR_MEMORY, "no memory for the experts' rows");
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
    x->cache_link.region.fd = -1;
    x->own = own;
    x->options = *options;
    atomic_init(&x->assigner, (int)options->assigner);
    atomic_init(&x->prefetcher, (int)options->prefetcher);
    atomic_init(&x->ahead_saves, NAN);
    x->counters = *counters;
    x->n_used = p->router.n_used;
    x->n_experts = p->router.n_experts;
    x->n_segments = pool_map_most_segments(&memory->map);
    x->d_model = p->d_model;
    enum error_code code = ERROR_OK;
    if (!allocate(x))
        code = error_set(e, ERROR_MEMORY, "no memory for the experts' tables");
    if (!code)
        code = make_caches(x, e);
    if (!code)
        code = make_rows(x, e);
    if (!code && options->cpuexec)
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
    if (x->cache && x->calibration.measured_at)
        experts_keep_learnt(x);
    expert_link_free(x->link);
    experts_alone_free(x);
    device_cache_free(x->cache);
    host_experts_free(x->host);
    cache_link_close(&x->cache_link);
    free(x->fetch_used);
    prediction_free(x->prediction);
    free(x->mentions);
    free(x->guesses);
    free(x->scores);
    free(x->gate);
    free(x->best);
    free(x->activated);
    free(x->plan);
    free(x->tasks);
    free(x->fetch);
    free(x->places);
    free(x->last_use);
    free(x->indices);
    free(x->row_of);
    free(x->first_row);
    if (!x->compute)
        free(x->rows);
    device_compute_free(x->compute);
    free(x->row_at);
    free(x);
}

bool experts_share_memory(const struct experts *x)
{
    return x->cache != NULL;
}

void experts_follow(struct experts *x)
{
    device_cache_follow(x->cache);
}

bool experts_wait(struct experts *x, int timeout_ms)
{
    return x->link && expert_link_wait(x->link, timeout_ms);
}

enum error_code experts_calibrate(struct experts *x, const char *device_text, bool anew,
                                  struct error *e)
{
    if (!x->cache)
        return ERROR_OK;
    struct calibration_parts parts = {.memory = x->memory,
                                      .own = x->own,
                                      .compute = x->compute,
                                      .cache = x->cache,
                                      .host = x->host,
                                      .link = x->link,
                                      .device = &x->options.device,
                                      .device_text = device_text,
                                      .max_tokens = x->options.max_tokens,
                                      .rows_stay = x->options.rows_stay,
                                      .anew = anew};
    enum error_code code = calibrate(&parts, &x->calibration, e);
    if (code)
        return code;
    const struct device_spec *device = &x->options.device;
    double load_s =
        device->link_latency_s + (double)x->calibration.segment_bytes / device->link_bytes_per_s;
    struct sched_costs first = calibration_costs(&x->calibration, load_s);
    layer_costs_init(&x->costs, &first, x->calibration.job_overhead_s);
    experts_resume_learnt(x);
    experts_publish_learnt(x);
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

/* The CPU's parts, to the executor. */
static bool send_job(struct experts *x)
{
    struct expert_channel *ch = x->channel;
    uint32_t first_out = 0;
    x->n_cpu = 0;
    for (uint32_t i = 0; i < x->n_round; i++) {
        struct activated *a = &x->round[i];
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
            .slot = a->slot,
        };
    }
    if (!x->n_cpu)
        return true;
    struct expert_job job = {.sequence = ++x->sequence,
                             .layer = x->layer,
                             .n_tokens = x->n_tokens,
                             .n_tasks = x->n_cpu,
                             .flags = x->one_request ? EXPERT_JOB_ONE_REQUEST : 0};
    if (!x->inputs_sent) {
        memcpy(ch->indices, x->indices, (size_t)x->n_tokens * x->n_used * sizeof *ch->indices);
        memcpy(ch->x, x->values, (size_t)x->n_tokens * x->d_model * sizeof *ch->x);
    }
    x->inputs_sent = true;
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

/* Who computes what of the round; the CPU's part of it goes out. */
static void start_round(struct experts *x)
{
    x->n_cpu = 0;
    if (!x->n_round)
        return;
    x->round_begun_ns = clock_ns();
    if (x->cache) {
        x->copies = device_cache_copies(x->cache);
        experts_plan(x);
    } else
        for (uint32_t i = 0; i < x->n_round; i++)
            x->round[i].cpu = x->memory->map.slabs[x->layer].n_segments;
    if (x->channel && !send_job(x))
        abandon_channel(x);
}

static void publish_outside(struct experts *x)
{
    uint32_t layers = x->memory->map.params.n_layers - x->memory->map.params.n_dense;
    atomic_store_explicit(&x->outside_s, x->head_s + (layers - 1) * x->attention_s,
                          memory_order_relaxed);
}

/* What lay between the layer before and this one. Longer pauses are not the model's. */
static void observe_outside(struct experts *x, uint32_t layer)
{
    double took_s = (double)(x->begun_ns - x->finished_ns) * 1e-9;
    if (x->finished_ns && took_s < OUTSIDE_MOST_S)
        add_to_mean(layer > x->layer ? &x->attention_s : &x->head_s, took_s);
    publish_outside(x);
}

void experts_layers_begin(struct experts *x, uint32_t layer)
{
    x->begun_ns = clock_ns();
    if (experts_step_of(x, layer) != x->step) /* else what came before is the layer before */
        observe_outside(x, layer);
}

void experts_layers_ended(struct experts *x, uint32_t n, double experts_s, uint64_t ended_ns)
{
    double took_s = (double)(ended_ns - x->begun_ns) * 1e-9;
    if (n && took_s > experts_s)
        add_to_mean(&x->attention_s, (took_s - experts_s) / n);
    publish_outside(x);
    x->finished_ns = n ? clock_ns() : 0;
    x->finished_layer = NO_LAYER;
}

double experts_outside_s(const struct experts *x)
{
    return atomic_load_explicit(&x->outside_s, memory_order_relaxed);
}

/* From the end of the layer before, were there no copy beside it. 0: it cannot be said, we have done the executor's part. */
static double undisturbed_s(const struct experts *x)
{
    const struct sched_costs *c = &x->costs.now;
    double cpu_s = 0, device_s = 0;
    for (uint32_t i = 0; i < x->n_activated; i++) {
        const struct activated *a = &x->activated[i];
        cpu_s += a->cpu * sched_cpu_s(c, a->n_rows);
        device_s += a->device * sched_device_s(c, a->n_rows);
    }
    if (cpu_s > 0 && !x->channel)
        return 0;
    return x->attention_s + (cpu_s > 0 ? x->costs.job_s : 0) + (cpu_s > device_s ? cpu_s : device_s);
}

/* What copies cost whole layers: of those of a step that load nothing for themselves, next to the one before. */
static void observe_copying(struct experts *x, uint64_t before_ns)
{
    uint64_t copies = device_cache_copies(x->cache), before = x->finished_copies;
    bool copying = before % 2 && copies % 2, none = copies == before && copies % 2 == 0;
    bool next = before_ns && x->finished_layer != NO_LAYER && x->layer == x->finished_layer + 1;
    x->finished_copies = copies;
    x->finished_layer = x->layer;
    double took_s = (double)(x->finished_ns - before_ns) * 1e-9;
    if (next && took_s < OUTSIDE_MOST_S)
        add_to_mean(&x->layer_s, took_s);
    if (next && !x->loads && (copying || none) && !x->disk_wait_ns && took_s < OUTSIDE_MOST_S)
        layer_costs_layer(&x->costs, undisturbed_s(x), took_s, copying);
}

/* memd's budgets and prefetchers reckon with them. */
static void tell_costs(struct experts *x)
{
    struct sched_costs costs = experts_costs(x);
    device_cache_costs(x->cache, &costs, x->attention_s, x->head_s);
}

uint64_t experts_step_of(const struct experts *x, uint32_t layer)
{
    return x->step + (layer <= x->layer || x->step == 0);
}

static void say_answer(const struct copy_trial *t)
{
    if (t->without)
        log_info("copies ahead make a step %.0f %% longer here: none are made for the time being", -100 * t->gain);
    else
        log_info("copies ahead save %.0f %% of a step now, and are made again", 100 * t->gain);
}

/* For experts_ahead. */
static void show_answer(struct experts *x)
{
    atomic_store_explicit(&x->ahead_used, !x->trial.without, memory_order_relaxed);
    atomic_store_explicit(&x->ahead_saves, x->trial.gain, memory_order_relaxed);
}

struct experts_ahead experts_ahead(const struct experts *x)
{
    double saves = atomic_load_explicit(&x->ahead_saves, memory_order_relaxed);
    bool used = atomic_load_explicit(&x->ahead_used, memory_order_relaxed);
    return (struct experts_ahead){.tried = !isnan(saves), .used = used, .saves = isnan(saves) ? 0 : saves};
}

/* A step is over, the next one begins. */
static void try_copies(struct experts *x)
{
    uint64_t now_ns = clock_ns(), before_ns = x->step_began_ns;
    bool is_ours = atomic_load(&x->assigner) == ASSIGN_BALANCE && x->cache && !x->host && x->prediction;
    uint64_t predictor = is_ours && prediction_is_on(x->prediction) ? prediction_number(x->prediction) : 0;
    x->step_began_ns = now_ns;
    x->without = false;
    if (predictor != x->trial_of) {
        copy_trial_restart(&x->trial);
        atomic_store_explicit(&x->ahead_saves, NAN, memory_order_relaxed);
    }
    x->trial_of = predictor;
    if (!predictor)
        return;
    bool was_without = x->trial.without;
    double took_s = before_ns ? (double)(now_ns - before_ns) * 1e-9 : 0;
    x->without = !copy_trial_step(&x->trial, x->n_tokens, took_s < STEP_MOST_S ? took_s : 0);
    counter_add(x->counters.without, x->without);
    if (x->trial.without != was_without)
        say_answer(&x->trial);
    if (x->trial.held)
        show_answer(x);
}

void experts_enter_layer(struct experts *x, uint32_t layer, uint32_t n_tokens)
{
    if (x->cache && layer <= x->layer && x->step % COSTS_STEPS == 1)
        tell_costs(x);
    if (layer <= x->layer)
        try_copies(x); /* of the step before, with its number of tokens */
    x->step = experts_step_of(x, layer);
    x->layer = layer;
    x->n_tokens = n_tokens;
}

void experts_find_channel(struct experts *x, uint64_t now_ns)
{
    pause_end(&x->no_cpuexec, true, now_ns);
    x->channel = !x->link || x->no_cpuexec.on ? NULL : expert_link_channel(x->link);
}

void experts_begin(struct experts *x, uint32_t layer, const struct dense_values *values,
                   uint32_t n_tokens, const uint32_t *selected, bool one_request)
{
    x->begun_ns = clock_ns();
    observe_outside(x, layer);
    experts_enter_layer(x, layer, n_tokens);
    x->loads = 0;
    x->one_request = one_request;
    exec_allow_blas(x->own, one_request);
    x->values = values->host;
    x->values_there = x->options.rows_stay ? values->own : NULL;
    x->inputs_sent = false;
    for (uint32_t row = 0; row < n_tokens * x->n_used; row++)
        x->row_at[row] = x->rows + (size_t)row * x->d_model;
    experts_gather(x, selected);
    experts_find_channel(x, x->begun_ns);
    x->predicted_s = 0;
    x->disk_wait_ns = 0;
    x->has_waited = false;
    x->all_there = false;
    experts_tell(x, selected);
    experts_first_round(x);
    start_round(x);
    experts_alone_observe(x);
}

/* So long the job under way is waited for at most, though there is progress: far longer than it should take. Where nothing is known
 * of what things cost, for ever. */
static double patience_s(const struct experts *x, double *expected_s)
{
    *expected_s = x->calibration.cpu_call_s;
    for (uint32_t i = 0; i < x->n_round; i++)
        *expected_s += x->round[i].cpu * sched_cpu_contended_s(&x->costs.now, x->round[i].n_rows);
    return x->cache ? fmax(SLOW_LEAST_S, SLOW_TIMES * *expected_s) : INFINITY;
}

static bool is_too_slow(struct experts *x, uint64_t started_ns)
{
    uint64_t now_ns = clock_ns();
    double expected_s, took_s = (double)(now_ns - started_ns) * 1e-9;
    if (took_s < patience_s(x, &expected_s))
        return false;
    pause_begin(&x->no_cpuexec, now_ns);
    log_warn("cpuexec takes %.1f s for what should take %.1f ms: its work is taken back, and it gets none for %.0f s", took_s,
             expected_s * 1e3, (double)x->no_cpuexec.length_ns * 1e-9);
    return true;
}

/* The completion of the job under way; false when the executor died, stalled or took far too long first. */
static bool await_completion(struct experts *x, struct expert_completion *done)
{
    struct expert_channel *ch = x->channel;
    const _Atomic bool *dead = expert_link_dead(x->link);
    uint64_t progress = atomic_load(&ch->header->progress), started = clock_ns(), since = started;
    for (;;) {
        if (ring_wait(&ch->completions, dead, x->options.spin_us, EXPERT_STALL_MS / 4)) {
            if (ring_pop(&ch->completions, done) != 1)
                return false;
            if (done->sequence == x->sequence) {
                pause_forget(&x->no_cpuexec);
                return done->status == ERROR_OK;
            }
            continue;
        }
        if (atomic_load(&ch->header->computing) != x->sequence)
            started = clock_ns(); /* it waits for another worker's job */
        if (atomic_load(dead) || is_too_slow(x, started))
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
    uint64_t n_segments = 0, started = clock_ns();
    for (uint32_t i = 0; i < x->n_round; i++) {
        const struct activated *a = &x->round[i];
        if (a->cpu)
            x->tasks[n++] = experts_task(x, a, a->device + a->load, a->cpu);
        n_segments += a->cpu;
    }
    if (!n)
        return;
    exec_experts(x->own, &x->memory->map, x->layer, experts_input(x), x->tasks, n);
    counter_add(x->counters.local, n);
    counter_add(x->counters.local_ns, clock_ns() - started);
    counter_add(x->counters.local_bytes, n_segments * x->memory->map.slabs[x->layer].segment_bytes);
}

/* The executor's rows: apart, added to the device's sum in order; or the sum, where it lies, unless there will be another
 * round, whose rows may take its place, or it is to go to the device. */
static void take_cpu_rows(struct experts *x)
{
    const struct kernels *k = kernels_get();
    size_t d = x->d_model;
    bool last = x->n_done + x->n_round == x->n_activated && !x->options.rows_stay;
    for (uint32_t i = 0; i < x->n_round; i++) {
        const struct activated *a = &x->round[i];
        const float *from = x->channel->out + a->first_out * d;
        bool apart = a->device + a->load > 0;
        for (uint32_t row = 0; row < a->n_rows && a->cpu; row++) {
            if (!apart && last)
                x->row_at[a->first_row + row] = from + row * d;
            else if (!apart)
                memcpy(x->rows + (a->first_row + row) * d, from + row * d, d * sizeof *from);
            for (uint32_t s = 0; apart && s < a->cpu; s++)
                k->add(from + ((size_t)s * a->n_rows + row) * d, x->rows + (a->first_row + row) * d,
                       d);
        }
    }
}

static void correct_cpu_costs(struct experts *x, const struct expert_completion *done,
                              uint64_t waited_since_ns)
{
    uint64_t now_ns = clock_ns();
    if (done->ended_ns > waited_since_ns) /* else it has been done for as long as the device took */
        layer_costs_job(&x->costs, (double)(now_ns - x->round_begun_ns - done->compute_ns) * 1e-9);

    const struct sched_costs *now = &x->costs.now;
    double alone_s = x->calibration.cpu_call_s;
    bool copying = x->copies % 2 || device_cache_copies(x->cache) != x->copies;
    uint64_t segments = 0;
    for (uint32_t i = 0; i < x->n_round; i++) {
        const struct activated *a = &x->round[i];
        alone_s += a->cpu * sched_cpu_s(now, a->n_rows);
        segments += a->cpu;
    }
    layer_costs_cpu(&x->costs, alone_s, (double)done->compute_ns * 1e-9, copying);
    counter_add(x->counters.on_cpu, segments);
    counter_add(x->counters.cpu_ns, done->compute_ns);
}

/* Whoever asked is told to come again, and whoever owns this process ends it. */
enum error_code experts_lose_device(struct experts *x, struct error *e)
{
    struct error why = *e;
    if (x->options.device_lost && !x->lost)
        x->options.device_lost(x->options.device_lost_arg, &why);
    x->lost = true;
    if (x->channel && x->n_cpu)
        abandon_channel(x);
    return error_set(e, ERROR_UNAVAILABLE, "the device has failed, try again: %.400s", why.text);
}

enum error_code experts_call_meanwhile(struct experts *x, struct error *e)
{
    const struct experts_meanwhile *m = x->meanwhile;
    x->meanwhile = NULL;
    return m ? m->run(m->arg, e) : ERROR_OK;
}

static enum error_code finish_round(struct experts *x, struct error *e)
{
    if (x->cache ? experts_compute_device(x, e) : experts_call_meanwhile(x, e))
        return experts_lose_device(x, e);
    if (x->channel && !x->n_cpu)
        return ERROR_OK;
    struct expert_completion done;
    uint64_t started = clock_ns();
    if (x->channel && !ring_wait(&x->channel->completions, expert_link_dead(x->link), 0, 0))
        experts_before_wait(x);
    bool answered = x->channel && await_completion(x, &done);
    uint64_t waited_ns = clock_ns() - started;
    if (answered && !x->options.rows_stay)
        pool_wake(exec_pool(x->own)); /* the next layer's attention is near */
    counter_add(x->counters.wait_ns, waited_ns);
    x->has_waited |= waited_ns > WAITED_NS;
    if (!answered) {
        if (x->channel)
            abandon_channel(x);
        compute_cpu_share(x);
        return ERROR_OK;
    }
    take_cpu_rows(x);
    counter_add(x->counters.sent, x->n_cpu);
    if (x->cache)
        correct_cpu_costs(x, &done, started);
    return ERROR_OK;
}

/* Rows of the round that were finished in host memory, to the device; those that lie side by side at once. */
static void give_rows(struct experts *x)
{
    for (uint32_t i = 0, next; i < x->n_round; i = next) {
        const struct activated *a = &x->round[i];
        uint32_t end = a->first_row + a->n_rows;
        next = i + 1;
        if (!a->on_host)
            continue;
        for (; next < x->n_round && x->round[next].on_host && x->round[next].first_row == end;
             next++)
            end += x->round[next].n_rows;
        device_compute_give(x->compute, a->first_row, end - a->first_row);
    }
}

static enum error_code finish_and_give(struct experts *x, struct error *e)
{
    enum error_code code = finish_round(x, e);
    if (!code && x->options.rows_stay)
        give_rows(x);
    experts_end_round(x);
    return code;
}

static enum error_code finish_rounds(struct experts *x, struct error *e)
{
    enum error_code code = finish_and_give(x, e);
    while (!code && x->n_done < x->n_activated) {
        code = experts_next_round(x, e);
        if (code)
            return code;
        start_round(x);
        code = finish_and_give(x, e);
    }
    return code;
}

enum error_code experts_finish(struct experts *x, const struct experts_meanwhile *meanwhile, struct error *e)
{
    uint64_t before_ns = x->finished_ns;
    x->meanwhile = meanwhile;
    enum error_code code = finish_rounds(x, e);
    x->n_cpu = 0; /* nothing is under way */
    x->finished_ns = clock_ns();
    if (code || !x->cache)
        return code;
    observe_copying(x, before_ns);
    experts_publish_learnt(x);
    experts_observe_prediction(x);
    if (!isfinite(x->predicted_s))
        return ERROR_OK;
    double took_s = (double)(x->finished_ns - x->begun_ns - x->disk_wait_ns) * 1e-9;
    counter_add(x->counters.layers, 1);
    counter_add(x->counters.layer_ns, (uint64_t)(took_s * 1e9));
    counter_add(x->counters.predicted_ns, (uint64_t)(x->predicted_s * 1e9));
    counter_add(x->counters.wrong_ns, (uint64_t)(fabs(took_s - x->predicted_s) * 1e9));
    return ERROR_OK;
}

const float *experts_row(const struct experts *x, uint32_t token, uint32_t rank)
{
    return x->row_at[x->row_of[token * x->n_used + rank]];
}

const float *experts_device_rows(const struct experts *x)
{
    return device_compute_own_rows(x->compute);
}

const uint32_t *experts_row_of(const struct experts *x)
{
    return x->row_of;
}

uint64_t experts_kv_limit(const struct experts *x)
{
    return x->cache ? device_cache_kv_limit(x->cache) : UINT64_MAX;
}

void experts_tell_kv(struct experts *x, uint64_t bytes)
{
    if (x->cache)
        device_cache_tell_kv(x->cache, bytes);
}
