/* Plots of results: one SVG picture for each budget and batch, with a horizontal bar for each
 * policy.
 */
#ifndef MOED_REPLAY_REPORT_PLOT_H
#define MOED_REPLAY_REPORT_PLOT_H

#include "bench/replay/report.h"

#include <stdbool.h>

enum { PLOT_MOST = 3 };

enum plot_kind {
    PLOT_BARS,
    PLOT_BOUND,        /* a line at the bound: first value / second value */
    PLOT_REACH,        /* a line at the second value */
    PLOT_PART,         /* the second value is a part of the first, drawn in another colour */
    PLOT_SIDE_BY_SIDE, /* n thin bars, one below the other */
};

struct plot {
    const char *title, *unit, *note;
    enum plot_kind kind;
    bool share;               /* the axis always ends at 1 */
    bool least_is_best;       /* which bar is drawn darker */
    uint32_t n;               /* values drawn as bars */
    size_t offset[PLOT_MOST]; /* in struct replay_result */
    double scale;             /* for the bars: from the result's unit to the displayed unit */
    const char *label[PLOT_MOST];
};

/* True: at least one result has the first value. */
bool plot_has_figures(const struct replay_report *r, const struct plot *p);
/* All pictures of a plot with the same batch have the same axis. */
void plot_draw(const struct replay_report *r, const struct plot *p, const struct report_group *g,
               struct strbuf *out);

/* The style sheet of the pages (report_html.c). */
extern const char report_style[];
/* Escapes text for XML. Characters that XML does not allow become '?'. */
void html_text(struct strbuf *out, const char *text);

#endif
