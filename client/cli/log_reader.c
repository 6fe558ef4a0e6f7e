/* Reading a deployment's logs; see log_reader.h.
 *
 * A line's time is its first word, as lib/base/log.c writes it (2026-01-31T12:00:00.000Z sorts as
 * text), or its first member where the line is JSON. A line without a time (a crash report) belongs
 * to the line before it.
 *
 * The supervisor renames a long log to .1 (deploy/process.c), and its process goes on in a new one
 * a moment later. So both are read. */
#include "client/cli/log_reader.h"

#include "base/strbuf.h"
#include "client/cli/complain.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_TAIL_BYTES (8 << 20) /* of each file, from its end */

struct line {
    char time[LOG_READER_TIME_BYTES];
    const char *text; /* in the log's buffer */
    size_t len;
    unsigned order; /* keeps lines of one time and one log in their order */
    bool has_time, is_json;
    const char *process;
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
    memcpy(line->time, line->has_time ? line->text + at : before, LOG_READER_TIME_BYTES - 1);
    line->time[LOG_READER_TIME_BYTES - 1] = '\0';
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
static void open_files(struct process_log *l, int fds[FILES])
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
        l->old = old == l->now.inode ? l->now : (struct log_position){old, 0};
    }
    if (now != l->now.inode && (fds[NOW] >= 0 || l->old.inode == l->now.inode))
        l->now = (struct log_position){now, 0};
}

struct lines {
    struct line *items;
    size_t count, capacity;
};

static bool add_lines(struct lines *all, struct process_log *l, const char *data, size_t len)
{
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
        *line = (struct line){.text = data + at,
                              .len = end - at,
                              .order = (unsigned)all->count,
                              .process = l->process};
        find_time(line, l->time);
        memcpy(l->time, line->time, LOG_READER_TIME_BYTES);
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
 * of the line before it, if there is one, and no level. */
static void print_json(const struct line *line, FILE *out)
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
    if (line->time[0] == ' ')
        strbuf_printf(&b, "{\"time\":null,\"level\":");
    else
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
        fwrite(b.data, 1, b.len, out);
    strbuf_fini(&b);
}

static void print_line(const struct line *line, const struct log_view *view)
{
    if (view->json && !line->is_json) {
        print_json(line, view->out);
        return;
    }
    fwrite(line->text, 1, line->len, view->out);
    if (line->text[line->len - 1] != '\n')
        putc('\n', view->out); /* the end of a crash report */
}

/* The new lines of a log, which lie in data. False: no memory. */
static bool add_new(struct lines *all, struct process_log *l, bool follow, char *data[FILES])
{
    struct log_position *const files[FILES] = {[OLD] = &l->old, [NOW] = &l->now};
    int fds[FILES];
    bool ok = true;
    open_files(l, fds);
    for (int i = 0; i < FILES; i++) {
        if (fds[i] < 0)
            continue;
        size_t len = read_new(fds[i], follow, &files[i]->position, &data[i]);
        ok = ok && add_lines(all, l, data[i], len);
        close(fds[i]);
    }
    return ok;
}

bool log_reader_print(struct process_log *logs, const struct log_view *view, bool follow)
{
    char *data[LOG_READER_LOGS][FILES] = {0};
    struct lines all = {0};
    bool ok = true;
    for (int i = 0; i < LOG_READER_LOGS; i++)
        if (logs[i].wanted)
            ok = add_new(&all, &logs[i], follow, data[i]) && ok;
    if (!ok)
        cli_complain("no memory for so many lines of logs");
    if (ok && all.count) {
        qsort(all.items, all.count, sizeof *all.items, compare_lines);
        size_t first = all.count > view->limit ? all.count - (size_t)view->limit : 0;
        while (first < all.count && strcmp(all.items[first].time, view->since) < 0)
            first++;
        for (size_t i = first; i < all.count; i++)
            print_line(&all.items[i], view);
    }
    for (int i = 0; i < LOG_READER_LOGS * FILES; i++)
        free(data[i / FILES][i % FILES]);
    free(all.items);
    return ok;
}

/* ---- Which logs ---- */

void log_reader_init(struct process_log *logs, const char *run, const char *only)
{
    for (int i = 0; i < LOG_READER_LOGS; i++) {
        int which = i % LOG_READER_NAMES;
        char dir[RUN_DIR_BYTES], file[64];
        struct process_log *l = &logs[i];
        *l = (struct process_log){
            .process = which < SUPERVISE_PROCESSES ? supervise_process_names[which] : "supervise",
            .time = "                        "}; /* sorts before every time */
        l->wanted = (!only || strcmp(only, l->process) == 0) &&
                    run_dir_place(run, (unsigned)(i / LOG_READER_NAMES), dir);
        if (!l->wanted)
            continue;
        snprintf(file, sizeof file, "%s.log", l->process);
        run_dir_file(dir, file, l->path);
    }
}

void log_reader_skip(struct process_log *logs)
{
    for (int i = 0; i < LOG_READER_LOGS; i++) {
        struct log_position *const files[FILES] = {[OLD] = &logs[i].old, [NOW] = &logs[i].now};
        struct stat s;
        int fds[FILES];
        if (!logs[i].wanted)
            continue;
        open_files(&logs[i], fds);
        for (int k = 0; k < FILES; k++) {
            if (fds[k] < 0)
                continue;
            files[k]->position = fstat(fds[k], &s) == 0 ? s.st_size : 0;
            close(fds[k]);
        }
    }
}
