/* Opening and closing a model: the file's mapping, then the parser; see gguf.h. */
#include "gguf/internal.h"

#include <stdlib.h>
#include <string.h>

static void close_file(struct gguf_file *f)
{
    file_map_close(&f->map);
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
    enum error_code code = file_map_open(path, "a GGUF model file", &f->map, e);
    if (code)
        return code;
    f->fd = f->map.fd;
    f->data = f->map.data;
    f->bytes = f->map.bytes;
    return ERROR_OK;
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
