/* moed-worker: attaches to the model that memd holds, runs the forward pass for all frontends' requests at
 * once, and streams the answers. It owns the KV cache and nothing of the weights. */
#include "cuda_device.h"
#include "engine.h"
#include "experts.h"
#include "forward.h"
#include "prediction_metrics.h"
#include "session.h"

#include "base/log.h"
#include "daemon/control.h"
#include "daemon/daemon.h"
#include "device/device.h"
#include "ipc/lease.h"
#include "memory/memory_client.h"
#include "metrics/recent.h"
#include "model/memory_need.h"
#include "sched/policy.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct worker {
    struct daemon daemon;
    /* options */
    const char *device, *kernels, *kv_type;
    uint64_t threads, context, parallel, spin_us;
    bool reproducible, pin, calibrate, fine_tune, cpuexec;
    struct device_spec device_spec;
    enum sched_assigner assigner;
    enum sched_predictor predictor;
    enum sched_prefetcher prefetcher; /* memd's */
    /* what it owns, in the order in which it is made */
    struct memory_client memory;
    struct watch *watch;
    struct tokenizer *tokenizer;
    char *chat_template;
    struct pool *pool;
    struct exec *exec;
    struct cuda_device cuda;
    struct model_weights weights;
    struct dense *dense;
    struct experts_counters counters;
    struct prediction_counters prediction; /* where the device has memory of its own */
    struct experts *experts;
    _Atomic bool device_failed;
    struct strbuf calibration; /* in words, where the device has memory of its own */
    struct recent *recent;     /* there, or where there is a host tier */
    /* Of the counters, where the device has memory of its own, when the policy was chosen that is served with; all 0: at the
     * start. */
    struct worker_since {
        uint64_t resident, loaded, on_cpu; /* segments */
        uint64_t layers, layer_ns, predicted_ns, wrong_ns, plan_ns, device_ns, cpu_ns;
    } since;
    struct forward *forward;
    struct engine *engine;
    struct sessions *sessions;
};

static bool memd_gone(void *arg, int fd)
{
    struct worker *w = arg;
    (void)fd;
    log_warn("memd has gone: ending, to be started again with it");
    experts_stop(w->experts);
    daemon_request_stop(&w->daemon, EXIT_RETRY);
    return false;
}

/* The model file's keys lie in the pool: the worker reads no file. */
static enum error_code read_vocabulary(struct worker *w, struct error *e)
{
    const struct pool_map *map = &w->memory.map;
    struct gguf *g;
    enum error_code code =
        gguf_open_metadata(map->base + map->header->metadata_offset, map->header->metadata_bytes,
                           map->header->path, &g, e);
    if (code)
        return code;
    code = tokenizer_new(g, NULL, &w->tokenizer, e);
    struct gguf_string template = {"", 0};
    if (gguf_find(g, "tokenizer.chat_template"))
        gguf_get_string(g, "tokenizer.chat_template", &template, NULL);
    w->chat_template = strndup(template.data, template.len);
    gguf_close(g);
    if (!code && !w->chat_template)
        code = error_set(e, ERROR_MEMORY, "no memory for the chat template");
    if (!code && tokenizer_vocab_size(w->tokenizer) > map->params.vocab)
        code = error_set(e, ERROR_FORMAT,
                         "%s: %" PRIu32 " tokens, but the embedding has %" PRIu32 " rows",
                         map->header->path, tokenizer_vocab_size(w->tokenizer), map->params.vocab);
    return code;
}

static uint32_t batch_tokens(const struct worker *w)
{
    return serving_batch_tokens((uint32_t)w->parallel);
}

/* See device_cores: cpuexec has the others. */
static enum error_code make_pool(struct worker *w, struct error *e)
{
    unsigned own = device_cores(&w->device_spec, pool_usable_cores());
    unsigned threads = w->threads ? pool_useful_threads((unsigned)w->threads) : own;
    return pool_new("worker", threads, w->pin && !own, (unsigned)w->spin_us, &w->pool, e);
}

static bool dense_on_device(const struct worker *w)
{
    return w->cuda.dense != NULL;
}

/* Where the pool's first byte lies for who computes the dense part. */
static const uint8_t *dense_base(const struct worker *w)
{
    return dense_on_device(w) ? w->cuda.dense : w->memory.map.base;
}

