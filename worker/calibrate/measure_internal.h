/* What the files of a calibration's measurements share.
 *
 *     measure.c          the order of the measurements
 *     measure_compute.c  computing: a segment on the device and on cpuexec, a call, a job's trip
 *     measure_link.c     copying: the link alone, and link, device and cpuexec at the same time
 *     measure_bench.c    what these share: the weights and rows that they use, statistics of times
 *
 * Weights are used as in a step: a few experts at a time, other ones each time, so that they come
 * from memory. Each is touched before it is timed, because a page's first use costs more than
 * reading it. Most results are the lower quartile of several measurements: the machine may be
 * loaded, which the layers' corrections will show. The trips of jobs and loads are medians: the
 * time to wake a thread belongs to them. */
#ifndef MOED_WORKER_CALIBRATE_MEASURE_INTERNAL_H
#define MOED_WORKER_CALIBRATE_MEASURE_INTERNAL_H

#include "measure.h"

#include "base/spinner.h"

enum { MEASURE_MOST_TOKENS = 32, MEASURE_MOST_EXPERTS = 8, MEASURE_MOST_STORED = 256 };
enum { MEASURE_SPIN_US = 20 }; /* the worker's default */

/* The state of a calibration. A timed call computes the first n_segments segments of n_experts
 * experts for some tokens; turn t uses other weights than turn t + 1. */
struct measure_bench {
    const struct calibration_parts *parts;
    uint32_t n_experts, n_segments, n_turns;
    uint32_t max_tokens;
    uint32_t indices[MEASURE_MOST_EXPERTS * MEASURE_MOST_TOKENS];
    float *values;                  /* [MEASURE_MOST_TOKENS][d_model] */
    struct expert_channel *channel; /* NULL: no executor */
    uint64_t sequence;
    struct spinner spinner; /* the wait for a job */
    uint32_t looked;        /* position of the search for experts that are not resident */
    /* Segments of the first layer with experts, stored on a device that cannot compute with host
     * memory; the turns use these. */
    const uint8_t *stored[MEASURE_MOST_STORED];
    uint32_t n_stored;
    struct error lost; /* the device: code not 0 */
};

struct measure_timing {
    double compute_s, trip_s;
    uint32_t segments; /* computed */
};

static inline const struct pool_slabs *measure_slabs(const struct measure_bench *b, uint32_t layer)
{
    return &b->parts->memory->map.slabs[layer];
}

/* measure_bench.c */

/* False: no memory; measure_bench_fini frees the rest. */
bool measure_bench_init(struct measure_bench *b, const struct calibration_parts *p);
void measure_bench_fini(struct measure_bench *b);
/* Sorts values; the value below which `share` of them lie. */
double measure_quantile(double *values, uint32_t n, double share);
void measure_nap(double seconds);
/* Computes for as long as the dense part of a small model's layer: the thread that gets the next
 * job or load may have gone to sleep, and its caches hold other data. */
void measure_pass_time(void);

/* measure_compute.c */

/* Copies segments to the device, as many as fit; n_stored 0: none did. */
void measure_store_segments(struct measure_bench *b);
/* Seconds of a segment by its tokens, and of a call besides. False: it failed. */
bool measure_device(struct measure_bench *b, struct calibration_side *side, double *call_s);
/* The same of cpuexec; overhead_s: a job's way there and back. Needs b->channel. */
bool measure_cpu(struct measure_bench *b, struct calibration_side *side, double *call_s,
                 double *overhead_s);
/* A job of cpuexec while the device computes, as in a layer. False: it failed. */
bool measure_overlapped_job(struct measure_bench *b, uint32_t turn, uint32_t n_tokens,
                            struct measure_timing *took);

/* measure_link.c: the link's figures, and the slowdowns where there is a channel. What cannot be
 * measured, because everything is resident or memd does not load, stays 0. */
void measure_link(struct measure_bench *b, struct calibration *c);

#endif
