/* The line through the times of recent batches; see prompt_pace.h. */
#include "prompt_pace.h"

#define KEPT 0.875
/* Batches whose sizes vary less, relative to their mean, say nothing about the slope. */
#define LEAST_VARIANCE 0.01

void prompt_pace_add(struct prompt_pace *p, uint32_t rows, double ns)
{
    p->batches = p->batches * KEPT + 1;
    p->rows = p->rows * KEPT + rows;
    p->rows_rows = p->rows_rows * KEPT + (double)rows * rows;
    p->ns = p->ns * KEPT + ns;
    p->rows_ns = p->rows_ns * KEPT + rows * ns;
}

uint32_t prompt_pace_rows(const struct prompt_pace *p, double stall_ns, uint32_t least,
                          uint32_t most)
{
    if (p->rows <= 0 || p->ns <= 0)
        return most;
    double batch_ns = 0, row_ns = p->ns / p->rows;
    double variance = p->batches * p->rows_rows - p->rows * p->rows;
    if (variance > LEAST_VARIANCE * p->rows * p->rows) {
        double slope = (p->batches * p->rows_ns - p->rows * p->ns) / variance;
        slope = slope < 0 ? 0 : slope < row_ns ? slope : row_ns; /* of a line not below 0 at 0 */
        batch_ns = (p->ns - slope * p->rows) / p->batches;
        row_ns = slope;
    }
    double left_ns = stall_ns - batch_ns;
    if (left_ns < stall_ns / 2 || left_ns >= row_ns * most)
        return most;
    double rows = left_ns / row_ns;
    return rows < least ? least : (uint32_t)rows;
}
