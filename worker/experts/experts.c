/* Routed experts; see experts.h.
 *
 * An activated expert is computed in up to three parts, in the order of its segments: resident
 * segments on the device, loaded segments on the device, the rest on the CPU. The device's parts
 * are one running sum. The CPU returns one row a segment, and the worker adds these rows in order,
 * so the sum is the same wherever the cuts are. An expert that the CPU computes whole comes as a
 * sum.
 */
#include "experts_internal.h"

#include "base/arrays.h"
#include "base/clock.h"
#include "base/log.h"
#include "worker/links/mirrored_values.h"
#include "worker/calibrate/calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Creation ---- */

static enum error_code no_memory(struct error *e)
{
    return error_set(e, ERROR_MEMORY, "no memory for the experts' tables");
}

static bool allocate(struct experts *x)
{
    size_t n = x->n_experts, rows = (size_t)x->options.max_tokens * x->n_used;
    struct layer_work *w = &x->work;
    x->arrays = ARRAYS_NEW(ARRAY(w->activated, n), ARRAY(w->tasks, n), ARRAY(w->fetch_used, n),
                           ARRAY(w->indices, rows), ARRAY(w->row_of, rows),
                           ARRAY(w->first_row, n + 1), ARRAY(w->row_at, rows),
                           ARRAY(x->device.fetch, n), ARRAY(x->device.places, n * x->n_segments),
                           ARRAY(x->inputs, n), ARRAY(x->hints, n));
    return x->arrays;
}

static struct layer_residency residency(void *arg, uint32_t layer, uint32_t expert)
{
    const struct experts *x = arg;
    struct cached_expert there = device_cache_read(x->device.cache, layer, expert);
    return (struct layer_residency){there.resident, there.in_flight};
}

static enum error_code make_layer(struct experts *x, struct error *e)
{
    uint32_t n_layers = x->memory->map.params.n_layers;
    uint32_t *n_segments = calloc(n_layers, sizeof *n_segments);
    for (uint32_t i = 0; n_segments && i < n_layers; i++)
        n_segments[i] = x->memory->map.slabs[i].n_segments;
    const struct layer_options options = {.n_layers = n_layers,
                                          .n_experts = x->n_experts,
                                          .n_segments = n_segments,
                                          .residency = residency,
                                          .residency_arg = x};
    x->layer = n_segments ? layer_new(&options) : NULL;
    free(n_segments);
    return x->layer ? ERROR_OK : no_memory(e);
}

static enum error_code make_prefetch(struct experts *x, struct error *e)
{
    const struct prefetch_options options = {
        .memory = x->memory,
        .layer = x->layer,
        .costs = &x->cost,
        .cache = x->device.cache,
        .host = x->host,
        .assigner = &x->assigner,
        .predictor = x->options.predictor,
        .prefetcher = x->options.prefetcher,
        .fine_tune = x->options.fine_tune,
        .prediction_counters = x->options.prediction_counters,
        .counters = x->counters.prefetch,
    };
    return prefetch_new(&options, &x->prefetch, e);
}

static enum error_code make_device(struct experts *x, struct error *e)
{
    enum error_code code = device_compute_new(
        x->memory, x->own, x->options.cuda, x->options.device.call_s, x->options.max_tokens,
        x->options.max_tokens * x->n_used, &x->device.compute, e);
    if (!code)
        code = device_cache_new(x->memory, x->device.compute, &x->cache_link, &x->device.cache, e);
    return code ? code : make_layer(x, e);
}

/* Where experts may be missing on the device, or in host memory. */
static enum error_code make_caches(struct experts *x, struct error *e)
{
    bool device = x->memory->arena_bytes > 0, host = x->memory->tier.slots;
    if (!device && !host)
        return ERROR_OK;
    enum error_code code = ERROR_OK;
    if (!x->options.link)
        code = cache_link_open(x->memory, &x->cache_link, e);
    if (!code && device)
        code = make_device(x, e);
    if (code)
        return code;
    if (host)
        x->host = host_experts_new(x->memory, &x->cache_link);
    if (host && !x->host)
        return no_memory(e);
    code = device_only_new(x, e);
    return code ? code : make_prefetch(x, e);
}

static enum error_code make_rows(struct experts *x, struct error *e)
{
    size_t rows = (size_t)x->options.max_tokens * x->n_used;
    x->work.rows = x->device.compute ? device_compute_rows(x->device.compute)
                                     : calloc(rows * x->d_model, sizeof *x->work.rows);
    return x->work.rows ? ERROR_OK : error_set(e, ERROR_MEMORY, "no memory for the experts' rows");
}

