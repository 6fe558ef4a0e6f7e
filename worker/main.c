/* moed-worker: attaches to the model that memd holds, computes the requests of all frontends
 * together, and streams the answers. The worker owns the KV cache, but no weights. */
#include "worker.h"

#include "worker/experts/experts_metrics.h"
#include "worker/forward/prediction_routers.h"
#include "worker/kv/prefix_cache.h"
#include "worker/kv/state_snapshots.h"
#include "worker/prefetch/prediction_metrics.h"

#include "base/checksum.h"
#include "base/log.h"
#include "base/machine_memory.h"
#include "device/worker_memory.h"
#include "gguf/file_type.h"
#include "ipc/watch.h"
#include "kernels/bf16.h"
#include "model/kv_arithmetic.h"
#include "model/kv_layout.h"
#include "model/memory_need.h"
#include "model/rope.h"
#include "model/serving_limits.h"
#include "model/speculate.h"
#include "model/template_file.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The engine is idle if it is so in a row of looks: a request may be on its way to it. */
enum { DRAIN_MS = 20, DRAIN_LOOKS = 5 };

static bool memd_gone(void *arg, int fd)
{
    struct worker *w = arg;
    (void)fd;
    log_warn("memd is gone: stopping; the supervisor starts both again");
    frontends_end(w->frontends);
    experts_stop(w->experts);
    daemon_request_stop(&w->daemon, EXIT_RETRY);
    return false;
}

/* What a file says about sampling is advice: the worker starts without it, too. */
static enum error_code read_sampling(struct worker *w, const struct gguf *g, struct error *e)
{
    struct strbuf notes = {0};
    w->sampling = sampling_of_model(g, &notes);
    if (notes.len)
        log_warn("left out of the model's sampling defaults: %s", notes.data);
    strbuf_fini(&notes);
    return request_defaults_apply(&w->defaults, &w->sampling, e);
}

static enum error_code list_end_tokens(struct worker *w, struct error *e)
{
    for (uint32_t id = 0; id < tokenizer_vocab_size(w->tokenizer); id++)
        if (tokenizer_is_end(w->tokenizer, id) && !token_list_push(&w->end_tokens, id))
            return error_set(e, ERROR_MEMORY, "no memory for the list of end tokens");
    return ERROR_OK;
}

/* A chat template; "" where the file has none that can be used; NULL: no memory. */
static char *copy_template(const struct gguf *g, const char *key)
{
    struct gguf_string text = {"", 0};
    if (gguf_find(g, key))
        gguf_get_string(g, key, &text, NULL);
    if (text.len > CHAT_TEMPLATE_BYTES) { /* a reply about the model has both */
        log_warn("%s has %" PRIu64 " bytes, more than %u: it is not used", key, text.len,
                 CHAT_TEMPLATE_BYTES);
        text.len = 0;
    }
    return strndup(text.data, text.len);
}

/* The deployment's template is for all conversations. False: no memory. */
static bool read_templates(struct worker *w, const struct gguf *g)
{
    const char *own = w->own_template;
    w->chat_template = own ? strdup(own) : copy_template(g, "tokenizer.chat_template");
    w->chat_template_tools =
        own ? strdup("") : copy_template(g, "tokenizer.chat_template.tool_use");
    return w->chat_template && w->chat_template_tools;
}

/* Reads the model file's metadata from the pool: the worker opens no file. */
static enum error_code read_vocabulary(struct worker *w, struct error *e)
{
    const struct pool_map *map = &w->memory.map;
    struct gguf *g;
    enum error_code code =
        gguf_open_metadata(map->base + map->header->metadata_offset, map->header->metadata_bytes,
                           map->header->path, &g, e);
    if (code)
        return code;
    w->model_identity =
        checksum64(map->header->file_bytes ^ map->header->parameters,
                   map->base + map->header->metadata_offset, (size_t)map->header->metadata_bytes);
    code = tokenizer_new(g, NULL, &w->tokenizer, e);
    bool copied = read_templates(w, g);
    w->quantization = gguf_quantization(g, gguf_file_type(g));
    if (!code)
        code = read_sampling(w, g, e);
    gguf_close(g);
    if (!code)
        code = list_end_tokens(w, e);
    if (!code && !copied)
        code = error_set(e, ERROR_MEMORY, "no memory for the chat template");
    if (!code && tokenizer_vocab_size(w->tokenizer) > map->params.vocab)
        code = error_set(e, ERROR_FORMAT,
                         "%s: %" PRIu32 " tokens, but the embedding has %" PRIu32 " rows",
                         map->header->path, tokenizer_vocab_size(w->tokenizer), map->params.vocab);
    return code;
}

