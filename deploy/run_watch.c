/* Watching the runtime directory; see run_watch.h. */
#include "deploy/run_watch.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/run_dir.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define DELAY_MS 1000
#define REMOVALS (IN_DELETE | IN_MOVED_FROM | IN_DELETE_SELF | IN_MOVE_SELF)

static const char *const endings[] = {".ctl", ".peers", ".lease"}; /* of sockets' names */
#define N_ENDINGS (sizeof endings / sizeof *endings)

/* The limits of the system, which other programs may have used up. */
static const char *limit_of(int number)
{
    return number == EMFILE   ? "; a higher fs.inotify.max_user_instances (sysctl) helps"
           : number == ENOSPC ? "; a higher fs.inotify.max_user_watches (sysctl) helps"
                              : "";
}

static void begin_events(struct run_watch *w, const char *run)
{
    w->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (w->fd >= 0 && inotify_add_watch(w->fd, run, REMOVALS | IN_ONLYDIR | IN_DONT_FOLLOW) >= 0)
        return;
    log_warn("no events of %s: %m: its files are looked at every few seconds instead%s", run,
             limit_of(errno));
    if (w->fd >= 0)
        close(w->fd);
    w->fd = -1;
}

enum error_code run_watch_open(struct run_watch *w, const char *run, struct error *e)
{
    struct stat s;
    if (stat(run, &s) != 0)
        return error_set(e, ERROR_IO, "cannot look at %s: %m", run);
    w->device = s.st_dev;
    w->inode = s.st_ino;
    begin_events(w, run);
    run_watch_clear(w, run);
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

/* Whether a call failed for a reason that passes and says nothing about its path. */
static bool passes(int number)
{
    return number == EMFILE || number == ENFILE || number == ENOMEM || number == EINTR;
}

bool run_watch_is_there(const struct run_watch *w, const char *run)
{
    struct stat s;
    int fd;
    errno = 0;
    if (run_dir_open(run, &fd, NULL))
        return passes(errno);
    bool same = fstat(fd, &s) == 0 && s.st_dev == w->device && s.st_ino == w->inode;
    close(fd);
    return same;
}

/* The same without the owners and modes: clients refuse a directory until those are right again,
 * but then it serves them. */
static bool leads_there(const struct run_watch *w, const char *run)
{
    struct stat s;
    if (lstat(run, &s) != 0)
        return passes(errno);
    return s.st_dev == w->device && s.st_ino == w->inode;
}

/* The delay is for a directory that is renamed, and renamed back at once. */
void run_watch_look(struct run_watch *w, const char *run)
{
    if (w->due_ns != UINT64_MAX)
        return;
    if (!leads_there(w, run))
        w->due_ns = clock_end_ns(DELAY_MS);
    else if (w->fd < 0 && run_watch_is_there(w, run))
        w->due_ns = clock_ns();
}

static bool has_control_socket(const char *run, const char *process)
{
    char file[64], path[RUN_PATH_BYTES];
    snprintf(file, sizeof file, "%s.ctl", process);
    run_dir_file(run, file, path);
    return access(path, F_OK) == 0;
}

bool run_watch_misses_socket(const struct run_watch *w, const char *run, const char *process)
{
    size_t len = strlen(process);
    if (w->fd < 0 && !has_control_socket(run, process)) /* which each has */
        return true;
    for (unsigned i = 0; i < w->n_names; i++) {
        char path[RUN_PATH_BYTES];
        if (strncmp(w->names[i], process, len) != 0)
            continue;
        run_dir_file(run, w->names[i], path);
        for (size_t k = 0; k < N_ENDINGS; k++)
            if (strcmp(w->names[i] + len, endings[k]) == 0 && access(path, F_OK) != 0)
                return true;
    }
    return false;
}

/* Without events: the sockets that are there now may be missing when they are looked at next. */
static void keep_sockets(struct run_watch *w, const char *run)
{
    DIR *d = opendir(run);
    for (struct dirent *x; d && (x = readdir(d));) {
        const char *end = strrchr(x->d_name, '.');
        for (size_t k = 0; end && k < N_ENDINGS; k++)
            if (strcmp(end, endings[k]) == 0)
                keep_name(w, x->d_name);
    }
    if (d)
        closedir(d);
}

void run_watch_clear(struct run_watch *w, const char *run)
{
    w->n_names = 0;
    w->due_ns = UINT64_MAX;
    if (w->fd < 0)
        keep_sockets(w, run);
}