enum error_code experts_new(const char *run, const struct memory_client *memory, struct exec *own,
                            const struct experts_options *options,
                            const struct experts_counters *counters, struct experts **out,
                            struct error *e)
{
    const struct model_params *p = &memory->map.params;
    struct experts *x = calloc(1, sizeof *x);
    if (!x)
        return no_memory(e);
    x->memory = memory;
    x->cache_link = options->link ? *options->link : (struct cache_link){.region.fd = -1};
    x->own = own;
    x->options = *options;
    atomic_init(&x->assigner, (int)options->assigner);
    x->counters = *counters;
    x->n_used = p->router.n_used;
    x->n_experts = p->router.n_experts;
    x->n_segments = pool_map_most_segments(&memory->map);
    x->d_model = p->d_model;
    x->disk_stall_ms = DISK_STALL_MS;
    spinner_init(&x->cpu.spinner, options->spin_us);
    spinner_init(&x->copy_spinner, options->spin_us);
    spinner_init(&x->disk_spinner, options->spin_us);
    x->cost.n_gaps = p->n_layers - p->n_dense - 1;
    x->activity = activity_new(p->n_layers, p->n_dense, x->n_experts);
    enum error_code code = allocate(x) && x->activity ? ERROR_OK : no_memory(e);
    if (!code)
        code = make_caches(x, e);
    if (!code)
        code = make_rows(x, e);
    if (!code && options->cpuexec)
        code = expert_link_new(run, memory, options->max_tokens, &x->cpu.link, e);
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
    if (x->cost.published)
        cost_model_store(&x->cost);
    expert_link_free(x->cpu.link);
    device_only_free(x);
    device_cache_free(x->device.cache);
    host_experts_free(x->host);
    cache_link_close(&x->cache_link);
    prefetch_free(x->prefetch);
    layer_free(x->layer);
    if (!x->device.compute)
        free(x->work.rows);
    device_compute_free(x->device.compute);
    activity_free(x->activity);
    free(x->arrays);
    free(x);
}

void experts_set_heartbeat(struct experts *x, struct heartbeat *h)
{
    x->heartbeat = h;
}

struct activity *experts_activity(const struct experts *x)
{
    return x->activity;
}

bool experts_share_memory(const struct experts *x)
{
    return x->device.cache != NULL;
}

bool experts_follow(struct experts *x)
{
    return device_cache_follow(x->device.cache);
}

bool experts_wait(struct experts *x, int timeout_ms)
{
    return x->cpu.link && expert_link_wait(x->cpu.link, timeout_ms);
}

enum error_code experts_calibrate(struct experts *x, const char *device_text, bool anew,
                                  struct error *e)
{
    if (!x->device.cache)
        return ERROR_OK;
    struct calibration_parts parts = {.memory = x->memory,
                                      .own = x->own,
                                      .compute = x->device.compute,
                                      .cache = x->device.cache,
                                      .host = x->host,
                                      .link = x->cpu.link,
                                      .device = &x->options.device,
                                      .device_text = device_text,
                                      .max_tokens = x->options.max_tokens,
                                      .rows_stay = x->options.rows_stay,
                                      .anew = anew};
    enum error_code code = calibrate(&parts, &x->cost.calibration, e);
    if (code)
        return code;
    cost_model_start(&x->cost, &x->options.device, x->memory->residency.header->costs_known,
                     x->cache_link.channel.header->costs_known);
    return ERROR_OK;
}

const struct calibration *experts_calibration(const struct experts *x)
{
    return x->device.cache ? &x->cost.calibration : NULL;
}

struct cost_corrections experts_corrections(const struct experts *x)
{
    return cost_model_corrections(&x->cost);
}

double experts_outside_s(const struct experts *x)
{
    return cost_model_outside_s(&x->cost);
}

/* ---- A layer begins ---- */

