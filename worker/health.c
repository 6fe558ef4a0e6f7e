/* The health reply of moed-worker, and its lines of statistics in the log; see worker.h. */
#include "worker.h"

#include "worker/prefetch/prediction_metrics.h"

#include "base/log.h"
#include "base/quantity.h"
#include "model/speculate.h"
#include "sched/policy.h"

#include <inttypes.h>
#include <stdio.h>

/* The values whose growth over the last seconds is shown. */
enum {
    RECENT_SEGMENTS,
    RECENT_RESIDENT,
    RECENT_ON_DEVICE,
    RECENT_PREDICTIONS,
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
_Static_assert((int)RECENT_PLAN_NS < (int)RECENT_MOST, "recent.h has a place for each");

static void sample_experts(void *arg, uint64_t values[RECENT_MOST])
{
    struct worker *w = arg;
    const struct experts_counters *k = &w->counters;
    values[RECENT_RIGHT] = prediction_metrics_right(&w->prediction);
    values[RECENT_PREDICTIONS] = prediction_metrics_predictions(&w->prediction);
    if (w->memory.arena_bytes) {
        values[RECENT_RESIDENT] = counter_read(k->resident);
        values[RECENT_SEGMENTS] =
            values[RECENT_RESIDENT] + counter_read(k->loaded) + counter_read(k->on_cpu);
        values[RECENT_ON_DEVICE] = counter_read(k->found_on_device);
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

/* Logs what was computed in the window, and nothing about what was not. */
static void report_experts(void *arg, const uint64_t growth[RECENT_MOST], uint64_t window_ns)
{
    (void)arg;
    double s = (double)window_ns * 1e-9;
    uint64_t segments = growth[RECENT_SEGMENTS], layers = growth[RECENT_LAYERS];
    if (segments)
        log_info("experts, last %.0f s: %" PRIu64
                 " segments, %.1f %% resident, %.1f %% loaded, the rest on the CPU; "
                 "device busy %.1f %%, CPU %.1f %%",
                 s, segments, percent(growth[RECENT_RESIDENT], segments),
                 percent(growth[RECENT_LOADED], segments),
                 percent(growth[RECENT_DEVICE_NS], window_ns),
                 percent(growth[RECENT_CPU_NS], window_ns));
    if (segments && layers)
        log_info("layers, last %.0f s: %" PRIu64
                 " of %.3f ms, predicted %.3f ms, planned in %.4f ms; %.1f %% of %" PRIu64
                 " predicted experts right",
                 s, layers, (double)growth[RECENT_LAYER_NS] * 1e-6 / (double)layers,
                 (double)growth[RECENT_PREDICTED_NS] * 1e-6 / (double)layers,
                 growth[RECENT_PLANS]
                     ? (double)growth[RECENT_PLAN_NS] * 1e-6 / (double)growth[RECENT_PLANS]
                     : 0,
                 percent(growth[RECENT_RIGHT], growth[RECENT_PREDICTIONS]),
                 growth[RECENT_PREDICTIONS]);
    if (growth[RECENT_ACTIVATED])
        log_info("memory, last %.0f s: %" PRIu64
                 " experts activated, %.1f %% of them in memory; %.1f %% of decode time waited "
                 "for the model file",
                 s, growth[RECENT_ACTIVATED],
                 percent(growth[RECENT_FOUND], growth[RECENT_ACTIVATED]),
                 percent(growth[RECENT_DECODE_WAIT_NS], growth[RECENT_DECODE_NS]));
}

enum error_code worker_count_recent(struct worker *w, struct error *e)
{
    if (!w->memory.arena_bytes && !w->memory.tier.slots)
        return ERROR_OK;
    return recent_new("worker/recent", sample_experts, report_experts, w, &w->recent, e);
}

/* Where the device had no memory for the whole KV cache: says so in the state. Requests then wait
 * for pages, and the cache grows when there is memory (worker/serve/engine.c). */
static void describe_short_kv(const struct worker *w, Moed__V1__HealthReply *health)
{
    static char state[600];
    uint64_t has = w->cuda.used[CUDA_KV], whole = w->kv_whole_bytes,
             limit = atomic_load(&w->memory.residency.header->kv_bytes),
             wanted = limit < whole ? limit : whole;
    char gb[2][24];
    if (!whole || !w->daemon.ready || has + w->dense->kv.page_bytes > wanted)
        return;
    quantity_format_bytes(has, gb[0]);
    quantity_format_bytes(wanted, gb[1]);
    snprintf(state, sizeof state,
             "%.300s; the KV cache has %s of %s, because other programs have memory of the device: "
             "fewer requests run at once (reserve= keeps memory free for others)",
             health->state, gb[0], gb[1]);
    health->state = state;
}

void worker_fill_health(void *arg, Moed__V1__HealthReply *health)
{
    struct worker *w = arg;
    struct engine_status s = engine_status(w->engine);
    health->model = w->memory.map.params.name;
    health->requests_running = s.running;
    health->requests_waiting = s.waiting;
    health->tokens_per_s = s.tokens_per_s;
    health->tokens_total = s.tokens_total;
    health->drafted_total = s.drafted;
    health->accepted_total = s.accepted;
    if (w->snapshots && w->drafts != SPECULATE_OFF)
        health->drafts_unused = "the model has recurrent layers";
    health->experts_total = counter_read(w->counters.local);
    health->clients = frontends_count(w->frontends);
    health->context = (uint32_t)w->context;
    health->parallel = (uint32_t)w->parallel;
    describe_short_kv(w, health);
    if (!w->recent)
        return;
    static Moed__V1__CacheHealth cache;
    static Moed__V1__TierHealth tier;
    uint64_t growth[RECENT_MOST], window_ns = recent_read(w->recent, growth);
    if (w->memory.arena_bytes) {
        moed__v1__cache_health__init(&cache);
        cache.window_ns = window_ns;
        cache.segments = growth[RECENT_SEGMENTS];
        cache.segments_resident = growth[RECENT_ON_DEVICE];
        cache.predictions = growth[RECENT_PREDICTIONS];
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
