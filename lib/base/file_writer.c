/* Writing files whole; see file_writer.h. */
#include "base/file_writer.h"

#include "base/checked.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES (1 << 20)

struct file_writer {
    char *path, *unfinished_path;
    FILE *file;
    uint64_t bytes;
    struct error error;
};

static void free_writer(struct file_writer *w)
{
    if (w->file)
        fclose(w->file);
    free(w->path);
    free(w->unfinished_path);
    free(w);
}

enum error_code file_writer_open(const char *path, struct file_writer **out, struct error *e)
{
    struct stat there;
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode)) /* the rename would replace it */
        return error_set(e, ERROR_IO, "%s: exists and is not a regular file", path);
    struct file_writer *w = calloc(1, sizeof *w);
    if (!w || !(w->path = strdup(path)) || asprintf(&w->unfinished_path, "%s.tmp", path) < 0) {
        if (w) {
            w->unfinished_path = NULL; /* undefined after a failed asprintf */
            free_writer(w);
        }
        return error_set(e, ERROR_MEMORY, "%s: no memory to write it", path);
    }
    w->file = fopen(w->unfinished_path, "wbe");
    if (!w->file) {
        int cause = errno;
        free_writer(w);
        return error_set(e, ERROR_IO, "%s.tmp: cannot be created: %s", path, strerror(cause));
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

const char *file_writer_path(const struct file_writer *w)
{
    return w->path;
}

enum error_code file_writer_finish(struct file_writer *w, struct error *e)
{
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
    enum error_code code = file_writer_open(path, &w, e);
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