static uint32_t batch_tokens(const struct worker *w)
{
    return serving_batch_tokens((uint32_t)w->batch, (uint32_t)w->parallel);
}

/* device_cores is the number of the worker's cores; cpuexec has the others. */
static enum error_code make_pool(struct worker *w, struct error *e)
{
    unsigned own = device_cores(&w->device_spec, pool_usable_cores());
    unsigned threads = w->threads ? pool_useful_threads((unsigned)w->threads) : own;
    enum error_code code =
        pool_new("worker", threads, w->pin && !own, (unsigned)w->spin_us, &w->pool, e);
    if (!code)
        pool_log(w->pool, w->threads);
    return code;
}

static bool dense_on_device(const struct worker *w)
{
    return w->cuda.dense != NULL;
}

/* The address of the pool's first byte on the device that computes the dense part. */
static const uint8_t *dense_base(const struct worker *w)
{
    return dense_on_device(w) ? w->cuda.dense : w->memory.map.base;
}

/* memd holds the worker's share of the device's memory until the channel is offered, so nothing is
 * allocated before. */
static enum error_code open_cuda(struct worker *w, struct error *e)
{
    cuda_device_starts(&w->cuda, daemon_awaits_memory, &w->daemon);
    enum error_code code = cuda_device_open(&w->memory, &w->device_spec, &w->cuda, e);
    if (!code)
        code = cache_link_open(&w->memory, &w->cache_link, e);
    return code ? code : cuda_device_make_stream(&w->cuda, e);
}

/* Bytes of the device's KV cache for so many requests of the whole context. */
static uint64_t kv_bytes_of(const struct worker *w, enum tensor_type type, uint32_t requests)
{
    return worker_memory_kv(&w->memory.map.params, type, requests, (uint32_t)w->context,
                            batch_tokens(w));
}

/* After everything else that the worker keeps of the device's memory: as much KV cache as memd
 * allows and as there is memory for, and that of one request (make_compute) at least. */
static void take_kv(struct worker *w)
{
    if (w->kv_whole_bytes)
        w->dense->ops->kv_resize(w->dense, atomic_load(&w->memory.residency.header->kv_bytes));
    cuda_device_started(&w->cuda);
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
                                  .kv_requests = w->kv_requests,
                                  .context = (uint32_t)w->context,
                                  .blas = !w->reproducible};
    enum error_code code = kv_type_parse(w->kv_type, &dense.kv_type, e);
    if (!code)
        code = make_pool(w, e);
    if (!code)
        code = exec_new(w->pool, &limits, !w->reproducible, &w->exec, e);
    if (!code && w->device_spec.kind == DEVICE_CUDA)
        code = open_cuda(w, e);
    if (!code)
        code = weights_bind(&w->memory.map, dense_base(w), &w->weights, e);
    if (code)
        return code;
    if (dense_on_device(w)) {
        w->kv_whole_bytes = kv_bytes_of(w, dense.kv_type, w->kv_requests);
        dense.kv_bytes = kv_bytes_of(w, dense.kv_type, 1);
    }
    return dense_on_device(w) ? dense_cuda_new(&dense, &w->cuda, &w->dense, e)
                              : dense_host_new(&dense, w->exec, &w->dense, e);
}

/* Exits, so that the supervisor starts the worker again; memd keeps the cache. */
static void device_lost(void *arg, const struct error *e)
{
    struct worker *w = arg;
    frontends_end(w->frontends);
    log_error("the device has failed: %s", e->text);
    atomic_store(&w->device_failed, true);
    daemon_request_stop(&w->daemon, EXIT_RETRY);
}

/* Exits without cleaning up, because no call to the device returns any more. Clients notice the end
 * of their connections. */
static void device_hangs(void *arg, const struct error *e)
{
    (void)arg;
    log_error("the device waits for loads that do not come: %s", e->text);
    _exit(EXIT_RETRY);
}

/* Measures, or reads, the costs of experts before the first request. Waits a moment for cpuexec to
 * attach, so that its costs are measured too. */
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

