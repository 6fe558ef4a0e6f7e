/* The host tier's metrics; see tier_metrics.h. */
#include "tier_metrics.h"

struct tier_counters tier_metrics_counters(struct metrics *r)
{
    const char *prefetched =
        "Bytes of experts read from the file before anybody waited for them, by "
        "what became of them.";
    return (struct tier_counters){
        .read_bytes = metrics_counter(r, "moed_memd_disk_read_bytes_total", NULL, 1,
                                      "Bytes read from the model file while serving, whole pages."),
        .reads = metrics_counter(r, "moed_memd_disk_reads_total", NULL, 1,
                                 "Experts read from the model file, or tried to."),
        .failed_reads = metrics_counter(r, "moed_memd_disk_reads_failed_total", NULL, 1,
                                        "Of those, that failed."),
        .prefetched_bytes = metrics_counter(r, "moed_memd_disk_prefetched_bytes_total",
                                            "what=\"read\"", 1, prefetched),
        .prefetched_used_bytes = metrics_counter(r, "moed_memd_disk_prefetched_bytes_total",
                                                 "what=\"used\"", 1, prefetched),
        .prefetched_wasted_bytes = metrics_counter(r, "moed_memd_disk_prefetched_bytes_total",
                                                   "what=\"wasted\"", 1, prefetched),
        .evictions = metrics_counter(r, "moed_memd_host_evictions_total", NULL, 1,
                                     "Experts that gave up their slot in host memory."),
        .dropped = metrics_counter(r, "moed_memd_disk_predictions_dropped_total", NULL, 1,
                                   "Predictions whose layer had come before they were read."),
        .read_seconds =
            metrics_histogram(r, "moed_memd_disk_read_seconds", NULL, histogram_seconds_bounds,
                              histogram_seconds_count, "Reading an expert and packing it."),
    };
}

static struct tier_state read_tier(void *arg)
{
    struct tier_state s;
    tier_state(arg, &s);
    return s;
}

/* Read together, as the device's are (cache_metrics.c). */
static struct tier_state slots_read;

static double read_free(void *arg)
{
    slots_read = read_tier(arg);
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

static double read_experts(void *arg)
{
    return (double)read_tier(arg).experts;
}

static double read_busy(void *arg)
{
    return (double)read_tier(arg).busy_ns / 1e9;
}

void tier_metrics_state(struct metrics *r, struct tier *t)
{
    const char *slots = "Slots of an expert each in host memory, by what is in them.";
    metrics_gauge_function(r, "moed_memd_host_slots", "state=\"free\"", read_free, t, slots);
    metrics_gauge_function(r, "moed_memd_host_slots", "state=\"resident\"", read_resident, t,
                           slots);
    metrics_gauge_function(r, "moed_memd_host_slots", "state=\"filling\"", read_filling, t, slots);
    metrics_gauge_function(r, "moed_memd_host_slots", "state=\"retired\"", read_retired, t, slots);
    metrics_gauge_function(r, "moed_memd_experts", NULL, read_experts, t,
                           "Experts of the model, in memory or not.");
    metrics_counter_function(r, "moed_memd_disk_busy_seconds_total", NULL, read_busy, t,
                             "Time during which experts were being read.");
}
