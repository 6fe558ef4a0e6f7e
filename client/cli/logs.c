/* moed logs: the logs of a deployment's processes, merged by time, or of one; with -f what is
 * appended.
 *
 * A line's time is its third word, which log.c writes (2026-01-31T12:00:00.000Z: sorts as text). A
 * line without one (the words of a crash) belongs to the line before it. */
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/deployment.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_TAIL_BYTES (8 << 20) /* of each log, from its end */
#define TIME_BYTES     25        /* with the NUL */
#define FOLLOW_MS      200
#define N_LOGS         (SUPERVISE_PROCESSES + 1)

struct line {
    char time[TIME_BYTES];
    const char *text; /* in the log's buffer */
    size_t len;
    unsigned order; /* keeps lines of one time and one log in their order */
};

struct log {
    char path[RUN_PATH_BYTES];
    bool wanted;
    char *data;
    off_t position; /* up to where it has been read */
    ino_t inode;
};

static bool is_time(const char *p, size_t len)
{
    static const char pattern[] = "dddd-dd-ddTdd:dd:dd.dddZ";
    if (len < sizeof pattern - 1)
        return false;
    for (size_t i = 0; i < sizeof pattern - 1; i++)
        if (pattern[i] == 'd' ? p[i] < '0' || p[i] > '9' : p[i] != pattern[i])
            return false;
    return true;
}

/* The line's own time, or the one before it where it has none. */
static void find_time(struct line *line, const char *before)
{
    const char *p = line->text, *end = line->text + line->len;
    for (int word = 0; word < 2 && p; word++) {
        p = memchr(p, ' ', (size_t)(end - p));
        p = p ? p + 1 : NULL;
    }
    const char *time = p && is_time(p, (size_t)(end - p)) ? p : before;
    memcpy(line->time, time, TIME_BYTES - 1);
    line->time[TIME_BYTES - 1] = '\0';
}

/* Bytes from position to the end, at most the last MAX_TAIL_BYTES, from the start of a line. A log
 * that was rotated meanwhile is read from its start. Returns the number of bytes; *out is
 * malloc'ed. */
static size_t read_new(struct log *l, bool whole_lines, char **out)
{
    *out = NULL;
    int fd = open(l->path, O_RDONLY | O_CLOEXEC);
    struct stat s;
    if (fd < 0)
        return 0;
    if (fstat(fd, &s) != 0) {
        close(fd);
        return 0;
    }
    if (s.st_ino != l->inode || s.st_size < l->position)
        l->position = 0;
    l->inode = s.st_ino;
    off_t from = l->position;
    bool cut = s.st_size - from > MAX_TAIL_BYTES;
    if (cut)
        from = s.st_size - MAX_TAIL_BYTES;
    size_t len = (size_t)(s.st_size - from);
    char *data = len ? malloc(len) : NULL;
    ssize_t n = data ? pread(fd, data, len, from) : 0;
    close(fd);
    len = n > 0 ? (size_t)n : 0;
    if (whole_lines) { /* the rest comes next time */
        char *last = len ? memrchr(data, '\n', len) : NULL;
        len = last ? (size_t)(last + 1 - data) : 0;
    }
    l->position = from + (off_t)len;
    char *first = cut && len ? memchr(data, '\n', len) : NULL;
    if (first) {
        len -= (size_t)(first + 1 - data);
        memmove(data, first + 1, len);
    }
    *out = data;
    return len;
}

struct lines {
    struct line *items;
    size_t count, capacity;
};

static bool add_lines(struct lines *all, const char *data, size_t len)
{
    char before[TIME_BYTES] = "                        "; /* sorts before every time */
    for (size_t at = 0; at < len;) {
        const char *newline = memchr(data + at, '\n', len - at);
        size_t end = newline ? (size_t)(newline + 1 - data) : len;
        if (all->count == all->capacity) {
            size_t capacity = all->capacity ? all->capacity * 2 : 1024;
            struct line *items = realloc(all->items, capacity * sizeof *items);
            if (!items)
                return false;
            all->items = items;
            all->capacity = capacity;
        }
        struct line *line = &all->items[all->count];
        *line = (struct line){.text = data + at, .len = end - at, .order = (unsigned)all->count};
        find_time(line, before);
        memcpy(before, line->time, TIME_BYTES);
        all->count++;
        at = end;
    }
    return true;
}

