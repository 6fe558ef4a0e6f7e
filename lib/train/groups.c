/* Layer groups; see groups.h. */
#include "train/groups.h"

#include <math.h>

/* The mean and the deviation of n numbers; the deviation is 1 if all are equal. */
static void level(uint32_t n, const double *x, double *mean, double *deviation)
{
    double sum = 0, square = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += x[i];
    *mean = sum / n;
    for (uint32_t i = 0; i < n; i++)
        square += (x[i] - *mean) * (x[i] - *mean);
    *deviation = square > 1e-18 * n ? sqrt(square / n) : 1;
}

struct scores {
    uint32_t n;
    const double *similarity, *skew;
    double means[2], deviations[2];
};

static double score(const struct scores *s, uint32_t i)
{
    return (s->similarity[i] - s->means[0]) / s->deviations[0] -
           (s->skew[i] - s->means[1]) / s->deviations[1];
}

/* The between-class variance of the run [first, last]. Negative: its mean is not the larger. */
static double between(const struct scores *s, uint32_t first, uint32_t last)
{
    double inside = 0, outside = 0;
    uint32_t n_in = last - first + 1, n_out = s->n - n_in;
    for (uint32_t i = 0; i < s->n; i++)
        if (i >= first && i <= last)
            inside += score(s, i);
        else
            outside += score(s, i);
    double gap = inside / n_in - outside / n_out;
    return gap > 0 ? (double)n_in * n_out / s->n * gap * gap : -1;
}

void groups_find(uint32_t n, const double *similarity, const double *skew, enum layer_group *group)
{
    struct scores s = {.n = n, .similarity = similarity, .skew = skew};
    double best = 0;
    uint32_t from = 0, to = 0;
    for (uint32_t i = 0; i < n; i++)
        group[i] = GROUP_INPUT;
    if (n < 3)
        return;
    level(n, similarity, &s.means[0], &s.deviations[0]);
    level(n, skew, &s.means[1], &s.deviations[1]);
    for (uint32_t first = 1; first + 1 < n; first++)
        for (uint32_t last = first; last + 1 < n; last++) {
            double b = between(&s, first, last);
            if (b > best + 1e-9 || (b > best - 1e-9 && from && last - first > to - from)) {
                best = b > best ? b : best;
                from = first;
                to = last;
            }
        }
    for (uint32_t i = 0; from && i < n; i++)
        group[i] = i < from ? GROUP_INPUT : i <= to ? GROUP_MIDDLE : GROUP_OUTPUT;
}
