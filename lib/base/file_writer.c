/* Writing files whole; see file_writer.h. */
#include "base/file_writer.h"

#include "base/checked.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_BYTES (1 << 20)
/* An unfinished file's name: PATH, this, then DIGITS hexadecimal digits. */
#define UNFINISHED ".tmp.moed-"
enum { DIGITS = 8, TRIES = 100 };

struct file_writer {
    char *path, *unfinished_path;
    FILE *file;
    uint64_t bytes;
    /* of the last file_writer_keep */
    uint64_t kept_bytes; /* before the tail */
    void *tail;          /* NULL: none */
    size_t tail_bytes;
    struct error error;
};

static void free_writer(struct file_writer *w)
{
    if (w->file)
        fclose(w->file);
    free(w->path);
    free(w->unfinished_path);
    free(w->tail);
    free(w);
}

/* ---- Unfinished files ---- */

/* Each writer holds a lock on its unfinished file, which ends with its process: a file that can be
 * locked is left of a process that was killed.
 *
 * A cleaner may lock a file between its creation and its owner's lock. The owner then finds it
 * locked or removed, and creates another one. */

static bool is_unfinished(const char *name, const char *of)
{
    size_t n = strlen(of);
    if (strncmp(name, of, n) != 0 || strncmp(name + n, UNFINISHED, sizeof UNFINISHED - 1) != 0)
        return false;
    name += n + sizeof UNFINISHED - 1;
    return strspn(name, "0123456789abcdef") == DIGITS && !name[DIGITS];
}

/* NFS locks only files that are open for writing. */
static void remove_left(int folder, const char *name)
{
    struct stat st;
    int fd = openat(folder, name, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlinkat(folder, name, 0);
    close(fd);
}

/* Removes unfinished files of the path that killed processes left. */
static void remove_all_left(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    DIR *dir = folder ? opendir(folder) : NULL;
    struct dirent *entry;
    while (dir && (entry = readdir(dir)))
        if (is_unfinished(entry->d_name, name))
            remove_left(dirfd(dir), entry->d_name);
    if (dir)
        closedir(dir);
    free(folder);
}

/* False: a cleaner has the file, or removed it. File systems without locks have no cleaner. */
static bool lock_own(int fd)
{
    struct stat st;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        return errno != EWOULDBLOCK;
    return fstat(fd, &st) == 0 && st.st_nlink > 0;
}

/* Creates w's unfinished file. Returns its descriptor, or -1 with errno. */
static int create_unfinished(struct file_writer *w, mode_t mode)
{
    char *digits = w->unfinished_path + strlen(w->unfinished_path) - DIGITS;
    for (int i = 0; i < TRIES; i++) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        uint32_t number = (uint32_t)now.tv_nsec ^ (uint32_t)getpid() << 12 ^ (uint32_t)i << 24;
        snprintf(digits, DIGITS + 1, "%08x", (unsigned)number);
        int fd = open(w->unfinished_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd < 0 && errno != EEXIST)
            return -1;
        if (fd >= 0 && lock_own(fd))
            return fd;
        if (fd >= 0)
            close(fd); /* the cleaner removes it */
    }
    errno = EEXIST;
    return -1;
}

/* ---- Writing ---- */

/* The file that a symbolic link leads to, so that the link stays; where it leads to none, the link.
 * Owned; NULL: no memory. */
static char *find_target(const char *path)
{
    struct stat st;
    char *target = NULL;
    if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
        target = realpath(path, NULL);
    return target ? target : strdup(path);
}

enum error_code file_writer_open(const char *path, mode_t mode, struct file_writer **out,
                                 struct error *e)
{
    struct stat there;
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode)) /* the rename would replace it */
        return error_set(e, ERROR_IO, "%s: exists and is not a regular file", path);
    struct file_writer *w = calloc(1, sizeof *w);
    if (!w || !(w->path = find_target(path)) ||
        asprintf(&w->unfinished_path, "%s" UNFINISHED "%0*d", w->path, DIGITS, 0) < 0) {
        if (w) {
            w->unfinished_path = NULL; /* undefined after a failed asprintf */
            free_writer(w);
        }
        return error_set(e, ERROR_MEMORY, "%s: no memory to write it", path);
    }
    remove_all_left(w->path);
    int fd = create_unfinished(w, mode);
    if (fd < 0 || !(w->file = fdopen(fd, "wb"))) {
        int cause = errno;
        if (fd >= 0) {
            unlink(w->unfinished_path);
            close(fd);
        }
        free_writer(w);
        return error_set(e, ERROR_IO, "%s: cannot be created: %s", path, strerror(cause));
    }
    setvbuf(w->file, NULL, _IOFBF, BUFFER_BYTES);
    *out = w;
    return ERROR_OK;
}

