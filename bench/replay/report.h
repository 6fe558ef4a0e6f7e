/* Results as a table for terminals, as CSV, and as a page of plots. */
#ifndef MOED_REPLAY_REPORT_H
#define MOED_REPLAY_REPORT_H

#include "base/strbuf.h"
#include "bench/replay/result.h"

#include <stdbool.h>
#include <stddef.h>

struct replay_report {
    const char *model, *trace, *machine; /* in words */
    const char *machine_what;
    const char *command;                 /* as it was given */
    const struct replay_result *results; /* those of a budget and a batch, in the order wanted */
    uint32_t n_results;
};

/* width: columns of the terminal, 0: no limit. What does not fit goes below, with the policies again. */
void report_table(const struct replay_report *r, uint32_t width, struct strbuf *out);
/* RFC 4180, with a header; a figure that does not exist is empty. Rates, seconds, bytes and shares, unrounded. */
void report_csv(const struct replay_report *r, struct strbuf *out);
/* One file that needs no other; well-formed XML. */
void report_html(const struct replay_report *r, struct strbuf *out);

/* ---- What the three have in common ---- */

enum report_format {
    REPORT_DIGITS, /* three digits or more */
    REPORT_SHARE,  /* in per cent, with one decimal */
};

/* A figure of a result, a double. */
struct report_column {
    const char *key;  /* in CSV, with its unit */
    const char *name; /* above a table; "\n" may break it */
    const char *unit; /* as shown */
    const char *what; /* one line */
    size_t offset;    /* in struct replay_result */
    double scale;     /* from the result's unit to the one shown */
    enum report_format format;
};
/* In tables and plots, and beside those in CSV. End with a NULL key. */
extern const struct report_column report_columns[], report_more_columns[];

double report_value(const struct replay_result *r, const struct report_column *c); /* unscaled */
/* As shown, without the unit; "-" where there is none. */
void report_format_value(const struct report_column *c, double value, char out[32]);

/* Results of one budget and batch. Groups come in the order in which results first name them. */
struct report_group {
    double vram;
    uint32_t batch;
};
/* The i-th; false after the last. */
bool report_group_at(const struct replay_report *r, uint32_t i, struct report_group *out);
bool report_in_group(const struct replay_result *r, const struct report_group *g);
/* "vram 25 %, batch 4" */
void report_group_title(const struct report_group *g, char out[64]);

#endif