static enum error_code make_compute(struct worker *w, struct error *e)
{
    const struct model_params *p = &w->memory.map.params;
    struct exec_limits limits = {.max_tokens = batch_tokens(w),
                                 .max_cols = params_widest_input(p),
                                 .max_task_rows = batch_tokens(w) * p->router.n_used,
                                 .max_width = p->d_expert};
    struct dense_options dense = {.map = &w->memory.map,
                                  .max_tokens = batch_tokens(w),
                                  .n_slots = (uint32_t)w->parallel,
                                  .context = (uint32_t)w->context,
                                  .kv_bytes = atomic_load(&w->memory.residency.header->kv_bytes),
                                  .blas = !w->reproducible};
    enum error_code code = kv_type_parse(w->kv_type, &dense.kv_type, e);
    if (!code)
        code = make_pool(w, e);
    if (!code)
        code = exec_new(w->pool, &limits, !w->reproducible, &w->exec, e);
    if (!code && w->device_spec.kind == DEVICE_CUDA)
        code = cuda_device_open(&w->memory, &w->device_spec, &w->cuda, e);
    if (!code)
        code = weights_bind(&w->memory.map, dense_base(w), &w->weights, e);
    if (code)
        return code;
    return dense_on_device(w) ? dense_cuda_new(&dense, &w->cuda, &w->dense, e)
                              : dense_host_new(&dense, w->exec, &w->dense, e);
}

static void register_cache_metrics(struct metrics *m, bool on_cuda, struct experts_counters *k)
{
    const char *segments = "Expert segments computed, by where they were found.";
    k->resident =
        metrics_counter(m, "moed_worker_segments_total", "where=\"resident\"", 1, segments);
    k->loaded = metrics_counter(m, "moed_worker_segments_total", "where=\"loaded\"", 1, segments);
    k->on_cpu = metrics_counter(m, "moed_worker_segments_total", "where=\"cpu\"", 1, segments);
    k->loads_taken_back =
        metrics_counter(m, "moed_worker_loads_taken_back_total", NULL, 1,
                        "Segments that did not arrive in time, computed from the host pool.");
    k->at_once = metrics_counter(m, "moed_worker_layers_at_once_total", NULL, 1,
                                 "Layers that the device computed in one call, when its one load was there.");
    if (on_cuda) {
        k->alone = metrics_counter(m, "moed_worker_layers_alone_total", NULL, 1,
                                   "Layers that the device ran without being asked.");
        k->alone_missed = metrics_counter(m, "moed_worker_layers_alone_missed_total", NULL, 1,
                                          "Tries at that which met an expert that is not there.");
        k->alone_in_vain = metrics_counter(m, "moed_worker_layers_alone_in_vain_total", NULL, 1,
                                           "Layers that were queued behind such a miss.");
        k->replayed = metrics_counter(m, "moed_worker_layers_replayed_total", NULL, 1,
                                      "Layers of those tries that were queued as a graph.");
    }
    k->declined =
        metrics_counter(m, "moed_worker_predictions_declined_total", NULL, 1,
                        "Predicted experts whose copy would have cost more than it saves.");
    static const double plan_bounds[] = {2e-6,   5e-6,   10e-6, 20e-6, 50e-6, 100e-6,
                                         200e-6, 500e-6, 1e-3,  2e-3,  5e-3,  10e-3};
    k->plan_seconds =
        metrics_histogram(m, "moed_worker_plan_seconds", NULL, plan_bounds,
                          sizeof plan_bounds / sizeof *plan_bounds, "Time to plan a layer.");
    static const double predict_bounds[] = {0.5e-6, 1e-6,  2e-6,   5e-6,   10e-6,
                                            20e-6,  50e-6, 100e-6, 200e-6, 500e-6};
    k->predict_seconds = metrics_histogram(
        m, "moed_worker_predict_seconds", NULL, predict_bounds,
        sizeof predict_bounds / sizeof *predict_bounds,
        "Time that prediction takes of a layer in the engine's thread; of one step in 16.");
    k->predict_exposed_ns = metrics_counter(
        m, "moed_worker_predict_exposed_seconds_total", NULL, 1e-9,
        "The same, of layers in which the engine then waited for nobody.");
    k->load_wait_ns = metrics_counter(m, "moed_worker_load_wait_seconds_total", NULL, 1e-9,
                                      "Time waited for loads.");
}

static void register_tier_metrics(struct metrics *m, struct experts_counters *k)
{
    const char *found = "Activated experts, by where they were: in host memory (or whole on the "
                        "device), or in the model file.";
    const char *waited = "Time waited for experts to be read from the model file.";
    k->found_in_memory =
        metrics_counter(m, "moed_worker_experts_found_total", "where=\"memory\"", 1, found);
    k->found_on_disk =
        metrics_counter(m, "moed_worker_experts_found_total", "where=\"disk\"", 1, found);
    k->disk_wait_decode_ns =
        metrics_counter(m, "moed_worker_disk_wait_seconds_total", "phase=\"decode\"", 1e-9, waited);
    k->disk_wait_prefill_ns = metrics_counter(m, "moed_worker_disk_wait_seconds_total",
                                              "phase=\"prefill\"", 1e-9, waited);
}

/* We are started again, with the cache as it is. */
static void device_lost(void *arg, const struct error *e)
{
    struct worker *w = arg;
    log_error("the device has failed: %s", e->text);
    atomic_store(&w->device_failed, true);
    daemon_request_stop(&w->daemon, EXIT_RETRY);
}