static enum error_code report(const struct file_writer *w, struct error *e)
{
    if (e && w->error.code != ERROR_OK)
        *e = w->error;
    return w->error.code;
}

enum error_code file_writer_write(struct file_writer *w, const void *data, size_t bytes,
                                  struct error *e)
{
    if (w->error.code == ERROR_OK && bytes > 0 && fwrite(data, 1, bytes, w->file) != bytes)
        error_set(&w->error, ERROR_IO, "%s: writing failed: %s", w->unfinished_path,
                  strerror(errno));
    w->bytes += bytes;
    return report(w, e);
}

enum error_code file_writer_pad(struct file_writer *w, size_t multiple, struct error *e)
{
    static const uint8_t zeros[64];
    enum error_code code = report(w, e);
    for (size_t left = (size_t)(round_up(w->bytes, multiple) - w->bytes); left && !code;) {
        size_t part = left < sizeof zeros ? left : sizeof zeros;
        code = file_writer_write(w, zeros, part, e);
        left -= part;
    }
    return code;
}

enum error_code file_writer_keep(struct file_writer *w, const void *tail, size_t bytes,
                                 struct error *e)
{
    uint64_t before = w->bytes;
    void *copy = malloc(bytes);
    if (w->error.code == ERROR_OK && !copy)
        error_set(&w->error, ERROR_MEMORY, "%s: no memory to write it", w->path);
    else if (copy)
        memcpy(copy, tail, bytes);
    enum error_code code = file_writer_write(w, tail, bytes, e);
    if (!code && (fflush(w->file) || fseeko(w->file, (off_t)before, SEEK_SET)))
        error_set(&w->error, ERROR_IO, "%s: writing failed: %s", w->unfinished_path,
                  strerror(errno));
    code = report(w, e);
    w->bytes = before;
    if (code) {
        free(copy);
        return code;
    }
    free(w->tail);
    w->tail = copy;
    w->tail_bytes = bytes;
    w->kept_bytes = before;
    return ERROR_OK;
}

bool file_writer_return(struct file_writer *w)
{
    uint64_t end = w->kept_bytes + w->tail_bytes;
    if (!w->tail)
        return false;
    int fd = fileno(w->file);
    __fpurge(w->file);
    /* no block is allocated: the file was as long as this before */
    if (ftruncate(fd, (off_t)end) ||
        pwrite(fd, w->tail, w->tail_bytes, (off_t)w->kept_bytes) != (ssize_t)w->tail_bytes ||
        lseek(fd, (off_t)end, SEEK_SET) < 0)
        return false;
    clearerr(w->file);
    w->bytes = end;
    w->error = (struct error){0};
    return true;
}

const char *file_writer_path(const struct file_writer *w)
{
    return w->path;
}

enum error_code file_writer_finish(struct file_writer *w, struct error *e)
{
    /* keeps the lock until the file has its name: before, a cleaner would remove it */
    int lock = fcntl(fileno(w->file), F_DUPFD_CLOEXEC, 0);
    int failed = fclose(w->file); /* flushes: a full disk may first show here */
    w->file = NULL;
    if (w->error.code == ERROR_OK && failed)
        error_set(&w->error, ERROR_IO, "%s: writing failed: %s", w->unfinished_path,
                  strerror(errno));
    else if (w->error.code == ERROR_OK && rename(w->unfinished_path, w->path) != 0)
        error_set(&w->error, ERROR_IO, "%s: renaming %s to it failed: %s", w->path,
                  w->unfinished_path, strerror(errno));
    enum error_code code = report(w, e);
    if (code != ERROR_OK)
        unlink(w->unfinished_path);
    if (lock >= 0)
        close(lock);
    free_writer(w);
    return code;
}

void file_writer_abandon(struct file_writer *w)
{
    if (!w)
        return;
    unlink(w->unfinished_path);
    free_writer(w);
}

enum error_code file_write(const char *path, const void *data, size_t bytes, struct error *e)
{
    struct file_writer *w;
    enum error_code code = file_writer_open(path, FILE_WRITER_MODE, &w, e);
    if (code)
        return code;
    code = file_writer_write(w, data, bytes, e);
    if (!code)
        return file_writer_finish(w, e);
    file_writer_abandon(w);
    return code;
}

enum error_code file_write_text(const char *path, const struct strbuf *text, struct error *e)
{
    if (text->failed)
        return error_set(e, ERROR_MEMORY, "%.200s: out of memory", path);
    return file_write(path, text->data, text->len, e);
}
