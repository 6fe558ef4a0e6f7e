/* The parts of a plan: who computes an expert, and in which order experts are considered; see
 * assign_internal.h. */
#include "sched/assign/assign_internal.h"

void assign_to_device(const struct sched_layer *l, struct sched_expert *e)
{
    e->device = assign_resident(l, e);
    e->load = l->n_segments - e->device;
}

void assign_to_cpu(const struct sched_layer *l, struct sched_expert *e)
{
    if (l->whole) {
        assign_all_to_cpu(e);
        return;
    }
    e->device = assign_resident(l, e);
    e->load = l->n_segments - e->device - assign_missing(l, e);
}

void assign_all_to_cpu(struct sched_expert *e)
{
    e->device = 0;
    e->load = 0;
}

static bool before(const struct assign_rank *x, const struct assign_rank *y)
{
    if (x->value != y->value)
        return x->value > y->value;
    return x->expert != y->expert ? x->expert < y->expert : x->index < y->index;
}

/* Shell's sort with Ciura's gaps: no memory, and quick for the few hundred experts of a layer. (The
 * C library's qsort may allocate.) */
void assign_sort(struct assign_rank *ranks, uint32_t n)
{
    static const uint32_t gaps[] = {1750, 701, 301, 132, 57, 23, 10, 4, 1};
    for (unsigned g = 0; g < sizeof gaps / sizeof *gaps; g++)
        for (uint32_t i = gaps[g]; i < n; i++) {
            struct assign_rank r = ranks[i];
            uint32_t j = i;
            for (; j >= gaps[g] && before(&r, &ranks[j - gaps[g]]); j -= gaps[g])
                ranks[j] = ranks[j - gaps[g]];
            ranks[j] = r;
        }
}

void assign_load_in_order(const struct assignment *a, const struct assign_rank *ranks, uint32_t n)
{
    uint32_t left = a->layer->spare_slots;
    for (uint32_t i = 0; i < n; i++) {
        struct sched_expert *e = &a->experts[ranks[i].index];
        uint32_t missing = assign_missing(a->layer, e);
        if (missing > left) {
            assign_to_cpu(a->layer, e);
            continue;
        }
        left -= missing;
        assign_to_device(a->layer, e);
    }
}

void assign_load_all(const struct assignment *a)
{
    for (uint32_t i = 0; i < a->n; i++)
        assign_to_device(a->layer, &a->experts[i]);
}
