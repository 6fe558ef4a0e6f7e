/* Progress on standard error: a bar on a terminal, elsewhere a line every 3 seconds. */
#ifndef MOED_CLI_PROGRESS_H
#define MOED_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool terminal;
    bool drawn;        /* the terminal's line holds something of ours */
    uint64_t shown_ns; /* elsewhere: when the last line was written */
    char last[128];    /* the text of the last line */
    double started_s;  /* when progress_begin was called */
    double due_s;      /* progress_is_due is false before */
};

void progress_begin(struct progress *p);
/* Shows "NAME: DETAIL" in one line, with a bar where the detail holds "NN%". */
void progress_show(struct progress *p, const char *name, const char *detail);

/* True at most five times a second: for callers that compute what they show. */
bool progress_is_due(struct progress *p);
/* Shows the percentage, `figures` (ends in ", " or is empty), tokens a second and seconds left. */
void progress_show_tokens(struct progress *p, const char *name, const char *figures, uint64_t done,
                          uint64_t total);

void progress_end(struct progress *p); /* clears the line on a terminal */

#endif
