/* Logging to standard error; see log.h. */
#include "base/log.h"

#include "base/strbuf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *log_component = "moed";
static enum log_level log_threshold = LOG_LEVEL_INFO;
static _Atomic bool log_json;
static bool log_journal;
static const char *const level_names[] = {"error", "warn", "info", "debug"};

/* Whether standard error is the journal's socket: journald takes a priority in front of a line. */
static bool writes_to_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat s;
    return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
           fstat(STDERR_FILENO, &s) == 0 && s.st_dev == device && s.st_ino == inode;
}

const char *log_priority(enum log_level level)
{
    static const char *const priorities[] = {"<3>", "<4>", "<6>", "<7>"}; /* syslog's */
    return log_journal ? priorities[level] : "";
}

void log_init(const char *component, enum log_level threshold)
{
    log_journal = writes_to_journal();
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

bool log_shows(enum log_level level)
{
    return level <= log_threshold;
}

void log_use_json(void)
{
    atomic_store_explicit(&log_json, true, memory_order_relaxed);
}

void log_time(char out[LOG_TIME_BYTES])
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct tm utc;
    gmtime_r(&now.tv_sec, &utc);
    size_t n = strftime(out, LOG_TIME_BYTES, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(out + n, LOG_TIME_BYTES - n, ".%03ldZ", now.tv_nsec / 1000000);
}

static void write_line(const char *line, size_t len)
{
    ssize_t written = write(STDERR_FILENO, line, len);
    (void)written; /* there is no place left to report a failure to log */
}

static void write_json(enum log_level level, const char *time, const char *message)
{
    struct strbuf b;
    strbuf_init(&b);
    strbuf_printf(&b, "%s{\"time\":\"%s\",\"level\":\"%s\",\"component\":\"%s\",\"message\":",
                  log_priority(level), time, level_names[level], log_component);
    strbuf_json_string(&b, message, strlen(message));
    strbuf_printf(&b, "}\n");
    if (!b.failed)
        write_line(b.data, b.len);
    strbuf_fini(&b);
}

/* A message may quote what others wrote, a path or a name: it must not make lines of its own, nor
 * reach a terminal as an escape sequence. */
static void hide_controls(char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            text[i] = '?';
}

void log_line(enum log_level level, const char *format, ...)
{
    if (level > log_threshold)
        return;
    int saved_errno = errno;
    char time[LOG_TIME_BYTES], line[1024];
    bool json = atomic_load_explicit(&log_json, memory_order_relaxed);
    log_time(time);
    int n = log_json ? 0
                     : snprintf(line, sizeof line, "%s%s %s %s ", log_priority(level), time,
                                level_names[level], log_component);
    errno = saved_errno; /* for %m */
    va_list args;
    va_start(args, format);
    int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
    va_end(args);
    size_t len = (size_t)n + (m > 0 ? (size_t)m : 0);
    if (len > sizeof line - 2)
        len = sizeof line - 2;
    if (json) {
        line[len] = '\0';
        write_json(level, time, line);
    } else {
        hide_controls(line, len);
        line[len++] = '\n';
        write_line(line, len);
    }
    errno = saved_errno;
}