static int compare_lines(const void *a, const void *b)
{
    const struct line *x = a, *y = b;
    int by_time = strcmp(x->time, y->time);
    return by_time ? by_time : x->order < y->order ? -1 : 1;
}

/* What is new in the wanted logs, by time, the last `limit` lines of it. False: cannot go on. */
static bool print_new(struct log *logs, uint64_t limit, bool follow)
{
    struct lines all = {0};
    bool ok = true;
    for (int i = 0; i < N_LOGS; i++) {
        size_t len = logs[i].wanted ? read_new(&logs[i], follow, &logs[i].data) : 0;
        ok = ok && add_lines(&all, logs[i].data, len);
    }
    if (!ok)
        ask_complain("logs: no memory for so many lines");
    if (ok && all.count) {
        qsort(all.items, all.count, sizeof *all.items, compare_lines);
        size_t first = all.count > limit ? all.count - (size_t)limit : 0;
        for (size_t i = first; i < all.count; i++)
            fwrite(all.items[i].text, 1, all.items[i].len, stdout);
        if (all.items[all.count - 1].text[all.items[all.count - 1].len - 1] != '\n')
            putchar('\n'); /* the last words of a crash */
        ok = fflush(stdout) == 0;
    }
    for (int i = 0; i < N_LOGS; i++) {
        free(logs[i].data);
        logs[i].data = NULL;
    }
    free(all.items);
    return ok;
}

static bool open_logs(const char *run, const char *only, struct log *logs)
{
    bool any = false;
    for (int i = 0; i < N_LOGS; i++) {
        const char *process = i < SUPERVISE_PROCESSES ? supervise_process_names[i] : "supervise";
        char file[64];
        snprintf(file, sizeof file, "%s.log", process);
        run_dir_file(run, file, logs[i].path);
        logs[i].wanted = !only || strcmp(only, process) == 0;
        any = any || (logs[i].wanted && access(logs[i].path, R_OK) == 0);
    }
    return any;
}

int logs_main(int argc, char **argv)
{
    const char *name = NULL;
    bool follow = false;
    uint64_t limit = 200;
    const struct option_spec table[] = {
        {"f", OPTION_BOOL, &follow, 0, 0, NULL, "go on printing what is appended"},
        {"n", OPTION_UINT, &limit, 0, 1e9, "LINES", "the last so many lines"},
        {"name", OPTION_STRING, &name, 0, 0, "N", "the deployment"},
        {0},
    };
    int n, exit_code;
    if (!deployment_arguments(table, "logs", "[PROCESS] [-f] [-n LINES] [--name N]",
                              "Prints the logs of memd, cpuexec, worker and supervise, merged by "
                              "time, or of one of them.\nLogs are kept after `moed down`.",
                              argc, argv, 0, 1, &n, &exit_code))
        return exit_code;
    const char *only = n == 1 ? argv[1] : NULL;
    char run[RUN_DIR_BYTES];
    if ((only && strcmp(only, "supervise") != 0 && !deployment_is_process("logs", only)) ||
        !deployment_path(name, run))
        return CLI_USAGE;
    struct log logs[N_LOGS] = {0};
    if (!open_logs(run, only, logs) && !(follow && deployment_has_processes(run))) {
        ask_complain("there is no log in %s: deployment %s has not been started", run,
                     name ? name : "default");
        return CLI_NOT_RUNNING;
    }
    while (print_new(logs, limit, follow)) {
        if (!follow)
            return CLI_OK;
        limit = UINT64_MAX; /* everything that is appended */
        poll(NULL, 0, FOLLOW_MS);
    }
    return CLI_FAILURE;
}