/* Attaches to memd's KV pool, and settles the context. */
static enum error_code attach_kv_pool(struct worker *w, struct error *e)
{
    const struct model_params *p = &w->memory.map.params;
    if (!w->memory.kv_shm.base)
        return error_set(e, ERROR_PROTOCOL, "memd lends no KV pool");
    enum error_code code =
        kv_pool_attach(&w->kv_pool, w->memory.kv_shm.base, w->memory.kv_shm.bytes, e);
    if (code)
        return code;
    struct kv_layout kv;
    enum tensor_type type;
    code = kv_type_parse(w->kv_type, &type, e);
    if (!code)
        code = kv_type_check(p, type, e);
    if (code)
        return code;
    kv_layout_make(p, type, &kv);
    if (kv.page_bytes != w->kv_pool.page_bytes)
        return error_set(e, ERROR_PROTOCOL, "memd's KV pool has pages of another size");
    uint64_t tokens = kv_layout_positions(&kv, w->kv_pool.n_pages, batch_tokens(w)),
             asked = w->context;
    code = params_check_context(p, asked, e);
    if (code)
        return code;
    if (asked > tokens)
        return error_set(e, ERROR_MEMORY,
                         "a context of %" PRIu64 " tokens does not fit the KV cache, which holds "
                         "%" PRIu64 ": lower --ctx, or give a larger --kv-cache",
                         asked, tokens);
    w->context =
        serving_context(p, (uint32_t)asked, (uint32_t)tokens, w->device_spec.kind == DEVICE_CUDA);
    if (!asked && w->context == p->context_most)
        log_info("the context is %" PRIu64 " of the model's %" PRIu32
                 " tokens: moed does not run the indexer that chooses among more positions",
                 w->context, p->context_trained);
    else if (!asked && w->context < p->context_trained)
        log_info(
            "the context is %" PRIu64 " of the model's %" PRIu32 " tokens; %s gives a longer one",
            w->context, p->context_trained, w->context < tokens ? "--ctx" : "a larger --kv-cache");
    if (w->context > p->context_trained)
        log_warn("the context is %" PRIu64 " tokens, but the model was trained with %" PRIu32,
                 w->context, p->context_trained);
    return ERROR_OK;
}

/* memd has planned the device's memory for a batch. A number out of range is taken for the least.
 */
static void choose_batch(struct worker *w)
{
    uint32_t planned = w->memory.residency.header->batch;
    if (!w->batch)
        w->batch = planned >= BATCH_LEAST && planned <= BATCH_MOST ? planned : BATCH_LEAST;
}

/* Where --parallel is not given: what memd has planned. */
static void choose_kv_requests(struct worker *w)
{
    uint32_t planned = w->memory.residency.header->kv_requests;
    w->kv_requests = w->parallel                                 ? (uint32_t)w->parallel
                     : planned <= DEFAULT_KV_REQUESTS && planned ? planned
                                                                 : 1;
}

/* Counts the changes of how products round that do not follow the definition, of any device. */
enum { ROUNDING_VERSION = 4 };

/* A worker whose pages have another layout or other bits has another number. Where products round
 * otherwise than the definition, cuBLAS, the CPU's BF16 instruction and the version of moed decide
 * how; threads and kernels have no effect. */
static uint64_t kv_format(const struct worker *w, bool exact)
{
    const struct model_params *p = &w->memory.map.params;
    enum tensor_type type = TENSOR_F16;
    struct error e;
    kv_type_parse(w->kv_type, &type, &e);
    uint64_t far = rope_uses_long(&p->rope, (uint32_t)w->context);
    uint64_t format = (uint64_t)type << 8 | far << 2 | (uint64_t)dense_on_device(w) << 1 | exact;
    uint64_t how = kv_arithmetic(p);
    if (!exact) {
        const struct bf16_build *bf16 = bf16_get();
        const uint64_t rounding[] = {w->dense->rounds, ROUNDING_VERSION};
        how = checksum64(how, rounding, sizeof rounding);
        if (bf16)
            how = checksum64(how, bf16->instruction, strlen(bf16->instruction));
    }
    return 1 + (format | (how & 0xffffffff) << 16) * 2;
}

