/* Runtime directories and the pid files in them; see run_dir.h.
 *
 * A pid file is locked by its process with an open-file-description lock for as long as it lives:
 * the lock, not the number in the file, says that the process is there. Those locks can be asked
 * for without being taken (F_OFD_GETLK), so a question never makes a starting process fail. */
#include "daemon/run_dir.h"

#include "base/clock.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NAME_MAX_LENGTH 32

static bool name_is_valid(const char *name)
{
    size_t len = strlen(name);
    if (len == 0 || len > NAME_MAX_LENGTH || name[0] == '.')
        return false;
    for (const char *c = name; *c; c++)
        if (!(isascii((unsigned char)*c) && isalnum((unsigned char)*c)) && !strchr("._-", *c))
            return false;
    return true;
}

/* The directory that holds the deployments' directories. */
static void base_path(char *out, size_t bytes)
{
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    struct stat s;
    if (xdg && xdg[0] == '/' && stat(xdg, &s) == 0 && S_ISDIR(s.st_mode) && s.st_uid == geteuid())
        snprintf(out, bytes, "%s/moed", xdg);
    else
        snprintf(out, bytes, "/tmp/moed-%u", (unsigned)geteuid());
}

static const char *run_from_environment(void)
{
    const char *run = getenv("MOED_RUN");
    return run && *run ? run : NULL;
}

static enum error_code check_length(const char *run, struct error *e)
{
    if (strlen(run) >= RUN_DIR_BYTES)
        return error_set(e, ERROR_LIMIT,
                         "the runtime directory %.200s is longer than %d bytes, which a socket's "
                         "address cannot hold: set MOED_RUN to a shorter one",
                         run, RUN_DIR_BYTES - 1);
    return ERROR_OK;
}

enum error_code run_dir_path(const char *name, char out[RUN_DIR_BYTES], struct error *e)
{
    if (name && !name_is_valid(name))
        return error_set(e, ERROR_USAGE,
                         "%.64s is not a deployment's name: at most %d letters, digits, '.', '_' "
                         "and '-', no leading dot",
                         name[0] ? name : "an empty string", NAME_MAX_LENGTH);
    char run[PATH_MAX + NAME_MAX_LENGTH + 2];
    const char *from_environment = run_from_environment();
    if (from_environment) {
        if (from_environment[0] != '/')
            return error_set(e, ERROR_USAGE, "MOED_RUN must be an absolute path, not %.200s",
                             from_environment);
        snprintf(run, sizeof run, "%s", from_environment);
    } else {
        char base[PATH_MAX];
        base_path(base, sizeof base);
        snprintf(run, sizeof run, "%s/%s", base, name ? name : "default");
    }
    if (check_length(run, e))
        return ERROR_LIMIT;
    memcpy(out, run, strlen(run) + 1);
    return ERROR_OK;
}

/* Whoever may write in the parent directory could put another directory in RUN's place. */
static enum error_code check_parent(const char *run, struct error *e)
{
    char parent[RUN_DIR_BYTES];
    snprintf(parent, sizeof parent, "%s", run);
    char *slash = strrchr(parent, '/');
    if (!slash)
        return ERROR_OK;
    *(slash == parent ? slash + 1 : slash) = '\0';
    struct stat s;
    if (stat(parent, &s) != 0)
        return error_set(e, ERROR_IO, "cannot look at %s: %m", parent);
    if (s.st_uid != geteuid() && s.st_uid != 0)
        return error_set(e, ERROR_IO,
                         "%s belongs to another user (uid %u): set MOED_RUN to a directory of "
                         "yours",
                         parent, (unsigned)s.st_uid);
    if ((s.st_mode & 022) && !(s.st_mode & S_ISVTX))
        return error_set(e, ERROR_IO, "others may write in %s: chmod go-w it, or set MOED_RUN",
                         parent);
    return ERROR_OK;
}

static enum error_code make_directories(const char *run, struct error *e)
{
    char path[RUN_DIR_BYTES];
    snprintf(path, sizeof path, "%s", run);
    for (char *c = path + 1;; c++) {
        if (*c != '/' && *c != '\0')
            continue;
        char saved = *c;
        *c = '\0';
        if (mkdir(path, 0700) != 0 && errno != EEXIST)
            return error_set(e, ERROR_IO, "cannot create the directory %s: %m", path);
        *c = saved;
        if (!saved)
            return ERROR_OK;
    }
}

enum error_code run_dir_create(const char *run, struct error *e)
{
    if (!*run)
        return error_set(e, ERROR_USAGE, "the runtime directory has an empty name");
    enum error_code code = check_length(run, e);
    if (!code)
        code = make_directories(run, e);
    if (!code)
        code = check_parent(run, e);
    if (code)
        return code;
    struct stat s;
    if (lstat(run, &s) != 0)
        return error_set(e, ERROR_IO, "cannot look at %s: %m", run);
    if (!S_ISDIR(s.st_mode))
        return error_set(e, ERROR_IO, "%s is not a directory", run);
    if (s.st_uid != geteuid())
        return error_set(e, ERROR_IO, "%s belongs to another user (uid %u), not to us (uid %u)",
                         run, (unsigned)s.st_uid, (unsigned)geteuid());
    if (s.st_mode & 077)
        return error_set(e, ERROR_IO, "others may enter %s (mode %03o): chmod it to 700", run,
                         (unsigned)s.st_mode & 0777);
    return ERROR_OK;
}

