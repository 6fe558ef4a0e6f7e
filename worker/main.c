/* moed-worker: attaches to the model that memd holds, runs the forward pass for all frontends' requests at
 * once, and streams the answers. It owns the KV cache and nothing of the weights. */
#include "worker.h"

#include "experts_metrics.h"
#include "guess_routers.h"
#include "prediction_metrics.h"

#include "base/log.h"
#include "ipc/lease.h"
#include "model/memory_need.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* What experts cost here, before the first of them is computed: with cpuexec, which takes a moment to come. */
static enum error_code calibrate_experts(struct worker *w, struct error *e)
{
    experts_wait(w->experts, 1000);
    enum error_code code = experts_calibrate(w->experts, w->device, w->calibrate, e);
    const struct calibration *c = experts_calibration(w->experts);
    strbuf_init(&w->calibration);
    if (!code && c)
        calibration_write(c, &w->calibration);
    return code;
}

static enum error_code make_engine(struct worker *w, struct error *e)
{
    struct metrics *m = w->daemon.metrics;
    w->counters = experts_metrics_counters(m, &w->memory, &w->cuda);
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
    if (!code && w->memory.arena_bytes)
        experts_metrics_corrections(m, w->experts);
    if (!code && experts_prediction(w->experts) && !dense_on_device(w))
        code = guess_routers_make(&w->weights, &w->memory.map.params, e);
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
        code = worker_ask_policy(w, e);
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
    if (!code)
        code = worker_count_recent(w, e);
    return code ? code : engine_start(w->engine, e);
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

static double read_kv_bytes(void *arg)
{
    return (double)((struct worker *)arg)->cuda.used[CUDA_KV];
}

static double read_scratch_bytes(void *arg)
{
    return (double)((struct worker *)arg)->cuda.used[CUDA_SCRATCH];
}

/* What is read of the parts when asked for. */
static void register_metrics(struct worker *w)
{
    struct metrics *m = w->daemon.metrics;
    metrics_gauge_function(m, "moed_worker_tokens_per_second", NULL, read_rate, w,
                           "Tokens generated a second, over the last 10 s.");
    metrics_gauge_function(m, "moed_worker_threads", NULL, read_threads, w,
                           "Threads that the worker computes with.");
    metrics_gauge_function(m, "moed_worker_frontends", NULL, read_frontends, w,
                           "Frontends attached.");
    if (!w->cuda.device)
        return;
    const char *name = "moed_worker_device_bytes"; /* moed_memd_device_bytes says what memd reckoned with */
    const char *help = "Bytes of the device's memory that this worker allocated, by use.";
    metrics_gauge_function(m, name, "use=\"kv\"", read_kv_bytes, w, help);
    metrics_gauge_function(m, name, "use=\"scratch\"", read_scratch_bytes, w, help);
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
    static const struct daemon_handlers handlers = {worker_fill_health, worker_handle_request};
    if (!code) {
        register_metrics(&w);
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
