/* What is removed of a deployment that has ended; see run_dir.h. */
#include "daemon/run_dir.h"
#include "daemon/supervisor_protocol.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool has_stem(const char *file, const char *dot, const char *stem)
{
    return strlen(stem) == (size_t)(dot - file) && strncmp(file, stem, (size_t)(dot - file)) == 0;
}

/* Whether a file of RUN is a deployment's own: its sockets, pid and port files, the options of its
 * folder (options_file.h), with `logs` its logs. */
static bool is_own(const char *file, bool logs)
{
    static const char *const endings[] = {"ctl",  "peers", "lease", "sock", "pid",
                                          "port", "conf",  "log",   "log.1"};
    size_t n_endings = sizeof endings / sizeof *endings - (logs ? 0 : 2);
    const char *dot = strchr(file, '.');
    bool ends = false;
    bool known = dot && (has_stem(file, dot, "supervise") || has_stem(file, dot, "notify"));
    for (int i = 0; dot && i < SUPERVISE_PROCESSES; i++)
        known |= has_stem(file, dot, supervise_process_names[i]);
    for (size_t i = 0; known && i < n_endings; i++)
        ends |= strcmp(dot + 1, endings[i]) == 0;
    return ends;
}

/* What only the switch between places has (run_dir.h). */
static bool is_of_places(const char *file)
{
    return strcmp(file, "serving") == 0 || strcmp(file, "serving.next") == 0 ||
           strcmp(file, "2") == 0;
}

static DIR *open_checked(const char *run, struct error *e)
{
    int run_fd;
    if (run_dir_open(run, &run_fd, e))
        return NULL;
    int fd = openat(run_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    close(run_fd);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        error_set(e, ERROR_IO, "cannot read %s: %m", run);
        if (fd >= 0)
            close(fd);
    }
    return dir;
}

/* The second place: its files, and where it is empty then, itself. */
static void remove_second(int run_fd, bool logs)
{
    int fd = openat(run_fd, "2", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(dir));)
        if (is_own(entry->d_name, logs))
            unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
    unlinkat(run_fd, "2", AT_REMOVEDIR);
}

/* supervise.pid last: until then nobody else starts. */
static void remove_own(DIR *dir, bool logs)
{
    rewinddir(dir);
    unlinkat(dirfd(dir), "serving", 0);
    unlinkat(dirfd(dir), "serving.next", 0);
    remove_second(dirfd(dir), logs);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (strcmp(entry->d_name, "supervise.pid") != 0 && is_own(entry->d_name, logs))
            unlinkat(dirfd(dir), entry->d_name, 0);
    unlinkat(dirfd(dir), "supervise.pid", 0);
}

void run_dir_sweep(const char *run)
{
    DIR *dir = open_checked(run, NULL);
    if (!dir)
        return;
    remove_own(dir, false);
    closedir(dir);
}

/* ERROR_USAGE names a file that is not a deployment's. */
static enum error_code check_own(DIR *dir, const char *run, struct error *e)
{
    for (struct dirent *entry; (entry = readdir(dir));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            !is_own(entry->d_name, true) && !is_of_places(entry->d_name))
            return error_set(e, ERROR_USAGE,
                             "%s has a file that is not moed's, %.100s: remove the directory by "
                             "hand",
                             run, entry->d_name);
    return ERROR_OK;
}

enum error_code run_dir_remove(const char *run, struct error *e)
{
    DIR *dir = open_checked(run, e);
    if (!dir)
        return ERROR_IO;
    enum error_code code = check_own(dir, run, e);
    if (!code)
        code = run_dir_lock(run, "supervise", e); /* nobody starts it now */
    if (!code) {
        remove_own(dir, true);
        if (rmdir(run))
            code = error_set(e, ERROR_IO, "cannot remove %s: %m", run);
    }
    closedir(dir);
    return code;
}
