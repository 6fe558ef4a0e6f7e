/* Logging to standard error; see log.h. */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *log_component = "moed";
static enum log_level log_threshold = LOG_LEVEL_INFO;
static const char *const level_names[] = {"error", "warn", "info", "debug"};

void log_init(const char *component, enum log_level threshold)
{
    log_component = component;
    log_threshold = threshold;
}

int log_level_parse(const char *name, enum log_level *out)
{
    for (int i = 0; i < 4; i++)
        if (strcmp(name, level_names[i]) == 0) {
            *out = (enum log_level)i;
            return 0;
        }
    return -1;
}

void log_line(enum log_level level, const char *format, ...)
{
    if (level > log_threshold)
        return;
    int saved_errno = errno;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct tm utc;
    gmtime_r(&now.tv_sec, &utc);
    char line[1024];
    int n = snprintf(line, sizeof line, "%s %s %04d-%02d-%02dT%02d:%02d:%02d.%03ldZ ",
                     level_names[level], log_component, utc.tm_year + 1900, utc.tm_mon + 1,
                     utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, now.tv_nsec / 1000000);
    errno = saved_errno; /* for %m */
    va_list args;
    va_start(args, format);
    int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
    va_end(args);
    size_t len = (size_t)n + (m > 0 ? (size_t)m : 0);
    if (len > sizeof line - 2)
        len = sizeof line - 2;
    line[len++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, len);
    (void)written; /* a log that cannot be written cannot be reported either */
    errno = saved_errno;
}