static enum error_code make_prefix_cache(struct worker *w, struct error *e)
{
    bool exact = w->reproducible ||
                 (!w->dense->rounds && weights_all_defined(&w->weights, &w->memory.map,
                                                           w->device_spec.kind == DEVICE_CUDA));
    const struct kv_layout *kv = &w->dense->kv;
    struct prefix_cache_options options = {.pool = w->kv_pool,
                                           .worker = w->memory.kv_worker,
                                           .format = kv_format(w, exact),
                                           .vocab = w->memory.map.params.vocab,
                                           .exact = exact,
                                           .n_windowed = kv_layout_windowed(kv),
                                           .window = kv->window,
                                           .heartbeat = &w->heartbeat};
    const struct shm *index = &w->memory.kv_index_shm;
    enum error_code code = ERROR_OK;
    if (index->base)
        code = kv_store_attach(&options.store, index->base, index->bytes, w->memory.kv_file_fd, e);
    if (!code)
        code = prefix_cache_new(&options, &w->prefixes, e);
    if (!code && prefix_cache_stats(w->prefixes).adopted)
        log_info("the KV cache has %" PRIu32 " pages of earlier conversations",
                 prefix_cache_stats(w->prefixes).adopted);
    w->exact = exact;
    return code;
}

static uint64_t snapshot_bytes(const struct worker *w)
{
    uint64_t page = w->kv_pool.page_bytes, used = kv_pool_use(&w->kv_pool).pages_used;
    return memory_snapshot_bytes(w->kv_pool.n_pages * page, used * page, memory_available_bytes());
}

/* Of the states of recurrent layers, where the model has some. */
static enum error_code make_snapshots(struct worker *w, struct error *e)
{
    struct state_snapshots_options options = {
        .count = memory_state_snapshots_in(&w->memory.map.params, (uint32_t)w->parallel,
                                           snapshot_bytes(w)),
        .context = (uint32_t)w->context,
        .state_bytes = params_state_bytes(&w->memory.map.params),
        .exact = w->exact};
    if (options.state_bytes == 0)
        return ERROR_OK;
    double state = (double)options.state_bytes * 1e-6;
    log_info("the model has %" PRIu32 " recurrent layers: %.1f MB of state for each of %" PRIu64
             " requests, and up to %" PRIu32 " snapshots; no speculation",
             params_recurrent_layers(&w->memory.map.params), state, w->parallel, options.count);
    return state_snapshots_new(&options, &w->snapshots, e);
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
                                      .link = w->cuda.device ? &w->cache_link : NULL,
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
        code = prediction_routers_make(&w->weights, &w->memory.map.params, e);
    if (!code)
        code = forward_new(&w->memory.map.params, &w->weights, w->dense, w->experts,
                           (uint32_t)w->context, &w->forward, e);
    if (!code)
        code = make_prefix_cache(w, e);
    if (!code)
        code = make_snapshots(w, e);
    if (code)
        return code;
    struct engine_config config = {.forward = w->forward,
                                   .dense = w->dense,
                                   .experts = w->experts,
                                   .pool = w->pool,
                                   .tokenizer = w->tokenizer,
                                   .vocab = w->memory.map.params.vocab,
                                   .d_model = w->memory.map.params.d_model,
                                   .prefixes = w->prefixes,
                                   .siblings = {w->kv_pool.workers, w->memory.kv_worker},
                                   .snapshots = w->snapshots,
                                   .exact = w->exact,
                                   .parallel = (uint32_t)w->parallel,
                                   .queue = (uint32_t)w->queue,
                                   .context = (uint32_t)w->context,
                                   .batch = (uint32_t)w->batch,
                                   .decode_share = (uint32_t)w->decode_share,
                                   .speculate = w->drafts,
                                   .waits_for_disk = w->memory.tier.slots != NULL,
                                   .metrics = m,
                                   .heartbeat = &w->heartbeat};
    forward_set_heartbeat(w->forward, &w->heartbeat);
    daemon_watch(&w->daemon, &w->heartbeat);
    return engine_new(&config, &w->engine, e);
}

static enum error_code make_frontends(struct worker *w, struct error *e)
{
    struct frontends_model model = {
        .map = &w->memory.map,
        .tokenizer = w->tokenizer,
        .chat_template = w->chat_template,
        .sampling = w->sampling,
        .end_tokens = &w->end_tokens,
        .chat_template_tools = w->chat_template_tools,
        .quantization = w->quantization,
        .chat_template_kwargs =
            w->defaults.chat_template_kwargs ? w->defaults.chat_template_kwargs : "",
        .reasoning_budget = (uint32_t)w->defaults.reasoning_budget,
        .kv_type = w->kv_type,
        .identity = w->model_identity,
        .reproducible = w->reproducible,
        .device = w->device,
        .context = (uint32_t)w->context,
        .schemas_replaced =
            metrics_counter(w->daemon.metrics, "moed_worker_grammar_schemas_replaced_total", NULL,
                            1, "Schemas of tools that new grammars could not follow.")};
    frontends_set_limits(&model, (uint32_t)w->parallel, (uint32_t)w->queue);
    return frontends_new(&model, w->engine, &w->frontends, e);
}

