/* Watching the runtime directory; see run_watch.h. */
#include "deploy/run_watch.h"

#include "base/clock.h"
#include "daemon/run_dir.h"

#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define DELAY_MS 1000
#define REMOVALS (IN_DELETE | IN_MOVED_FROM | IN_DELETE_SELF | IN_MOVE_SELF)

enum error_code run_watch_open(struct run_watch *w, const char *run, struct error *e)
{
    struct stat s;
    run_watch_clear(w);
    w->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (w->fd < 0 || stat(run, &s) != 0 ||
        inotify_add_watch(w->fd, run, REMOVALS | IN_ONLYDIR | IN_DONT_FOLLOW) < 0)
        return error_set(e, ERROR_IO, "cannot watch %s: %m", run);
    w->device = s.st_dev;
    w->inode = s.st_ino;
    return ERROR_OK;
}

static void keep_name(struct run_watch *w, const char *name)
{
    if (w->n_names < RUN_WATCH_NAMES && strlen(name) < RUN_WATCH_NAME)
        snprintf(w->names[w->n_names++], RUN_WATCH_NAME, "%s", name);
}

void run_watch_take(struct run_watch *w)
{
    _Alignas(struct inotify_event) char buffer[4096];
    ssize_t n;
    while ((n = read(w->fd, buffer, sizeof buffer)) > 0)
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *event = (const struct inotify_event *)(buffer + at);
            if (event->len)
                keep_name(w, event->name);
            at += (ssize_t)(sizeof *event + event->len);
            if (w->due_ns == UINT64_MAX)
                w->due_ns = clock_end_ns(DELAY_MS);
        }
}

bool run_watch_is_there(const struct run_watch *w, const char *run)
{
    struct stat s;
    int fd;
    if (run_dir_open(run, &fd, NULL))
        return false;
    bool same = fstat(fd, &s) == 0 && s.st_dev == w->device && s.st_ino == w->inode;
    close(fd);
    return same;
}

bool run_watch_misses_socket(const struct run_watch *w, const char *run, const char *process)
{
    static const char *const endings[] = {".ctl", ".peers", ".lease"};
    size_t len = strlen(process);
    for (unsigned i = 0; i < w->n_names; i++) {
        char path[RUN_PATH_BYTES];
        if (strncmp(w->names[i], process, len) != 0)
            continue;
        run_dir_file(run, w->names[i], path);
        for (size_t k = 0; k < sizeof endings / sizeof *endings; k++)
            if (strcmp(w->names[i] + len, endings[k]) == 0 && access(path, F_OK) != 0)
                return true;
    }
    return false;
}

void run_watch_clear(struct run_watch *w)
{
    w->n_names = 0;
    w->due_ns = UINT64_MAX;
}
