/* The file of typed lines; see history_file.h. The lock is on the file itself. A program that has
 * waited for it looks whether the path still leads to that file, because another may have replaced
 * it. */
#include "client/cli/chat/history_file.h"

#ifdef MOED_HAS_EDIT

#include "client/cli/ask.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Others may not read what was typed, whoever made the file. */
static void make_private(int fd, const struct stat *st)
{
    if (st->st_mode & (S_IRWXG | S_IRWXO))
        fchmod(fd, st->st_mode & S_IRWXU);
}

/* The file, locked; -1: it cannot be had, and errno says why. Closing it releases the lock. */
static int open_locked(const char *path)
{
    for (int tries = 0; tries < 100; tries++) {
        struct stat ours, there;
        int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
        if (fd < 0)
            return -1;
        flock(fd, LOCK_EX); /* where there are no locks, a line may be lost */
        if (fstat(fd, &ours) == 0 && S_ISREG(ours.st_mode) && stat(path, &there) == 0 &&
            ours.st_ino == there.st_ino && ours.st_dev == there.st_dev) {
            make_private(fd, &ours);
            return fd;
        }
        close(fd);
        errno = EINVAL;
        if (!S_ISREG(ours.st_mode))
            return -1;
    }
    return -1;
}

/* libedit's text for a history: a line that names the format, then the lines. The caller frees it.
 * NULL: no memory. */
static char *text_of(History *list)
{
    HistEvent event;
    int fd = memfd_create("history", MFD_CLOEXEC); /* libedit writes only what has a descriptor */
    FILE *f = fd >= 0 ? fdopen(fd, "w+") : NULL;
    char *text = NULL;
    if (f && history(list, &event, H_SAVE_FP, f) >= 0 && fflush(f) == 0) {
        off_t len = lseek(fd, 0, SEEK_END);
        text = len > 0 ? calloc(1, (size_t)len + 1) : NULL;
        if (text && pread(fd, text, (size_t)len, 0) != len) {
            free(text);
            text = NULL;
        }
    }
    if (f)
        fclose(f);
    else if (fd >= 0)
        close(fd);
    return text;
}

/* ---- Loading ---- */

static bool load(const char *path, History *list)
{
    HistEvent event;
    return history(list, &event, H_LOAD, path) >= 0;
}

/* A file that cannot be written has no lock. */
static void load_readonly(const char *path, History *list)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        make_private(fd, &st);
        load(path, list);
    }
    if (fd >= 0)
        close(fd);
}

static long lines_of(int fd)
{
    long n = 0;
    char block[4096];
    ssize_t got;
    for (off_t at = 0; (got = pread(fd, block, sizeof block, at)) > 0; at += got)
        for (ssize_t i = 0; i < got; i++)
            n += block[i] == '\n';
    return n;
}

/* Gives the file a second name. False: it has none. */
static bool keep_copy(const char *path)
{
    char real[PATH_MAX], copy[PATH_MAX + 32];
    if (!realpath(path, real))
        return false;
    snprintf(copy, sizeof copy, "%s.bad", real);
    unlink(copy);
    return link(real, copy) == 0 || rename(real, copy) == 0; /* no links: on FAT, for instance */
}

static void replace(const char *path, History *list)
{
    char real[PATH_MAX], fresh[PATH_MAX + 32];
    char *text = realpath(path, real) ? text_of(list) : NULL;
    if (!text)
        return;
    snprintf(fresh, sizeof fresh, "%s.%d.new", real, (int)getpid());
    int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool written = fd >= 0 && ask_write(fd, text, strlen(text), NULL);
    if (fd >= 0 && close(fd) != 0)
        written = false;
    if (fd >= 0 && (!written || rename(fresh, real) != 0))
        unlink(fresh);
    free(text);
}

void history_file_load(const char *path, History *list, int most)
{
    struct stat st;
    int fd = open_locked(path);
    if (fd < 0 && (errno == EACCES || errno == EROFS || errno == EPERM))
        load_readonly(path, list);
    if (fd < 0)
        return;
    if (load(path, list) ? lines_of(fd) > most + 1
                         : fstat(fd, &st) == 0 && st.st_size > 0 && keep_copy(path))
        replace(path, list);
    close(fd);
}

/* ---- Appending ---- */

static char *text_of_line(const char *line)
{
    HistEvent event;
    History *one = history_init();
    char *text = NULL;
    if (one && history(one, &event, H_SETSIZE, 1) >= 0 && history(one, &event, H_ENTER, line) >= 0)
        text = text_of(one);
    if (one)
        history_end(one);
    return text;
}

void history_file_append(const char *path, const char *line)
{
    struct stat st;
    char last = '\n';
    char *text = text_of_line(line);
    const char *lines = text ? strchr(text, '\n') : NULL; /* the end of the line with the format */
    int fd = lines ? open_locked(path) : -1;
    if (fd >= 0 && fstat(fd, &st) == 0) {
        if (st.st_size == 0)
            lines = text;
        else if (pread(fd, &last, 1, st.st_size - 1) != 1 || last == '\n') /* else a full disk's */
            lines++;
        ask_write(fd, lines, strlen(lines), NULL);
    }
    if (fd >= 0)
        close(fd);
    free(text);
}

#endif