/* Checks that memd's memory is on the worker's device. */
static enum error_code check_device(const struct worker *w, struct error *e)
{
    enum device_kind lent = !w->memory.arena_bytes ? DEVICE_HOST
                            : w->memory.arena.base ? DEVICE_EMU
                                                   : DEVICE_CUDA;
    if (lent == w->device_spec.kind)
        return ERROR_OK;
    return error_set(e, ERROR_USAGE,
                     "memd and the worker have different devices: give both the same --device");
}

static enum error_code start(struct worker *w, struct error *e)
{
    unsigned device = 0; /* this worker's, of the deployment's */
    enum error_code code = device_parse(w->device, &w->device_spec, e);
    if (!code && w->device_spec.n_devices > 1) {
        device = (unsigned)(w->number - 1) % w->device_spec.n_devices;
        w->device_spec = device_of(&w->device_spec, device);
        log_info("device %u of %s", device, w->device);
    }
    if (!code)
        code = speculate_parse(w->speculate, &w->drafts, e);
    if (!code && !kernels_select(w->kernels))
        code = error_set(e, ERROR_USAGE, "kernels '%.20s' cannot run on this CPU", w->kernels);
    if (!code)
        kernels_log();
    if (!code)
        code = memory_client_attach(w->daemon.run, w->daemon.process, MEMORY_WORKER, device, 10000,
                                    &w->memory, e);
    if (!code)
        code = check_device(w, e);
    if (!code && (w->memory.arena_bytes || w->memory.tier.slots))
        code = worker_ask_policy(w, e);
    if (code)
        return code;
    choose_kv_requests(w);
    w->parallel = memory_parallel(&w->memory.map.params, w->parallel);
    code = attach_kv_pool(w, e);
    choose_batch(w);
    if (!code)
        code = read_vocabulary(w, e);
    if (!code)
        code = make_compute(w, e);
    if (!code)
        code = make_engine(w, e);
    if (!code)
        take_kv(w);
    if (!code)
        code = make_frontends(w, e);
    if (!code) /* after the last reply was read from the lease's socket */
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
    return frontends_count(((struct worker *)arg)->frontends);
}

static double read_kv_bytes(void *arg)
{
    return (double)((struct worker *)arg)->cuda.used[CUDA_KV];
}

static double read_scratch_bytes(void *arg)
{
    return (double)((struct worker *)arg)->cuda.used[CUDA_SCRATCH];
}

/* Metrics that are read from the worker's parts when somebody asks for them. */
static void register_metrics(struct worker *w)
{
    struct metrics *m = w->daemon.metrics;
    metrics_gauge_function(m, "moed_worker_tokens_per_second", NULL, read_rate, w,
                           "Tokens generated per second, from the first in the last 10 s on.");
    metrics_gauge_function(m, "moed_worker_threads", NULL, read_threads, w,
                           "Compute threads of the worker.");
    metrics_gauge_function(m, "moed_worker_frontends", NULL, read_frontends, w,
                           "Frontends attached.");
    if (!w->cuda.device)
        return;
    const char *name = "moed_worker_device_bytes"; /* moed_memd_device_bytes has memd's estimate */
    const char *help = "Bytes of device memory that the worker allocated, by use.";
    metrics_gauge_function(m, name, "use=\"kv\"", read_kv_bytes, w, help);
    metrics_gauge_function(m, name, "use=\"scratch\"", read_scratch_bytes, w, help);
}

/* What clients find (proto/memory.proto, WorkersRequest). */
static void set_state(struct worker *w, enum kv_worker_state state)
{
    atomic_store(&w->kv_pool.workers[w->memory.kv_worker].state, state);
}

/* Ends the process once no request runs or waits, unless it ends before. */
static void *drain_main(void *arg)
{
    struct worker *w = arg;
    pthread_setname_np(pthread_self(), "worker/drain");
    for (int idle = 0; idle < DRAIN_LOOKS; poll(NULL, 0, DRAIN_MS)) {
        if (atomic_load(&w->drain_cancelled))
            return NULL;
        idle = engine_is_idle(w->engine) ? idle + 1 : 0;
    }
    log_info("all requests have ended");
    daemon_request_stop(&w->daemon, EXIT_CLEAN);
    return NULL;
}

