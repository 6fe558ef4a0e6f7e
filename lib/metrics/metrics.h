/* Counters, gauges and histograms of a process, read as Prometheus text.
 *
 * Metrics are registered at start (not thread-safe then) and updated by any thread with relaxed
 * atomics: a counter costs one uncontended add. Names: moed_<what>_<unit>[_total], base units
 * (seconds, bytes). A statistic that cannot be measured here is not registered, so it is absent
 * rather than zero. */
#ifndef MOED_METRICS_METRICS_H
#define MOED_METRICS_METRICS_H

#include "base/strbuf.h"

#include <stdatomic.h>
#include <stdint.h>

struct metrics; /* one registry a process */

struct counter {
    _Alignas(64) _Atomic uint64_t value;
};
struct gauge {
    _Alignas(64) _Atomic int64_t value;
};
#define HISTOGRAM_MAX_BUCKETS 24
struct histogram {
    const double *bounds; /* ascending upper bounds, borrowed */
    uint32_t n_bounds;
    _Atomic uint64_t buckets[HISTOGRAM_MAX_BUCKETS + 1];
    _Atomic uint64_t sum_nano; /* in 1e-9 of the unit */
};

struct metrics *metrics_new(void); /* NULL: out of memory */
void metrics_free(struct metrics *m);

/* Register; returned objects live as long as the registry. labels: NULL or `policy="lru"` text.
 * unit_scale for counters kept in integers of a smaller unit: value * unit_scale is printed (1e-9
 * for nanoseconds behind a _seconds_total name). Never NULL: aborts on out of memory, at start. */
struct counter *metrics_counter(struct metrics *m, const char *name, const char *labels,
                                double unit_scale, const char *help);
/* A counter of what may not be measured here at all: absent until `measured` (NULL: itself) has counted. */
struct counter *metrics_counter_after(struct metrics *m, const struct counter *measured,
                                      const char *name, const char *labels, const char *help);
struct gauge *metrics_gauge(struct metrics *m, const char *name, const char *labels,
                            const char *help);
struct histogram *metrics_histogram(struct metrics *m, const char *name, const char *labels,
                                    const double *bounds, uint32_t n_bounds, const char *help);
/* A gauge that is computed when read. */
void metrics_gauge_function(struct metrics *m, const char *name, const char *labels,
                            double (*read)(void *arg), void *arg, const char *help);

/* A gauge that is 1; what it tells are its labels, written when read: `policy="lru"`. */
typedef void metrics_labels(void *arg, struct strbuf *out);
void metrics_info(struct metrics *m, const char *name, metrics_labels *write, void *arg,
                  const char *help);

/* A counter kept elsewhere, read when asked for; it never falls. */
void metrics_counter_function(struct metrics *m, const char *name, const char *labels,
                              double (*read)(void *arg), void *arg, const char *help);

static inline void counter_add(struct counter *c, uint64_t n)
{
    atomic_fetch_add_explicit(&c->value, n, memory_order_relaxed);
}
static inline uint64_t counter_read(const struct counter *c)
{
    return atomic_load_explicit(&c->value, memory_order_relaxed);
}
static inline void gauge_set(struct gauge *g, int64_t v)
{
    atomic_store_explicit(&g->value, v, memory_order_relaxed);
}
void histogram_observe(struct histogram *h, double value);
uint64_t histogram_count(const struct histogram *h); /* of observations */
double histogram_sum(const struct histogram *h); /* of what was observed, negative values as 0 */

/* Bounds in seconds for latencies of tokens and requests, after common practice. */
extern const double histogram_seconds_bounds[];
extern const uint32_t histogram_seconds_count;

/* Everything, with # HELP and # TYPE lines; plus what every process has:
 * process_resident_memory_bytes, process_cpu_seconds_total, process_start_time_seconds,
 * process_open_fds, moed_build_info. */
void metrics_render(const struct metrics *m, struct strbuf *out);

/* Resident bytes of this process (private and shared), from /proc/self/statm. */
uint64_t metrics_resident_bytes(void);

#endif