/* No call of the device comes back any more, so nothing is tidied up. The clients are told by their connections' end. */
static void device_hangs(void *arg, const struct error *e)
{
    (void)arg;
    log_error("the device waits in vain: %s", e->text);
    _exit(EXIT_RETRY);
}

static double read_device_correction(void *arg)
{
    return experts_corrections(((struct worker *)arg)->experts).device;
}

static double read_cpu_correction(void *arg)
{
    return experts_corrections(((struct worker *)arg)->experts).cpu;
}

static double read_slowdown_correction(void *arg)
{
    return experts_corrections(((struct worker *)arg)->experts).slowdown;
}

static double read_link_correction(void *arg)
{
    return experts_corrections(((struct worker *)arg)->experts).link;
}

static void register_cost_metrics(struct worker *w, struct experts_counters *k)
{
    struct metrics *m = w->daemon.metrics;
    k->device_ns = metrics_counter(m, "moed_worker_device_busy_seconds_total", NULL, 1e-9,
                                   "Time that the device computed experts.");
    k->cpu_ns = metrics_counter(m, "moed_worker_cpu_busy_seconds_total", NULL, 1e-9,
                                "Time that cpuexec computed this worker's experts.");
    k->layers = metrics_counter(m, "moed_worker_layers_total", NULL, 1,
                                "Layers of experts whose time was predicted.");
    k->layer_ns =
        metrics_counter(m, "moed_worker_layer_seconds_total", NULL, 1e-9, "Time that they took.");
    k->predicted_ns = metrics_counter(m, "moed_worker_layer_predicted_seconds_total", NULL, 1e-9,
                                      "Time that was predicted for them.");
    k->wrong_ns = metrics_counter(m, "moed_worker_layer_error_seconds_total", NULL, 1e-9,
                                  "How far the predictions were off, either way.");
    const char *name = "moed_worker_cost_correction";
    const char *help = "Real by calibrated cost of a segment, a moving average over layers.";
    metrics_gauge_function(m, name, "side=\"device\"", read_device_correction, w, help);
    metrics_gauge_function(m, name, "side=\"cpu\"", read_cpu_correction, w, help);
    metrics_gauge_function(m, name, "side=\"cpu-beside-copies\"", read_slowdown_correction, w,
                           help);
    metrics_gauge_function(m, name, "side=\"link\"", read_link_correction, w, help);
}

static double read_kv_bytes(void *arg)
{
    return (double)((struct worker *)arg)->cuda.used[CUDA_KV];
}

static double read_scratch_bytes(void *arg)
{
    return (double)((struct worker *)arg)->cuda.used[CUDA_SCRATCH];
}

/* moed_memd_device_bytes says what memd reckoned with. */
static void register_device_metrics(struct worker *w, struct experts_counters *k)
{
    k->awaited = metrics_counter(w->daemon.metrics, "moed_worker_segments_awaited_total", NULL, 1,
                                 "Loaded segments whose kernels were queued while they were on their way.");
    const char *name = "moed_worker_device_bytes";
    const char *help = "Bytes of the device's memory that this worker allocated, by use.";
    metrics_gauge_function(w->daemon.metrics, name, "use=\"kv\"", read_kv_bytes, w, help);
    metrics_gauge_function(w->daemon.metrics, name, "use=\"scratch\"", read_scratch_bytes, w, help);
}

/* For the shares of the last seconds. */
enum {
    RECENT_SEGMENTS,
    RECENT_RESIDENT,
    RECENT_GUESSES,
    RECENT_RIGHT,
    RECENT_ACTIVATED,
    RECENT_FOUND,
    RECENT_DECODE_NS,
    RECENT_DECODE_WAIT_NS,
    RECENT_LOADED,
    RECENT_DEVICE_NS,
    RECENT_CPU_NS,
    RECENT_LAYERS,
    RECENT_LAYER_NS,
    RECENT_PREDICTED_NS,
    RECENT_PLANS,
    RECENT_PLAN_NS
};
_Static_assert((int)RECENT_PLAN_NS < (int)RECENT_MOST, "they fit");

