/* Pid files; see run_dir.h.
 *
 * A process locks its pid file with an open-file-description lock for as long as it lives. The
 * lock, not the number in the file, shows that the process lives. F_OFD_GETLK tests such a lock
 * without taking it, so a test never makes a starting process fail. The kernel does not say which
 * process has such a lock. Two things do:
 *
 *   - A second lock of the older kind, on byte WHO_AT, for which F_GETLK names the process. Only
 *     processes of this user and root can open the file. The kernel drops this lock when its holder
 *     closes any descriptor of the file; close_looked_at takes it again.
 *   - /proc/PID/fdinfo: a line `lock:` under each open file. Only root can read it of a process
 * that is not dumpable (confine/memory.h), but it also finds the holder of a removed file.
 *
 * The number in the file is therefore a hint. A process is believed to be the holder by one of the
 * two. A signal goes through a pidfd that was opened before that check. */
#include "daemon/run_dir.h"

#include "base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KILL_WAIT_MS 2000
#define WHO_AT       1 /* the open-file-description lock is on byte 0 */

static struct {
    dev_t device;
    ino_t inode; /* 0: none */
    int fd;
} own; /* this process's own pid file */

static void pid_file(const char *process, char out[NAME_MAX])
{
    snprintf(out, NAME_MAX, "%s.pid", process);
}

static pid_t read_pid(int fd)
{
    char text[32];
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    long pid = strtol(text, NULL, 10);
    return pid > 0 && pid <= INT_MAX ? (pid_t)pid : 0;
}

static struct flock lock_of(off_t byte)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
}

