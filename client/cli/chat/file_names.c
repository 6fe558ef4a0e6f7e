/* Completion of file names; see file_names.h. */
#include "client/cli/chat/file_names.h"

#include "base/utf8.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_NAMES = 200 };

/* The directory of the path; out has its "/" at the end, or is empty. */
static void directory_of(const char *typed, const char *name, struct strbuf *out)
{
    const char *home = getenv("HOME");
    if (home && strncmp(typed, "~/", 2) == 0) {
        strbuf_append(out, home, strlen(home));
        typed++;
    }
    strbuf_append(out, typed, (size_t)(name - typed));
}

static bool is_text(const char *name)
{
    for (size_t n; *name; name += n) {
        n = utf8_valid_length(name, strlen(name));
        if (!n || utf8_is_control(name, n))
            return false;
    }
    return true;
}

/* Cuts *more to what it shares with `rest`, but no character in two. */
static void keep_common(struct strbuf *more, const char *rest)
{
    size_t n = 0;
    while (n < more->len && more->data[n] == rest[n])
        n++;
    while (n && n < more->len && utf8_continues(more->data[n]))
        n--;
    more->len = n;
    if (more->data)
        more->data[n] = '\0';
}

static bool is_directory(const struct strbuf *directory, const char *name)
{
    struct strbuf path;
    struct stat st;
    strbuf_init(&path);
    strbuf_printf(&path, "%s%s", directory->len ? directory->data : "", name);
    bool yes = !path.failed && stat(path.data, &st) == 0 && S_ISDIR(st.st_mode);
    strbuf_fini(&path);
    return yes;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

struct found {
    char **names;
    size_t n, capacity;
};

static bool add(struct found *f, const char *name)
{
    if (f->n == f->capacity) {
        size_t capacity = f->capacity ? 2 * f->capacity : 64;
        char **names = realloc(f->names, capacity * sizeof *names);
        if (!names)
            return false;
        f->names = names;
        f->capacity = capacity;
    }
    f->names[f->n] = strdup(name);
    return f->names[f->n++] != NULL;
}

/* False: no memory. */
static bool find(const char *directory, const char *begin, struct found *f)
{
    size_t typed = strlen(begin);
    bool ok = true;
    DIR *d = opendir(*directory ? directory : ".");
    for (struct dirent *entry; ok && d && (entry = readdir(d));) {
        const char *name = entry->d_name;
        bool hidden = name[0] == '.' && begin[0] != '.';
        bool self = strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
        if (!hidden && !self && strncmp(name, begin, typed) == 0 && is_text(name))
            ok = add(f, name);
    }
    if (d)
        closedir(d);
    return ok;
}

size_t file_names_complete(const char *typed, struct strbuf *more, struct strbuf *names)
{
    const char *slash = strrchr(typed, '/'), *begin = slash ? slash + 1 : typed;
    struct found found = {0};
    struct strbuf directory, common;
    strbuf_init(&directory);
    strbuf_init(&common);
    directory_of(typed, begin, &directory);
    size_t n = 0;
    if (!directory.failed && find(directory.len ? directory.data : "", begin, &found)) {
        n = found.n;
        if (n > 1)
            qsort(found.names, n, sizeof *found.names, by_name);
        for (size_t i = 0; i < n; i++) {
            const char *rest = found.names[i] + strlen(begin);
            if (i == 0)
                strbuf_append(&common, rest, strlen(rest));
            else
                keep_common(&common, rest);
            if (i < MOST_NAMES)
                strbuf_printf(names, "%s\n", found.names[i]);
        }
        if (n == 1 && is_directory(&directory, found.names[0]))
            strbuf_append(&common, "/", 1);
        strbuf_append(more, common.data ? common.data : "", common.len);
    }
    for (size_t i = 0; i < found.n; i++)
        free(found.names[i]);
    free(found.names);
    strbuf_fini(&directory);
    strbuf_fini(&common);
    return n;
}
