/* Logging: one line to standard error, level and component first. Nothing logs on the token path:
 * there are counters there. Thread-safe; a line is written with one write(2). */
#ifndef MOED_BASE_LOG_H
#define MOED_BASE_LOG_H

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Set once at start, before threads: the component's name (borrowed, a literal) and the threshold. */
void log_init(const char *component, enum log_level threshold);
int log_level_parse(const char *name, enum log_level *out); /* 0, or -1 for an unknown name */

void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)  log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
