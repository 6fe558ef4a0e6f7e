/* The estimate; see estimate.h. */
#include "client/cli/estimate.h"

#include <math.h>
#include <stdlib.h>

void estimate_init(struct estimate *e)
{
    *e = (struct estimate){0};
}

void estimate_fini(struct estimate *e)
{
    free(e->windows);
}

void estimate_add(struct estimate *e, double nll)
{
    e->current.sum += nll;
    e->current.tokens++;
    e->current_squares += nll * nll;
}

void estimate_drop_window(struct estimate *e)
{
    e->current = (struct estimate_window){0};
    e->current_squares = 0;
}

bool estimate_end_window(struct estimate *e)
{
    if (e->current.tokens == 0)
        return true;
    if (e->n_windows == e->capacity) {
        size_t capacity = e->capacity ? 2 * e->capacity : 64;
        struct estimate_window *grown = realloc(e->windows, capacity * sizeof *grown);
        if (!grown)
            return false;
        e->windows = grown;
        e->capacity = capacity;
    }
    e->windows[e->n_windows++] = e->current;
    e->squares += e->current_squares;
    estimate_drop_window(e);
    return true;
}

/* The 97.5 % quantile of Student's t: the expansion in 1 / degrees of freedom around the normal
 * quantile (Abramowitz and Stegun, 26.7.5); off by 0.0003 at 9, less above. */
static double t_quantile(double degrees)
{
    const double z = 1.959963984540054, z2 = z * z;
    double g1 = z * (z2 + 1) / 4;
    double g2 = z * ((5 * z2 + 16) * z2 + 3) / 96;
    double g3 = z * (((3 * z2 + 19) * z2 + 17) * z2 - 15) / 384;
    return z + (g1 + (g2 + g3 / degrees) / degrees) / degrees;
}

/* Of the ratio of sums over windows. */
static double error_over_windows(const struct estimate *e, double mean, uint64_t tokens)
{
    double squares = 0;
    for (size_t i = 0; i < e->n_windows; i++) {
        double off = e->windows[i].sum - mean * (double)e->windows[i].tokens;
        squares += off * off;
    }
    double n = (double)e->n_windows;
    return sqrt(squares * n / (n - 1)) / (double)tokens;
}

static double error_over_tokens(const struct estimate *e, double mean, uint64_t tokens)
{
    double n = (double)tokens, variance = (e->squares - n * mean * mean) / (n - 1);
    return sqrt(variance > 0 ? variance / n : 0);
}

struct estimate_result estimate_get(const struct estimate *e)
{
    struct estimate_result r = {.standard_error = NAN};
    double sum = 0;
    for (size_t i = 0; i < e->n_windows; i++) {
        sum += e->windows[i].sum;
        r.tokens += e->windows[i].tokens;
    }
    r.mean = sum / (double)r.tokens; /* NaN: none */
    r.over_windows = e->n_windows >= ESTIMATE_ENOUGH_WINDOWS;
    if (r.over_windows)
        r.standard_error = error_over_windows(e, r.mean, r.tokens);
    else if (r.tokens > 1)
        r.standard_error = error_over_tokens(e, r.mean, r.tokens);
    double degrees = (double)(r.over_windows ? e->n_windows : r.tokens) - 1;
    double reach = t_quantile(degrees) * r.standard_error;
    r.low = r.mean - reach;
    r.high = r.mean + reach;
    return r;
}
