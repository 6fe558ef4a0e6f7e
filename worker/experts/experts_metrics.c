/* The routed experts' metrics; see experts_metrics.h. Metrics that do not apply to the device are
 * absent, not 0. */
#include "experts_metrics.h"

/* device_only: the device computes the dense part too, so it may run device-only layers. */
static void register_cache_metrics(struct metrics *m, bool device_only, struct experts_counters *k)
{
    const char *segments = "Expert segments computed, by where: on the device that were resident, "
                           "there after a load, or on the CPU.";
    k->resident =
        metrics_counter(m, "moed_worker_segments_total", "where=\"resident\"", 1, segments);
    k->loaded = metrics_counter(m, "moed_worker_segments_total", "where=\"loaded\"", 1, segments);
    k->on_cpu = metrics_counter(m, "moed_worker_segments_total", "where=\"cpu\"", 1, segments);
    k->found_on_device = metrics_counter(
        m, "moed_worker_segments_found_total", NULL, 1,
        "Of these segments, those that were resident when the layer was planned, wherever they "
        "were computed.");
    k->loads_reclaimed =
        metrics_counter(m, "moed_worker_loads_reclaimed_total", NULL, 1,
                        "Segments that did not arrive in time, computed from the host pool.");
    k->at_once = metrics_counter(
        m, "moed_worker_layers_at_once_total", NULL, 1,
        "Layers that the device computed in one call, when its one load was there.");
    if (device_only) {
        k->device_only = metrics_counter(m, "moed_worker_device_only_layers_total", NULL, 1,
                                         "Device-only layers: run without a plan of the host.");
        k->device_only_missed =
            metrics_counter(m, "moed_worker_device_only_layers_missed_total", NULL, 1,
                            "Attempts at device-only layers that missed an expert.");
        k->device_only_discarded =
            metrics_counter(m, "moed_worker_device_only_layers_discarded_total", NULL, 1,
                            "Layers that were queued behind such a miss, and discarded.");
        k->device_only_ns = metrics_counter(
            m, "moed_worker_device_only_seconds_total", NULL, 1e-9,
            "Predicted time of the experts of device-only layers, which nothing times apart.");
        k->replayed =
            metrics_counter(m, "moed_worker_layers_replayed_total", NULL, 1,
                            "Layers, or parts before a plan, that were queued as a graph.");
    }
    k->prefetch.declined =
        metrics_counter(m, "moed_worker_predictions_declined_total", NULL, 1,
                        "Predicted experts whose copy would have cost more than it saves.");
    k->prefetch.without =
        metrics_counter(m, "moed_worker_steps_without_prefetch_total", NULL, 1,
                        "Steps of moed's prefetchers without prefetch, because they are "
                        "faster here, or for a trial.");
    k->prefetch.without_loads =
        metrics_counter(m, "moed_worker_steps_without_loads_total", NULL, 1,
                        "Steps of moed's prefetchers without any copy, because they are faster "
                        "here, or for a trial.");
    k->prefetch.without_device =
        metrics_counter(m, "moed_worker_steps_without_device_total", NULL, 1,
                        "Steps of moed's prefetchers whose routed experts the CPU computed alone, "
                        "because they are faster here, or for a trial.");
    static const double plan_bounds[] = {2e-6,   5e-6,   10e-6, 20e-6, 50e-6, 100e-6,
                                         200e-6, 500e-6, 1e-3,  2e-3,  5e-3,  10e-3};
    k->plan_seconds =
        metrics_histogram(m, "moed_worker_plan_seconds", NULL, plan_bounds,
                          sizeof plan_bounds / sizeof *plan_bounds, "Time to plan a layer.");
    static const double predict_bounds[] = {0.5e-6, 1e-6,  2e-6,   5e-6,   10e-6,
                                            20e-6,  50e-6, 100e-6, 200e-6, 500e-6};
    k->prefetch.predict_seconds = metrics_histogram(
        m, "moed_worker_predict_seconds", NULL, predict_bounds,
        sizeof predict_bounds / sizeof *predict_bounds,
        "Time that prediction takes of a layer in the engine's thread; of one step in 16.");
    k->prefetch.predict_exposed_ns =
        metrics_counter(m, "moed_worker_predict_exposed_seconds_total", NULL, 1e-9,
                        "The same, of layers in which the engine did not wait afterwards.");
    k->load_wait_ns = metrics_counter(m, "moed_worker_load_wait_seconds_total", NULL, 1e-9,
                                      "Time waited for loads.");
}

