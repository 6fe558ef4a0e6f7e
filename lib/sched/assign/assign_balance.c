/* moed's assigner (ours): segments of missing experts move from the CPU to the link until both
 * sides finish together.
 *
 * A loaded segment saves the CPU its seconds and costs the link one load. So segments come in the
 * order of CPU seconds saved per link second: the experts with the most tokens first. In this
 * order each next segment helps less than the one before, and the finish, as assign_finish()
 * reckons it, falls and then rises. So the search looks at each expert's end, and then, around the
 * best of these, at each segment. With `whole` an expert moves at once, and its saving is that of
 * all its segments over the load of the missing ones.
 *
 * Where the device computes some experts for longer than the link takes to bring them, the search
 * also tries the order by CPU seconds saved per second of link and device together, and takes the
 * better result. If the device is the last to finish all the same (its share of a large batch, or
 * a slow device), the same search moves resident segments to the CPU, in the order of device
 * seconds saved per CPU second. */
#include "sched/assign/assign_internal.h"

/* A way to move segments of an expert from one side to the other; units: how many can move. */
struct direction {
    uint32_t (*units)(const struct assignment *a, const struct sched_expert *e);
    void (*move)(const struct sched_layer *l, struct sched_expert *e, uint32_t units);
};

static uint32_t loadable(const struct assignment *a, const struct sched_expert *e)
{
    return e == a->not_awaited ? 0 : assign_missing(a->layer, e);
}

/* From the plan of assign_to_cpu(). */
static void load(const struct sched_layer *l, struct sched_expert *e, uint32_t units)
{
    if (l->whole)
        assign_to_device(l, e);
    else
        e->load += units;
}

/* The CPU's segments come after all of the device's, so nothing can be removed before a segment
 * that is being loaded. */
static uint32_t removable(const struct assignment *a, const struct sched_expert *e)
{
    (void)a;
    return e->load ? 0 : e->device;
}

static void remove_from_device(const struct sched_layer *l, struct sched_expert *e, uint32_t units)
{
    e->device -= units;
}

static const struct direction onto_link = {loadable, load};
static const struct direction onto_cpu = {removable, remove_from_device};

/* The experts that have units to move, in order, and the limit of units. */
struct queue {
    const struct assignment *a;
    const struct direction *direction;
    const struct assign_rank *ranks;
    uint32_t n, limit;
};

/* Undoes assign_add, except for last_loaded_s. */
static void assign_subtract(const struct assignment *a, const struct sched_expert *e,
                            struct assign_work *w)
{
    struct assign_work minus = {0};
    assign_add(a, e, &minus);
    w->cpu_s -= minus.cpu_s;
    w->cpu_contended_s -= minus.cpu_contended_s;
    w->resident_s -= minus.resident_s;
    w->in_flight_s -= minus.in_flight_s;
    w->loaded_s -= minus.loaded_s;
    w->loads -= minus.loads;
    w->in_flight -= minus.in_flight;
    w->cpu_segments -= minus.cpu_segments;
    w->awaited -= minus.awaited;
}

/* The work after moving `units` of e. */
static struct assign_work work_moved(const struct queue *q, const struct assign_work *w,
                                     const struct sched_expert *e, uint32_t units)
{
    struct sched_expert moved = *e;
    struct assign_work sum = *w;
    q->direction->move(q->a->layer, &moved, units);
    assign_add(q->a, &moved, &sum);
    assign_subtract(q->a, e, &sum);
    return sum;
}

/* How many units to move from the front of the queue; *w becomes the work after that. */
static uint32_t best_units(const struct queue *q, struct assign_work *w)
{
    struct assign_work so_far = *w, before_best = *w;
    double best = assign_finish(q->a, w);
    uint32_t moved = 0, best_moved = 0, best_expert = 0, moved_before = 0;
    for (uint32_t i = 0; i < q->n && moved < q->limit; i++) {
        const struct sched_expert *e = &q->a->experts[q->ranks[i].index];
        uint32_t units = q->direction->units(q->a, e);
        if (units > q->limit - moved) {
            if (q->a->layer->whole)
                break;
            units = q->limit - moved;
        }
        struct assign_work next = work_moved(q, &so_far, e, units);
        double finish = assign_finish(q->a, &next);
        if (finish < best) {
            best = finish;
            best_moved = moved + units;
            best_expert = i;
            moved_before = moved;
            before_best = so_far;
            *w = next;
        }
        so_far = next;
        moved += units;
    }
    if (q->a->layer->whole)
        return best_moved;
    /* Search inside the expert that ends there, and inside the next one. */
    so_far = before_best;
    moved = moved_before;
    for (uint32_t i = best_expert; i < q->n && i < best_expert + 2; i++) {
        const struct sched_expert *e = &q->a->experts[q->ranks[i].index];
        uint32_t units = q->direction->units(q->a, e);
        struct assign_work next = so_far;
        for (uint32_t k = 1; k <= units && moved + k <= q->limit; k++) {
            next = work_moved(q, &so_far, e, k);
            double finish = assign_finish(q->a, &next);
            if (finish < best) {
                best = finish;
                best_moved = moved + k;
                *w = next;
            }
        }
        so_far = next;
        moved += units;
    }
    return best_moved;
}

