/* The log files of a deployment's processes, read as one log: merged by time, from where the reader
 * was, across a rename of a long log. Not thread-safe. */
#ifndef MOED_CLI_LOG_READER_H
#define MOED_CLI_LOG_READER_H

#include "client/cli/deployment.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define LOG_READER_TIME_BYTES 25 /* with the NUL */
#define LOG_READER_NAMES      (SUPERVISE_PROCESSES + 1)
#define LOG_READER_LOGS       (RUN_PLACES * LOG_READER_NAMES)

struct log_position {
    ino_t inode;    /* 0: not read yet */
    off_t position; /* up to where it has been read */
};

struct process_log {
    const char *process; /* a literal */
    char path[PATH_MAX];
    bool wanted;
    struct log_position now, old;     /* old: renamed to .1 */
    char time[LOG_READER_TIME_BYTES]; /* of the last line that was read; blanks: none */
};

struct log_view {
    FILE *out;
    uint64_t limit;                    /* of lines: the last ones */
    char since[LOG_READER_TIME_BYTES]; /* as in lines, perhaps cut off; "": all */
    bool json;                         /* a JSON object a line */
};

/* Fills logs[LOG_READER_LOGS] with the files in `run`, of all processes, or of `only`. They need
 * not exist yet. Nothing is read. */
void log_reader_init(struct process_log *logs, const char *run, const char *only);
/* The lines up to now are not printed. */
void log_reader_skip(struct process_log *logs);
/* Prints the new lines of the wanted logs, by time. follow: whole lines only, as the rest comes
 * later. False: no memory; it has complained. */
bool log_reader_print(struct process_log *logs, const struct log_view *view, bool follow);

#endif
