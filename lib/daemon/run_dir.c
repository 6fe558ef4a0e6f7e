/* Runtime directories; see run_dir.h. run_dir_lock.c has the pid files in them, run_dir_remove.c
 * their end. */
#include "daemon/run_dir.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

/* The directory of the deployments' directories. */
static void base_path(char *out, size_t bytes)
{
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    struct stat s;
    if (xdg && xdg[0] == '/' && stat(xdg, &s) == 0 && S_ISDIR(s.st_mode) && s.st_uid == geteuid())
        snprintf(out, bytes, "%s/moed", xdg);
    else
        snprintf(out, bytes, "/tmp/moed-%u", (unsigned)geteuid());
}

const char *run_dir_from_environment(void)
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

void run_dir_label(const char *name, char out[RUN_LABEL_BYTES])
{
    const char *from_environment = run_dir_from_environment();
    if (from_environment)
        snprintf(out, RUN_LABEL_BYTES, "the deployment in %.*s (MOED_RUN)", RUN_DIR_BYTES - 1,
                 from_environment);
    else
        snprintf(out, RUN_LABEL_BYTES, "deployment %.64s", name ? name : "default");
}

enum error_code run_dir_path(const char *name, char out[RUN_DIR_BYTES], struct error *e)
{
    if (name && !name_is_valid(name))
        return error_set(e, ERROR_USAGE,
                         "%.64s is not a deployment's name: at most %d letters, digits, '.', '_' "
                         "and '-', no leading dot",
                         name[0] ? name : "an empty string", NAME_MAX_LENGTH);
    char run[PATH_MAX + NAME_MAX_LENGTH + 2];
    const char *from_environment = run_dir_from_environment();
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

/* A user who may write in the parent directory could put another directory in RUN's place. */
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

static enum error_code check_owner(const char *run, const struct stat *s, struct error *e)
{
    if (!S_ISDIR(s->st_mode))
        return error_set(e, ERROR_IO, "%s is not a directory", run);
    if (s->st_uid != geteuid())
        return error_set(e, ERROR_IO, "%s belongs to another user (uid %u), not to us (uid %u)",
                         run, (unsigned)s->st_uid, (unsigned)geteuid());
    if (s->st_mode & 077)
        return error_set(e, ERROR_IO, "others may enter %s (mode %03o): chmod it to 700", run,
                         (unsigned)s->st_mode & 0777);
    return ERROR_OK;
}

enum error_code run_dir_open(const char *run, int *out, struct error *e)
{
    enum error_code code = check_length(run, e);
    if (code)
        return code;
    char path[RUN_DIR_BYTES]; /* without a '/' at its end, which would follow a link */
    size_t len = strlen(run);
    while (len > 1 && run[len - 1] == '/')
        len--;
    snprintf(path, sizeof path, "%.*s", (int)len, run);
    struct stat s;
    int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return error_set(e, errno == ENOENT || errno == ENOTDIR ? ERROR_NOT_FOUND : ERROR_IO,
                         "cannot look at %s: %m", run);
    if (fstat(fd, &s) != 0)
        code = error_set(e, ERROR_IO, "cannot look at %s: %m", run);
    if (!code)
        code = check_parent(path, e);
    if (!code)
        code = check_owner(run, &s, e);
    if (code)
        close(fd);
    else
        *out = fd;
    return code;
}

enum error_code run_dir_check(const char *run, struct error *e)
{
    int fd;
    enum error_code code = run_dir_open(run, &fd, e);
    if (!code)
        close(fd);
    return code == ERROR_NOT_FOUND ? ERROR_OK : code;
}

enum error_code run_dir_create(const char *run, struct error *e)
{
    if (!*run)
        return error_set(e, ERROR_USAGE, "the runtime directory has an empty name");
    enum error_code code = check_length(run, e);
    if (!code)
        code = make_directories(run, e);
    if (code)
        return code;
    int fd;
    code = run_dir_open(run, &fd, e);
    if (!code)
        close(fd);
    return code == ERROR_NOT_FOUND ? ERROR_IO : code;
}

void run_dir_file(const char *run, const char *file, char out[RUN_PATH_BYTES])
{
    snprintf(out, RUN_PATH_BYTES, "%s/%s", run, file);
}

void run_dir_url(const char *run, const char *file, char out[RUN_URL_BYTES])
{
    snprintf(out, RUN_URL_BYTES, "ipc://%s/%s", run, file);
}

bool run_dir_folder(char out[RUN_DIR_BYTES])
{
    char base[PATH_MAX];
    base_path(base, sizeof base);
    if (strlen(base) >= RUN_DIR_BYTES)
        return false;
    memcpy(out, base, strlen(base) + 1);
    return true;
}

enum error_code run_dir_list(void (*visit)(void *arg, const char *name, const char *run), void *arg,
                             struct error *e)
{
    char run[RUN_DIR_BYTES];
    if (run_dir_from_environment()) {
        enum error_code code = run_dir_path(NULL, run, e);
        if (code)
            return code;
        const char *slash = strrchr(run, '/');
        const char *last = slash ? slash + 1 : run;
        int fd;
        code = run_dir_open(run, &fd, e);
        if (code)
            return code == ERROR_NOT_FOUND ? ERROR_OK : code;
        close(fd);
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
        int fd;
        if (name_is_valid(entries[i]->d_name) && !run_dir_path(entries[i]->d_name, run, NULL) &&
            !run_dir_open(run, &fd, NULL)) {
            close(fd);
            visit(arg, entries[i]->d_name, run);
        }
        free(entries[i]);
    }
    free(entries);
    return ERROR_OK;
}