static void sample_experts(void *arg, uint64_t values[RECENT_MOST])
{
    struct worker *w = arg;
    const struct experts_counters *k = &w->counters;
    values[RECENT_RIGHT] = prediction_metrics_right(&w->prediction);
    values[RECENT_GUESSES] = prediction_metrics_guesses(&w->prediction);
    if (w->memory.arena_bytes) {
        values[RECENT_RESIDENT] = counter_read(k->resident);
        values[RECENT_SEGMENTS] =
            values[RECENT_RESIDENT] + counter_read(k->loaded) + counter_read(k->on_cpu);
        values[RECENT_LOADED] = counter_read(k->loaded);
        values[RECENT_DEVICE_NS] = counter_read(k->device_ns);
        values[RECENT_CPU_NS] = counter_read(k->cpu_ns);
        values[RECENT_LAYERS] = counter_read(k->layers);
        values[RECENT_LAYER_NS] = counter_read(k->layer_ns);
        values[RECENT_PREDICTED_NS] = counter_read(k->predicted_ns);
        values[RECENT_PLANS] = histogram_count(k->plan_seconds);
        values[RECENT_PLAN_NS] = (uint64_t)(histogram_sum(k->plan_seconds) * 1e9);
    }
    if (w->memory.tier.slots) {
        values[RECENT_FOUND] = counter_read(k->found_in_memory);
        values[RECENT_ACTIVATED] = values[RECENT_FOUND] + counter_read(k->found_on_disk);
        values[RECENT_DECODE_NS] = engine_status(w->engine).decode_ns;
        values[RECENT_DECODE_WAIT_NS] = counter_read(k->disk_wait_decode_ns);
    }
}

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

/* The log's line of statistics; none while nothing is computed. */
static void report_experts(void *arg, const uint64_t growth[RECENT_MOST], uint64_t window_ns)
{
    (void)arg;
    double s = (double)window_ns * 1e-9;
    uint64_t segments = growth[RECENT_SEGMENTS], layers = growth[RECENT_LAYERS];
    if (segments)
        log_info("experts, last %.0f s: %" PRIu64 " segments, %.1f %% resident, %.1f %% loaded, the rest on the CPU; "
                 "device busy %.1f %%, CPU %.1f %%", s, segments, percent(growth[RECENT_RESIDENT], segments),
                 percent(growth[RECENT_LOADED], segments), percent(growth[RECENT_DEVICE_NS], window_ns),
                 percent(growth[RECENT_CPU_NS], window_ns));
    if (segments && layers)
        log_info("layers, last %.0f s: %" PRIu64 " of %.3f ms, predicted %.3f ms, planned in %.4f ms; %.1f %% of %" PRIu64
                 " predicted experts right", s, layers, (double)growth[RECENT_LAYER_NS] * 1e-6 / (double)layers,
                 (double)growth[RECENT_PREDICTED_NS] * 1e-6 / (double)layers,
                 growth[RECENT_PLANS] ? (double)growth[RECENT_PLAN_NS] * 1e-6 / (double)growth[RECENT_PLANS] : 0,
                 percent(growth[RECENT_RIGHT], growth[RECENT_GUESSES]), growth[RECENT_GUESSES]);
    if (growth[RECENT_ACTIVATED])
        log_info("memory, last %.0f s: %" PRIu64 " experts activated, %.1f %% of them there; %.1f %% of decode time waited "
                 "for the file", s, growth[RECENT_ACTIVATED], percent(growth[RECENT_FOUND], growth[RECENT_ACTIVATED]),
                 percent(growth[RECENT_DECODE_WAIT_NS], growth[RECENT_DECODE_NS]));
}

/* What experts cost here, before the first of them is computed: with cpuexec, which takes a moment to come. */
static enum error_code calibrate_experts(struct worker *w, struct error *e)
{
    experts_wait(w->experts, 1000);
    enum error_code code = experts_calibrate(w->experts, w->device, w->calibrate, e);
    const struct calibration *c = experts_calibration(w->experts);
    strbuf_init(&w->calibration);
    if (!code && c)
        calibration_write(c, &w->calibration);
    if (!code && (w->memory.arena_bytes || w->memory.tier.slots))
        code = recent_new("worker/recent", sample_experts, report_experts, w, &w->recent, e);
    return code;
}

