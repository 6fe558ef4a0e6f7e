/* Processes; see processes.h. The supervisor gives the states; where there is none, as under
 * systemd, each process's own health does. */
#include "client/http/watch/processes.h"

#include "client/cli/deployment_status.h"
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

static void log_json(const char *run, const char *process, struct strbuf *out)
{
    char file[64], path[RUN_PATH_BYTES], text[LOG_BYTES];
    snprintf(file, sizeof file, "%s.log", process);
    run_dir_file(run, file, path);
    size_t len = read_end(path, text);
    const char *separator = "", *end = text + len;
    strbuf_printf(out, ",\"log\":[");
    for (const char *line = last_lines(text, len); line < end;) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        const char *stop = newline ? newline : end;
        strbuf_printf(out, "%s", separator);
        strbuf_json_string(out, line, (size_t)(stop - line));
        separator = ",";
        line = stop + 1;
    }
    strbuf_printf(out, "]");
}

static void number_or_null(struct strbuf *out, const char *key, bool known, uint64_t value)
{
    if (known)
        strbuf_printf(out, ",\"%s\":%" PRIu64, key, value);
    else
        strbuf_printf(out, ",\"%s\":null", key);
}

/* supervised NULL: there is no supervisor. */
static void process_json(const char *run, const char *name,
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
    strbuf_printf(out, "%s{\"name\":\"%s\"", out->data[out->len - 1] == '[' ? "" : ",", name);
    number_or_null(out, "pid", pid, (uint64_t)pid);
    strbuf_printf(out, ",\"state\":");
    strbuf_json_string(out, state, strlen(state));
    number_or_null(out, "rss_bytes", answers, answers ? reply->health->memory_bytes : 0);
    number_or_null(out, "restarts", supervised, supervised ? supervised->restarts : 0);
    log_json(run, name, out);
    strbuf_printf(out, "}");
    if (reply)
        moed__v1__reply__free_unpacked(reply, NULL);
}

void processes_json(const char *run, struct strbuf *out)
{
    struct deployment_status *s = malloc(sizeof *s); /* large */
    struct error e = {0};
    bool supervised = s && deployment_status(run, s, &e) == ERROR_OK;
    strbuf_printf(out, "[");
    for (unsigned i = 0; i < SUPERVISE_PROCESSES && !out->failed; i++) {
        const char *name = supervise_process_names[i];
        const struct deployment_process *p = supervised ? deployment_status_find(s, name) : NULL;
        if (p || !supervised)
            process_json(run, name, p, out);
    }
    strbuf_printf(out, "]");
    free(s);
}
