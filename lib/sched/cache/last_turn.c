/* Least squares over the last steps; see last_turn.h. */
#include "sched/cache/last_turn.h"

#include <stddef.h>

/* Sums count half as much after 128 steps. */
#define DECAY 0.99459942348363317 /* 2^(-1 / 128) */
/* As if so many had been observed before, of which the last turn said nothing and the count all:
 * few observations, or a count that follows from the last turn, give no large ratio by chance. */
#define PRIOR 100
/* A slope of less is chance. */
#define LEAST_SLOPE 0.05

void last_turn_observe(struct last_turn *t, double expected, double last, double next)
{
    t->n++;
    t->p += expected;
    t->x += last;
    t->y += next;
    t->pp += expected * expected;
    t->px += expected * last;
    t->xx += last * last;
    t->py += expected * next;
    t->xy += last * next;
}

/* The normal equations, with the means taken out and the prior put in. */
static double fitted_worth(const struct last_turn *t)
{
    double pp = t->pp - t->p * t->p / t->n, px = t->px - t->p * t->x / t->n,
           xx = t->xx - t->x * t->x / t->n, py = t->py - t->p * t->y / t->n,
           xy = t->xy - t->x * t->y / t->n;
    if (!(pp > 1e-9 * t->pp) || !(xx > 1e-9 * t->xx)) /* the same for all */
        return 0;
    double prior = PRIOR / t->n;
    py += prior * pp;
    pp += prior * pp;
    xx += prior * xx;
    double det = pp * xx - px * px, a = (py * xx - xy * px) / det, b = (xy * pp - py * px) / det;
    if (!(b > 0))
        return 0;
    double worth = b / (a > LEAST_SLOPE ? a : LEAST_SLOPE) / LAST_TURN_STAYS;
    return worth < 1 ? worth : 1;
}

void last_turn_step_over(struct last_turn *t)
{
    double *sums[] = {&t->n, &t->p, &t->x, &t->y, &t->pp, &t->px, &t->xx, &t->py, &t->xy};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        *sums[i] *= DECAY;
    t->worth = fitted_worth(t);
}