static enum error_code make_engine(struct worker *w, struct error *e)
{
    struct metrics *m = w->daemon.metrics;
    w->counters = (struct experts_counters){
        .sent = metrics_counter(m, "moed_worker_experts_total", "where=\"cpuexec\"", 1,
                                "Experts computed for this worker, by where."),
        .local = metrics_counter(m, "moed_worker_experts_total", "where=\"worker\"", 1,
                                 "Experts computed for this worker, by where."),
        .local_ns = metrics_counter(m, "moed_worker_expert_seconds_total", NULL, 1e-9,
                                    "Time that the worker's own threads computed experts."),
        .local_bytes = metrics_counter(m, "moed_worker_expert_weight_bytes_total", NULL, 1,
                                       "Bytes of experts' weights that they read."),
        .taken_back = metrics_counter(m, "moed_worker_jobs_taken_back_total", NULL, 1,
                                      "Jobs that cpuexec died or stalled on, or took far too long for, computed here."),
        .wait_ns = metrics_counter(m, "moed_worker_expert_wait_seconds_total", NULL, 1e-9,
                                   "Time waited for cpuexec."),
    };
    if (w->memory.arena_bytes) {
        register_cache_metrics(m, dense_on_device(w), &w->counters);
        register_cost_metrics(w, &w->counters);
        if (w->cuda.device)
            register_device_metrics(w, &w->counters);
    }
    if (w->memory.tier.slots)
        register_tier_metrics(m, &w->counters);
    if (w->memory.arena_bytes || w->memory.tier.slots)
        w->prediction = prediction_metrics_counters(m);
    struct experts_options options = {.max_tokens = batch_tokens(w),
                                      .spin_us = (unsigned)w->spin_us,
                                      .device = w->device_spec,
                                      .cuda = w->cuda.device ? &w->cuda : NULL,
                                      .cpuexec = w->cpuexec || w->device_spec.kind != DEVICE_HOST,
                                      .rows_stay = dense_on_device(w),
                                      .assigner = w->assigner,
                                      .predictor = w->predictor,
                                      .prefetcher = w->prefetcher,
                                      .fine_tune = w->fine_tune,
                                      .prediction_counters = w->prediction,
                                      .device_lost = device_lost,
                                      .device_hangs = device_hangs,
                                      .device_lost_arg = w};
    enum error_code code =
        experts_new(w->daemon.run, &w->memory, w->exec, &options, &w->counters, &w->experts, e);
    if (!code)
        code = forward_new(&w->memory.map.params, &w->weights, w->dense, w->experts,
                           (uint32_t)w->context, &w->forward, e);
    if (code)
        return code;
    struct engine_config config = {.forward = w->forward,
                                   .dense = w->dense,
                                   .experts = w->experts,
                                   .pool = w->pool,
                                   .tokenizer = w->tokenizer,
                                   .vocab = w->memory.map.params.vocab,
                                   .d_model = w->memory.map.params.d_model,
                                   .parallel = (uint32_t)w->parallel,
                                   .context = (uint32_t)w->context,
                                   .waits_for_disk = w->memory.tier.slots != NULL,
                                   .metrics = m};
    return engine_new(&config, &w->engine, e);
}

static enum error_code make_sessions(struct worker *w, struct error *e)
{
    struct session_model model = {.map = &w->memory.map,
                                  .tokenizer = w->tokenizer,
                                  .chat_template = w->chat_template,
                                  .device = w->device,
                                  .context = (uint32_t)w->context};
    enum error_code code = sessions_new(w->daemon.run, &model, &w->sessions, e);
    if (!code)
        sessions_set_engine(w->sessions, w->engine);
    return code;
}

/* memd keeps the policy, so that it outlives a worker. */
static enum error_code ask_policy(struct worker *w, enum sched_assigner *assigner,
                                  enum sched_predictor *predictor,
                                  enum sched_prefetcher *prefetcher, struct error *e)
{
    Moed__V1__PolicyRequest policy = MOED__V1__POLICY_REQUEST__INIT;
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    Moed__V1__Reply *reply;
    request.body_case = MOED__V1__REQUEST__BODY_POLICY;
    request.policy = &policy;
    enum error_code code = control_call(w->daemon.run, "memd", &request,
                                        MOED__V1__REPLY__BODY_POLICY, 5000, &reply, e);
    if (code)
        return code;
    if (!sched_predictor_find(reply->policy->predictor, predictor))
        code = error_set(e, ERROR_PROTOCOL, "memd names a predictor '%.40s' that is not known",
                         reply->policy->predictor);
    if (!sched_assigner_find(reply->policy->assigner, assigner))
        code = error_set(e, ERROR_PROTOCOL, "memd names an assigner '%.40s' that is not known",
                         reply->policy->assigner);
    if (reply->policy->prefetcher[0] && /* none without a cache */
        !sched_prefetcher_find(reply->policy->prefetcher, prefetcher))
        code = error_set(e, ERROR_PROTOCOL, "memd names a prefetcher '%.40s' that is not known",
                         reply->policy->prefetcher);
    moed__v1__reply__free_unpacked(reply, NULL);
    return code;
}

/* What memd has lent is of the device that we were told. */
static enum error_code check_device(const struct worker *w, struct error *e)
{
    enum device_kind lent = !w->memory.arena_bytes  ? DEVICE_HOST
                            : w->memory.arena.base ? DEVICE_EMU
                                                   : DEVICE_CUDA;
    if (lent == w->device_spec.kind)
        return ERROR_OK;
    return error_set(e, ERROR_USAGE,
                     "memd and the worker have different devices: --device is to be the same");
}

