/* PreScope's PreSched (section 4.3): which missing experts of this layer are loaded, which the CPU
 * computes, and how many of the experts that the next layer is predicted to activate are copied
 * behind the loads.
 *
 * The paper's formulas are lost in the text that we have; this file follows its prose. E: this
 * layer's missing experts. P: the predicted experts of the next layer. Q: both, in the order of
 * rising tokens.
 *
 * Q1. From the most tokens down, q_i joins the GPU queue while T_delay + the loads of q_i..q_n +
 *    t_gpu < the CPU's time for q_1..q_i; the first that fails ends it (premise 2). T_delay is the
 *    rest of the copy under way. Then this layer's members of the queue, e_j..e_p, are examined
 *    without P: j* is the smallest index from j on with T_delay + the loads of e_j*..e_p + t_gpu <
 *    the CPU's time for e_1..e_j*. Those are loaded; the others start on the CPU.
 * Q2. gap = what the link has left of the CPU's time for e_1..e_(j*-1) and of the attention that
 *    follows. round(gap / T_load) of the queue's members of P fill it, the most tokens first.
 * Q3. The last of them, the critical one, may be late by C, its time beyond the gap. It gains p
 *    (T_load - C) - (1 - p) C, p the share of predictions of its layer and its rank that come true
 *    ("experts in the prefetch layer are priority-sorted, and the predictor is more accurate on
 *    hot experts"). If the gain is not positive it is left out.
 * Q4. If the queue has no member of P, the layer after the next joins, as far as it is predicted
 *    (sched_upcoming.distance 2), for prefetching only: this layer's loads stay.
 *
 * Chosen where the prose leaves it open: attention counts as part of the gap (the text lists its
 * time among the constants, and the link is idle then). Of equal tokens this layer's experts come
 * before predicted ones, which are not certain. T_load is that of the expert's missing segments.
 * The CPU begins when cpu_busy_s is over. t_gpu is the time to compute the expert in question.
 * Costs are those of each side without contention.
 *
 * Departure: the paper has no bound on loads; here loads beyond the spare slots, the fewest tokens
 * first, go to the CPU. */
#include "sched/assign/assign_internal.h"

#include <math.h>

/* Q. A rank's index below n is this layer's expert, else n + the place in upcoming[]. */
struct window {
    const struct assignment *a;
    struct assign_rank q[2 * SCHED_MAX_EXPERTS]; /* by FALLING tokens: the loop starts at q[0] */
    uint32_t n;
};

static bool is_predicted(const struct window *w, const struct assign_rank *r)
{
    return r->index >= w->a->n;
}

static struct sched_upcoming *predicted(const struct window *w, const struct assign_rank *r)
{
    return &w->a->layer->upcoming[r->index - w->a->n];
}

static double load_s(const struct window *w, const struct assign_rank *r)
{
    uint32_t missing = is_predicted(w, r) ? predicted(w, r)->missing
                                          : assign_missing(w->a->layer, &w->a->experts[r->index]);
    return missing * w->a->costs->load_s;
}

/* Segments that one side would compute, and their tokens. */
static uint32_t computed(const struct window *w, const struct assign_rank *r, uint32_t *workload)
{
    const struct sched_layer *layer = w->a->layer;
    if (!is_predicted(w, r)) {
        const struct sched_expert *e = &w->a->experts[r->index];
        *workload = e->workload;
        return assign_open(layer, e);
    }
    const struct sched_upcoming *p = predicted(w, r);
    *workload = p->workload;
    return layer->whole ? layer->n_segments : p->missing;
}

static double cpu_s(const struct window *w, const struct assign_rank *r)
{
    uint32_t workload, segments = computed(w, r, &workload);
    return segments * sched_cpu_s(w->a->costs, workload);
}

static double device_s(const struct window *w, const struct assign_rank *r)
{
    uint32_t workload, segments = computed(w, r, &workload);
    return segments * sched_device_s(w->a->costs, workload);
}

/* Half a token more puts this layer's experts before predicted ones of as many tokens, and before
 * none of more. */
static double place(uint32_t workload, bool sure)
{
    return workload + (sure ? 0.5 : 0);
}

static void add_missing(struct window *w)
{
    for (uint32_t i = 0; i < w->a->n; i++) {
        const struct sched_expert *e = &w->a->experts[i];
        if (assign_missing(w->a->layer, e))
            w->q[w->n++] = (struct assign_rank){place(e->workload, true), e->expert, i};
    }
}

