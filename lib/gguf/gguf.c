/* Opening and closing a model: the file's mapping, then the parser; see gguf.h. */
#include "gguf/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
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

static enum error_code open_failed(const char *path, int cause, struct error *e)
{
    if (cause == ENOENT || cause == ENOTDIR)
        return error_set(e, ERROR_NOT_FOUND, "%s: no such file: give the path of a GGUF model file",
                         path);
    if (cause == EACCES || cause == EPERM)
        return error_set(e, ERROR_IO, "%s: cannot be opened: %s: make it readable (chmod a+r)",
                         path, strerror(cause));
    return error_set(e, ERROR_IO, "%s: cannot be opened: %s", path, strerror(cause));
}

/* Fills f->data, f->bytes from the open f->fd. */
static enum error_code map_file(struct gguf_file *f, struct error *e)
{
    struct stat st;
    if (fstat(f->fd, &st) != 0)
        return error_set(e, ERROR_IO, "%s: fstat failed: %s", f->path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return error_set(e, ERROR_IO, "%s: is %s, expected a GGUF model file", f->path,
                         kind_of_file(st.st_mode));
    if (st.st_size == 0) /* cannot be mapped */
        return error_set(e, ERROR_FORMAT, "%s: byte 0: the file is empty, expected a GGUF model",
                         f->path);
    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, f->fd, 0);
    if (map == MAP_FAILED)
        return error_set(e, errno == ENOMEM ? ERROR_MEMORY : ERROR_IO,
                         "%s: mapping %lld bytes failed: %s", f->path, (long long)st.st_size,
                         strerror(errno));
    f->data = map;
    f->bytes = (uint64_t)st.st_size;
    f->mapped = true;
    return ERROR_OK;
}

static void close_file(struct gguf_file *f)
{
    if (f->mapped)
        munmap((void *)(uintptr_t)f->data, (size_t)f->bytes);
    if (f->fd >= 0)
        close(f->fd);
    free(f->path);
}

/* A further entry of g->files with this name and no file behind it yet. */
static struct gguf_file *append_file(struct gguf *g, const char *name)
{
    struct gguf_file *files = realloc(g->files, (g->file_count + 1) * sizeof *files);
    if (!files)
        return NULL;
    g->files = files;
    char *copy = strdup(name);
    if (!copy)
        return NULL;
    files[g->file_count] = (struct gguf_file){.path = copy, .fd = -1};
    return &files[g->file_count++];
}

enum error_code gguf_add_file(struct gguf *g, const char *path, struct error *e)
{
    struct gguf_file *f = append_file(g, path);
    if (!f)
        return error_set(e, ERROR_MEMORY, "%s: no memory to open it", path);
    /* O_NONBLOCK: a pipe without a writer must not hang us; it changes nothing for regular files.
     */
    f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f->fd < 0)
        return open_failed(path, errno, e);
    return map_file(f, e);
}

enum error_code gguf_open(const char *path, struct gguf **out, struct error *e)
{
    struct gguf *g = calloc(1, sizeof *g);
    if (!g)
        return error_set(e, ERROR_MEMORY, "%s: no memory to open it", path);
    enum error_code code = gguf_add_file(g, path, e);
    if (code == ERROR_OK)
        code = gguf_parse_file(g, 0, true, &g->keys, e);
    if (code == ERROR_OK)
        code = gguf_open_parts(g, e);
    if (code == ERROR_OK)
        code = gguf_index_tensors(g, e);
    if (code != ERROR_OK) {
        gguf_close(g);
        return code;
    }
    *out = g;
    return ERROR_OK;
}

enum error_code gguf_open_metadata(const void *data, size_t len, const char *name,
                                   struct gguf **out, struct error *e)
{
    struct gguf *g = calloc(1, sizeof *g);
    struct gguf_file *f = g ? append_file(g, name) : NULL;
    if (!f) {
        gguf_close(g);
        return error_set(e, ERROR_MEMORY, "%s: no memory to open it", name);
    }
    f->data = data;
    f->bytes = len;
    enum error_code code = gguf_parse_file(g, 0, false, &g->keys, e);
    if (code == ERROR_OK)
        code = gguf_index_tensors(g, e);
    if (code != ERROR_OK) {
        gguf_close(g);
        return code;
    }
    *out = g;
    return ERROR_OK;
}

void gguf_fini(struct gguf *g)
{
    for (uint32_t i = 0; i < g->file_count; i++)
        close_file(&g->files[i]);
    free(g->files);
    kv_list_free(&g->keys);
    free(g->tensors);
    free(g->tensors_sorted);
}

void gguf_close(struct gguf *g)
{
    if (!g)
        return;
    gguf_fini(g);
    free(g);
}
