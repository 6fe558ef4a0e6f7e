/* Counters, gauges and histograms of a process, rendered as Prometheus text.
 *
 * One thread registers the metrics at start; any thread may then update them with relaxed atomics:
 * a counter costs one uncontended add. Names: moed_<what>_<unit>[_total], base units (seconds,
 * bytes). A process does not register a statistic that it cannot measure: the metric is absent, not
 * zero.
 *
 * The order of registration decides the order of the families in the text, and nothing else. */
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

/* Registration. The returned objects live as long as the registry. labels: NULL or text such as
 * `policy="lru"`. unit_scale: the text shows value * unit_scale (1e-9 for nanoseconds behind a name
 * in _seconds_total). The functions abort on a wrong name and without memory: they run at start. */
struct counter *metrics_counter(struct metrics *m, const char *name, const char *labels,
                                double unit_scale, const char *help);
/* A counter that is absent from the text until `measured` (NULL: the counter itself) is above 0. */
struct counter *metrics_counter_after(struct metrics *m, const struct counter *measured,
                                      const char *name, const char *labels, const char *help);
struct gauge *metrics_gauge(struct metrics *m, const char *name, const char *labels,
                            const char *help);
struct histogram *metrics_histogram(struct metrics *m, const char *name, const char *labels,
                                    const double *bounds, uint32_t n_bounds, const char *help);
/* A histogram with histogram_seconds_bounds. */
struct histogram *metrics_histogram_seconds(struct metrics *m, const char *name, const char *labels,
                                            const char *help);

/* The functions below register values that are kept elsewhere. metrics_render calls the readers, in
 * its own thread. A reader must not call metrics_render. */

void metrics_gauge_function(struct metrics *m, const char *name, const char *labels,
                            double (*read)(void *arg), void *arg, const char *help);
/* The value must never fall. */
void metrics_counter_function(struct metrics *m, const char *name, const char *labels,
                              double (*read)(void *arg), void *arg, const char *help);

/* Gauges and counters that one function reads at once: the values of one rendering belong together.
 * A name in _total makes a counter. */
struct metrics_row {
    const char *name, *labels, *help; /* labels: NULL or text; all are copied */
};
/* values: [n_rows], in the order of the rows. */
typedef void metrics_read(void *arg, double *values);
void metrics_group(struct metrics *m, const struct metrics_row *rows, uint32_t n_rows,
                   metrics_read *read, void *arg);

/* A gauge that is always 1. `write` appends its labels: `policy="lru"`. */
typedef void metrics_labels(void *arg, struct strbuf *out);
void metrics_info(struct metrics *m, const char *name, metrics_labels *write, void *arg,
                  const char *help);

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
void histogram_observe_times(struct histogram *h, double value, uint32_t n); /* n times the same */
uint64_t histogram_count(const struct histogram *h);                         /* of observations */
double histogram_sum(const struct histogram *h); /* of the observed values, negative ones as 0 */

/* Bounds in seconds for latencies of tokens and requests. */
extern const double histogram_seconds_bounds[];
extern const uint32_t histogram_seconds_count;

/* Appends all metrics with # HELP and # TYPE lines, then process_resident_memory_bytes,
 * process_cpu_seconds_total, process_start_time_seconds, process_open_fds, process_max_fds and
 * moed_build_info. Several threads may render at a time: they take turns. */
void metrics_render(struct metrics *m, struct strbuf *out);

/* Resident bytes of this process (private and shared), from /proc/self/statm. */
uint64_t metrics_resident_bytes(void);

#endif
