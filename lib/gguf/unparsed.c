/* Opening a model's files, parsing them, and having another process parse them; see gguf.h. */
#include "gguf/internal.h"

#include "base/checked.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE_BYTES 4096 /* of the kernel's, or a part of one */

/* ---- Opening ---- */

static enum error_code open_part(struct gguf *g, const char *path, struct error *e)
{
    struct gguf_file *f = &g->opened[g->opened_count];
    struct file_map map;
    enum error_code code = file_map_open_only(path, "a GGUF model file", &map, e);
    if (code)
        return gguf_open_failed(path, code, e);
    *f = (struct gguf_file){.path = strdup(path), .fd = map.fd, .bytes = map.bytes, .map = map};
    g->opened_count++;
    return f->path ? ERROR_OK : error_set(e, ERROR_MEMORY, "%s: no memory to open it", path);
}

/* The file itself, and those that its name names, as far as they are there: whether it is one part
 * of several, only its keys say. */
static enum error_code open_files(struct gguf *g, const char *path, struct error *e)
{
    uint32_t parts = gguf_count_parts(path);
    g->opened = calloc((size_t)parts + 1, sizeof *g->opened);
    if (!g->opened)
        return error_set(e, ERROR_MEMORY, "%s: no memory to open it", path);
    enum error_code code = open_part(g, path, e);
    for (uint32_t i = 0; i < parts && parts > 1 && !code; i++) {
        char *part = gguf_part_path(path, i, parts);
        if (!part)
            code = error_set(e, ERROR_MEMORY, "%s: no memory to open its parts", path);
        else if (strcmp(part, path) != 0)
            code = open_part(g, part, e);
        code = code == ERROR_NOT_FOUND ? ERROR_OK : code;
        free(part);
    }
    return code;
}

enum error_code gguf_open_unparsed(const char *path, struct gguf **out, struct error *e)
{
    struct gguf *g = calloc(1, sizeof *g);
    if (!g)
        return error_set(e, ERROR_MEMORY, "%s: no memory to open it", path);
    enum error_code code = open_files(g, path, e);
    if (code)
        gguf_close(g);
    else
        *out = g;
    return code;
}

/* ---- Parsing ---- */

enum error_code gguf_map_unparsed(struct gguf *g, struct error *e)
{
    enum error_code code = ERROR_OK;
    for (uint32_t i = 0; i < g->opened_count && !code; i++)
        code = file_map_map(&g->opened[i].map, g->opened[i].path, e);
    return code;
}

int gguf_next_descriptor(const struct gguf *g, int from)
{
    int next = -1;
    for (uint32_t i = 0; i < g->opened_count; i++) {
        int fd = g->opened[i].map.fd;
        if (fd >= from && (next < 0 || fd < next))
            next = fd;
    }
    return next;
}

/* The file whose mapping has the address; NULL: none has. */
static const struct file_map *map_of(const struct gguf *g, uintptr_t address, const char **path)
{
    for (uint32_t i = 0; i < g->opened_count; i++) {
        const struct file_map *m = &g->opened[i].map;
        *path = g->opened[i].path;
        if (m->data && address - (uintptr_t)m->data < m->bytes)
            return m;
    }
    return NULL;
}

enum error_code gguf_explain_fault(const struct gguf *g, const void *address, struct error *e)
{
    uint8_t page[PAGE_BYTES];
    const char *path;
    const struct file_map *m = map_of(g, (uintptr_t)address, &path);
    struct stat now;
    if (!m)
        return ERROR_OK;
    uint64_t at = ((uintptr_t)address - (uintptr_t)m->data) / PAGE_BYTES * PAGE_BYTES;
    bool cut = fstat(m->fd, &now) == 0 && (uint64_t)now.st_size < m->bytes;
    if (cut)
        return error_set(e, ERROR_IO, "%s: the file was cut while it was read", path);
    if (pread(m->fd, page, sizeof page, (off_t)at) < 0)
        return error_set(e, ERROR_IO, "%s: reading at byte %" PRIu64 ": %s (errno %d)", path, at,
                         strerror(errno), errno);
    return error_set(e, ERROR_IO,
                     "%s: could not be read at byte %" PRIu64 ": the kernel's log has the disk's "
                     "error",
                     path, at);
}

