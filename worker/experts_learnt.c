/* What layers have taught of costs: shown, and left to the next worker, which memd outlives this one to tell
 * (ipc/cache_channel.h). It is of use with the same calibration alone, so the first word is the time of that. A worker that
 * ends in order also keeps it in the calibration's file, for the next deployment. */
#include "experts_internal.h"

#include "base/log.h"

#include <string.h>

#define N_DOUBLES (sizeof(struct layer_costs_learnt) / sizeof(double))
_Static_assert(N_DOUBLES + 1 == RESIDENCY_LEARNT, "a word for each, after the calibration's");

#define KEPT_LAYERS 128

static void show_corrections(struct experts *x)
{
    atomic_store_explicit(&x->device_correction, x->costs.device, memory_order_relaxed);
    atomic_store_explicit(&x->cpu_correction, x->costs.cpu, memory_order_relaxed);
    atomic_store_explicit(&x->slowdown_correction, x->costs.slowdown, memory_order_relaxed);
    atomic_store_explicit(&x->link_correction, x->costs.link, memory_order_relaxed);
}

struct experts_corrections experts_corrections(const struct experts *x)
{
    return (struct experts_corrections){
        atomic_load_explicit(&x->device_correction, memory_order_relaxed),
        atomic_load_explicit(&x->cpu_correction, memory_order_relaxed),
        atomic_load_explicit(&x->slowdown_correction, memory_order_relaxed),
        atomic_load_explicit(&x->link_correction, memory_order_relaxed)};
}

/* Word by word: if we die in the middle they are of two layers, one after the other, which does no harm. */
void experts_publish_learnt(struct experts *x)
{
    show_corrections(x);
    _Atomic uint64_t *words = x->cache_link.channel.header->learnt;
    struct layer_costs_learnt learnt = layer_costs_learnt(&x->costs);
    uint64_t values[N_DOUBLES];
    memcpy(values, &learnt, sizeof values);
    for (size_t i = 0; i < N_DOUBLES; i++)
        atomic_store_explicit(&words[i + 1], values[i], memory_order_relaxed);
    atomic_store_explicit(&words[0], (uint64_t)x->calibration.measured_at, memory_order_relaxed);
}

static bool learnt_by_the_last(const struct experts *x, struct layer_costs_learnt *out)
{
    const _Atomic uint64_t *words = x->memory->residency.header->learnt;
    uint64_t values[N_DOUBLES];
    if (atomic_load_explicit(&words[0], memory_order_relaxed) != (uint64_t)x->calibration.measured_at)
        return false;
    for (size_t i = 0; i < N_DOUBLES; i++)
        values[i] = atomic_load_explicit(&words[i + 1], memory_order_relaxed);
    memcpy(out, values, sizeof *out);
    return true;
}

void experts_resume_learnt(struct experts *x)
{
    struct layer_costs_learnt learnt;
    if (learnt_by_the_last(x, &learnt)) {
        if (layer_costs_resume(&x->costs, &learnt))
            log_info("costs: what the worker before this one learnt is used");
        return;
    }
    learnt = layer_costs_kept(&x->calibration);
    if (layer_costs_resume(&x->costs, &learnt))
        log_info("costs: what an earlier deployment learnt is used");
}

void experts_keep_learnt(const struct experts *x)
{
    struct error e;
    struct calibration c = x->calibration;
    struct layer_costs_learnt learnt = layer_costs_learnt(&x->costs);
    if (learnt.cpu_means.weight[0] + learnt.cpu_means.weight[1] == 0)
        return; /* there was no layer */
    learnt = layer_costs_fade(&learnt, KEPT_LAYERS);
    layer_costs_keep(&learnt, &c);
    if (calibration_store_learnt(&c, &e) && e.code != ERROR_NOT_FOUND)
        log_warn("what was learnt of costs is not kept: %s", e.text);
}
