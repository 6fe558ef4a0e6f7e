/* The expert cache's metrics; see cache_metrics.h. */
#include "cache_internal.h"
#include "cache_metrics.h"

#include "memd/slots/slots_metrics.h"

struct cache_counters cache_metrics_counters(struct metrics *r)
{
    const char *bytes = "Bytes copied to the device, by reason.";
    return (struct cache_counters){
        .asked_bytes = metrics_counter(r, "moed_memd_asked_bytes_total", NULL, 1,
                                       "Bytes of loads that were not on the device when a worker "
                                       "requested them, on their way or not."),
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
        .predicted_used_bytes =
            metrics_counter(r, "moed_memd_predicted_used_bytes_total", NULL, 1,
                            "Bytes copied on a prediction and used before their eviction."),
        .wasted_bytes = metrics_counter(r, "moed_memd_wasted_bytes_total", NULL, 1,
                                        "Bytes copied to the device and evicted unused."),
        .merged = metrics_counter(r, "moed_memd_loads_merged_total", NULL, 1,
                                  "Loads of a segment whose copy was under way already."),
        .dropped = metrics_counter(r, "moed_memd_predictions_dropped_total", NULL, 1,
                                   "Predictions dropped because their layer began, or because the "
                                   "queue was full."),
        .evictions = metrics_counter(r, "moed_memd_evictions_total", NULL, 1, "Segments evicted."),
        .queue_seconds = metrics_histogram_seconds(r, "moed_memd_load_queue_seconds", NULL,
                                                   "Time from a load's request to its copy."),
        .copy_seconds = metrics_histogram_seconds(r, "moed_memd_copy_seconds", NULL,
                                                  "Time of a copy over the link."),
    };
}

static const struct metrics_row cache_rows[] = {
    SLOTS_METRICS_ROWS("moed_memd_slots", "Slots in the device's memory, by state."),
    {"moed_memd_link_bytes_total", NULL,
     "Bytes copied over the link to the device, without calibrations."},
    {"moed_memd_link_busy_seconds_total", NULL, "Time that these copies took, of all links."},
    {"moed_memd_devices", NULL, "Devices that experts are copied to, each over a link of its own."},
};

static void read_cache(void *arg, double *values)
{
    struct cache_state s;
    caches_state(arg, &s);
    values = slots_metrics_values(&s.slots, values);
    *values++ = (double)s.link_bytes;
    *values++ = (double)s.link_busy_ns / 1e9;
    *values++ = ((const struct caches *)arg)->n;
}

#define DEVICE_HELP                                                                                \
    "Bytes of the devices' memory, by use: the KV caches that the workers may have, the scratch "  \
    "that is planned for them."
static const struct metrics_row device_rows[] = {
    {"moed_memd_device_bytes", "use=\"experts\"", DEVICE_HELP},
    {"moed_memd_device_bytes", "use=\"dense\"", DEVICE_HELP},
    {"moed_memd_device_bytes", "use=\"kv\"", DEVICE_HELP},
    {"moed_memd_device_bytes", "use=\"scratch\"", DEVICE_HELP},
};

static void read_experts(void *arg, double *values)
{
    struct cache_state s;
    caches_state(arg, &s);
    values[0] = (double)(s.usable * s.slots.slot_bytes);
}

static void read_device(void *arg, double *values)
{
    const struct caches *c = arg;
    struct cache_state s;
    caches_state(arg, &s);
    values[0] = (double)(s.usable * s.slots.slot_bytes);
    values[1] = values[3] = 0;
    for (unsigned i = 0; i < c->n; i++) {
        values[1] += (double)c->each[i]->plan.dense_bytes;
        values[3] += (double)c->each[i]->plan.scratch_bytes;
    }
    /* not limited: the device has no KV cache, for the host computes the dense part */
    values[2] = s.kv_bytes == UINT64_MAX ? 0 : (double)s.kv_bytes;
}

void cache_metrics_state(struct metrics *r, struct caches *c, bool experts_only)
{
    metrics_group(r, cache_rows, sizeof cache_rows / sizeof *cache_rows, read_cache, c);
    if (experts_only)
        metrics_group(r, device_rows, 1, read_experts, c);
    else
        metrics_group(r, device_rows, 4, read_device, c);
}
