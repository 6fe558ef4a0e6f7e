/* moed logs: prints the logs of a deployment's processes, merged by time, or of one process; with
 * -f also new lines.
 *
 * A line's time is its first word, as lib/base/log.c writes it (2026-01-31T12:00:00.000Z sorts as
 * text), or its first member where the line is JSON. A line without a time (a crash report) belongs
 * to the line before it.
 *
 * The supervisor renames a long log to .1 (deploy/process.c), and its process goes on in a new one
 * a moment later. So both are read. */
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
#include <time.h>
#include <unistd.h>

#define MAX_TAIL_BYTES (8 << 20) /* of each file, from its end */
#define TIME_BYTES     25        /* with the NUL */
#define FOLLOW_MS      200
#define N_NAMES        (SUPERVISE_PROCESSES + 1)
#define N_LOGS         (RUN_PLACES * N_NAMES)

struct line {
    char time[TIME_BYTES];
    const char *text; /* in the log's buffer */
    size_t len;
    unsigned order; /* keeps lines of one time and one log in their order */
    bool has_time, is_json;
    const char *process;
};

struct log_file {
    ino_t inode;    /* 0: not read yet */
    off_t position; /* up to where it has been read */
};

struct log {
    const char *process;
    char path[PATH_MAX];
    bool wanted;
    struct log_file now, old; /* old: renamed to .1 */
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

/* Sets the line's own time, or `before` where it has none. */
static void find_time(struct line *line, const char *before)
{
    static const char json[] = "{\"time\":\"";
    size_t at = line->len > sizeof json && memcmp(line->text, json, sizeof json - 1) == 0
                    ? sizeof json - 1
                    : 0;
    line->is_json = at > 0;
    line->has_time = is_time(line->text + at, line->len - at);
    memcpy(line->time, line->has_time ? line->text + at : before, TIME_BYTES - 1);
    line->time[TIME_BYTES - 1] = '\0';
}

/* Reads from the position to the end, at most the last MAX_TAIL_BYTES, from the start of a line.
 * Returns the number of bytes; the caller frees *out. */
static size_t read_new(int fd, bool whole_lines, off_t *position, char **out)
{
    struct stat s;
    *out = NULL;
    if (fstat(fd, &s) != 0)
        return 0;
    if (s.st_size < *position)
        *position = 0;
    off_t from = *position;
    bool cut = s.st_size - from > MAX_TAIL_BYTES;
    if (cut)
        from = s.st_size - MAX_TAIL_BYTES;
    size_t len = (size_t)(s.st_size - from);
    char *data = len ? malloc(len) : NULL;
    ssize_t n = data ? pread(fd, data, len, from) : 0;
    len = n > 0 ? (size_t)n : 0;
    if (whole_lines) { /* the rest comes next time */
        char *last = len ? memrchr(data, '\n', len) : NULL;
        len = last ? (size_t)(last + 1 - data) : 0;
    }
    *position = from + (off_t)len;
    char *first = cut && len ? memchr(data, '\n', len) : NULL;
    if (first) {
        len -= (size_t)(first + 1 - data);
        memmove(data, first + 1, len);
    }
    *out = data;
    return len;
}

/* -1: there is no such file. */
static int open_file(const char *path, ino_t *inode)
{
    struct stat s;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    *inode = fd >= 0 && fstat(fd, &s) == 0 ? s.st_ino : 0;
    return fd;
}

enum { OLD, NOW, FILES };

/* Opens the log (fds[NOW]) and the one before it (fds[OLD]), which its process may still write. The
 * log first: if it is renamed in between, both are the same file, which is then read once. */
static void open_files(struct log *l, int fds[FILES])
{
    char old_path[PATH_MAX + 2];
    ino_t now, old;
    snprintf(old_path, sizeof old_path, "%s.1", l->path);
    fds[NOW] = open_file(l->path, &now);
    fds[OLD] = open_file(old_path, &old);
    if (fds[OLD] >= 0 && old == now) {
        close(fds[OLD]);
        fds[OLD] = -1;
    } else if (fds[OLD] >= 0 && old != l->old.inode) {
        l->old = old == l->now.inode ? l->now : (struct log_file){old, 0};
    }
    if (now != l->now.inode && (fds[NOW] >= 0 || l->old.inode == l->now.inode))
        l->now = (struct log_file){now, 0};
}

struct lines {
    struct line *items;
    size_t count, capacity;
};

static bool add_lines(struct lines *all, const char *process, const char *data, size_t len)
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
        *line = (struct line){
            .text = data + at, .len = end - at, .order = (unsigned)all->count, .process = process};
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

/* ---- Printing ---- */

struct view {
    uint64_t limit; /* of lines */
    char since[TIME_BYTES];
    bool json;
};

/* The next word of the line's text; moves *at past it and a space. */
static size_t take_word(const char *text, size_t len, size_t *at, const char **word)
{
    *word = text + *at;
    const char *space = memchr(*word, ' ', len - *at);
    size_t n = space ? (size_t)(space - *word) : len - *at;
    *at += n + (space != NULL);
    return n;
}

/* {"time", "level", "component", "message"}, as log_use_json; a line of a crash report has the time
 * of the line before it, and no level. */
static void print_json(const struct line *line)
{
    size_t len = line->len, at = 0;
    struct strbuf b;
    if (len && line->text[len - 1] == '\n')
        len--;
    const char *component = line->process, *level = NULL, *word;
    size_t component_len = strlen(component), level_len = 0;
    strbuf_init(&b);
    if (line->has_time) {
        take_word(line->text, len, &at, &word);
        level_len = take_word(line->text, len, &at, &level);
        component_len = take_word(line->text, len, &at, &component);
    }
    strbuf_printf(&b, "{\"time\":\"%s\",\"level\":", line->time);
    if (level)
        strbuf_json_string(&b, level, level_len);
    else
        strbuf_printf(&b, "null");
    strbuf_printf(&b, ",\"component\":");
    strbuf_json_string(&b, component, component_len);
    strbuf_printf(&b, ",\"message\":");
    strbuf_json_string(&b, line->text + at, len - at);
    strbuf_printf(&b, "}\n");
    if (!b.failed)
        fwrite(b.data, 1, b.len, stdout);
    strbuf_fini(&b);
}

static void print_line(const struct line *line, const struct view *view)
{
    if (view->json && !line->is_json) {
        print_json(line);
        return;
    }
    fwrite(line->text, 1, line->len, stdout);
    if (line->text[line->len - 1] != '\n')
        putchar('\n'); /* the end of a crash report */
}

/* The new lines of a log, which lie in data. False: no memory. */
static bool add_new(struct lines *all, struct log *l, bool follow, char *data[FILES])
{
    struct log_file *const files[FILES] = {[OLD] = &l->old, [NOW] = &l->now};
    int fds[FILES];
    bool ok = true;
    open_files(l, fds);
    for (int i = 0; i < FILES; i++) {
        if (fds[i] < 0)
            continue;
        size_t len = read_new(fds[i], follow, &files[i]->position, &data[i]);
        ok = ok && add_lines(all, l->process, data[i], len);
        close(fds[i]);
    }
    return ok;
}

/* Prints the last new lines of the wanted logs, by time. False: cannot go on. */
static bool print_new(struct log *logs, const struct view *view, bool follow)
{
    char *data[N_LOGS][FILES] = {0};
    struct lines all = {0};
    bool ok = true;
    for (int i = 0; i < N_LOGS; i++)
        if (logs[i].wanted)
            ok = add_new(&all, &logs[i], follow, data[i]) && ok;
    if (!ok)
        cli_complain("logs: no memory for so many lines");
    if (ok && all.count) {
        qsort(all.items, all.count, sizeof *all.items, compare_lines);
        size_t first = all.count > view->limit ? all.count - (size_t)view->limit : 0;
        while (first < all.count && strcmp(all.items[first].time, view->since) < 0)
            first++;
        for (size_t i = first; i < all.count; i++)
            print_line(&all.items[i], view);
        ok = ask_flush();
    }
    for (int i = 0; i < N_LOGS * FILES; i++)
        free(data[i / FILES][i % FILES]);
    free(all.items);
    return ok;
}

/* "90s", "10m", "2h", "3d" before now, or a time as logs have it, perhaps cut off. */
static bool take_since(const char *text, char since[TIME_BYTES])
{
    static const char units[] = "smhd";
    static const unsigned seconds[] = {1, 60, 3600, 86400};
    static const char pattern[] = "0000-00-00T00:00:00.000Z";
    char *end;
    since[0] = '\0';
    if (!text)
        return true;
    unsigned long long n = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (text[0] >= '0' && text[0] <= '9' && unit && !end[1] && n < 100000) {
        time_t at = time(NULL) - (time_t)(n * seconds[unit - units]);
        struct tm utc;
        gmtime_r(&at, &utc);
        strftime(since, TIME_BYTES, "%Y-%m-%dT%H:%M:%S", &utc);
        return true;
    }
    size_t len = strlen(text);
    bool is_right = len >= strlen("0000-00-00") && len < TIME_BYTES;
    for (size_t i = 0; i < len && is_right; i++)
        is_right = pattern[i] == '0' ? text[i] >= '0' && text[i] <= '9' : text[i] == pattern[i];
    if (is_right)
        memcpy(since, text, len + 1);
    else
        cli_complain("logs: --since %.40s: expected 90s, 10m, 2h, 3d or a time in UTC, as "
                     "2026-01-31T12:00",
                     text);
    return is_right;
}

/* The log in RUN; of a process that a person started, the file to which its messages go. */
static bool find_log(const char *run, const char *process, struct log *log)
{
    char file[64], elsewhere[PATH_MAX], unit[128];
    pid_t pid = run_dir_holder(run, process);
    snprintf(file, sizeof file, "%s.log", process);
    run_dir_file(run, file, log->path);
    if (access(log->path, R_OK) == 0)
        return true;
    if (!pid)
        return false;
    if (deployment_log_file(pid, elsewhere)) {
        memcpy(log->path, elsewhere, sizeof elsewhere);
        return true;
    }
    if (deployment_systemd_unit(run, unit))
        cli_complain("logs: %s (pid %d) is run by systemd: journalctl -u %s", process, (int)pid,
                     unit);
    else
        cli_complain("logs: %s (pid %d) writes to %s", process, (int)pid, elsewhere);
    return false;
}

static bool open_logs(const char *run, const char *only, struct log *logs)
{
    bool any = false;
    for (int i = 0; i < N_LOGS; i++) {
        int which = i % N_NAMES;
        char dir[RUN_DIR_BYTES];
        const char *process =
            which < SUPERVISE_PROCESSES ? supervise_process_names[which] : "supervise";
        logs[i].process = process;
        logs[i].wanted = (!only || strcmp(only, process) == 0) &&
                         run_dir_place(run, (unsigned)(i / N_NAMES), dir);
        bool found = logs[i].wanted && find_log(dir, process, &logs[i]);
        for (int k = 0; k < i && found; k++) /* two processes may write into one file */
            if (logs[k].wanted && strcmp(logs[k].path, logs[i].path) == 0)
                logs[i].wanted = false;
        any = any || found;
    }
    return any;
}

int logs_main(int argc, char **argv)
{
    const char *name = NULL, *since = NULL;
    bool follow = false;
    struct view view = {.limit = UINT64_MAX};
    const struct option_spec table[] = {
        {"f", OPTION_BOOL, &follow, 0, 0, NULL, "print new lines as they come"},
        {"n", OPTION_UINT, &view.limit, 0, 1e9, "LINES",
         "print the last LINES lines (default: 200, with --since all)"},
        {"since", OPTION_STRING, &since, 0, 0, "TIME",
         "print lines from TIME on: 10m, 2h, 3d, 2026-01-31T12:00 (UTC)"},
        {"json", OPTION_BOOL, &view.json, 0, 0, NULL, "print a JSON object a line"},
        {"name", OPTION_STRING, &name, 0, 0, "NAME", "select a deployment (default: default)"},
        {0},
    };
    int n, exit_code;
    if (!ask_arguments(
            table, "logs", "[PROCESS] [OPTION]...",
            "Prints the logs of memd, cpuexec, worker, models, http and supervise, merged by\n"
            "time, or of one process. `moed down` keeps the logs, `moed rm` removes them.",
            argc, argv, 0, 1, &n, &exit_code))
        return exit_code;
    const char *only = n == 1 ? argv[1] : NULL;
    char run[RUN_DIR_BYTES];
    if (view.limit == UINT64_MAX && !since)
        view.limit = 200;
    if (!take_since(since, view.since))
        return CLI_USAGE;
    if ((only && strcmp(only, "supervise") != 0 && !deployment_is_process("logs", only)) ||
        !deployment_choose(&name, &exit_code) || !deployment_path(name, run))
        return CLI_USAGE;
    static struct log logs[N_LOGS]; /* large */
    bool found = open_logs(run, only, logs), runs = !found && deployment_has_processes(run);
    if (!found && !runs) {
        char label[RUN_LABEL_BYTES];
        run_dir_label(name, label);
        cli_complain("there is no log in %s: %s has not been started", run, label);
        return CLI_NOT_RUNNING;
    }
    if (!found && !follow) {
        cli_complain("there is no log%s%s in %s", only ? " of " : "", only ? only : "", run);
        return CLI_FAILURE;
    }
    while (print_new(logs, &view, follow)) {
        if (!follow)
            return CLI_OK;
        view.limit = UINT64_MAX; /* all new lines */
        poll(NULL, 0, FOLLOW_MS);
    }
    return CLI_FAILURE;
}
