/* The expert cache's metrics; see cache_metrics.h. */
#include "cache_metrics.h"

struct cache_counters cache_metrics_counters(struct metrics *r)
{
    const char *bytes = "Bytes copied to the device, by why.";
    return (struct cache_counters){
        .asked_bytes = metrics_counter(r, "moed_memd_asked_bytes_total", NULL, 1,
                                       "Bytes of loads that were not on the device when a worker asked for them, be they on their way."),
        .demanded_bytes =
            metrics_counter(r, "moed_memd_copied_bytes_total", "why=\"demanded\"", 1, bytes),
        .prefetched_bytes =
            metrics_counter(r, "moed_memd_copied_bytes_total", "why=\"prefetched\"", 1, bytes),
        .measured_bytes =
            metrics_counter(r, "moed_memd_copied_bytes_total", "why=\"calibration\"", 1, bytes),
        .used_bytes = metrics_counter(r, "moed_memd_used_bytes_total", NULL, 1,
                                      "Bytes copied to the device and used since, each copy once."),
        .predicted_bytes = metrics_counter(r, "moed_memd_predicted_bytes_total", NULL, 1,
                                           "Bytes copied to the device on a prediction."),
        .predicted_used_bytes = metrics_counter(r, "moed_memd_predicted_used_bytes_total", NULL, 1,
                                                "Of those, used before they were given up."),
        .wasted_bytes = metrics_counter(r, "moed_memd_wasted_bytes_total", NULL, 1,
                                        "Bytes copied to the device and given up unused."),
        .merged = metrics_counter(r, "moed_memd_loads_merged_total", NULL, 1,
                                  "Loads of what was under way already."),
        .dropped = metrics_counter(r, "moed_memd_predictions_dropped_total", NULL, 1,
                                   "Predictions whose layer came first, or that a full queue had no room for."),
        .evictions = metrics_counter(r, "moed_memd_evictions_total", NULL, 1, "Segments evicted."),
        .queue_seconds =
            metrics_histogram(r, "moed_memd_load_queue_seconds", NULL, histogram_seconds_bounds,
                              histogram_seconds_count, "From asked for to its copy's start."),
        .copy_seconds =
            metrics_histogram(r, "moed_memd_copy_seconds", NULL, histogram_seconds_bounds,
                              histogram_seconds_count, "A copy over the link."),
    };
}

static struct cache_state read_cache(void *arg)
{
    struct cache_state s;
    cache_state(arg, &s);
    return s;
}

/* Slots by their state are read together, when the first one is: so that they add up in each reading, which is made by one thread
 * at a time, in the order in which they are registered. */
static struct cache_state slots_read;

static double read_free(void *arg)
{
    slots_read = read_cache(arg);
    return (double)slots_read.free;
}

static double read_resident(void *arg)
{
    (void)arg;
    return (double)slots_read.resident;
}

static double read_filling(void *arg)
{
    (void)arg;
    return (double)slots_read.filling;
}

static double read_retired(void *arg)
{
    (void)arg;
    return (double)slots_read.retired;
}

static double read_link_bytes(void *arg)
{
    return (double)read_cache(arg).link_bytes;
}

static double read_link_busy(void *arg)
{
    return (double)read_cache(arg).link_busy_ns / 1e9;
}

void cache_metrics_state(struct metrics *r, struct cache *c)
{
    const char *slots = "Slots of the device's memory, by what is in them.";
    metrics_gauge_function(r, "moed_memd_slots", "state=\"free\"", read_free, c, slots);
    metrics_gauge_function(r, "moed_memd_slots", "state=\"resident\"", read_resident, c, slots);
    metrics_gauge_function(r, "moed_memd_slots", "state=\"filling\"", read_filling, c, slots);
    metrics_gauge_function(r, "moed_memd_slots", "state=\"retired\"", read_retired, c, slots);
    metrics_counter_function(r, "moed_memd_link_bytes_total", NULL, read_link_bytes, c,
                             "Bytes moved over the link to the device, but for workers' calibrations.");
    metrics_counter_function(r, "moed_memd_link_busy_seconds_total", NULL, read_link_busy, c,
                             "Time that the link was moving them.");
}

static double read_usable_bytes(void *arg)
{
    struct cache_state s = read_cache(arg);
    return (double)(s.usable * s.slot_bytes);
}

/* Not limited: there is none, for the dense part is computed on the host. */
static double read_kv_bytes(void *arg)
{
    uint64_t bytes = read_cache(arg).kv_bytes;
    return bytes == UINT64_MAX ? 0 : (double)bytes;
}

void cache_metrics_device(struct metrics *r, const struct device_plan *p, bool experts_alone, struct cache *c)
{
    const char *name = "moed_memd_device_bytes";
    const char *help = "Bytes of the device's memory, by use: of the KV cache what the worker may have, scratch as planned for it.";
    metrics_gauge_function(r, name, "use=\"experts\"", read_usable_bytes, c, help);
    if (experts_alone)
        return;
    gauge_set(metrics_gauge(r, name, "use=\"dense\"", help), (int64_t)p->dense_bytes);
    metrics_gauge_function(r, name, "use=\"kv\"", read_kv_bytes, c, help);
    gauge_set(metrics_gauge(r, name, "use=\"scratch\"", help), (int64_t)p->scratch_bytes);
}