/* Clients send new requests to other workers. */
static void drain(void *arg)
{
    struct worker *w = arg;
    if (w->draining)
        return;
    w->draining = true;
    set_state(w, KV_WORKER_LEAVES);
    w->has_drain_thread = pthread_create(&w->drain_thread, NULL, drain_main, w) == 0;
    if (!w->has_drain_thread)
        daemon_request_stop(&w->daemon, EXIT_CLEAN);
}

static void stop_draining(struct worker *w)
{
    atomic_store(&w->drain_cancelled, true);
    if (w->has_drain_thread)
        pthread_join(w->drain_thread, NULL);
}

static void stop(struct worker *w)
{
    set_state(w, KV_WORKER_LEAVES);
    frontends_end(w->frontends);
    daemon_stop(&w->daemon); /* its thread begins to drain */
    stop_draining(w);
    watch_free(w->watch); /* its thread uses the experts */
    experts_stop(w->experts);
    engine_stop(w->engine);
    frontends_free(w->frontends);
    if (atomic_load(&w->device_failed)) /* calls of its driver may never return */
        _exit(EXIT_RETRY);
    recent_free(w->recent); /* its thread uses the engine */
    engine_free(w->engine);
    state_snapshots_free(w->snapshots);
    prefix_cache_free(w->prefixes);
    strbuf_fini(&w->calibration);
    forward_free(w->forward);
    experts_free(w->experts);
    dense_free(w->dense);
    cuda_device_close(&w->cuda);
    exec_free(w->exec);
    pool_free(w->pool);
    weights_free(&w->weights);
    free(w->activity);
    free(w->own_template);
    free(w->chat_template);
    token_list_fini(&w->end_tokens);
    free(w->chat_template_tools);
    tokenizer_free(w->tokenizer);
    memory_client_detach(&w->memory);
}

static bool is_permanent(enum error_code code)
{
    return code == ERROR_UNSUPPORTED || code == ERROR_FORMAT || code == ERROR_VERSION;
}

static _Noreturn void fail_start(struct worker *w, enum error_code code, const struct error *e)
{
    int exit_code = code == ERROR_USAGE  ? EXIT_BAD_USAGE
                    : is_permanent(code) ? EXIT_PERMANENT
                                         : EXIT_RETRY;
    struct error why = *e;
    if (code == ERROR_MEMORY && w->cuda.full) {
        exit_code = EXIT_NO_DEVICE_MEMORY;
        error_set(
            &why, code,
            "stop other programs that use the device, or start moed anew with a smaller vram=, "
            "--ctx or --batch, or with dense=host: %.300s",
            e->text);
    }
    daemon_fail(&w->daemon, exit_code, &why);
}

