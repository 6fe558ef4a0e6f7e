/* Minimises a function without derivatives: Nelder and Mead's simplex (Computer Journal 7, 1965),
 * with the usual coefficients (reflection 1, expansion 2, contraction and
 * shrinking 1/2). Deterministic. */
#ifndef MOED_REPLAY_MINIMISE_H
#define MOED_REPLAY_MINIMISE_H

#include <stdbool.h>
#include <stdint.h>

enum { MINIMISE_MOST = 8 }; /* dimensions */

/* value is called only inside the box least..most. */
struct minimise {
    uint32_t n;
    double least[MINIMISE_MOST], most[MINIMISE_MOST];
    double (*value)(void *arg, const double *x);
    void *arg;
    uint32_t most_calls;
    double tolerance; /* stop when the simplex's values differ by less */
};

/* x: the start; receives the best point. step: edges of the first simplex. Returns the value at the
 * best point. */
double minimise(const struct minimise *m, double *x, const double *step);

#endif
