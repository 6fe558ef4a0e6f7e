/* Groups of a batch's rows. Products that round otherwise than the definition of kernels/kernels.h
 * (exec.h) compute each group by itself: a result depends on the rows of its group and on no other
 * rows of the batch. Rows of no group are computed by the definition. */
#ifndef MOED_EXEC_ROW_GROUPS_H
#define MOED_EXEC_ROW_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

/* Rows [first, first + n) of the batch. */
struct row_group {
    uint32_t first, n;
};

struct row_groups {
    const struct row_group *groups; /* [n], ascending, without a common row */
    uint32_t n;
};

/* Some rows of a list that follow each other and belong together: of one group, or of none. */
struct row_run {
    uint32_t n;
    bool grouped;
};

/* The run that begins at entry `at` of rows[0..n_rows), which ascends; rows NULL: row i is i.
 * at < n_rows. */
static inline struct row_run row_groups_run(const struct row_groups *g, const uint32_t *rows,
                                            uint32_t n_rows, uint32_t at)
{
    uint32_t row = rows ? rows[at] : at, i = 0, n = 1;
    while (i < g->n && g->groups[i].first + g->groups[i].n <= row)
        i++;
    bool grouped = i < g->n && g->groups[i].first <= row;
    uint32_t end = grouped    ? g->groups[i].first + g->groups[i].n
                   : i < g->n ? g->groups[i].first
                              : UINT32_MAX;
    if (!rows)
        return (struct row_run){(end < n_rows ? end : n_rows) - at, grouped};
    while (at + n < n_rows && rows[at + n] < end)
        n++;
    return (struct row_run){n, grouped};
}

#endif