/* The CPU's shares, to the executor. False: the channel is broken. */
static bool send_job(struct experts *x)
{
    struct cpu_backend *cpu = &x->cpu;
    uint32_t first_out = 0;
    for (uint32_t i = 0; i < x->work.n_round; i++) {
        struct activated *a = &x->work.round[i];
        uint32_t first = a->device + a->load;
        if (!a->cpu)
            continue;
        a->first_out = first_out;
        first_out += first ? a->cpu * a->n_rows : a->n_rows;
        cpu->channel->tasks[cpu->n_tasks++] = (struct expert_task_record){
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
    const struct cpu_backend_input input = {.layer = x->work.layer,
                                            .n_tokens = x->work.n_tokens,
                                            .n_rows = x->work.n_tokens * x->n_used,
                                            .d_model = x->d_model,
                                            .values = x->work.values,
                                            .indices = x->work.indices,
                                            .groups = x->work.kind.groups};
    return !cpu->n_tasks || cpu_backend_send(cpu, &input);
}

static void abandon_channel(struct experts *x)
{
    cpu_backend_abandon(&x->cpu);
    x->cost.has_cpu = false;
    counter_add(x->counters.reclaimed, 1);
}

/* Plans the round, and sends the CPU's share. */
static void start_round(struct experts *x)
{
    x->cpu.n_tasks = 0;
    if (!x->work.n_round)
        return;
    x->work.round_begun_ns = clock_ns();
    if (x->device.cache) {
        x->work.copies = device_cache_copies(x->device.cache);
        experts_plan(x);
    } else
        for (uint32_t i = 0; i < x->work.n_round; i++)
            x->work.round[i].cpu = x->memory->map.slabs[x->work.layer].n_segments;
    if (x->cpu.channel && !send_job(x))
        abandon_channel(x);
}

static void begin_work(struct experts *x, const struct layer_input *input)
{
    struct layer_work *w = &x->work;
    w->values = input->values->host;
    w->prepared = x->options.rows_stay ? input->prepared : NULL;
    w->loads = w->disk_wait_ns = 0;
    w->predicted_s = 0;
    w->has_waited = false;
    x->cpu.inputs_sent = false;
    for (uint32_t row = 0; row < w->n_tokens * x->n_used; row++)
        w->row_at[row] = w->rows + (size_t)row * x->d_model;
}

void experts_count_replayed(struct experts *x, uint32_t n)
{
    if (x->counters.replayed)
        counter_add(x->counters.replayed, n);
}

bool experts_quantize_own(const struct experts *x, uint32_t layer)
{
    return x->options.rows_stay && exec_experts_quantize(&x->memory->map.slabs[layer]);
}

void experts_begin(struct experts *x, uint32_t layer, const struct layer_input *input,
                   uint32_t n_tokens, const uint32_t *selected, struct batch_kind kind)
{
    x->work.begun_ns = clock_ns();
    cost_model_gate(&x->cost, x->work.begun_ns, layer > x->work.layer);
    experts_enter_layer(x, layer, n_tokens, kind);
    exec_set_groups(x->own, &kind.groups);
    begin_work(x, input);
    experts_gather(x, selected);
    experts_find_channel(x, x->work.begun_ns);
    if (x->prefetch)
        prefetch_set_all_resident(x->prefetch, false);
    experts_report(x, selected);
    experts_first_round(x);
    start_round(x);
    device_only_observe(x);
}

/* ---- The CPU's share ---- */

/* The expected time of the job under way. */
static double expected_job_s(const struct experts *x)
{
    double s = x->cost.calibration.cpu_call_s;
    for (uint32_t i = 0; i < x->work.n_round; i++)
        s += x->work.round[i].cpu *
             sched_cpu_contended_s(&x->cost.costs.now, x->work.round[i].n_rows);
    return s;
}

/* Without a device no costs are known: the worker waits for ever. */
static bool await_job(struct experts *x, struct expert_completion *done)
{
    return cpu_backend_await(&x->cpu, expected_job_s(x), !x->device.cache, done);
}

/* Without an executor the worker's own threads compute the CPU's shares. */
static void compute_cpu_share(struct experts *x)
{
    uint32_t n = 0;
    uint64_t n_segments = 0, started = clock_ns();
    for (uint32_t i = 0; i < x->work.n_round; i++) {
        const struct activated *a = &x->work.round[i];
        if (a->cpu)
            x->work.tasks[n++] = experts_task(x, a, a->device + a->load, a->cpu);
        n_segments += a->cpu;
    }
    if (!n)
        return;
    exec_experts(x->own, &x->memory->map, x->work.layer, experts_input(x), x->work.tasks, n);
    uint64_t took_ns = clock_ns() - started;
    if (x->device.cache)
        experts_count_on_cpu(x, n_segments, took_ns);
    counter_add(x->counters.local, n);
    counter_add(x->counters.local_ns, took_ns);
    counter_add(x->counters.local_bytes,
                n_segments * x->memory->map.slabs[x->work.layer].segment_bytes);
}

/* Takes the executor's rows. Rows of single segments are added to the device's sum in order. A
 * whole sum stays in the channel, unless another round may overwrite it or it goes to the device.
 */
static void take_cpu_rows(struct experts *x)
{
    const struct kernels *k = kernels_get();
    size_t d = x->d_model;
    bool last = x->work.n_done + x->work.n_round == x->work.n_activated && !x->options.rows_stay;
    for (uint32_t i = 0; i < x->work.n_round; i++) {
        const struct activated *a = &x->work.round[i];
        const float *from = x->cpu.channel->out + a->first_out * d;
        bool apart = a->device + a->load > 0;
        for (uint32_t row = 0; row < a->n_rows && a->cpu; row++) {
            if (!apart && last)
                x->work.row_at[a->first_row + row] = from + row * d;
            else if (!apart)
                memcpy(x->work.rows + (a->first_row + row) * d, from + row * d, d * sizeof *from);
            for (uint32_t s = 0; apart && s < a->cpu; s++)
                k->add(from + ((size_t)s * a->n_rows + row) * d,
                       x->work.rows + (a->first_row + row) * d, d);
        }
    }
}

static void correct_cpu_costs(struct experts *x, const struct expert_completion *done,
                              uint64_t waited_since_ns)
{
    uint64_t now_ns = clock_ns();
    if (done->ended_ns > waited_since_ns) /* else it had ended before the wait */
        layer_costs_job(&x->cost.costs,
                        (double)(now_ns - x->work.round_begun_ns - done->compute_ns) * 1e-9);

    const struct sched_costs *now = &x->cost.costs.now;
    double uncontended_s = x->cost.calibration.cpu_call_s;
    bool copying = x->work.copies % 2 || device_cache_copies(x->device.cache) != x->work.copies;
    uint64_t segments = 0;
    for (uint32_t i = 0; i < x->work.n_round; i++) {
        const struct activated *a = &x->work.round[i];
        uncontended_s += a->cpu * sched_cpu_s(now, a->n_rows);
        segments += a->cpu;
    }
    layer_costs_cpu(&x->cost.costs, uncontended_s, (double)done->compute_ns * 1e-9, copying);
    experts_count_on_cpu(x, segments, done->compute_ns);
}

enum error_code experts_lose_device(struct experts *x, struct error *e)
{
    struct error why = *e;
    if (x->options.device_lost && !x->device.lost)
        x->options.device_lost(x->options.device_lost_arg, &why);
    x->device.lost = true;
    if (x->cpu.channel && x->cpu.n_tasks)
        abandon_channel(x);
    return error_set(e, ERROR_UNAVAILABLE, "the device has failed, try again: %.400s", why.text);
}

static enum error_code finish_round(struct experts *x, struct error *e)
{
    if (x->device.cache ? experts_compute_device(x, e) : experts_call_overlap(x, e))
        return experts_lose_device(x, e);
    if (x->cpu.channel && !x->cpu.n_tasks)
        return ERROR_OK;
    struct expert_completion done;
    uint64_t started = clock_ns();
    if (x->cpu.channel &&
        !ring_wait(&x->cpu.channel->completions, expert_link_dead(x->cpu.link), NULL, 0))
        experts_before_wait(x);
    bool answered = x->cpu.channel && await_job(x, &done);
    uint64_t waited_ns = clock_ns() - started;
    if (answered && !x->options.rows_stay)
        pool_wake(exec_pool(x->own)); /* the next layer's attention follows soon */
    counter_add(x->counters.wait_ns, waited_ns);
    x->work.has_waited |= waited_ns > WAITED_NS;
    if (!answered) {
        if (x->cpu.channel)
            abandon_channel(x);
        compute_cpu_share(x);
        return ERROR_OK;
    }
    take_cpu_rows(x);
    counter_add(x->counters.sent, x->cpu.n_tasks);
    if (x->device.cache)
        correct_cpu_costs(x, &done, started);
    return ERROR_OK;
}

/* Copies the round's rows that were completed in host memory to the device, adjacent ones in one
 * copy.
 */
static void give_rows(struct experts *x)
{
    for (uint32_t i = 0, next; i < x->work.n_round; i = next) {
        const struct activated *a = &x->work.round[i];
        uint32_t end = a->first_row + a->n_rows;
        next = i + 1;
        if (!a->on_host)
            continue;
        for (; next < x->work.n_round && x->work.round[next].on_host &&
               x->work.round[next].first_row == end;
             next++)
            end += x->work.round[next].n_rows;
        device_compute_give(x->device.compute, a->first_row, end - a->first_row);
    }
}

static enum error_code finish_and_give(struct experts *x, struct error *e)
{
    enum error_code code = finish_round(x, e);
    if (!code && x->device.cache)
        counter_add(x->counters.found_on_device, x->work.found);
    if (!code && x->options.rows_stay)
        give_rows(x);
    experts_end_round(x);
    return code;
}

static enum error_code finish_rounds(struct experts *x, struct error *e)
{
    enum error_code code = finish_and_give(x, e);
    while (!code && x->work.n_done < x->work.n_activated) {
        code = experts_next_round(x, e);
        if (code)
            return code;
        start_round(x);
        code = finish_and_give(x, e);
    }
    return code;
}

/* From the end of the layer before, had there been no copy. 0: not known, the worker has done the
 * executor's part. */
static double undisturbed_s(const struct experts *x)
{
    const struct sched_costs *c = &x->cost.costs.now;
    double cpu_s = 0, device_s = 0;
    for (uint32_t i = 0; i < x->work.n_activated; i++) {
        const struct activated *a = &x->work.activated[i];
        cpu_s += a->cpu * sched_cpu_s(c, a->n_rows);
        device_s += a->device * sched_device_s(c, a->n_rows);
    }
    if (cpu_s > 0 && !x->cpu.channel)
        return 0;
    return x->cost.attention_s + (cpu_s > 0 ? x->cost.costs.job_s : 0) +
           (cpu_s > device_s ? cpu_s : device_s);
}

static void count_layer(struct experts *x)
{
    if (!isfinite(x->work.predicted_s))
        return;
    double took_s = (double)(x->cost.finished_ns - x->work.begun_ns - x->work.disk_wait_ns) * 1e-9;
    counter_add(x->counters.layers, 1);
    counter_add(x->counters.layer_ns, (uint64_t)(took_s * 1e9));
    prefetch_cpu_only(x->prefetch, experts_cpu_only_s(x) - took_s);
    counter_add(x->counters.predicted_ns, (uint64_t)(x->work.predicted_s * 1e9));
    counter_add(x->counters.wrong_ns, (uint64_t)(fabs(took_s - x->work.predicted_s) * 1e9));
}

/* After a layer of a large step (is_time_to_wake) memd may use its slots for the next one's
 * experts, while the next one's attention is computed. */
static void pass_layer(struct experts *x)
{
    uint32_t next = x->work.layer + 1;
    if (2 * x->work.n_activated <= x->n_experts || next == x->memory->map.params.n_layers)
        return;
    device_cache_pass(x->device.cache, x->work.step, next);
    device_cache_notify(x->device.cache);
}

enum error_code experts_finish(struct experts *x, const struct experts_overlap *overlap,
                               struct error *e)
{
    x->work.overlap = overlap;
    enum error_code code = finish_rounds(x, e);
    x->cpu.n_tasks = 0; /* nothing is under way */
    uint64_t before_ns = cost_model_end(&x->cost);
    if (code || !x->device.cache)
        return code;
    pass_layer(x);
    cost_model_layer(&x->cost, x->work.layer, before_ns, undisturbed_s(x),
                     !x->work.loads && !x->work.disk_wait_ns, device_cache_copies(x->device.cache));
    cost_model_publish(&x->cost);
    prefetch_done(x->prefetch, x->work.step, x->work.has_waited);
    count_layer(x);
    return ERROR_OK;
}

/* ---- Results ---- */

const float *experts_row(const struct experts *x, uint32_t token, uint32_t rank)
{
    return x->work.row_at[x->work.row_of[token * x->n_used + rank]];
}

bool experts_run_async(const struct experts *x)
{
    return x->options.rows_stay;
}

const float *experts_device_rows(const struct experts *x)
{
    return device_compute_own_rows(x->device.compute);
}

const uint32_t *experts_row_of(const struct experts *x)
{
    return x->work.row_of;
}

uint64_t experts_kv_limit(const struct experts *x)
{
    return x->device.cache ? device_cache_kv_limit(x->device.cache) : UINT64_MAX;
}

void experts_report_kv(struct experts *x, uint64_t bytes)
{
    if (x->device.cache)
        device_cache_report_kv(x->device.cache, bytes);
}