static void move_units(const struct queue *q, uint32_t left)
{
    for (uint32_t i = 0; i < q->n && left; i++) {
        struct sched_expert *e = &q->a->experts[q->ranks[i].index];
        uint32_t units = q->direction->units(q->a, e);
        if (units > left)
            units = left;
        q->direction->move(q->a->layer, e, units);
        left -= units;
    }
}

/* Loads beyond spare_slots come in waves: a segment's slot serves the next one when it is computed.
 * assign_finish follows the waves if it knows the slots that are free, and a call's time. */
static uint32_t most_loads(const struct sched_layer *l)
{
    return l->free_slots && l->device_call_s > 0 ? UINT32_MAX : l->spare_slots;
}

/* *w: the work with nothing loaded; becomes the work of the plan. */
static void load_best(const struct assignment *a, struct assign_work *w)
{
    struct assign_rank by_link[SCHED_MAX_EXPERTS], by_both[SCHED_MAX_EXPERTS];
    struct queue q = {a, &onto_link, by_link, 0, most_loads(a->layer)};
    bool device_holds_up = false;
    for (uint32_t i = 0; i < a->n; i++) {
        const struct sched_expert *e = &a->experts[i];
        uint32_t missing = assign_missing(a->layer, e), open = assign_open(a->layer, e);
        if (!missing || e == a->not_awaited)
            continue;
        double saved_s = open * sched_cpu_contended_s(a->costs, e->workload);
        double load_s = missing * a->costs->load_contended_s;
        double device_s = open * sched_device_s(a->costs, e->workload);
        device_holds_up |= device_s > load_s;
        by_link[q.n] = (struct assign_rank){saved_s / load_s, e->expert, i};
        by_both[q.n++] = (struct assign_rank){saved_s / (load_s + device_s), e->expert, i};
    }
    struct assign_work none = *w;
    assign_sort(by_link, q.n);
    uint32_t units = best_units(&q, w);
    if (device_holds_up) {
        struct queue other = q;
        other.ranks = by_both;
        assign_sort(by_both, q.n);
        uint32_t other_units = best_units(&other, &none);
        if (assign_finish(a, &none) < assign_finish(a, w)) {
            *w = none;
            q = other;
            units = other_units;
        }
    }
    move_units(&q, units);
}

static void relieve_device(const struct assignment *a, struct assign_work *w)
{
    struct assign_rank ranks[SCHED_MAX_EXPERTS];
    struct queue q = {a, &onto_cpu, ranks, 0, UINT32_MAX};
    for (uint32_t i = 0; i < a->n; i++) {
        const struct sched_expert *e = &a->experts[i];
        if (removable(a, e))
            ranks[q.n++] = (struct assign_rank){sched_device_s(a->costs, e->workload) /
                                                    sched_cpu_s(a->costs, e->workload),
                                                e->expert, i};
    }
    assign_sort(ranks, q.n);
    move_units(&q, best_units(&q, w));
}

/* If everything else is done before the segment in flight arrives, the CPU computes that segment
 * and the rest of its expert instead. The segment still arrives, for later. Where several experts
 * have segments in flight, in the link's queue, the first of them alone is judged. */
static void take_from_flight(struct assignment *a, struct assign_work *w)
{
    for (uint32_t i = 0; i < a->n; i++) {
        struct sched_expert *e = &a->experts[i];
        if (!e->in_flight || !e->load)
            continue;
        struct sched_expert awaited = *e;
        struct assign_work without = *w;
        assign_subtract(a, e, &without);
        if (a->layer->whole)
            e->device = 0;
        e->load = 0;
        assign_add(a, e, &without);
        if (assign_finish(a, &without) < assign_finish(a, w)) {
            *w = without;
            a->not_awaited = e;
        } else {
            *e = awaited;
        }
        return;
    }
}

void assign_balance(const struct assignment *given)
{
    struct assignment assignment = *given, *a = &assignment;
    struct assign_work w = {0};
    for (uint32_t i = 0; i < a->n; i++) {
        struct sched_expert *e = &a->experts[i];
        if (assign_missing(a->layer, e))
            assign_to_cpu(a->layer, e);
        else
            assign_to_device(a->layer, e);
        assign_add(a, e, &w);
    }
    take_from_flight(a, &w);
    load_best(a, &w);
    if (w.resident_s + w.in_flight_s + w.loaded_s > a->layer->cpu_busy_s + w.cpu_s)
        relieve_device(a, &w);
}