static enum error_code start(struct worker *w, struct error *e)
{
    enum error_code code = device_parse(w->device, &w->device_spec, e);
    if (!code && !kernels_select(w->kernels))
        code = error_set(e, ERROR_USAGE, "kernels '%.20s' cannot run on this CPU", w->kernels);
    if (!code)
        code = memory_client_attach(w->daemon.run, "worker", 10000, &w->memory, e);
    if (!code)
        code = check_device(w, e);
    if (!code && (w->memory.arena_bytes || w->memory.tier.slots))
        code = ask_policy(w, &w->assigner, &w->predictor, &w->prefetcher, e);
    if (code)
        return code;
    uint32_t trained = w->memory.map.params.context_trained;
    w->context = serving_context(&w->memory.map.params, (uint32_t)w->context);
    if (w->context > trained)
        log_warn("a context of %" PRIu64 " tokens: the model was trained with %" PRIu32, w->context,
                 trained);
    code = read_vocabulary(w, e);
    if (!code)
        code = make_compute(w, e);
    if (!code)
        code = make_engine(w, e);
    if (!code)
        code = make_sessions(w, e);
    if (!code) /* not before the last answer has been read from the lease's socket */
        code = watch_new("worker/memd", &w->watch, e);
    if (!code)
        code = watch_add(w->watch, w->memory.lease_fd, memd_gone, w, e);
    if (!code)
        code = calibrate_experts(w, e);
    return code ? code : engine_start(w->engine, e);
}

/* What `moed policy` shows is of the policy that is served with. */
static struct worker_since count_experts(const struct worker *w)
{
    const struct experts_counters *k = &w->counters;
    struct worker_since s = {0};
    if (w->memory.arena_bytes)
        s = (struct worker_since){.resident = counter_read(k->resident),
                                  .loaded = counter_read(k->loaded),
                                  .on_cpu = counter_read(k->on_cpu),
                                  .layers = counter_read(k->layers),
                                  .layer_ns = counter_read(k->layer_ns),
                                  .predicted_ns = counter_read(k->predicted_ns),
                                  .wrong_ns = counter_read(k->wrong_ns),
                                  .plan_ns = (uint64_t)(histogram_sum(k->plan_seconds) * 1e9),
                                  .device_ns = counter_read(k->device_ns),
                                  .cpu_ns = counter_read(k->cpu_ns)};
    return s;
}

/* memd knows the new policy already. */
static enum error_code follow_policy(struct worker *w, struct error *e)
{
    enum sched_assigner assigner;
    enum sched_predictor predictor;
    enum sched_prefetcher prefetcher = w->prefetcher;
    enum error_code code = ask_policy(w, &assigner, &predictor, &prefetcher, e);
    if (!code && predictor != w->predictor) /* the same one keeps what it has learnt */
        code = experts_set_predictor(w->experts, predictor, e);
    if (code)
        return code;
    experts_set_assigner(w->experts, assigner);
    experts_set_prefetcher(w->experts, prefetcher);
    w->assigner = assigner;
    w->prefetcher = prefetcher;
    w->predictor = predictor;
    w->since = count_experts(w);
    log_info("assigner %s, predictor %s", sched_assigner_name(w->assigner),
             sched_predictor_name(w->predictor));
    return ERROR_OK;
}

/* Layer by layer, since it was chosen; nothing where nothing is predicted. */
static void fill_predictions(const struct worker *w, Moed__V1__PolicyReply *policy)
{
    enum { MOST = 1024 };
    static uint64_t guesses[MOST], right[MOST];
    uint32_t n_layers = w->memory.map.params.n_layers;
    if (w->predictor == PREDICT_NONE)
        return;
    n_layers = n_layers < MOST ? n_layers : MOST;
    for (uint32_t i = 0; i < n_layers; i++) {
        struct predict_hits hits = prediction_score(experts_prediction(w->experts), i);
        guesses[i] = hits.guesses;
        right[i] = hits.right;
    }
    policy->n_predictions = policy->n_predictions_right = n_layers;
    policy->predictions = guesses;
    policy->predictions_right = right;
    policy->predict_shown = counter_read(w->prediction.shown);
    policy->predict_dropped = counter_read(w->prediction.dropped);
    policy->predict_ahead = counter_read(w->prediction.ahead);
    policy->predict_late = counter_read(w->prediction.late);
}

static void fill_computed(const struct worker *w, Moed__V1__PolicyReply *policy)
{
    struct worker_since now = count_experts(w), then = w->since;
    policy->segments_resident = now.resident - then.resident;
    policy->segments_loaded = now.loaded - then.loaded;
    policy->segments_cpu = now.on_cpu - then.on_cpu;
    policy->layers = now.layers - then.layers;
    policy->layer_ns = now.layer_ns - then.layer_ns;
    policy->layer_predicted_ns = now.predicted_ns - then.predicted_ns;
    policy->layer_wrong_ns = now.wrong_ns - then.wrong_ns;
    policy->plan_ns = now.plan_ns - then.plan_ns;
    policy->device_busy_ns = now.device_ns - then.device_ns;
    policy->cpu_busy_ns = now.cpu_ns - then.cpu_ns;
    policy->outside_ns = (uint64_t)(experts_outside_s(w->experts) * 1e9);
}