static void add_predicted(struct window *w, uint32_t farthest)
{
    const struct sched_layer *layer = w->a->layer;
    for (uint32_t i = 0; i < layer->n_upcoming && i < SCHED_MAX_EXPERTS; i++) {
        const struct sched_upcoming *p = &layer->upcoming[i];
        if (p->missing && p->missing <= layer->n_segments && p->distance <= farthest)
            w->q[w->n++] = (struct assign_rank){place(p->workload, false), p->expert, w->a->n + i};
    }
}

/* Q1: how many members, from the most tokens on, join the GPU queue. */
static uint32_t gpu_queue(const struct window *w)
{
    double on_cpu = w->a->layer->cpu_busy_s, on_link = w->a->layer->link_busy_s;
    for (uint32_t i = 0; i < w->n; i++)
        on_cpu += cpu_s(w, &w->q[i]);
    for (uint32_t i = 0; i < w->n; i++) {
        on_link += load_s(w, &w->q[i]);
        if (on_link + device_s(w, &w->q[i]) >= on_cpu)
            return i;
        on_cpu -= cpu_s(w, &w->q[i]);
    }
    return w->n;
}

/* The recheck, of this layer's members only: how many of the first `most` are loaded. Left in the
 * window: who, by falling tokens; *link_s and *cpu_left_s: when the loads are done and how long the
 * CPU has to do. */
static uint32_t loads(const struct window *own, uint32_t most, double *link_s, double *cpu_left_s)
{
    const struct sched_layer *layer = own->a->layer;
    double on_cpu = layer->cpu_busy_s, on_link = layer->link_busy_s;
    uint32_t n = 0, segments = 0;
    for (uint32_t i = 0; i < own->n; i++)
        on_cpu += cpu_s(own, &own->q[i]);
    *link_s = on_link;
    *cpu_left_s = on_cpu;
    for (uint32_t i = 0; i < most; i++) {
        on_link += load_s(own, &own->q[i]);
        segments += assign_missing(layer, &own->a->experts[own->q[i].index]);
        if (segments > layer->spare_slots || on_link + device_s(own, &own->q[i]) >= on_cpu)
            break;
        on_cpu -= cpu_s(own, &own->q[i]);
        *link_s = on_link;
        *cpu_left_s = on_cpu;
        n = i + 1;
    }
    return n;
}

/* Q2 and Q3, of the first n_queue of the window. */
static void prefetch(const struct window *w, uint32_t n_queue, double gap_s)
{
    double used_s = 0;
    for (uint32_t i = 0; i < n_queue; i++) {
        if (!is_predicted(w, &w->q[i]))
            continue;
        double this_s = load_s(w, &w->q[i]);
        if (gap_s - used_s < this_s / 2) /* what is left rounds to none */
            return;
        used_s += this_s;
        double late_s = fmax(0, used_s - gap_s), p = predicted(w, &w->q[i])->hit_rate;
        /* Only what ends the row can be late, and what is late ends it. */
        predicted(w, &w->q[i])->prefetch =
            late_s == 0 || p * (this_s - late_s) - (1 - p) * late_s > 0;
    }
}

static uint32_t count_predicted(const struct window *w, uint32_t n)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < n; i++)
        found += is_predicted(w, &w->q[i]);
    return found;
}

static void predict_upcoming(struct window *w, uint32_t farthest)
{
    w->n = 0;
    add_missing(w);
    add_predicted(w, farthest);
    assign_sort(w->q, w->n);
}

void assign_presched(const struct assignment *a)
{
    const struct sched_layer *layer = a->layer;
    struct window w, own; /* large: set member by member */
    w.a = own.a = a;
    own.n = 0;
    for (uint32_t i = 0; i < layer->n_upcoming; i++)
        layer->upcoming[i].prefetch = false;
    predict_upcoming(&w, 1);
    add_missing(&own);
    assign_sort(own.q, own.n);
    uint32_t n_queue = gpu_queue(&w), n_predicted = count_predicted(&w, n_queue);
    double link_s, cpu_left_s;
    uint32_t n_loads = loads(&own, n_queue - n_predicted, &link_s, &cpu_left_s);

    for (uint32_t i = 0; i < a->n; i++)
        if (!assign_missing(layer, &a->experts[i]))
            assign_to_device(layer, &a->experts[i]);
    for (uint32_t i = 0; i < own.n; i++)
        (i < n_loads ? assign_to_device : assign_to_cpu)(layer, &a->experts[own.q[i].index]);

    if (n_predicted == 0) { /* Q4 */
        predict_upcoming(&w, 2);
        n_queue = gpu_queue(&w);
    }
    prefetch(&w, n_queue, fmax(0, cpu_left_s + layer->attention_s - link_s));
}
