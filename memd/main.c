/* moed-memd: the memory daemon. It loads the model once, owns the host pool, the host tier and the
 * device's expert cache, lends them to workers and CPU executors, and notices at once when one of
 * these dies. It computes nothing. It parses the trained predictors only, before any process is
 * attached; the model file is parsed by a process of its own. */
#include "memd.h"

#include "memd/host/tier_metrics.h"
#include "memd/load/pages_log.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/machine_memory.h"
#include "base/quantity.h"
#include "daemon/supervisor_protocol.h"
#include "device/batch_plan.h"
#include "exec/numa.h"
#include "ipc/residency.h"
#include "model/serving_limits.h"
#include "reader/model_reader.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <time.h>

/* From the size of a KV cache until memd answers, on a device some seconds. */
#define PROMISES_LOCK_MS 20000

static void show_progress(void *arg, uint64_t done, uint64_t total)
{
    struct memd *m = arg;
    daemon_status(&m->daemon, SUPERVISE_LOADING " %" PRIu64 "%% (%.1f of %.1f GB)",
                  done * 100 / total, (double)done * 1e-9, (double)total * 1e-9);
}

/* This machine's CPUs and memory nodes, read at the first call. */
static const struct topology *machine(void)
{
    static struct topology t; /* large */
    if (!t.n_nodes)
        topology_read(&t);
    return &t;
}

/* Places the pool on a machine of several memory nodes. The pool has no pages yet (with reserved
 * pages: one). */
static void place_pool(struct memd *m)
{
    const struct topology *t = machine();
    uint64_t page = m->pages == SHM_PAGES_ORDINARY ? 1u << 12 : 2u << 20, reserved;
    memory_reserved_bytes(&reserved);
    if (m->pages == SHM_PAGES_RESERVED && reserved)
        page = reserved;
    numa_places_init(&m->places, t, &m->plan, page);
    m->plan.header.split_rows = m->places.by_rows;
    numa_spread_dense(&m->places, m->pool.base, m->pool.bytes);
    const char *how = numa_how(&m->places);
    if (how)
        log_info("experts lie on %u memory nodes by %s", t->n_nodes, how);
}