enum error_code gguf_parse(struct gguf *g, struct error *e)
{
    return gguf_parse_all(g, g->opened[0].path, e);
}

/* ---- What another process parsed ---- */

static enum error_code nonsense(const struct gguf *g, const char *what, struct error *e)
{
    const char *path = g->file_count ? g->files[0].path : g->opened[0].path;
    return error_set(e, ERROR_PROTOCOL, "%s: the process that reads its metadata returned %s", path,
                     what);
}

/* Moves the files in use from `opened` to `files`: all parts in their order, or the one file. */
static enum error_code take_files(struct gguf *g, uint32_t count, struct error *e)
{
    const char *path = g->opened[0].path;
    if (count != 1 && count != gguf_count_parts(path))
        return nonsense(g, "another number of files", e);
    g->files = calloc(count, sizeof *g->files);
    if (!g->files)
        return error_set(e, ERROR_MEMORY, "%s: no memory to open it", path);
    for (uint32_t i = 0; i < count; i++) {
        char *part = count == 1 ? strdup(path) : gguf_part_path(path, i, count);
        uint32_t k = 0;
        while (part && k < g->opened_count &&
               (!g->opened[k].path || strcmp(g->opened[k].path, part) != 0))
            k++;
        bool found = part && k < g->opened_count;
        free(part);
        if (!found)
            return nonsense(g, "a file that is not there", e);
        g->files[g->file_count++] = g->opened[k];
        g->opened[k] = (struct gguf_file){.fd = -1};
    }
    return ERROR_OK;
}

static enum error_code check_tensor(const struct gguf *g, const struct gguf_tensor *t,
                                    struct error *e)
{
    const struct tensor_type_info *type = tensor_type_info(t->type);
    uint64_t values = 1, bytes, end;
    bool sane = memchr(t->name, 0, sizeof t->name) && t->name[0] && type && t->n_dims >= 1 &&
                t->n_dims <= GGUF_MAX_DIMS && t->file < g->file_count;
    for (uint32_t i = 0; sane && i < GGUF_MAX_DIMS; i++)
        sane = t->ne[i] && (i < t->n_dims || t->ne[i] == 1) &&
               checked_mul(values, t->ne[i], &values) && values <= INT64_MAX;
    sane = sane && t->ne[0] % type->block_values == 0 &&
           checked_mul(values / type->block_values, type->block_bytes, &bytes) &&
           bytes == t->bytes && checked_add(t->offset, bytes, &end) &&
           end <= g->files[t->file].bytes;
    return sane ? ERROR_OK : nonsense(g, "a tensor that cannot be", e);
}

enum error_code gguf_adopt(struct gguf *g, const struct gguf_parsed *parsed,
                           const struct gguf_tensor *tensors, struct error *e)
{
    enum error_code code = take_files(g, parsed->file_count, e);
    if (!code && parsed->metadata_bytes > g->files[0].bytes)
        code = nonsense(g, "metadata beyond the file's end", e);
    for (uint64_t i = 0; i < parsed->tensor_count && !code; i++)
        code = check_tensor(g, &tensors[i], e);
    if (code)
        return code;
    g->tensors = malloc((parsed->tensor_count + 1) * sizeof *tensors);
    if (!g->tensors)
        return error_set(e, ERROR_MEMORY, "%s: no memory for its tensors", g->files[0].path);
    memcpy(g->tensors, tensors, parsed->tensor_count * sizeof *tensors);
    g->tensor_count = parsed->tensor_count;
    g->version = parsed->version;
    g->files[0].metadata_bytes = parsed->metadata_bytes;
    return gguf_index_tensors(g, e);
}

void gguf_describe(const struct gguf *g, struct gguf_parsed *out)
{
    *out = (struct gguf_parsed){.version = g->version,
                                .file_count = g->file_count,
                                .tensor_count = g->tensor_count,
                                .metadata_bytes = g->files[0].metadata_bytes};
}
