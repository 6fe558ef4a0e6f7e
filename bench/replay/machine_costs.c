/* The cost of a model's experts on a machine; see machine.h, and docs/replay.md for the formulas.
 *
 * Shared DRAM. Without contention the CPU reads weights at c bytes/s and the link copies at k. At
 * the same time they share d by max-min fairness: a side that needs less than d / 2 gets what it
 * needs, and the other side gets the rest. Where the link is the slower side, this agrees with
 * FreeToken's measurements: a copy keeps its rate, and the CPU gets the remainder.
 *
 * Linear cost. The time of a segment is max(bytes / rate, w flop / pace): constant at first, then
 * proportional to the number of tokens w. The assigners need the form base + w slope. The line here
 * is exact for one token, because most comparisons decode one sequence. Its slope minimises the sum
 * of the squared relative errors at 1, 2, 4, ... 128 tokens. calibration_fit in the worker uses the
 * same criterion. */
#include "bench/replay/machine.h"

#include <math.h>

enum { MOST_TOKENS = 128 };

struct line {
    double base_s, token_s;
};

/* The line passes through (1, first). With x = (w - 1) / t(w), the relative error is x slope -
 * (t(w) - first) / t(w), so the best slope is the mean of the chords (t(w) - first) / (w - 1),
 * weighted by x^2. No chord is steeper than `first`, so the base is not negative. */
static struct line fit_line(double bytes_s, double token_s)
{
    double first = fmax(bytes_s, token_s), sum = 0, of = 0;
    for (uint32_t w = 2; w <= MOST_TOKENS; w *= 2) {
        double t = fmax(bytes_s, w * token_s), x = (w - 1) / t;
        sum += x * x * (t - first) / (w - 1);
        of += x * x;
    }
    double slope = of > 0 ? sum / of : 0;
    return (struct line){fmax(0, first - slope), slope};
}

/* The rate of a side that needs `own` while the other side needs `other` of the same memory. */
static double shared_rate(double memory, double own, double other)
{
    return fmin(own, fmax(memory / 2, memory - other));
}

struct sched_costs machine_costs(const struct machine *m, const struct trace_layer *layer,
                                 double flops_per_byte)
{
    double bytes = (double)layer->segment_bytes, flop = bytes * flops_per_byte;
    double cpu_rate = shared_rate(m->dram_bytes_per_s, m->cpu_bytes_per_s, m->link_bytes_per_s);
    double link_rate = shared_rate(m->dram_bytes_per_s, m->link_bytes_per_s, m->cpu_bytes_per_s);
    struct line device = fit_line(bytes / m->device_bytes_per_s, flop / m->device_flop_per_s);
    struct line cpu = fit_line(bytes / m->cpu_bytes_per_s, flop / m->cpu_flop_per_s);
    struct line contended = fit_line(bytes / cpu_rate, flop / m->cpu_flop_per_s);
    return (struct sched_costs){
        .load_s = m->link_latency_s + bytes / m->link_bytes_per_s,
        .load_contended_s = m->link_latency_s + bytes / link_rate,
        .device_s = device.base_s,
        .device_token_s = device.token_s,
        .cpu_s = cpu.base_s,
        .cpu_token_s = cpu.token_s,
        .cpu_contended_s = contended.base_s,
        .cpu_contended_token_s = contended.token_s,
    };
}

double machine_dense_s(const struct machine *m, double dense_bytes, uint32_t n_tokens)
{
    const double flops_per_byte = 2; /* of weights of one byte, the usual type of dense weights */
    return m->attention_s + fmax(dense_bytes / m->device_bytes_per_s,
                                 n_tokens * dense_bytes * flops_per_byte / m->device_flop_per_s);
}
