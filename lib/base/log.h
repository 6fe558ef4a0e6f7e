/* Logging: one line to standard error: time, level, component, message. The token path does not
 * log: it counts. Thread-safe: each line is one write(2). */
#ifndef MOED_BASE_LOG_H
#define MOED_BASE_LOG_H

#include <stdbool.h>

enum log_level {
    LOG_LEVEL_NONE = -1,
    LOG_LEVEL_ERROR,
    LOG_LEVEL_WARN,
    LOG_LEVEL_INFO,
    LOG_LEVEL_DEBUG
};

/* Once at start, before threads. Borrows component, a literal. Where standard error is the
 * journal's
 * ($JOURNAL_STREAM), lines begin with a priority, "<3>". */
void log_init(const char *component, enum log_level threshold);
/* That priority, for lines that others write; "": none. */
const char *log_priority(enum log_level level);
/* From now on each line is a JSON object: {"time", "level", "component", "message"}. */
void log_use_json(void);
/* Whether lines of this level are written. */
bool log_shows(enum log_level level);
int log_level_parse(const char *name, enum log_level *out); /* 0, or -1 for an unknown name */

void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The time now, as it stands in lines: "2026-01-31T12:00:00.000Z". */
#define LOG_TIME_BYTES 32
void log_time(char out[LOG_TIME_BYTES]);

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)  log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
