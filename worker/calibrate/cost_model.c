/* The cost model of a worker's layers; see cost_model.h.
 *
 * Corrections are valid only with the calibration that they correct, so the first published word is
 * the time of that calibration. */
#include "cost_model.h"

#include "base/clock.h"
#include "base/log.h"
#include "ipc/residency.h"
#include "sched/layer/layer.h"

#include <math.h>
#include <string.h>

#define N_DOUBLES (sizeof(struct layer_corrections) / sizeof(double))
_Static_assert(N_DOUBLES + 1 == RESIDENCY_COSTS, "a word for each, after the calibration's");

/* A longer gap between two layers is idle time, not the model's. */
#define OUTSIDE_MOST_S 1.0
/* So many layers of each kind count in what is stored: the next deployment's machine may be busier
 * or less busy. */
#define STORED_LAYERS 128

/* ---- Corrections ---- */

static void show_corrections(struct cost_model *m)
{
    const double values[] = {m->costs.device, m->costs.cpu, m->costs.slowdown, m->costs.link};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        atomic_store_explicit(&m->shown[i], values[i], memory_order_relaxed);
}

struct cost_corrections cost_model_corrections(const struct cost_model *m)
{
    double v[4];
    for (size_t i = 0; i < 4; i++)
        v[i] = atomic_load_explicit(&m->shown[i], memory_order_relaxed);
    return (struct cost_corrections){v[0], v[1], v[2], v[3]};
}

/* Word by word: a worker that dies in the middle leaves words of two layers in a row, which is
 * harmless. */
void cost_model_publish(struct cost_model *m)
{
    show_corrections(m);
    struct layer_corrections corrections = layer_corrections(&m->costs);
    uint64_t values[N_DOUBLES];
    memcpy(values, &corrections, sizeof values);
    for (size_t i = 0; i < N_DOUBLES; i++)
        atomic_store_explicit(&m->published[i + 1], values[i], memory_order_relaxed);
    atomic_store_explicit(&m->published[0], (uint64_t)m->calibration.measured_at,
                          memory_order_relaxed);
}

static bool read_known(const struct cost_model *m, const _Atomic uint64_t *known,
                       struct layer_corrections *out)
{
    uint64_t values[N_DOUBLES];
    if (atomic_load_explicit(&known[0], memory_order_relaxed) !=
        (uint64_t)m->calibration.measured_at)
        return false;
    for (size_t i = 0; i < N_DOUBLES; i++)
        values[i] = atomic_load_explicit(&known[i + 1], memory_order_relaxed);
    memcpy(out, values, sizeof *out);
    return true;
}

static void resume(struct cost_model *m, const _Atomic uint64_t *known)
{
    struct layer_corrections corrections;
    if (read_known(m, known, &corrections)) {
        if (layer_costs_resume(&m->costs, &corrections))
            log_info("costs: using the corrections of the worker before this one");
        return;
    }
    corrections = layer_costs_stored(&m->calibration);
    if (layer_costs_resume(&m->costs, &corrections))
        log_info("costs: using the corrections of an earlier deployment");
}

void cost_model_start(struct cost_model *m, const struct device_spec *device,
                      const _Atomic uint64_t *known, _Atomic uint64_t *published)
{
    double load_s =
        device->link_latency_s + (double)m->calibration.segment_bytes / device->link_bytes_per_s;
    struct sched_costs first = calibration_costs(&m->calibration, load_s);
    layer_costs_init(&m->costs, &first, m->calibration.job_overhead_s);
    m->published = published;
    resume(m, known);
    cost_model_publish(m);
    log_info("a segment of %.2f MB for one token: %.3f ms on the device, %.3f ms on the CPU, "
             "%.3f ms over the link",
             (double)m->calibration.segment_bytes * 1e-6,
             (first.device_s + first.device_token_s) * 1e3, (first.cpu_s + first.cpu_token_s) * 1e3,
             first.load_s * 1e3);
}

void cost_model_store(const struct cost_model *m)
{
    struct error e;
    struct calibration c = m->calibration;
    struct layer_corrections corrections = layer_corrections(&m->costs);
    if (corrections.cpu_means.weight[0] + corrections.cpu_means.weight[1] == 0)
        return; /* there was no layer */
    corrections = layer_costs_fade(&corrections, STORED_LAYERS);
    layer_costs_keep(&corrections, &c);
    if (calibration_store_corrections(&c, &e) && e.code != ERROR_NOT_FOUND)
        log_warn("cannot store the cost corrections: %s", e.text);
}

/* ---- Costs ---- */

struct sched_costs cost_model_now(const struct cost_model *m)
{
    struct sched_costs costs = m->costs.now;
    if (!m->has_cpu)
        costs.cpu_s = costs.cpu_contended_s = INFINITY;
    return costs;
}

double cost_model_call_s(const struct cost_model *m)
{
    return fmax(0, m->costs.job_s + m->calibration.cpu_call_s - m->calibration.device_call_s);
}

double cost_model_outside_s(const struct cost_model *m)
{
    return atomic_load_explicit(&m->outside_s, memory_order_relaxed);
}

/* ---- Layers ---- */

static void publish_outside(struct cost_model *m)
{
    atomic_store_explicit(&m->outside_s, m->head_s + (double)m->n_gaps * m->attention_s,
                          memory_order_relaxed);
}

void cost_model_gate(struct cost_model *m, uint64_t since_ns, bool is_next)
{
    double took_s = (double)(since_ns - m->finished_ns) * 1e-9;
    if (m->finished_ns && took_s < OUTSIDE_MOST_S)
        layer_mean_add(is_next ? &m->attention_s : &m->head_s, took_s);
    publish_outside(m);
}

void cost_model_unplanned(struct cost_model *m, uint32_t n, double took_s, double experts_s)
{
    if (n && took_s > experts_s)
        layer_mean_add(&m->attention_s, (took_s - experts_s) / n);
    publish_outside(m);
    m->finished_ns = n ? clock_ns() : 0;
    m->finished_layer = COST_MODEL_NO_LAYER;
}

uint64_t cost_model_end(struct cost_model *m)
{
    uint64_t before_ns = m->finished_ns;
    m->finished_ns = clock_ns();
    return before_ns;
}

void cost_model_layer(struct cost_model *m, uint32_t layer, uint64_t before_ns, double expected_s,
                      bool undisturbed, uint64_t copies)
{
    uint64_t before = m->copies;
    bool copying = before % 2 && copies % 2, none = copies == before && copies % 2 == 0;
    bool next =
        before_ns && m->finished_layer != COST_MODEL_NO_LAYER && layer == m->finished_layer + 1;
    double took_s = (double)(m->finished_ns - before_ns) * 1e-9;
    m->copies = copies;
    m->finished_layer = layer;
    if (!next || took_s >= OUTSIDE_MOST_S)
        return;
    layer_mean_add(&m->layer_s, took_s);
    if (undisturbed && (copying || none))
        layer_costs_layer(&m->costs, expected_s, took_s, copying);
}
