/* Prints results as a table for terminals, as CSV, or as an HTML page of plots. */
#ifndef MOED_REPLAY_REPORT_H
#define MOED_REPLAY_REPORT_H

#include "base/strbuf.h"
#include "bench/replay/result.h"

#include <stdbool.h>
#include <stddef.h>

struct replay_report {
    const char *model, *trace, *machine; /* for display */
    const char *machine_what;
    const char *command;                 /* as the user wrote it */
    const struct replay_result *results; /* in display order within a budget and batch */
    uint32_t n_results;
    bool without_solver; /* the policy `optimal` is left out, because this build has no solver */
};

/* width: columns of the terminal, 0: no limit. Columns that do not fit follow in a second table
 * below. */
void report_table(const struct replay_report *r, uint32_t width, struct strbuf *out);
/* RFC 4180, with a header line. A value that does not exist is empty; so are all values of a policy
 * that is left out. Values are unrounded, in seconds, bytes, rates and shares. */
void report_csv(const struct replay_report *r, struct strbuf *out);
/* One self-contained file of well-formed XML. */
void report_html(const struct replay_report *r, struct strbuf *out);

/* ---- Shared by the three formats ---- */

#define REPORT_WITHOUT_SOLVER "left out: moed-replay was built without a solver (GLPK)"

enum report_format {
    REPORT_DIGITS, /* three digits or more */
    REPORT_SHARE,  /* in per cent, with one decimal */
};

/* A member of struct replay_result of type double. */
struct report_column {
    const char *key;  /* name in CSV, with the unit */
    const char *name; /* heading in a table; "\n" may break it */
    const char *unit; /* as displayed */
    const char *what; /* description, one line */
    size_t offset;    /* in struct replay_result */
    double scale;     /* converts to `unit` */
    enum report_format format;
};
/* report_columns: in all three formats; report_more_columns: only in CSV. End with a NULL key. */
extern const struct report_column report_columns[], report_more_columns[];

double report_value(const struct replay_result *r, const struct report_column *c); /* unscaled */
/* The displayed text without the unit; "-" if the value does not exist. */
void report_format_value(const struct report_column *c, double value, char out[32]);

/* Results of one budget and batch. Groups are ordered by their first result. */
struct report_group {
    double vram;
    uint32_t batch;
};
/* Finds group i; false after the last one. */
bool report_group_at(const struct replay_report *r, uint32_t i, struct report_group *out);
bool report_in_group(const struct replay_result *r, const struct report_group *g);
/* The policy's name, with "*" where the result has a note. */
void report_policy_name(const struct replay_result *r, char out[72]);
/* Note i of the notes of all results, "promoe: next-gate in place of ...", each once. False after
 * the last one. */
bool report_note_at(const struct replay_report *r, uint32_t i, char out[192]);
/* "vram 25 %, batch 4" */
void report_group_title(const struct report_group *g, char out[64]);

#endif
