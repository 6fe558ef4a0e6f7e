/* How far something is, on standard error: a bar on a terminal, else a line now and then. */
#ifndef MOED_CLI_PROGRESS_H
#define MOED_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool terminal;
    bool drawn;        /* the terminal's line holds something of ours */
    uint64_t shown_ns; /* when the last line was written, elsewhere */
    char last[128];    /* what it said */
};

void progress_begin(struct progress *p);
/* `who` is doing `detail`, one line; where that holds "NN%" a bar shows it. */
void progress_show(struct progress *p, const char *who, const char *detail);
void progress_end(struct progress *p); /* clears the line on a terminal */

#endif
