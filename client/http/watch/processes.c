/* Processes; see processes.h. The supervisor gives the states; where there is none, as under
 * systemd, each process's own health does. */
#include "client/http/watch/processes.h"

#include "client/state/deployment_status.h"
#include "daemon/run_dir.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOG_LINES 6
#define LOG_BYTES 4096 /* of the log's end, at most */

/* The start of the last LOG_LINES lines of text. */
static const char *last_lines(const char *text, size_t len)
{
    const char *at = text + len;
    unsigned newlines = 0;
    while (at > text && newlines <= LOG_LINES)
        newlines += *--at == '\n';
    return newlines > LOG_LINES ? at + 1 : text;
}

static size_t read_end(const char *path, char *text)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    off_t size = lseek(fd, 0, SEEK_END), from = size > LOG_BYTES ? size - LOG_BYTES : 0;
    ssize_t n = pread(fd, text, LOG_BYTES, from);
    close(fd);
    if (n <= 0)
        return 0;
    char *whole = from ? memchr(text, '\n', (size_t)n) : NULL; /* begins within a line */
    size_t skip = whole ? (size_t)(whole + 1 - text) : 0;
    memmove(text, text + skip, (size_t)n - skip);
    return (size_t)n - skip;
}

/* The last lines of a log, as JSON strings with commas. */
static void log_json(const char *run, const char *process, struct strbuf *out)
{
    char file[64], place[RUN_DIR_BYTES], path[RUN_PATH_BYTES], text[LOG_BYTES];
    snprintf(file, sizeof file, "%s.log", process);
    run_dir_of(run, process, place);
    run_dir_file(place, file, path);
    size_t len = read_end(path, text);
    const char *separator = "", *end = text + len;
    for (const char *line = last_lines(text, len); line < end;) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        const char *stop = newline ? newline : end;
        strbuf_printf(out, "%s", separator);
        strbuf_json_string(out, line, (size_t)(stop - line));
        separator = ",";
        line = stop + 1;
    }
}

static void number_or_null(struct strbuf *out, const char *key, bool known, uint64_t value)
{
    if (known)
        strbuf_printf(out, ",\"%s\":%" PRIu64, key, value);
    else
        strbuf_printf(out, ",\"%s\":null", key);
}

/* What is known of a process, without its log and the end of the object; nothing where it does not
 * run. supervised NULL: there is no supervisor. */
static void state_json(const char *run, const char *name,
                       const struct deployment_process *supervised, struct strbuf *out)
{
    Moed__V1__Reply *reply = NULL;
    struct error e = {0};
    pid_t pid = supervised ? supervised->pid : run_dir_hint(run, name);
    if (!pid && !supervised)
        return;
    bool answers = pid && deployment_health(run, name, &reply, &e) == ERROR_OK;
    const char *state = supervised                        ? supervised->state
                        : answers && reply->health->ready ? "ready"
                                                          : "starting";
    strbuf_printf(out, "{\"name\":\"%s\"", name);
    number_or_null(out, "pid", pid, (uint64_t)pid);
    strbuf_printf(out, ",\"state\":");
    strbuf_json_string(out, state, strlen(state));
    number_or_null(out, "rss_bytes", answers, answers ? reply->health->memory_bytes : 0);
    number_or_null(out, "restarts", supervised, supervised ? supervised->restarts : 0);
    if (reply)
        moed__v1__reply__free_unpacked(reply, NULL);
}

static void add_process(struct strbuf *out, const struct strbuf *state, const char *log)
{
    strbuf_printf(out, "%s", out->data[out->len - 1] == '[' ? "" : ",");
    strbuf_append(out, state->data, state->len);
    strbuf_printf(out, ",\"log\":[%s]}", log);
}

static void process_json(const char *run, const char *name,
                         const struct deployment_process *supervised, struct strbuf *all,
                         struct strbuf *without)
{
    struct strbuf state, log;
    strbuf_init(&state);
    strbuf_init(&log);
    state_json(run, name, supervised, &state);
    log_json(run, name, &log);
    all->failed = all->failed || state.failed || log.failed;
    if (state.len && !all->failed && !without->failed) {
        const char *lines = log.len ? log.data : "";
        add_process(all, &state, lines);
        add_process(without, &state, strcmp(name, "http") == 0 ? "" : lines);
    }
    strbuf_fini(&state);
    strbuf_fini(&log);
}

void processes_json(const char *run, struct strbuf *all, struct strbuf *without)
{
    struct deployment_status *s = malloc(sizeof *s); /* large */
    struct error e = {0};
    bool supervised = s && deployment_status(run, s, &e) == ERROR_OK;
    strbuf_printf(all, "[");
    strbuf_printf(without, "[");
    for (unsigned i = 0; i < SUPERVISE_PROCESSES && !all->failed && !without->failed; i++) {
        const char *name = supervise_process_names[i];
        const struct deployment_process *p = supervised ? deployment_status_find(s, name) : NULL;
        if (p || !supervised)
            process_json(run, name, p, all, without);
    }
    strbuf_printf(all, "]");
    strbuf_printf(without, "]");
    free(s);
}