static enum error_code reply_policy(struct worker *w, const Moed__V1__PolicyRequest *request,
                                    Moed__V1__Reply *reply, struct error *e)
{
    static Moed__V1__PolicyReply policy;
    bool changed = request->policy[0] || request->assigner[0] || request->predictor[0] || request->cache[0] ||
                   request->budget[0] || request->prefetcher[0];
    enum error_code code = changed ? follow_policy(w, e) : ERROR_OK;
    if (code)
        return code;
    moed__v1__policy_reply__init(&policy);
    policy.device = (char *)w->device;
    policy.part = (char *)sched_assigner_name(w->assigner);
    policy.has_cache = w->memory.arena_bytes > 0;
    if (policy.has_cache) {
        struct experts_corrections now = experts_corrections(w->experts);
        if (!w->calibration.failed)
            policy.calibration = w->calibration.data;
        policy.device_correction = now.device;
        policy.cpu_correction = now.cpu;
        policy.slowdown_correction = now.slowdown;
        policy.link_correction = now.link;
        fill_computed(w, &policy);
    }
    policy.has_tier = w->memory.tier.slots != NULL;
    if (policy.has_cache || policy.has_tier)
        fill_predictions(w, &policy);
    if (policy.has_tier) {
        policy.experts_in_memory = counter_read(w->counters.found_in_memory);
        policy.experts_on_disk = counter_read(w->counters.found_on_disk);
        policy.decode_ns = engine_status(w->engine).decode_ns;
        policy.disk_wait_decode_ns = counter_read(w->counters.disk_wait_decode_ns);
    }
    reply->body_case = MOED__V1__REPLY__BODY_POLICY;
    reply->policy = &policy;
    return ERROR_OK;
}

static enum error_code handle_request(void *arg, const Moed__V1__Request *request,
                                      Moed__V1__Reply *reply, struct error *e)
{
    struct worker *w = arg;
    if (request->body_case == MOED__V1__REQUEST__BODY_POLICY)
        return reply_policy(w, request->policy, reply, e);
    static char url[RUN_URL_BYTES];
    static Moed__V1__SessionAttachReply attached;
    if (request->body_case != MOED__V1__REQUEST__BODY_SESSION_ATTACH)
        return daemon_unknown(request, e);
    const Moed__V1__SessionAttachRequest *attach = request->session_attach;
    enum error_code code =
        sessions_attach(w->sessions, attach->client, attach->pid, url, sizeof url, e);
    if (code)
        return code;
    moed__v1__session_attach_reply__init(&attached);
    attached.channel_url = url;
    attached.window = SESSION_WINDOW;
    reply->body_case = MOED__V1__REPLY__BODY_SESSION_ATTACH;
    reply->session_attach = &attached;
    return ERROR_OK;
}

static void fill_health(void *arg, Moed__V1__HealthReply *health)
{
    struct worker *w = arg;
    struct engine_status s = engine_status(w->engine);
    health->model = w->memory.map.params.name;
    health->requests_running = s.running;
    health->requests_waiting = s.waiting;
    health->tokens_per_s = s.tokens_per_s;
    health->tokens_total = s.tokens_total;
    health->experts_total = counter_read(w->counters.local);
    health->clients = sessions_count(w->sessions);
    if (!w->recent)
        return;
    static Moed__V1__CacheHealth cache;
    static Moed__V1__TierHealth tier;
    uint64_t growth[RECENT_MOST], window_ns = recent_read(w->recent, growth);
    if (w->memory.arena_bytes) {
        moed__v1__cache_health__init(&cache);
        cache.window_ns = window_ns;
        cache.segments = growth[RECENT_SEGMENTS];
        cache.segments_resident = growth[RECENT_RESIDENT];
        cache.predictions = growth[RECENT_GUESSES];
        cache.predictions_right = growth[RECENT_RIGHT];
        cache.predictor = (char *)sched_predictor_name(w->predictor);
        cache.device_busy_ns = growth[RECENT_DEVICE_NS];
        cache.cpu_busy_ns = growth[RECENT_CPU_NS];
        cache.layers = growth[RECENT_LAYERS];
        cache.layer_ns = growth[RECENT_LAYER_NS];
        cache.layer_predicted_ns = growth[RECENT_PREDICTED_NS];
        cache.plans = growth[RECENT_PLANS];
        cache.plan_ns = growth[RECENT_PLAN_NS];
        health->cache = &cache;
    }
    if (w->memory.tier.slots) {
        moed__v1__tier_health__init(&tier);
        tier.window_ns = window_ns;
        tier.activated = growth[RECENT_ACTIVATED];
        tier.found = growth[RECENT_FOUND];
        tier.decode_ns = growth[RECENT_DECODE_NS];
        tier.decode_wait_ns = growth[RECENT_DECODE_WAIT_NS];
        health->tier = &tier;
    }
}

