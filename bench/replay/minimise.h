/* The smallest value of a function that has no derivatives: Nelder and Mead's simplex (Computer Journal 7, 1965), with the usual
 * coefficients (reflection 1, expansion 2, contraction and shrinking 1/2). Deterministic. */
#ifndef MOED_REPLAY_MINIMISE_H
#define MOED_REPLAY_MINIMISE_H

#include <stdbool.h>
#include <stdint.h>

enum { MINIMISE_MOST = 8 }; /* dimensions */

/* Inside the box least..most; outside it is not asked. */
struct minimise {
    uint32_t n;
    double least[MINIMISE_MOST], most[MINIMISE_MOST];
    double (*value)(void *arg, const double *x);
    void *arg;
    uint32_t most_calls;
    double tolerance; /* of the simplex' values, at which it is done */
};

/* x: where to begin, and the best point found. step: the first simplex' edges. Returns its value. */
double minimise(const struct minimise *m, double *x, const double *step);

#endif