static void register_cost_metrics(struct metrics *m, struct experts_counters *k)
{
    k->device_ns = metrics_counter(m, "moed_worker_device_busy_seconds_total", NULL, 1e-9,
                                   "Time that the device computed experts, with "
                                   "moed_worker_device_only_seconds_total.");
    k->cpu_ns = metrics_counter(m, "moed_worker_cpu_busy_seconds_total", NULL, 1e-9,
                                "Time that cpuexec, or the worker in its place, computed this "
                                "worker's experts.");
    k->layers = metrics_counter(m, "moed_worker_layers_total", NULL, 1,
                                "Layers of experts whose time was predicted.");
    k->layer_ns =
        metrics_counter(m, "moed_worker_layer_seconds_total", NULL, 1e-9, "Time that they took.");
    k->predicted_ns = metrics_counter(m, "moed_worker_layer_predicted_seconds_total", NULL, 1e-9,
                                      "Time that was predicted for them.");
    k->wrong_ns = metrics_counter(m, "moed_worker_layer_error_seconds_total", NULL, 1e-9,
                                  "Absolute error of these predictions.");
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

struct experts_counters experts_metrics_counters(struct metrics *m,
                                                 const struct memory_client *memory,
                                                 const struct cuda_device *cuda)
{
    struct experts_counters k = {
        .sent = metrics_counter(m, "moed_worker_experts_total", "where=\"cpuexec\"", 1,
                                "Experts computed for this worker, by where."),
        .local = metrics_counter(m, "moed_worker_experts_total", "where=\"worker\"", 1,
                                 "Experts computed for this worker, by where."),
        .local_ns = metrics_counter(m, "moed_worker_expert_seconds_total", NULL, 1e-9,
                                    "Time that the worker's own threads computed experts."),
        .local_bytes = metrics_counter(m, "moed_worker_expert_weight_bytes_total", NULL, 1,
                                       "Bytes of experts' weights that they read."),
        .reclaimed =
            metrics_counter(m, "moed_worker_jobs_reclaimed_total", NULL, 1,
                            "Jobs reclaimed because cpuexec died, stalled or took far too long."),
        .wait_ns = metrics_counter(m, "moed_worker_expert_wait_seconds_total", NULL, 1e-9,
                                   "Time waited for cpuexec."),
    };
    if (memory->arena_bytes) {
        register_cache_metrics(m, cuda->dense != NULL, &k);
        register_cost_metrics(m, &k);
    }
    if (cuda->device)
        k.awaited =
            metrics_counter(m, "moed_worker_segments_awaited_total", NULL, 1,
                            "Loaded segments whose kernels were queued while they were in flight.");
    if (memory->tier.slots)
        register_tier_metrics(m, &k);
    return k;
}

static double read_device_correction(void *arg)
{
    return experts_corrections(arg).device;
}

static double read_cpu_correction(void *arg)
{
    return experts_corrections(arg).cpu;
}

static double read_slowdown_correction(void *arg)
{
    return experts_corrections(arg).slowdown;
}

static double read_link_correction(void *arg)
{
    return experts_corrections(arg).link;
}

void experts_metrics_corrections(struct metrics *m, struct experts *x)
{
    const char *name = "moed_worker_cost_correction";
    const char *help = "Real by calibrated cost of a segment, a moving average over layers.";
    metrics_gauge_function(m, name, "side=\"device\"", read_device_correction, x, help);
    metrics_gauge_function(m, name, "side=\"cpu\"", read_cpu_correction, x, help);
    metrics_gauge_function(m, name, "side=\"cpu-overlapping-copies\"", read_slowdown_correction, x,
                           help);
    metrics_gauge_function(m, name, "side=\"link\"", read_link_correction, x, help);
}
