/* The host tier's metrics; see tier_metrics.h. */
#include "tier_metrics.h"

#include "memd/slots/slots_metrics.h"

struct tier_counters tier_metrics_counters(struct metrics *r)
{
    const char *prefetched =
        "Bytes of experts read before a worker waited for them, by what became "
        "of them.";
    return (struct tier_counters){
        .read_bytes = metrics_counter(r, "moed_memd_disk_read_bytes_total", NULL, 1,
                                      "Bytes of experts read from the model file, whole pages: "
                                      "the first filling of host memory, and since."),
        .reads = metrics_counter(r, "moed_memd_disk_reads_total", NULL, 1,
                                 "Reads of an expert from the model file."),
        .failed_reads = metrics_counter(r, "moed_memd_disk_reads_failed_total", NULL, 1,
                                        "Reads of an expert that failed."),
        .prefetched_bytes = metrics_counter(r, "moed_memd_disk_prefetched_bytes_total",
                                            "what=\"read\"", 1, prefetched),
        .prefetched_used_bytes = metrics_counter(r, "moed_memd_disk_prefetched_bytes_total",
                                                 "what=\"used\"", 1, prefetched),
        .prefetched_wasted_bytes = metrics_counter(r, "moed_memd_disk_prefetched_bytes_total",
                                                   "what=\"wasted\"", 1, prefetched),
        .evictions = metrics_counter(r, "moed_memd_host_evictions_total", NULL, 1,
                                     "Experts evicted from host memory."),
        .dropped =
            metrics_counter(r, "moed_memd_disk_predictions_dropped_total", NULL, 1,
                            "Predictions dropped because their layer began before the read."),
        .read_seconds = metrics_histogram_seconds(r, "moed_memd_disk_read_seconds", NULL,
                                                  "Time to read an expert and pack it."),
    };
}

static const struct metrics_row rows[] = {
    SLOTS_METRICS_ROWS("moed_memd_host_slots",
                       "Slots in host memory, each for one expert, by state."),
    {"moed_memd_experts", NULL, "Experts of the model, in memory or not."},
    {"moed_memd_disk_busy_seconds_total", NULL, "Time during which experts were being read."},
};

static void read_tier(void *arg, double *values)
{
    struct tier_state s;
    tier_state(arg, &s);
    values = slots_metrics_values(&s.slots, values);
    *values++ = (double)s.experts;
    *values++ = (double)s.busy_ns / 1e9;
}

void tier_metrics_state(struct metrics *r, struct tier *t)
{
    metrics_group(r, rows, sizeof rows / sizeof *rows, read_tier, t);
}
