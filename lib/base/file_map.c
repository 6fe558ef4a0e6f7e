/* Mapping files; see file_map.h. */
#include "base/file_map.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *kind_of_file(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR:
        return "a directory";
    case S_IFCHR:
    case S_IFBLK:
        return "a device";
    case S_IFIFO:
        return "a pipe";
    case S_IFSOCK:
        return "a socket";
    default:
        return "no regular file";
    }
}

static struct file_identity identity_of(const struct stat *st)
{
    return (struct file_identity){st->st_dev, st->st_ino, st->st_size,
                                  st->st_mtim.tv_sec * 1000000000ll + st->st_mtim.tv_nsec};
}

static enum error_code open_failed(const char *path, const char *expected, int cause,
                                   struct error *e)
{
    if (cause == ENOENT || cause == ENOTDIR)
        return error_set(e, ERROR_NOT_FOUND, "%s: no such file: give the path of %s", path,
                         expected);
    if (cause == EACCES || cause == EPERM)
        return error_set(e, ERROR_IO, "%s: cannot be opened: %s: make it readable (chmod a+r)",
                         path, strerror(cause));
    return error_set(e, ERROR_IO, "%s: cannot be opened: %s", path, strerror(cause));
}

static enum error_code check_open_file(int fd, const char *path, const char *expected,
                                       struct file_map *out, struct error *e)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return error_set(e, ERROR_IO, "%s: fstat failed: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return error_set(e, ERROR_IO, "%s: is %s, expected %s", path, kind_of_file(st.st_mode),
                         expected);
    if (st.st_size == 0) /* cannot be mapped */
        return error_set(e, ERROR_FORMAT, "%s: byte 0: the file is empty, expected %s", path,
                         expected);
    *out = (struct file_map){NULL, (uint64_t)st.st_size, fd, identity_of(&st)};
    return ERROR_OK;
}

enum error_code file_map_open_only(const char *path, const char *expected, struct file_map *out,
                                   struct error *e)
{
    /* O_NONBLOCK: opening a pipe without a writer would block. Regular files ignore it. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return open_failed(path, expected, errno, e);
    enum error_code code = check_open_file(fd, path, expected, out, e);
    if (code)
        close(fd);
    return code;
}

enum error_code file_map_map(struct file_map *m, const char *path, struct error *e)
{
    void *map = mmap(NULL, (size_t)m->bytes, PROT_READ, MAP_SHARED, m->fd, 0);
    if (map == MAP_FAILED)
        return error_set(e, errno == ENOMEM ? ERROR_MEMORY : ERROR_IO,
                         "%s: mapping %llu bytes failed: %s", path, (unsigned long long)m->bytes,
                         strerror(errno));
    m->data = map;
    return ERROR_OK;
}

enum error_code file_map_open(const char *path, const char *expected, struct file_map *out,
                              struct error *e)
{
    struct file_map m;
    enum error_code code = file_map_open_only(path, expected, &m, e);
    if (code)
        return code;
    code = file_map_map(&m, path, e);
    if (code)
        file_map_close(&m);
    else
        *out = m;
    return code;
}

enum file_change file_map_change(const struct file_map *m)
{
    struct stat st;
    if (fstat(m->fd, &st) != 0)
        return FILE_CHANGE_UNKNOWN;
    struct file_identity now = identity_of(&st), then = m->identity;
    bool same = now.device == then.device && now.inode == then.inode && now.bytes == then.bytes &&
                now.modified_ns == then.modified_ns;
    return same ? FILE_UNCHANGED : FILE_CHANGED;
}

void file_map_close(struct file_map *m)
{
    if (m->data)
        munmap((void *)(uintptr_t)m->data, (size_t)m->bytes);
    if (m->bytes)
        close(m->fd);
    *m = (struct file_map){0};
}