/* A number that no earlier load on this machine had: wall-clock nanoseconds. */
static uint64_t new_generation(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static enum error_code load_model(struct memd *m, struct error *e)
{
    const struct pool_header *h = &m->plan.header;
    struct pool *threads;
    enum error_code code = pool_new("memd/load", (unsigned)m->threads, false, 0, &threads, e);
    if (code)
        return code;
    uint64_t started = clock_ns();
    code = load_weights(m->gguf, &m->plan, m->pool.base, &m->places, threads, show_progress, m, e);
    pool_free(threads);
    for (uint32_t i = 0; i < gguf_file_count(m->gguf) && !code; i++)
        code = gguf_check_unchanged(m->gguf, i, e);
    if (code)
        return code;
    code = pool_plan_write(&m->plan, m->gguf, m->generation, m->pool.base, e);
    if (code)
        return code;
    uint64_t experts = h->tiered ? 0 : h->expert_bytes;
    counter_add(m->loaded_bytes, experts + h->dense_bytes);
    m->load_ns = clock_ns() - started;
    m->bytes_loaded = experts + h->dense_bytes;
    double s = (double)m->load_ns * 1e-9;
    log_info("loaded %s: %.2f GB of experts, %.2f GB dense, in %.1f s (%.2f GB/s)", h->path,
             (double)experts * 1e-9, (double)h->dense_bytes * 1e-9, s,
             (double)m->bytes_loaded * 1e-9 / s);
    pages_log("host pool", &m->pool, m->pages);
    return shm_seal_writes(&m->pool, e);
}

static enum error_code make_residency(struct memd *m, struct error *e)
{
    const struct model_params *p = &m->plan.header.params;
    enum error_code code = shm_create(
        "moed-residency", residency_bytes(p->n_layers, p->router.n_experts, 1), &m->residency, e);
    if (code)
        return code;
    residency_init(m->residency.base, p->n_layers, p->router.n_experts, 1, 0, 0, m->generation);
    return shm_seal_writes(&m->residency, e); /* this mapping stays writable, no other can be */
}

static void sample_caches(void *arg, uint64_t values[RECENT_MOST])
{
    struct memd *m = arg;
    if (m->caches.n) {
        struct cache_state s;
        caches_state(&m->caches, &s);
        values[RECENT_LINK_BYTES] = s.link_bytes;
        values[RECENT_LINK_BUSY_NS] = s.link_busy_ns;
        values[RECENT_DEMANDED_BYTES] = counter_read(m->cache_counters.demanded_bytes);
        values[RECENT_PREFETCHED_BYTES] = counter_read(m->cache_counters.prefetched_bytes);
        values[RECENT_USED_BYTES] = counter_read(m->cache_counters.used_bytes);
        values[RECENT_WASTED_BYTES] = counter_read(m->cache_counters.wasted_bytes);
        values[RECENT_PREDICTED_BYTES] = counter_read(m->cache_counters.predicted_bytes);
        values[RECENT_PREDICTED_USED_BYTES] = counter_read(m->cache_counters.predicted_used_bytes);
    }
    if (m->tier)
        values[RECENT_READ_BYTES] = counter_read(m->tier_counters.read_bytes);
}

/* The log's line of statistics; none while nothing is copied or read. */
static void report_caches(void *arg, const uint64_t growth[RECENT_MOST], uint64_t window_ns)
{
    struct memd *m = arg;
    double s = (double)window_ns * 1e-9, moved = (double)growth[RECENT_LINK_BYTES];
    if (m->caches.n && moved > 0) {
        struct cache_state now;
        caches_state(&m->caches, &now);
        log_info("cache, last %.0f s: %" PRIu64 " of %" PRIu64
                 " slots filled; %.1f MB copied (%.1f demanded, %.1f prefetched), "
                 "%.1f MB used, %.1f evicted unused; link busy %.1f %%, %.2f GB/s while busy",
                 s, now.slots.resident, now.usable, moved * 1e-6,
                 (double)growth[RECENT_DEMANDED_BYTES] * 1e-6,
                 (double)growth[RECENT_PREFETCHED_BYTES] * 1e-6,
                 (double)growth[RECENT_USED_BYTES] * 1e-6,
                 (double)growth[RECENT_WASTED_BYTES] * 1e-6,
                 100 * (double)growth[RECENT_LINK_BUSY_NS] / (double)(m->caches.n * window_ns),
                 growth[RECENT_LINK_BUSY_NS] ? moved / (double)growth[RECENT_LINK_BUSY_NS] : 0);
    }
    if (m->tier && growth[RECENT_READ_BYTES]) {
        struct tier_state now;
        tier_state(m->tier, &now);
        log_info("memory, last %.0f s: %" PRIu64 " of %" PRIu64
                 " experts in memory; %.1f MB read, %.3f GB/s",
                 s, now.slots.resident, now.experts, (double)growth[RECENT_READ_BYTES] * 1e-6,
                 (double)growth[RECENT_READ_BYTES] / (double)window_ns);
    }
}

/* Answers from two different files would be wrong in silence, so the deployment ends as failed. */
static void file_changed(void *arg, const struct error *e)
{
    struct memd *m = arg;
    daemon_fail(&m->daemon, EXIT_PERMANENT, e);
}

/* Makes host memory for a part of the experts, and fills it for the first time. */
static enum error_code make_tier(struct memd *m, struct error *e)
{
    m->tier_counters = tier_metrics_counters(m->daemon.metrics);
    struct tier_options options = {.plan = &m->tier_plan,
                                   .generation = m->generation,
                                   .worker_broken = memd_worker_broken,
                                   .worker_broken_arg = m,
                                   .file_changed = file_changed,
                                   .file_changed_arg = m};
    uint64_t started = clock_ns();
    enum error_code code = tier_new(m->gguf, &m->plan, &options, &m->tier_counters, &m->tier, e);
    if (!code)
        code = tier_fill(m->tier, show_progress, m, e);
    if (!code) {
        tier_metrics_state(m->daemon.metrics, m->tier);
        m->load_ns += clock_ns() - started;
        uint64_t read = counter_read(m->tier_counters.read_bytes);
        counter_add(m->loaded_bytes, read);
        m->bytes_loaded += read;
    }
    return code;
}

/* Before a device's memory is planned. */
static struct memory_worker worker_of(const struct memd *m)
{
    const struct device_spec *s = &m->device_spec;
    uint32_t batch =
        batch_plan_known(s, &m->plan.header.params, (uint32_t)m->batch, (uint32_t)m->context);
    return (struct memory_worker){.batch = batch,
                                  .cpuexec = s->kind != DEVICE_HOST,
                                  .parallel = (uint32_t)m->parallel,
                                  .workers = (uint32_t)m->workers,
                                  .threads = pool_useful_threads((unsigned)m->threads),
                                  .reproducible = m->reproducible};
}

/* The default batch of a worker on the host. */
static uint32_t default_batch(const struct memd *m, const struct memory_worker *worker,
                              uint64_t tier_bytes)
{
    struct memory_worker with = *worker;
    uint32_t context =
        serving_context(&m->plan.header.params, (uint32_t)m->context, UINT32_MAX, false);
    uint32_t most =
        serving_batch(m->tier_plan.n_slots ? BATCH_READ_ONCE : BATCH_IN_MEMORY, context);
    uint64_t left = memory_left_bytes(&m->plan, tier_bytes, worker);
    with.batch = memory_batch(&m->plan, worker, most, left);
    if (with.batch < most)
        log_info("workers compute %" PRIu32 " tokens of prompts at once, with %.2f GB of scratch: "
                 "%" PRIu32 " would take too much of the memory that is left",
                 with.batch, (double)memory_scratch_bytes(&m->plan, &with) * 1e-9, most);
    return with.batch;
}

/* That the model fits, and how much a worker on the host computes at once. */
static enum error_code plan_memory(struct memd *m, struct error *e)
{
    const struct memory_worker worker = worker_of(m);
    uint64_t tier_bytes = m->tier_plan.bytes + m->tier_plan.read_bytes;
    enum error_code code = memory_need_check(&m->plan, tier_bytes, &worker, e);
    if (!code && m->device_spec.kind == DEVICE_HOST)
        m->batch_planned = m->batch ? (uint32_t)m->batch : default_batch(m, &worker, tier_bytes);
    return code;
}

/* Tokens of prompts that a worker computes at once, of several devices the most. */
static uint32_t batch_of(const struct memd *m)
{
    uint32_t batch = 0;
    if (m->device_spec.kind == DEVICE_HOST)
        return m->batch_planned;
    for (unsigned i = 0; i < m->device_spec.n_devices; i++)
        batch = m->devices[i].plan.batch > batch ? m->devices[i].plan.batch : batch;
    return batch;
}

/* Holds the lock, also where --kv-cache is given: the next memd is to see it. */
static uint64_t promised_bytes(struct memd *m)
{
    if (!kv_promises_lock(&m->promises, PROMISES_LOCK_MS))
        log_warn("the lock of the folder of deployments was held for %d s: what one that starts "
                 "now promises to its KV cache is not counted",
                 PROMISES_LOCK_MS / 1000);
    return kv_promises_bytes(&m->promises);
}

/* What the processes will take that have not started yet, but for the states. */
static uint64_t others_bytes(const struct memd *m)
{
    struct memory_worker worker = worker_of(m);
    worker.batch = batch_of(m);
    return memory_margin_bytes(m->plan.header.bytes + m->tier_plan.bytes) +
           memory_scratch_bytes(&m->plan, &worker);
}

static enum error_code make_conversations(struct memd *m, struct error *e)
{
    struct conversations_options options = {
        .params = &m->plan.header.params,
        .size = m->kv_cache,
        .generation = m->generation,
        .dir = m->kv_dir,
        .dir_size = m->kv_dir_size,
        .gguf = m->gguf,
        .topology = machine(),
        .parallel = memory_parallel(&m->plan.header.params, m->parallel),
        .batch = batch_of(m),
        .margin = others_bytes(m),
        .promised = promised_bytes(m)};
    enum error_code code = kv_type_parse(m->kv_type, &options.type, e);
    if (!code)
        code = kv_type_check(options.params, options.type, e);
    if (!code)
        code = conversations_make(&m->conversations, &options, e);
    if (!code)
        conversations_register(&m->conversations, m->daemon.metrics);
    return code;
}

static double read_clients(void *arg)
{
    struct memd *m = arg;
    return m->leases ? leases_count(m->leases) : 0;
}

static double read_freed(void *arg)
{
    struct memd *m = arg;
    return m->leases ? (double)leases_freed(m->leases) : 0;
}

static void register_metrics(struct memd *m)
{
    struct metrics *r = m->daemon.metrics;
    const struct pool_header *h = &m->plan.header;
    m->loaded_bytes =
        metrics_counter(r, "moed_memd_loaded_bytes_total", NULL, 1,
                        "Bytes of weights loaded from the model file at the start: into the "
                        "pool, and into the host tier at its first filling.");
    gauge_set(
        metrics_gauge(r, "moed_memd_pool_bytes", "kind=\"experts\"",
                      "Bytes of weights in the host pool."),
        (int64_t)(h->tiered ? m->tier_plan.n_slots * m->tier_plan.slot_bytes : h->expert_bytes));
    gauge_set(metrics_gauge(r, "moed_memd_pool_bytes", "kind=\"dense\"",
                            "Bytes of weights in the host pool."),
              (int64_t)h->dense_bytes);
    metrics_gauge_function(r, "moed_memd_leases", NULL, read_clients, m,
                           "Processes that hold a lease of the pool.");
    metrics_counter_function(r, "moed_memd_leases_ended_total", NULL, read_freed, m,
                             "Leases that ended since the start: their holder left or died.");
}

/* memd goes on without a file that it cannot use. But if the chosen predictor needs training, and
 * has none, that is an error. */
static enum error_code load_predictors(struct memd *m, bool predicts, struct error *e)
{
    const struct model_params *p = &m->plan.header.params;
    struct error why;
    if (m->predictors_path &&
        predictors_file_load(m->predictors_path, m->gguf, p, &m->predictors, &why) != ERROR_OK) {
        log_warn("%s is not used: %s", m->predictors_path, why.text);
        if (asprintf(&m->predictors_unused, "%s is not used: %s", m->predictors_path, why.text) < 0)
            m->predictors_unused = NULL;
    } else if (m->predictors_path) {
        log_info("%s: trained predictors, %.1f MB", m->predictors_path,
                 (double)m->predictors.region.bytes * 1e-6);
    }
    if (predicts)
        policy_settle_predictor(&m->choice, &m->names, &m->predictors, p);
    return predicts ? trained_check_predictor(&m->predictors, p, m->choice.predictor, e) : ERROR_OK;
}

/* A restart does not mend a broken file: EXIT_PERMANENT. It may help where memory was short, or the
 * disk did not answer. */
static int exit_code_for(enum error_code code)
{
    switch (code) {
    case ERROR_USAGE:
        return EXIT_BAD_USAGE;
    case ERROR_IO:
    case ERROR_MEMORY:
    case ERROR_TIMEOUT:
    case ERROR_INTERNAL:
        return EXIT_RETRY;
    default:
        return EXIT_PERMANENT;
    }
}

/* What the pool is to be, from the file's metadata, which another process parses. */
static void read_model(struct memd *m)
{
    struct read_model model;
    struct error e;
    enum error_code code = model_reader_read(m->model, m->segment_bytes, &model, &e);
    if (code)
        daemon_fail(&m->daemon, exit_code_for(code), &e);
    m->gguf = model.gguf;
    m->plan = model.plan;
    code = pool_plan_read_factors(&m->plan, m->gguf, &e);
    if (code)
        daemon_fail(&m->daemon, exit_code_for(code), &e);
}

/* Workers read in the table's header how much they may compute at once, and for how many requests
 * their KV cache is. */
static void publish_plan(struct memd *m)
{
    if (!m->caches.n)
        ((struct residency_header *)m->residency.base)->batch = batch_of(m);
    for (unsigned i = 0; i < m->caches.n; i++) {
        struct residency_header *h =
            (struct residency_header *)cache_residency(m->caches.each[i])->base;
        h->batch = m->devices[i].plan.batch;
        h->kv_requests = m->devices[i].plan.kv_most;
    }
}

static enum error_code start(struct memd *m, struct error *e)
{
    enum error_code code = policy_choose(&m->choice, &m->names, e);
    if (!code)
        code = device_parse(m->device, &m->device_spec, e);
    bool has_memory = !code && m->device_spec.kind != DEVICE_HOST;
    if (has_memory) /* first: a missing device must not show after minutes of loading */
        code = memd_open_devices(m, e);
    if (!code)
        code = tier_plan_new(&m->plan, m->ram, &m->tier_plan, e);
    if (code)
        return code;
    if (m->tier_plan.n_slots)
        pool_plan_keep_dense(&m->plan);
    memd_keep_dense_on_host(m);
    code = plan_memory(m, e);
    if (!code)
        code = load_predictors(m, has_memory || m->tier_plan.n_slots, e);
    if (!code && has_memory)
        code = memd_take_device_memory(m, e);
    if (code)
        return code;
    register_metrics(m);
    m->generation = new_generation();
    code = shm_create_large("moed-pool", m->plan.header.bytes, &m->pool, &m->pages, e);
    if (!code)
        place_pool(m);
    if (!code)
        code = load_model(m, e);
    if (!code && m->tier_plan.n_slots)
        code = make_tier(m, e);
    if (!code)
        code = make_conversations(m, e);
    if (code)
        return code;
    code = has_memory ? memd_make_caches(m, e) : make_residency(m, e);
    if (!code)
        publish_plan(m);
    if (!code && (m->caches.n || m->tier))
        code = recent_new("memd/recent", sample_caches, report_caches, m, &m->recent, e);
    if (!code && (m->caches.n || m->tier)) {
        m->policy_metrics = policy_metrics_new(m->daemon.metrics, &m->choice, &m->caches, e);
        code = m->policy_metrics ? ERROR_OK : ERROR_MEMORY;
    }
    return code;
}

/* Reads the options; an exit with what is wrong with them. */
static void take_options(struct memd *m, int argc, char **argv)
{
    const struct option_spec options[] = {
        {"model", OPTION_STRING, &m->model, 0, 0, "FILE", "the GGUF file to load"},
        {"device", OPTION_STRING, &m->device, 0, 0, "DEVICE",
         "device that also keeps weights: host, "
         "cuda[:N[,N]...] and perhaps ,vram=SIZE ,reserve=SIZE ,dense=host, "
         "or emu:vram=SIZE,link=RATE and perhaps ,latency=TIME ,speed=FACTOR ,call=TIME "
         ",devices=N"},
        {"policy", OPTION_STRING, &m->names.policy, 0, 0, "NAME", sched_policy_help()},
        {"assign", OPTION_STRING, &m->names.assigner, 0, 0, "NAME", sched_assigner_help()},
        {"cache", OPTION_STRING, &m->names.cache, 0, 0, "NAME", sched_cache_help()},
        {"predictor", OPTION_STRING, &m->names.predictor, 0, 0, "NAME", sched_predictor_help()},
        {"budget", OPTION_STRING, &m->names.budget, 0, 0, "NAME", sched_budget_help()},
        {"prefetch", OPTION_STRING, &m->names.prefetcher, 0, 0, "NAME", sched_prefetcher_help()},
        {"predictors", OPTION_STRING, &m->predictors_path, 0, 0, "FILE",
         "trained predictors of this model, from `moed train`; a file that does not fit is not "
         "used"},
        {"segment-bytes", OPTION_UINT, &m->segment_bytes, 1, 1u << 30, "N",
         "cut experts into segments of at most N bytes, where their width allows"},
        {"ram", OPTION_STRING, &m->ram, 0, 0, "SIZE",
         "host memory for weights: " QUANTITY_SIZE " or a share of the model, as 50%; "
         "the rest is read from the file when it is needed (all)"},
        {"ctx", OPTION_UINT, &m->context, 0, 1 << 24, "N",
         "plan a CUDA device for the worker's --ctx N"},
        {"parallel", OPTION_UINT, &m->parallel, 0, 256, "N",
         "plan for the worker's --parallel N; 0: its default"},
        {"workers", OPTION_UINT, &m->workers, 1, KV_POOL_WORKERS, "N",
         "plan a CUDA device's memory for N workers"},
        {"batch", OPTION_UINT, &m->batch, BATCH_LEAST, BATCH_MOST, "N",
         "tokens of prompts that a worker computes at once; 0: by memory"},
        {"kv-type", OPTION_STRING, &m->kv_type, 0, 0, "TYPE",
         "plan for the worker's --kv-type TYPE"},
        {"kv-cache", OPTION_STRING, &m->kv_cache, 0, 0, "SIZE",
         "host memory for conversations: " QUANTITY_SIZE " or a share of the memory that "
         "the weights leave free (50%)"},
        {"kv-dir", OPTION_STRING, &m->kv_dir, 0, 0, "DIR",
         "keep conversations in a file there too, and find those of earlier runs"},
        {"kv-dir-size", OPTION_STRING, &m->kv_dir_size, 0, 0, "SIZE",
         "the largest size of that file: bytes or a share of the free disk space (twice the KV "
         "cache, at most 50%)"},
        {"reproducible", OPTION_BOOL, &m->reproducible, 0, 0, NULL,
         "plan for the worker's --reproducible"},
        {"threads", OPTION_UINT, &m->threads, 0, 1024, "N",
         "loading threads; 0: one for each core"},
        {0},
    };
    daemon_init(&m->daemon, "memd", "the memory daemon of a moed deployment", options, argc, argv);
    if (m->model)
        return;
    struct error e;
    error_set(&e, ERROR_USAGE, "no model: give --model FILE");
    daemon_fail(&m->daemon, EXIT_BAD_USAGE, &e);
}

int main(int argc, char **argv)
{
    static struct memd m = {.device = "host",
                            .names = {"moed", "", "", "", "", ""},
                            .segment_bytes = POOL_SEGMENT_BYTES,
                            .kv_type = KV_TYPE_DEFAULT,
                            .workers = 1,
                            .pool.fd = -1,
                            .predictors.region.fd = -1,
                            .residency.fd = -1,
                            .conversations.region.fd = -1};
    struct error e;
    take_options(&m, argc, argv);
    kv_promises_open(&m.promises, m.daemon.run);
    memd_confine_files(&m);
    read_model(&m);
    daemon_start(&m.daemon);
    enum error_code code = start(&m, &e);
    if (code)
        daemon_fail(&m.daemon, m.device_full ? EXIT_NO_DEVICE_MEMORY : exit_code_for(code), &e);
    static const struct daemon_handlers handlers = {
        .health = memd_fill_health, .request = memd_handle_request, .peers = true};
    struct lent lent = {&m.pool,
                        &m.residency,
                        &m.caches,
                        m.tier,
                        m.predictors.region.base ? &m.predictors.region : NULL,
                        &m.conversations.region,
                        &m.conversations.pool,
                        m.conversations.saver ? &m.conversations.file.region : NULL,
                        m.conversations.file.read_fd,
                        m.generation};
    code = leases_open(m.daemon.run, &lent, &m.leases, &e);
    if (!code)
        code = daemon_serve(&m.daemon, &handlers, &m, &e);
    if (code)
        daemon_fail(&m.daemon, EXIT_RETRY, &e);
    kv_promises_close(&m.promises); /* the next memd gets an answer from this one */
    daemon_status(&m.daemon, "serving %s", m.plan.header.params.name);
    memd_confine_calls(&m);
    daemon_ready(&m.daemon);
    int exit_code = daemon_wait(&m.daemon);
    daemon_stop(&m.daemon);
    leases_close(m.leases);
    if (atomic_load(&m.device_failed)) /* waits neither for its driver nor for the disk */
        _exit(exit_code);
    conversations_close(&m.conversations);
    recent_free(m.recent);
    place_map_free(m.watch.map);
    policy_metrics_free(m.policy_metrics);
    caches_free(&m.caches);
    tier_free(m.tier);
    return exit_code;
}
