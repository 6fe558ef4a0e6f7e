/* The report of a grid: how `moed` compares with the other policies, with all its losses. */
#ifndef MOED_REPLAY_GRID_REPORT_H
#define MOED_REPLAY_GRID_REPORT_H

#include "bench/replay/score.h"

#include "base/strbuf.h"

#define GRID_SUBJECT "moed"

struct grid_report {
    const struct grid *grid;
    const struct grid_row *rows; /* of grid_read */
    uint32_t n_rows;
    const char *command;
    struct score_table decode, prefill;
};

/* Markdown, or a self-contained page with curves. */
void grid_report_text(const struct grid_report *r, bool html, struct strbuf *out);
/* The first table, for a terminal. */
void grid_report_summary(const struct grid_report *r, struct strbuf *out);
/* A row for each cell: its axes, the subject's speed, the best other, the ratio and its interval.
 */
void grid_report_csv(const struct grid_report *r, struct strbuf *out);
/* SVG: speeds over the share of the experts on the device, of each model and batch of the section
 * "curves". */
void grid_report_curves(const struct score_table *decode, struct strbuf *out);

#endif
