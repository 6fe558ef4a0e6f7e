/* Compares one policy of a grid's results, the subject, with the others, cell by cell. A cell's
 * ratio is the geometric mean over the seeds of the subject's speed by the other's. */
#ifndef MOED_REPLAY_SCORE_H
#define MOED_REPLAY_SCORE_H

#include "bench/replay/grid_run.h"

#define SCORE_TIE 0.02 /* ratios within 2 % of 1 */

enum { SCORE_MOST_POLICIES = 64 };

/* Others, beside the index of a policy. */
enum {
    SCORE_BEST_OTHER = SCORE_MOST_POLICIES, /* of the cell */
    SCORE_BEST_PRESET, /* of those that are not the subject with parts replaced */
};

struct score_cell {
    const struct grid_job *job; /* of its first seed */
    double vram;
    uint32_t batch;
    double *log_speed; /* [n_policies][n_seeds], NaN: none; bound: in the last row */
};

struct score_table {
    char policies[SCORE_MOST_POLICIES][64];
    uint32_t n_policies, n_seeds, subject;
    struct score_cell *cells;
    uint32_t n_cells;
    double *log_speeds;
};

enum score_metric { SCORE_DECODE, SCORE_PREFILL };

/* rows: of grid_read; their jobs are borrowed. ERROR_USAGE: the subject has no results. */
enum error_code score_table_init(struct score_table *s, enum score_metric metric,
                                 const char *subject, const struct grid_row *rows, uint32_t n_rows,
                                 struct error *e);
void score_table_fini(struct score_table *s); /* takes a zeroed one */

/* Mean over the seeds; NaN: the policy has no speed here. policy n_policies: the bound. */
double score_log_speed(const struct score_cell *c, const struct score_table *s, uint32_t policy);
/* The policy that `other` means in this cell. n_policies: none. */
uint32_t score_other(const struct score_table *s, const struct score_cell *c, uint32_t other);

/* A geometric mean with its confidence interval of 95 %, by Student's distribution over the seeds;
 * NaN with one seed. */
struct score_mean {
    double mean, low, high;
};

struct score_sum {
    uint32_t cells, wins, ties, losses;
    uint32_t first; /* cells with a ratio of at least 1 */
    struct score_mean ratio;
    double least, most; /* ratios of cells */
};

/* keep NULL: all cells. Cells without both speeds do not count. */
typedef bool score_keep(const void *arg, const struct score_cell *c);
struct score_sum score_against(const struct score_table *s, uint32_t other, score_keep *keep,
                               const void *arg);
/* The ratio of one cell. */
struct score_mean score_cell_ratio(const struct score_table *s, const struct score_cell *c,
                                   uint32_t other);

enum score_verdict { SCORE_WIN, SCORE_EVEN, SCORE_LOSS };
enum score_verdict score_verdict(double ratio);

#endif