int main(int argc, char **argv)
{
    static struct worker w = {.device = "host",
                              .kernels = "auto",
                              .kv_type = KV_TYPE_DEFAULT,
                              .speculate = SPECULATE_DEFAULT,
                              .number = 1,
                              .defaults = REQUEST_DEFAULTS_NONE,
                              .queue = 1024,
                              .decode_share = 50,
                              .spin_us = 20,
                              .pin = true};
    const struct option_spec options[] = {
        {"number", OPTION_UINT, &w.number, 1, KV_POOL_WORKERS, "N",
         "which of the deployment's workers this is"},
        {"device", OPTION_STRING, &w.device, 0, 0, "DEVICE",
         "host, cuda[:N[,N]...] and perhaps ,vram=SIZE ,reserve=SIZE ,dense=host, or "
         "emu:vram=SIZE,link=RATE and perhaps ,latency=TIME ,speed=FACTOR ,call=TIME"},
        {"ctx", OPTION_UINT, &w.context, 0, 1 << 24, "N",
         "tokens of a request, prompt and answer; 0: as the model, if the KV cache holds them"},
        {"parallel", OPTION_UINT, &w.parallel, 0, 256, "N",
         "requests computed at once; 0: 32, fewer where recurrent layers have large states"},
        {"batch", OPTION_UINT, &w.batch, BATCH_LEAST, BATCH_MOST, "N",
         "tokens of prompts computed at once; 0: as memd has planned"},
        {"queue", OPTION_UINT, &w.queue, 1, 1u << 20, "N",
         "requests that may wait; more are refused"},
        {"decode-share", OPTION_UINT, &w.decode_share, 1, 95, "PERCENT",
         "the time that answers get while prompts are computed"},
        {"speculate", OPTION_STRING, &w.speculate, 0, 0, "N",
         "draft answers' next tokens out of their conversations: " SPECULATE_VALUES},
        {"kv-type", OPTION_STRING, &w.kv_type, 0, 0, "TYPE",
         "tensor type of the KV cache: " KV_TYPES},
        {"reproducible", OPTION_BOOL, &w.reproducible, 0, 0, NULL,
         "compute the same bits in every batch: no cuBLAS, no BF16 inputs"},
        {"threads", OPTION_UINT, &w.threads, 0, 1024, "N",
         "compute threads, at most one a CPU; 0: one a core, with emu half of them"},
        {"cpuexec", OPTION_BOOL, &w.cpuexec, 0, 0, NULL,
         "with device host, too, send experts to cpuexec if it runs"},
        {"fine-tune", OPTION_BOOL, &w.fine_tune, 0, 0, NULL,
         "update the predictor llapor while serving"},
        {"calibrate", OPTION_BOOL, &w.calibrate, 0, 0, NULL,
         "measure the costs of experts again, even if some are stored"},
        {"temp", OPTION_FLOAT, &w.defaults.temp, 0, 100, "T",
         "the temperature of requests without one; this and the next replace the model's defaults"},
        {"top-k", OPTION_FLOAT, &w.defaults.top_k, 0, 1u << 30, "K", "the same of top_k; 0: off"},
        {"top-p", OPTION_FLOAT, &w.defaults.top_p, 0, 1, "P", "the same of top_p; 1: off"},
        {"min-p", OPTION_FLOAT, &w.defaults.min_p, 0, 1, "P", "the same of min_p; 0: off"},
        {"repeat-penalty", OPTION_FLOAT, &w.defaults.repeat_penalty, 0, 100, "X",
         "the same of the repetition penalty; 1: off"},
        {"presence-penalty", OPTION_FLOAT, &w.defaults.presence_penalty, -100, 100, "X",
         "the same of the presence penalty; 0: off"},
        {"chat-template", OPTION_STRING, &w.defaults.template_file, 0, 0, "FILE",
         "a chat template in place of the model's"},
        {"chat-template-kwargs", OPTION_STRING, &w.defaults.chat_template_kwargs, 0, 0, "JSON",
         "variables of the template for chats that do not set them"},
        {"reasoning-budget", OPTION_UINT, &w.defaults.reasoning_budget, 1, 1u << 30, "N",
         "end reasoning after N tokens where a request sets no limit"},
        {"pin", OPTION_BOOL, &w.pin, 0, 0, NULL,
         "keep compute threads on their cores and memory nodes"},
        {"spin-us", OPTION_FLOAT, &w.spin_us, 0, 10000, "US",
         "spin for at least this long before sleeping"},
        {"kernels", OPTION_STRING, &w.kernels, 0, 0, "NAME",
         "auto, portable, avx2, avx2-vnni or avx512"},
        {0},
    };
    daemon_init_numbered(&w.daemon, "worker", &w.number, "a worker of a moed deployment", options,
                         argc, argv);
    struct error e;
    const char *template_file = w.defaults.template_file;
    enum error_code code =
        template_file ? template_file_read(template_file, &w.own_template, &e) : ERROR_OK;
    worker_confine_files(&w);
    daemon_start(&w.daemon);
    if (!code)
        code = start(&w, &e);
    static const struct daemon_handlers handlers = {
        .health = worker_fill_health, .request = worker_handle_request, .drain = drain};
    if (!code) {
        register_metrics(&w);
        code = daemon_serve(&w.daemon, &handlers, &w, &e);
    }
    if (code)
        fail_start(&w, code, &e);
    daemon_status(&w.daemon, "serving %s, %" PRIu64 " requests of %" PRIu64 " tokens, %s kernels",
                  w.memory.map.params.name, w.parallel, w.context, kernels_get()->name);
    worker_confine_calls(&w);
    set_state(&w, KV_WORKER_SERVES);
    daemon_ready(&w.daemon);
    int exit_code = daemon_wait(&w.daemon);
    stop(&w);
    return exit_code;
}
