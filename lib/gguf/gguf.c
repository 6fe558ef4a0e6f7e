/* Opens and closes a model; see gguf.h. */
#include "gguf/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Hands g to the caller, or closes it after an error. */
static enum error_code finish(struct gguf *g, enum error_code code, struct gguf **out)
{
    if (code == ERROR_OK)
        *out = g;
    else
        gguf_close(g);
    return code;
}

/* Where the name says that the file is a part of one that was cut, "X.gguf.part1of2", replaces the
 * error of a file that ends too early or has no header. */
static enum error_code explain_part(const char *path, enum error_code code, struct error *e)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *found = NULL;
    unsigned part, parts;
    int end = 0;
    for (const char *s = name; (s = strstr(s, ".part")); s++)
        found = s;
    if (code != ERROR_FORMAT || !found || sscanf(found, ".part%uof%u%n", &part, &parts, &end) < 2 ||
        found[end])
        return code;
    int whole = (int)(found - name);
    return error_set(e, code,
                     "%s: part %u of %u of a file: join them first: cat "
                     "%.*s.part{1..%u}of%u > %.*s",
                     path, part, parts, whole, name, parts, parts, whole, name);
}

enum error_code gguf_parse_all(struct gguf *g, const char *path, struct error *e)
{
    enum error_code code = gguf_add_file(g, path, e);
    if (code == ERROR_OK)
        code = explain_part(path, gguf_parse_file(g, 0, true, &g->keys, e), e);
    if (code == ERROR_OK)
        code = gguf_open_parts(g, e);
    return code == ERROR_OK ? gguf_index_tensors(g, e) : code;
}

enum error_code gguf_open(const char *path, struct gguf **out, struct error *e)
{
    struct gguf *g = calloc(1, sizeof *g);
    if (!g)
        return error_set(e, ERROR_MEMORY, "%s: no memory to open it", path);
    return finish(g, gguf_parse_all(g, path, e), out);
}

enum error_code gguf_open_metadata(const void *data, size_t len, const char *name,
                                   struct gguf **out, struct error *e)
{
    struct gguf *g = calloc(1, sizeof *g);
    struct gguf_file *f = g ? gguf_append_file(g, name) : NULL;
    if (!f) {
        gguf_close(g);
        return error_set(e, ERROR_MEMORY, "%s: no memory to open it", name);
    }
    f->data = data;
    f->bytes = len;
    enum error_code code = gguf_parse_file(g, 0, false, &g->keys, e);
    if (code == ERROR_OK)
        code = gguf_index_tensors(g, e);
    return finish(g, code, out);
}

void gguf_close(struct gguf *g)
{
    if (!g)
        return;
    gguf_fini(g);
    free(g);
}
