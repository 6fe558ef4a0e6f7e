/* What the assigners share: costs, the parts of a plan, the time at which a plan is done. */
#ifndef MOED_SCHED_ASSIGN_ASSIGN_INTERNAL_H
#define MOED_SCHED_ASSIGN_ASSIGN_INTERNAL_H

#include "sched/assign/assign.h"

/* The arguments of sched_assign. */
struct assignment {
    const struct sched_costs *costs;
    const struct sched_layer *layer;
    struct sched_expert *experts;
    uint32_t n;
    const struct sched_expert
        *not_awaited; /* the CPU computes its segments in flight; NULL: no expert */
};

/* Segments on the device, and those neither there nor on their way, which a load has to copy. */
static inline uint32_t assign_resident(const struct sched_layer *l, const struct sched_expert *e)
{
    return e->resident < l->n_segments ? e->resident : l->n_segments;
}

static inline uint32_t assign_missing(const struct sched_layer *l, const struct sched_expert *e)
{
    uint64_t there = (uint64_t)e->resident + e->in_flight;
    return there < l->n_segments ? l->n_segments - (uint32_t)there : 0;
}

/* Segments of a missing expert that either side may compute. Where experts may be split, the device
 * computes the resident part in any case. */
static inline uint32_t assign_open(const struct sched_layer *l, const struct sched_expert *e)
{
    return l->whole ? l->n_segments : assign_missing(l, e);
}

/* ---- assign_plan.c ---- */

/* The device computes all of it and loads the missing part. */
void assign_to_device(const struct sched_layer *l, struct sched_expert *e);
/* The CPU computes the missing part, or all of an expert that is not to be split. */
void assign_to_cpu(const struct sched_layer *l, struct sched_expert *e);
/* The CPU computes all of it, the resident part too. */
void assign_all_to_cpu(struct sched_expert *e);

/* An expert in an order of preference. */
struct assign_rank {
    double value;
    uint32_t expert, index; /* in experts[] */
};
/* By falling value, then rising expert number. */
void assign_sort(struct assign_rank *ranks, uint32_t n);

/* Gives the experts, in order, to the device while their missing segments fit the spare slots, else
 * to the CPU. */
void assign_load_in_order(const struct assignment *a, const struct assign_rank *ranks, uint32_t n);

/* ---- assign_finish.c ---- */

/* The sum of a plan's work. */
struct assign_work {
    double cpu_s, cpu_contended_s;
    double resident_s, in_flight_s, loaded_s; /* on the device, by how the segment comes there */
    double last_loaded_s;                     /* of the shortest loaded segment, which comes last */
    uint32_t loads, in_flight, cpu_segments;  /* over the link, on their way, on the CPU */
    uint32_t awaited;                         /* experts of which a segment is still to come */
};

/* Adds the parts of one expert under a plan to w. */
void assign_add(const struct assignment *a, const struct sched_expert *e, struct assign_work *w);
/* Seconds until all of it is done. CPU and link run at their contended pace until the first of
 * them has finished; the other goes on at its own pace. The loaded segments arrive evenly spaced,
 * those with the most tokens first. The device computes the resident part, then in each call all
 * that has arrived; what is in flight is there when link_busy_s is over. Or, where that is sooner,
 * it waits for the one expert that is still to come and computes all in one call. */
double assign_finish(const struct assignment *a, const struct assign_work *w);

/* ---- The assigners, which assign.c calls: assign_load_all in assign_plan.c, the others in a file
 * of their own ---- */

void assign_threshold(const struct assignment *a);
void assign_qstar(const struct assignment *a);
void assign_qstar_stream(const struct assignment *a);
void assign_load_all(const struct assignment *a);
void assign_greedy(const struct assignment *a);
void assign_presched(const struct assignment *a);
void assign_score_queue(const struct assignment *a);
void assign_balance(const struct assignment *a);

#endif