static bool is_locked(int fd)
{
    struct flock lock = lock_of(0);
    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* The process that the kernel names as the holder; 0: it names none, or this process. */
static pid_t named_holder(int fd)
{
    struct flock lock = lock_of(WHO_AT);
    bool held = fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    return held && lock.l_pid > 0 ? lock.l_pid : 0;
}

/* Closes a pid file that was looked at. */
static void close_looked_at(int fd, const struct stat *s)
{
    struct flock lock = lock_of(WHO_AT);
    close(fd);
    if (own.inode && own.inode == s->st_ino && own.device == s->st_dev)
        fcntl(own.fd, F_SETLK, &lock);
}

/* A plain file of ours in which no other user can write. */
static bool is_trusted(int fd, struct stat *s)
{
    return fstat(fd, s) == 0 && S_ISREG(s->st_mode) && s->st_uid == geteuid() &&
           !(s->st_mode & 022);
}

/* ---- Which process holds the lock ---- */

/* What is looked for: a file by its inode, or (inode 0) a removed one by its path. */
struct wanted {
    dev_t device;
    ino_t inode;
    char removed[PATH_MAX + 16]; /* as /proc shows it: "PATH (deleted)" */
};

static bool has_lock_line(int fdinfo_fd, const char *descriptor)
{
    char text[4096];
    int fd = openat(fdinfo_fd, descriptor, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    return strstr(text, "\nlock:") != NULL;
}

/* Which of n the descriptor is; -1: none. Removed ones, or one by its inode. */
static int which_wanted(int fds_fd, const char *descriptor, const struct wanted *w, unsigned n)
{
    struct stat s;
    if (w->inode)
        return fstatat(fds_fd, descriptor, &s, 0) == 0 && s.st_ino == w->inode &&
                       s.st_dev == w->device
                   ? 0
                   : -1;
    char target[sizeof w->removed];
    ssize_t len = readlinkat(fds_fd, descriptor, target, sizeof target - 1);
    if (len <= 0)
        return -1;
    target[len] = '\0';
    for (unsigned i = 0; i < n; i++)
        if (strcmp(target, w[i].removed) == 0)
            return (int)i;
    return -1;
}

/* Whether process `pid`, of this user, has one of n files open and holds its lock: its index; -1:
 * none. */
static int held_by(pid_t pid, const struct wanted *w, unsigned n)
{
    char path[64];
    struct stat s;
    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    int process = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (process < 0)
        return -1;
    int found = -1;
    int infos = openat(process, "fdinfo", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fds = openat(process, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fds >= 0 && fstat(process, &s) == 0 && s.st_uid == geteuid() ? fdopendir(fds) : NULL;
    for (struct dirent *entry; dir && found < 0 && (entry = readdir(dir));) {
        if (entry->d_name[0] != '.')
            found = which_wanted(fds, entry->d_name, w, n);
        if (found >= 0 && !has_lock_line(infos, entry->d_name))
            found = -1;
    }
    if (dir)
        closedir(dir);
    else if (fds >= 0)
        close(fds);
    if (infos >= 0)
        close(infos);
    close(process);
    return found;
}

/* Sets the entries of pids whose files this user's processes hold. */
static void find_processes(const struct wanted *w, unsigned n, pid_t *pids)
{
    unsigned left = n;
    DIR *proc = opendir("/proc");
    for (struct dirent *entry; proc && left && (entry = readdir(proc));) {
        char *end;
        long pid = strtol(entry->d_name, &end, 10);
        int held = pid > 0 && *end == '\0' ? held_by((pid_t)pid, w, n) : -1;
        if (held < 0)
            continue;
        pids[held] = (pid_t)pid;
        left--;
    }
    if (proc)
        closedir(proc);
}

/* The pid file of a process that lives; -1: there is none. */
static int open_locked(const char *run, const char *process, struct stat *s)
{
    char name[NAME_MAX];
    int dir, fd;
    if (run_dir_open(run, &dir, NULL))
        return -1;
    pid_file(process, name);
    fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    close(dir);
    if (fd >= 0 && is_trusted(fd, s) && is_locked(fd))
        return fd;
    if (fd >= 0 && fstat(fd, s) == 0)
        close_looked_at(fd, s);
    return -1;
}

pid_t run_dir_hint_at(const char *dir, const char *process)
{
    struct stat s;
    int fd = open_locked(dir, process, &s);
    if (fd < 0)
        return 0;
    pid_t pid = read_pid(fd);
    close_looked_at(fd, &s);
    return pid;
}

pid_t run_dir_hint(const char *run, const char *process)
{
    char dir[RUN_DIR_BYTES];
    run_dir_of(run, process, dir);
    return run_dir_hint_at(dir, process);
}

pid_t run_dir_holder(const char *run, const char *process)
{
    struct stat s;
    pid_t pid = 0;
    char dir[RUN_DIR_BYTES];
    run_dir_of(run, process, dir);
    int fd = open_locked(dir, process, &s);
    if (fd >= 0) {
        struct wanted w = {.device = s.st_dev, .inode = s.st_ino};
        pid = named_holder(fd);
        if (!pid && (!(pid = read_pid(fd)) || held_by(pid, &w, 1) < 0)) {
            pid = 0; /* it has just started, or its number was overwritten */
            find_processes(&w, 1, &pid);
        }
        close_looked_at(fd, &s);
    }
    return pid;
}

/* The removed file's name in /proc. RUN may be gone too, so its path is resolved by its parent. */
static bool removed_name(const char *run, const char *process, struct wanted *out)
{
    char parent[RUN_DIR_BYTES], real[PATH_MAX];
    run_dir_of(run, process, parent);
    size_t len = strlen(parent);
    while (len > 1 && parent[len - 1] == '/')
        parent[--len] = '\0';
    char *slash = strrchr(parent, '/');
    if (!slash || slash[1] == '\0')
        return false;
    *slash = '\0';
    if (!realpath(slash == parent ? "/" : parent, real))
        snprintf(real, sizeof real, "%s", parent);
    int n = snprintf(out->removed, sizeof out->removed, "%s/%s/%s.pid (deleted)",
                     strcmp(real, "/") == 0 ? "" : real, slash + 1, process);
    return n > 0 && (size_t)n < sizeof out->removed;
}

void run_dir_find_holders(const char *run, const char *const *processes, unsigned n, pid_t *pids)
{
    struct wanted *w = calloc(n, sizeof *w);
    unsigned *of = calloc(n, sizeof *of), missing = 0;
    pid_t *found = calloc(n, sizeof *found);
    bool is_ours = run_dir_check(run, NULL) == ERROR_OK;
    for (unsigned i = 0; i < n; i++) {
        pids[i] = run_dir_holder(run, processes[i]);
        if (!pids[i] && is_ours && w && of && found && removed_name(run, processes[i], &w[missing]))
            of[missing++] = i;
    }
    if (missing)
        find_processes(w, missing, found);
    for (unsigned i = 0; i < missing; i++)
        pids[of[i]] = found[i];
    free(w);
    free(of);
    free(found);
}

pid_t run_dir_find_holder(const char *run, const char *process)
{
    pid_t pid;
    run_dir_find_holders(run, &process, 1, &pid);
    return pid;
}

/* ---- Taking it ---- */

/* Lock the file that is there now: the opened one may have been removed before it was locked. */
static int open_and_lock(int dir, const char *name, bool *held_by_other)
{
    *held_by_other = false;
    for (;;) {
        struct stat ours, there;
        int fd = openat(dir, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
        if (fd < 0)
            return -1;
        if (!is_trusted(fd, &ours)) {
            close(fd);
            errno = EPERM;
            return -1;
        }
        struct flock lock = lock_of(0);
        if (fcntl(fd, F_OFD_SETLK, &lock) != 0) {
            *held_by_other = errno == EAGAIN || errno == EACCES;
            if (*held_by_other)
                return fd;
            close(fd);
            return -1;
        }
        if (fstatat(dir, name, &there, AT_SYMLINK_NOFOLLOW) == 0 && ours.st_ino == there.st_ino &&
            ours.st_dev == there.st_dev)
            return fd;
        close(fd);
    }
}

enum error_code run_dir_lock(const char *run, const char *process, struct error *e)
{
    char name[NAME_MAX], text[32];
    int dir;
    bool held;
    enum error_code code = run_dir_open(run, &dir, e);
    if (code)
        return code;
    pid_file(process, name);
    int fd = open_and_lock(dir, name, &held);
    close(dir);
    if (fd < 0)
        return error_set(e, ERROR_IO, "cannot lock %s/%s: %m", run, name);
    if (held) {
        pid_t pid = read_pid(fd);
        close(fd);
        return error_set(e, ERROR_EXISTS, "%s runs already in %s (pid %d)", process, run, (int)pid);
    }
    struct stat s;
    struct flock who = lock_of(WHO_AT);
    if (fstat(fd, &s) == 0 && fcntl(fd, F_SETLK, &who) == 0) {
        own.device = s.st_dev;
        own.inode = s.st_ino;
        own.fd = fd;
    }
    int len = snprintf(text, sizeof text, "%d\n", (int)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)len, 0) != len) {
        error_set(e, ERROR_IO, "cannot write %s/%s: %m", run, name);
        close(fd);
        return ERROR_IO;
    }
    return ERROR_OK; /* fd stays open, and with it the lock, until the process ends */
}

/* ---- Signals ---- */

void run_dir_signal(const char *run, const char *process, pid_t pid, int signal_number)
{
    /* If the lock is still held once the pidfd is open, the pidfd is the holder's. */
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    bool is_holder = pidfd >= 0 && run_dir_find_holder(run, process) == pid;
    if (is_holder)
        syscall(SYS_pidfd_send_signal, pidfd, signal_number, NULL, 0);
    if (pidfd >= 0)
        close(pidfd);
}

static bool wait_until_free(const char *run, const char *process, pid_t pid, int timeout_ms)
{
    uint64_t deadline = clock_ns() + (uint64_t)timeout_ms * 1000000u;
    while (run_dir_find_holder(run, process) == pid) {
        if (clock_ns() >= deadline)
            return false;
        poll(NULL, 0, 10);
    }
    return true;
}

bool run_dir_terminate(const char *run, const char *process, int timeout_ms)
{
    static const int signals[] = {SIGTERM, SIGKILL};
    for (int i = 0; i < 2; i++) {
        pid_t pid = run_dir_find_holder(run, process);
        if (pid == 0)
            return true;
        run_dir_signal(run, process, pid, signals[i]);
        if (wait_until_free(run, process, pid, i == 0 ? timeout_ms : KILL_WAIT_MS))
            return run_dir_find_holder(run, process) == 0;
    }
    return false;
}
