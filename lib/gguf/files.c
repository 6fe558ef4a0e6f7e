/* The files of an opened model: their entries and mappings; see internal.h. */
#include "gguf/internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void close_file(struct gguf_file *f)
{
    file_map_close(&f->map);
    free(f->path);
}

struct gguf_file *gguf_append_file(struct gguf *g, const char *name)
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

/* The mapping stays that of the opened file. */
static enum error_code borrow_opened(const struct gguf *g, struct gguf_file *f, struct error *e)
{
    for (uint32_t i = 0; i < g->opened_count; i++) {
        const struct gguf_file *from = &g->opened[i];
        if (!from->map.data || strcmp(from->path, f->path) != 0)
            continue;
        f->fd = from->map.fd;
        f->data = from->map.data;
        f->bytes = from->map.bytes;
        return ERROR_OK;
    }
    return error_set(e, ERROR_NOT_FOUND, "%s: no such file: give the path of a GGUF model file",
                     f->path);
}

enum error_code gguf_open_failed(const char *path, enum error_code code, struct error *e)
{
    struct stat s;
    if (stat(path, &s) != 0 || !S_ISDIR(s.st_mode))
        return code;
    return error_set(e, code,
                     "%s: is a directory, expected a GGUF model file: take a GGUF file of the "
                     "model, for moed does not read original weights (safetensors)",
                     path);
}

enum error_code gguf_add_file(struct gguf *g, const char *path, struct error *e)
{
    struct gguf_file *f = gguf_append_file(g, path);
    if (!f)
        return error_set(e, ERROR_MEMORY, "%s: no memory to open it", path);
    if (g->opened)
        return borrow_opened(g, f, e);
    enum error_code code = file_map_open(path, "a GGUF model file", &f->map, e);
    if (code)
        return gguf_open_failed(path, code, e);
    f->fd = f->map.fd;
    f->data = f->map.data;
    f->bytes = f->map.bytes;
    return ERROR_OK;
}

void gguf_fini(struct gguf *g)
{
    for (uint32_t i = 0; i < g->file_count; i++)
        close_file(&g->files[i]);
    free(g->files);
    for (uint32_t i = 0; i < g->opened_count; i++)
        close_file(&g->opened[i]);
    free(g->opened);
    kv_list_free(&g->keys);
    free(g->tensors);
    free(g->tensors_sorted);
}
