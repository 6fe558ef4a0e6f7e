/* Promised memory; see kv_promises.h.
 *
 * The descriptors are opened before the process is confined: landlock still allows reading
 * them, and opening what is in them with O_PATH. */
#include "daemon/kv_promises.h"

#include "base/clock.h"
#include "base/machine_memory.h"
#include "base/same_file.h"
#include "daemon/control.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define CALL_TIMEOUT_MS 500
#define LOCK_PAUSE_MS   20

static bool is_own(const char *run, const char *own)
{
    char place[RUN_DIR_BYTES];
    for (unsigned i = 0; *own && i < RUN_PLACES; i++)
        if (run_dir_place(run, i, place) && same_file(place, own))
            return true;
    return false;
}

static void add_folder(struct kv_promises *p, const char *path)
{
    for (unsigned i = 0; i < p->n; i++)
        if (same_file(p->folders[i].path, path))
            return;
    struct kv_promises_folder *f = &p->folders[p->n];
    f->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->fd >= 0) {
        snprintf(f->path, sizeof f->path, "%s", path);
        p->n++;
    }
}

/* Cuts off the last part. False: nothing is left of it. */
static bool to_parent(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash)
        *slash = '\0';
    return slash && slash != path;
}

void kv_promises_open(struct kv_promises *p, const char *own)
{
    char path[RUN_DIR_BYTES], second[RUN_DIR_BYTES];
    *p = (struct kv_promises){.n = 0};
    /* first in all processes, so that two locks are taken in one order */
    if (run_dir_folder(path))
        add_folder(p, path);
    if (!own)
        return;
    snprintf(p->own, sizeof p->own, "%s", own);
    snprintf(path, sizeof path, "%s", own);
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        path[--len] = '\0';
    bool found = to_parent(path);
    if (found && run_dir_place(path, 1, second) && strcmp(second, own) == 0) {
        char folder[RUN_DIR_BYTES]; /* own may be a place */
        snprintf(folder, sizeof folder, "%s", path);
        if (to_parent(folder))
            add_folder(p, folder);
    }
    if (found)
        add_folder(p, path);
}

/* Others may write in it. */
static bool is_shared(int fd)
{
    struct stat s;
    return fstat(fd, &s) != 0 || (s.st_uid != geteuid() && s.st_uid != 0) || (s.st_mode & 022);
}

bool kv_promises_lock(const struct kv_promises *p, int timeout_ms)
{
    uint64_t end_ns = clock_end_ns(timeout_ms);
    for (unsigned i = 0; i < p->n; i++) {
        while (!is_shared(p->folders[i].fd) && flock(p->folders[i].fd, LOCK_EX | LOCK_NB) != 0) {
            if (clock_ns() >= end_ns)
                return false;
            poll(NULL, 0, LOCK_PAUSE_MS);
        }
    }
    return true;
}

/* What memd of RUN has promised: 0 without an answer. False: no memd of this user was called. */
static bool call_memd(const char *run, struct cgroup_promise *out)
{
    char dir[RUN_DIR_BYTES], path[RUN_PATH_BYTES];
    Moed__V1__Reply *reply;
    int fd;
    if (run_dir_open(run, &fd, NULL))
        return false;
    close(fd);
    run_dir_of(run, "memd", dir);
    run_dir_file(dir, "memd.ctl", path);
    if (access(path, F_OK) != 0)
        return false;
    *out = (struct cgroup_promise){0};
    if (control_health(run, "memd", CALL_TIMEOUT_MS, &reply, NULL) == ERROR_OK) {
        *out = (struct cgroup_promise){reply->health->pid, reply->health->kv_promised_bytes};
        moed__v1__reply__free_unpacked(reply, NULL);
    }
    return true;
}

static bool run_in(const struct kv_promises_folder *f, const char *name, char run[RUN_DIR_BYTES])
{
    return name[0] != '.' && strlen(f->path) + 1 + strlen(name) < RUN_DIR_BYTES &&
           snprintf(run, RUN_DIR_BYTES, "%s/%s", f->path, name) > 0;
}

uint64_t kv_promises_bytes(const struct kv_promises *p)
{
    struct cgroup_promise promises[KV_PROMISES_MOST];
    unsigned called = 0;
    for (unsigned i = 0; i < p->n; i++) {
        char run[RUN_DIR_BYTES];
        int fd = fcntl(p->folders[i].fd, F_DUPFD_CLOEXEC, 0);
        DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
        if (!d) {
            if (fd >= 0)
                close(fd);
            continue;
        }
        rewinddir(d);
        for (struct dirent *x; called < KV_PROMISES_MOST && (x = readdir(d));)
            if (run_in(&p->folders[i], x->d_name, run) && !is_own(run, p->own))
                called += call_memd(run, &promises[called]);
        closedir(d);
    }
    return called ? memory_promised_bytes(promises, called) : 0;
}

void kv_promises_close(struct kv_promises *p)
{
    for (unsigned i = 0; i < p->n; i++)
        close(p->folders[i].fd);
    p->n = 0;
}
