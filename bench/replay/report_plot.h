/* Plots of results: horizontal bars, a policy a row, one picture (SVG) for each budget and batch. */
#ifndef MOED_REPLAY_REPORT_PLOT_H
#define MOED_REPLAY_REPORT_PLOT_H

#include "bench/replay/report.h"

#include <stdbool.h>

enum { PLOT_MOST = 3 };

enum plot_kind {
    PLOT_BARS,
    PLOT_BOUND, /* a line where the value would be without the second figure, the share reached of it */
    PLOT_REACH,  /* a line at the second figure */
    PLOT_PART,   /* the second figure is the part of the first that is drawn in another colour */
    PLOT_BESIDE, /* n thin bars, one below the other */
};

struct plot {
    const char *title, *unit, *note;
    enum plot_kind kind;
    bool share;               /* the axis goes to 1, whatever the values */
    bool least_is_best;       /* which bar is drawn darker */
    uint32_t n;               /* figures of which there is a bar */
    size_t offset[PLOT_MOST]; /* in struct replay_result */
    double scale;             /* of those with a bar: from the result's unit to the one shown */
    const char *label[PLOT_MOST];
};

/* Some result has the first figure. */
bool plot_has_figures(const struct replay_report *r, const struct plot *p);
/* All pictures of a plot with the same batch have the same axis. */
void plot_draw(const struct replay_report *r, const struct plot *p, const struct report_group *g,
               struct strbuf *out);

/* Text in XML; characters that XML does not have become '?'. */
void html_text(struct strbuf *out, const char *text);

#endif
