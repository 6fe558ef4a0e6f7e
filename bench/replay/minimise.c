/* Nelder and Mead's simplex; see minimise.h. */
#include "bench/replay/minimise.h"

#include <math.h>
#include <string.h>

struct corner {
    double x[MINIMISE_MOST], value;
};

struct simplex {
    const struct minimise *of;
    struct corner corners[MINIMISE_MOST + 1]; /* in order of value, the best first */
    uint32_t calls;
};

static void evaluate(struct simplex *s, struct corner *c)
{
    for (uint32_t i = 0; i < s->of->n; i++)
        c->x[i] = fmin(fmax(c->x[i], s->of->least[i]), s->of->most[i]);
    c->value = s->of->value(s->of->arg, c->x);
    if (isnan(c->value))
        c->value = INFINITY;
    s->calls++;
}

/* Insertion sort, because most corners are in order. Equal corners keep their order. */
static void sort(struct simplex *s)
{
    for (uint32_t i = 1; i <= s->of->n; i++) {
        struct corner c = s->corners[i];
        uint32_t k = i;
        for (; k > 0 && s->corners[k - 1].value > c.value; k--)
            s->corners[k] = s->corners[k - 1];
        s->corners[k] = c;
    }
}

static void begin(struct simplex *s, const double *x, const double *step)
{
    uint32_t n = s->of->n;
    for (uint32_t i = 0; i <= n; i++) {
        struct corner *c = &s->corners[i];
        memcpy(c->x, x, n * sizeof *x);
        if (i > 0) /* away from the boundary, if the point is at one */
            c->x[i - 1] += x[i - 1] + step[i - 1] > s->of->most[i - 1] ? -step[i - 1] : step[i - 1];
        evaluate(s, c);
    }
    sort(s);
}

/* The centre of all corners except the worst, moved away from the worst by `by` of the distance. */
static struct corner beyond(struct simplex *s, double by)
{
    uint32_t n = s->of->n;
    struct corner c = {0};
    for (uint32_t i = 0; i < n; i++) {
        double middle = 0;
        for (uint32_t k = 0; k < n; k++)
            middle += s->corners[k].x[i] / n;
        c.x[i] = middle + by * (middle - s->corners[n].x[i]);
    }
    evaluate(s, &c);
    return c;
}

static void shrink(struct simplex *s)
{
    for (uint32_t k = 1; k <= s->of->n; k++) {
        for (uint32_t i = 0; i < s->of->n; i++)
            s->corners[k].x[i] = (s->corners[k].x[i] + s->corners[0].x[i]) / 2;
        evaluate(s, &s->corners[k]);
    }
}

static void step_simplex(struct simplex *s)
{
    struct corner *worst = &s->corners[s->of->n];
    struct corner reflected = beyond(s, 1);
    if (reflected.value < s->corners[0].value) {
        struct corner expanded = beyond(s, 2);
        *worst = expanded.value < reflected.value ? expanded : reflected;
    } else if (reflected.value < s->corners[s->of->n - 1].value) {
        *worst = reflected;
    } else {
        bool outside = reflected.value < worst->value;
        struct corner contracted = beyond(s, outside ? 0.5 : -0.5);
        if (contracted.value < fmin(reflected.value, worst->value))
            *worst = contracted;
        else
            shrink(s);
    }
    sort(s);
}

double minimise(const struct minimise *m, double *x, const double *step)
{
    struct simplex s = {.of = m};
    begin(&s, x, step);
    while (s.calls < m->most_calls && s.corners[m->n].value - s.corners[0].value > m->tolerance)
        step_simplex(&s);
    memcpy(x, s.corners[0].x, m->n * sizeof *x);
    return s.corners[0].value;
}
