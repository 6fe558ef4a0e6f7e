/* What MoEpic's cache configuration records; see moepic_record.h. */
#include "base/arrays.h"
#include "sched/cache/moepic_record.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

bool moepic_record_init(struct moepic_record *r, uint32_t n_experts)
{
    size_t n = n_experts;
    *r = (struct moepic_record){.n_experts = n_experts};
    return ARRAYS_NEW(ARRAY(r->hits, n), ARRAY(r->predicted, MOEPIC_MAX_PREDICTED),
                      ARRAY(r->cached, MOEPIC_MAX_PREDICTED * n), ARRAY(r->place, n),
                      ARRAY(r->h, n + 1), ARRAY(r->p, MOEPIC_MAX_PREDICTED),
                      ARRAY(r->ph, MOEPIC_MAX_PREDICTED * (n + 1))) != NULL;
}

void moepic_record_fini(struct moepic_record *r)
{
    free(r->hits); /* the first array: all of them */
}

/* Long before a count overflows nothing is added any more. */
static bool knows(const struct moepic_record *r, uint32_t expert, uint32_t rank)
{
    return expert < r->n_experts && rank < r->n_experts && r->activated < UINT32_MAX / 2 &&
           r->steps < UINT32_MAX / 2;
}

void moepic_record_predicted(struct moepic_record *r, uint32_t expert, uint32_t rank)
{
    uint32_t y = r->n_listed;
    if (!knows(r, expert, rank) || r->place[expert] || y == MOEPIC_MAX_PREDICTED)
        return;
    r->n_listed = y + 1;
    r->place[expert] = (uint16_t)(y + 1);
    r->cached[(size_t)y * r->n_experts + rank]++;
    if (r->n_predicted < y + 1)
        r->n_predicted = y + 1;
}

void moepic_record_activated(struct moepic_record *r, uint32_t expert, uint32_t rank)
{
    if (!knows(r, expert, rank))
        return;
    r->activated++;
    r->hits[rank]++;
    if (r->place[expert])
        r->predicted[r->place[expert] - 1]++;
}

void moepic_record_step_over(struct moepic_record *r)
{
    if (r->steps < UINT32_MAX / 2)
        r->steps++;
    for (uint32_t i = 0; r->n_listed && i < r->n_experts; i++)
        r->place[i] = 0;
    r->n_listed = 0;
}

void moepic_record_freeze(struct moepic_record *r)
{
    size_t n = r->n_experts;
    double steps = r->steps ? r->steps : 1, activated = r->activated ? r->activated : 1;
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        r->h[i + 1] = (float)((double)(sum += r->hits[i]) / activated);
    for (size_t y = 0; y < r->n_predicted; y++) {
        r->p[y] = (float)(r->predicted[y] / steps);
        sum = 0;
        for (size_t i = 0; i < n; i++)
            r->ph[y * (n + 1) + i + 1] = (float)((double)(sum += r->cached[y * n + i]) / steps);
    }
    r->k = r->activated / steps;
    r->n_frozen = r->n_predicted;
}

double moepic_record_loaded(const struct moepic_record *r, uint32_t c, double theta, double load_s,
                            double window_s)
{
    double m = r->k * (double)r->h[c] * theta, busy_s = 0;
    for (uint32_t y = 0; y < r->n_frozen; y++) {
        double part = 1 - (double)r->ph[(size_t)y * (r->n_experts + 1) + c] * theta;
        busy_s += part * load_s;
        if (busy_s > window_s * (1 + 1e-6)) /* the shares are rounded */
            break;
        m += part * (double)r->p[y];
    }
    return fmin(m, r->k);
}
