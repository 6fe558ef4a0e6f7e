/* The line through two recent batches; see prompt_pace.h. */
#include "prompt_pace.h"

#include <stdbool.h>
#include <string.h>

#define FIRST_ROWS 256 /* of a batch with no other before it */
/* Batches whose sizes differ less say nothing about what a row takes. */
#define CONTRAST 2

/* A batch takes base_ns and row_ns for each row. */
struct line {
    double base_ns, row_ns;
};

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

void prompt_pace_add(struct prompt_pace *p, uint32_t rows, double ns)
{
    memmove(p->batches + 1, p->batches, sizeof p->batches - sizeof *p->batches);
    p->batches[0] = (struct prompt_batch){rows, ns};
}

/* The newest batch of another size than the last one. NULL: there is none. */
static const struct prompt_batch *find_other(const struct prompt_pace *p)
{
    double rows = p->batches[0].rows;
    for (uint32_t i = 1; i < PROMPT_PACE_KEPT && p->batches[i].rows > 0; i++)
        if (p->batches[i].rows >= rows * CONTRAST || p->batches[i].rows * CONTRAST <= rows)
            return &p->batches[i];
    return NULL;
}

static bool is_full(const struct prompt_pace *p)
{
    return p->batches[PROMPT_PACE_KEPT - 1].rows > 0;
}

/* b: NULL: the time grows with the rows. */
static struct line line_through(const struct prompt_batch *a, const struct prompt_batch *b,
                                double stall_ns)
{
    double mean_ns = a->ns / a->rows;
    if (!b)
        return (struct line){0, mean_ns};
    double slope = (a->ns - b->ns) / ((double)a->rows - b->rows);
    if (slope <= 0 && smaller(a->ns, b->ns) > stall_ns / 2)
        return (struct line){smaller(a->ns, b->ns), 0};
    if (slope <= 0) /* no line explains that fewer rows took longer, but another depth does */
        return (struct line){0, (a->ns + b->ns) / ((double)a->rows + b->rows)};
    slope = smaller(slope, mean_ns); /* of a line not below 0 at 0 */
    return (struct line){a->ns - slope * a->rows, slope};
}

uint32_t prompt_pace_rows(const struct prompt_pace *p, double stall_ns, uint32_t least,
                          uint32_t most)
{
    const struct prompt_batch *last = &p->batches[0];
    if (last->rows == 0 || last->ns <= 0)
        return FIRST_ROWS < most ? FIRST_ROWS : most;
    const struct prompt_batch *other = find_other(p);
    struct line line = line_through(last, other, stall_ns);
    double left_ns = stall_ns - line.base_ns, rows = 2.0 * last->rows;
    if (left_ns >= stall_ns / 2)
        rows = smaller(left_ns / line.row_ns, larger(rows, other ? 2.0 * other->rows : 0));
    uint32_t fewer = last->rows / CONTRAST;
    if (!other && is_full(p) && rows < most && fewer >= least)
        rows = fewer; /* shows what a row takes */
    return rows < least ? least : rows < most ? (uint32_t)rows : most;
}