static double read_rate(void *arg)
{
    return engine_status(((struct worker *)arg)->engine).tokens_per_s;
}

static double read_threads(void *arg)
{
    return pool_thread_count(((struct worker *)arg)->pool);
}

static double read_frontends(void *arg)
{
    return sessions_count(((struct worker *)arg)->sessions);
}

static void stop(struct worker *w)
{
    daemon_stop(&w->daemon);
    watch_free(w->watch); /* it looks at the experts */
    experts_stop(w->experts);
    engine_stop(w->engine);
    sessions_free(w->sessions);
    if (atomic_load(&w->device_failed)) /* what of its driver still answers is not waited for */
        _exit(EXIT_RETRY);
    recent_free(w->recent); /* it looks at the engine */
    engine_free(w->engine);
    strbuf_fini(&w->calibration);
    forward_free(w->forward);
    experts_free(w->experts);
    dense_free(w->dense);
    cuda_device_close(&w->cuda);
    exec_free(w->exec);
    pool_free(w->pool);
    weights_free(&w->weights);
    free(w->chat_template);
    tokenizer_free(w->tokenizer);
    memory_client_detach(&w->memory);
}

int main(int argc, char **argv)
{
    static struct worker w = {
        .device = "host", .kernels = "auto", .kv_type = KV_TYPE_DEFAULT, .parallel = DEFAULT_PARALLEL, .spin_us = 20, .pin = true};
    const struct option_spec options[] = {
        {"device", OPTION_STRING, &w.device, 0, 0, "DEVICE",
         "host, cuda[:N][,vram=SIZE][,dense=host], or emu:vram=SIZE,link=RATE[,latency=TIME][,speed=FACTOR][,call=TIME]"},
        {"threads", OPTION_UINT, &w.threads, 0, 1024, "N",
         "compute threads, at most one a CPU; 0: one a core, for an emulated device half of the cores"},
        {"ctx", OPTION_UINT, &w.context, 0, 1 << 24, "N",
         "tokens a request may have, prompt and answer; 0: the model's, at most 4096"},
        {"parallel", OPTION_UINT, &w.parallel, 1, 256, "N", "requests computed at once"},
        {"kv-type", OPTION_STRING, &w.kv_type, 0, 0, "TYPE", "of keys and values kept: " KV_TYPES},
        {"cpuexec", OPTION_BOOL, &w.cpuexec, 0, 0, NULL,
         "with device host, too, experts are computed by cpuexec, where there is one"},
        {"reproducible", OPTION_BOOL, &w.reproducible, 0, 0, NULL,
         "no BLAS, no inputs rounded to BF16: the same bits in every batch"},
        {"pin", OPTION_BOOL, &w.pin, 0, 0, NULL, "keep compute threads on cores and their memory node"},
        {"spin-us", OPTION_UINT, &w.spin_us, 0, 10000, "US", "spin so long before sleeping"},
        {"fine-tune", OPTION_BOOL, &w.fine_tune, 0, 0, NULL,
         "the predictor llapor goes on learning from what layers activate"},
        {"calibrate", OPTION_BOOL, &w.calibrate, 0, 0, NULL,
         "measure what experts cost here anew, whatever is stored"},
        {"kernels", OPTION_STRING, &w.kernels, 0, 0, "NAME", "auto, portable, avx2, avx512"},
        {0},
    };
    daemon_start(&w.daemon, "worker", "the worker of a moed deployment", options, argc, argv);
    struct error e;
    enum error_code code = start(&w, &e);
    static const struct daemon_handlers handlers = {fill_health, handle_request};
    if (!code) {
        metrics_gauge_function(w.daemon.metrics, "moed_worker_tokens_per_second", NULL, read_rate,
                               &w, "Tokens generated a second, over the last 10 s.");
        metrics_gauge_function(w.daemon.metrics, "moed_worker_threads", NULL, read_threads, &w,
                               "Threads that the worker computes with.");
        metrics_gauge_function(w.daemon.metrics, "moed_worker_frontends", NULL, read_frontends, &w,
                               "Frontends attached.");
        code = daemon_serve(&w.daemon, &handlers, &w, &e);
    }
    if (code)
        daemon_fail(&w.daemon,
                    code == ERROR_USAGE                                 ? EXIT_BAD_USAGE
                    : code == ERROR_UNSUPPORTED || code == ERROR_FORMAT ? EXIT_PERMANENT
                                                                        : EXIT_RETRY,
                    &e);
    daemon_status(&w.daemon, "serving %s, %" PRIu64 " requests of %" PRIu64 " tokens, %s kernels",
                  w.memory.map.params.name, w.parallel, w.context, kernels_get()->name);
    daemon_ready(&w.daemon);
    int exit_code = daemon_wait(&w.daemon);
    stop(&w);
    return exit_code;
}