void run_dir_file(const char *run, const char *file, char out[RUN_PATH_BYTES])
{
    snprintf(out, RUN_PATH_BYTES, "%s/%s", run, file);
}

void run_dir_url(const char *run, const char *file, char out[RUN_URL_BYTES])
{
    snprintf(out, RUN_URL_BYTES, "ipc://%s/%s", run, file);
}

static void pid_path(const char *run, const char *process, char out[RUN_PATH_BYTES])
{
    snprintf(out, RUN_PATH_BYTES, "%s/%s.pid", run, process);
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

static bool is_locked(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* Lock the file that stands at path now: it may have been removed between open and lock. */
static int open_and_lock(const char *path, bool *held_by_other)
{
    *held_by_other = false;
    for (;;) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
            return -1;
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        if (fcntl(fd, F_OFD_SETLK, &lock) != 0) {
            *held_by_other = errno == EAGAIN || errno == EACCES;
            if (*held_by_other)
                return fd;
            close(fd);
            return -1;
        }
        struct stat ours, there;
        if (fstat(fd, &ours) == 0 && stat(path, &there) == 0 && ours.st_ino == there.st_ino &&
            ours.st_dev == there.st_dev)
            return fd;
        close(fd);
    }
}

enum error_code run_dir_lock(const char *run, const char *process, struct error *e)
{
    char path[RUN_PATH_BYTES];
    pid_path(run, process, path);
    bool held;
    int fd = open_and_lock(path, &held);
    if (fd < 0)
        return error_set(e, ERROR_IO, "cannot lock %s: %m", path);
    if (held) {
        pid_t pid = read_pid(fd);
        close(fd);
        return error_set(e, ERROR_EXISTS, "%s runs already in %s (pid %d)", process, run, (int)pid);
    }
    char text[32];
    int len = snprintf(text, sizeof text, "%d\n", (int)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)len, 0) != len) {
        error_set(e, ERROR_IO, "cannot write %s: %m", path);
        close(fd);
        return ERROR_IO;
    }
    return ERROR_OK; /* fd stays open, and with it the lock, until the process ends */
}

pid_t run_dir_holder(const char *run, const char *process)
{
    char path[RUN_PATH_BYTES];
    pid_path(run, process, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return 0;
    pid_t pid = is_locked(fd) ? read_pid(fd) : 0;
    close(fd);
    return pid;
}

static bool wait_until_free(const char *run, const char *process, pid_t pid, int timeout_ms)
{
    uint64_t deadline = clock_ns() + (uint64_t)timeout_ms * 1000000u;
    while (run_dir_holder(run, process) == pid) {
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
        pid_t pid = run_dir_holder(run, process);
        if (pid == 0)
            return true;
        /* With the pidfd in hand and the lock still held the number means the process we want. */
        int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        if (pidfd >= 0 && run_dir_holder(run, process) == pid)
            syscall(SYS_pidfd_send_signal, pidfd, signals[i], NULL, 0);
        else if (pidfd < 0 && errno == ENOSYS)
            kill(pid, signals[i]);
        if (pidfd >= 0)
            close(pidfd);
        if (wait_until_free(run, process, pid, i == 0 ? timeout_ms : 2000))
            return run_dir_holder(run, process) == 0;
    }
    return false;
}

void run_dir_sweep(const char *run)
{
    static const char *const endings[] = {".ctl", ".lease", ".sock", ".pid"};
    DIR *dir = opendir(run);
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        const char *dot = strrchr(entry->d_name, '.');
        bool last = strcmp(entry->d_name, "supervise.pid") == 0; /* until then nobody else starts */
        for (size_t i = 0; dot && !last && i < sizeof endings / sizeof *endings; i++)
            if (strcmp(dot, endings[i]) == 0)
                unlinkat(dirfd(dir), entry->d_name, 0);
    }
    unlinkat(dirfd(dir), "supervise.pid", 0);
    closedir(dir);
}

enum error_code run_dir_list(void (*visit)(void *arg, const char *name, const char *run), void *arg,
                             struct error *e)
{
    char run[RUN_DIR_BYTES];
    if (run_from_environment()) {
        enum error_code code = run_dir_path(NULL, run, e);
        if (code)
            return code;
        const char *slash = strrchr(run, '/');
        const char *last = slash ? slash + 1 : run;
        if (access(run, F_OK) == 0)
            visit(arg, name_is_valid(last) ? last : "default", run);
        return ERROR_OK;
    }
    char base[PATH_MAX];
    base_path(base, sizeof base);
    struct dirent **entries;
    int n = scandir(base, &entries, NULL, alphasort);
    if (n < 0)
        return errno == ENOENT ? ERROR_OK
                               : error_set(e, ERROR_IO, "cannot read the directory %s: %m", base);
    for (int i = 0; i < n; i++) {
        struct stat s;
        if (name_is_valid(entries[i]->d_name) && !run_dir_path(entries[i]->d_name, run, NULL) &&
            lstat(run, &s) == 0 && S_ISDIR(s.st_mode) && s.st_uid == geteuid())
            visit(arg, entries[i]->d_name, run);
        free(entries[i]);
    }
    free(entries);
    return ERROR_OK;
}
