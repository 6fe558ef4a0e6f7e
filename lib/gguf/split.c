/* Opens models that are split over several files, NAME-00001-of-0000N.gguf. Each part has three
 * keys: split.no (from 0), split.count, and split.tensors.count (of all parts together). The first
 * part has the model's own keys. */
#include "gguf/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUFFIX_BYTES 20    /* "-00001-of-00002.gguf" */
#define MAX_PARTS    99999 /* five digits */

struct split_keys {
    uint64_t no, count, tensors;
};

static enum error_code read_split_keys(const struct kv_list *keys, const char *path,
                                       struct split_keys *out, struct error *e)
{
    *out = (struct split_keys){.count = 1};
    if (!kv_list_find(keys, "split.count"))
        return ERROR_OK;
    enum error_code code = kv_list_integer(keys, path, "split.count", MAX_PARTS, &out->count, e);
    if (code != ERROR_OK || out->count <= 1)
        return code;
    code = kv_list_integer(keys, path, "split.no", out->count - 1, &out->no, e);
    if (code == ERROR_OK)
        code = kv_list_integer(keys, path, "split.tensors.count", INT32_MAX, &out->tensors, e);
    return code;
}

char *gguf_part_path(const char *path, uint64_t no, uint64_t count)
{
    size_t len = strlen(path);
    char *part = malloc(len + 1);
    if (!part)
        return NULL;
    memcpy(part, path, len - SUFFIX_BYTES);
    snprintf(part + len - SUFFIX_BYTES, SUFFIX_BYTES + 1, "-%05u-of-%05u.gguf",
             (unsigned)(no + 1) % 100000, (unsigned)count % 100000);
    return part;
}

uint32_t gguf_count_parts(const char *path)
{
    size_t len = strlen(path);
    unsigned no, count;
    int end = 0;
    if (len < SUFFIX_BYTES ||
        sscanf(path + len - SUFFIX_BYTES, "-%5u-of-%5u.gguf%n", &no, &count, &end) != 2 ||
        end != SUFFIX_BYTES || no < 1 || no > count)
        return 1;
    return count;
}

/* True where the name agrees with the keys. The other parts' names then follow from it. */
static bool name_agrees(const char *path, const struct split_keys *keys)
{
    size_t len = strlen(path);
    if (len < SUFFIX_BYTES)
        return false;
    char *expected = gguf_part_path(path, keys->no, keys->count);
    bool same = expected && strcmp(expected, path) == 0;
    free(expected);
    return same;
}

/* Opens, parses and checks part `no`. Its keys go to *keys. */
static enum error_code add_part(struct gguf *g, const char *path, uint64_t no,
                                const struct split_keys *expected, struct kv_list *keys,
                                struct error *e)
{
    struct split_keys found;
    enum error_code code = gguf_add_file(g, path, e);
    if (code == ERROR_NOT_FOUND)
        return error_set(e, code,
                         "%s: no such file: part %" PRIu64 " of %" PRIu64
                         " of the model is missing, all parts must be in one directory",
                         path, no + 1, expected->count);
    if (code == ERROR_OK)
        code = gguf_parse_file(g, g->file_count - 1, true, keys, e);
    if (code == ERROR_OK)
        code = read_split_keys(keys, path, &found, e);
    if (code != ERROR_OK)
        return code;
    if (found.no != no || found.count != expected->count)
        return error_set(e, ERROR_FORMAT,
                         "%s: its keys say part %" PRIu64 " of %" PRIu64 ", expected part %" PRIu64
                         " of %" PRIu64,
                         path, found.no + 1, found.count, no + 1, expected->count);
    if (found.tensors != expected->tensors)
        return error_set(e, ERROR_FORMAT,
                         "%s: split.tensors.count is %" PRIu64 ", expected %" PRIu64
                         " as in the other parts",
                         path, found.tensors, expected->tensors);
    return ERROR_OK;
}

static enum error_code add_all_parts(struct gguf *g, const char *path,
                                     const struct split_keys *expected, struct error *e)
{
    enum error_code code = ERROR_OK;
    for (uint64_t no = 0; no < expected->count && code == ERROR_OK; no++) {
        struct kv_list keys = {0};
        char *part = gguf_part_path(path, no, expected->count);
        if (!part)
            return error_set(e, ERROR_MEMORY, "%s: no memory to open its parts", path);
        code = add_part(g, part, no, expected, no == 0 ? &g->keys : &keys, e);
        kv_list_free(&keys);
        free(part);
    }
    if (code == ERROR_OK && g->tensor_count != expected->tensors)
        return error_set(e, ERROR_FORMAT,
                         "%s: the %" PRIu64 " parts have %" PRIu64
                         " tensors together, expected %" PRIu64 " (split.tensors.count)",
                         path, expected->count, g->tensor_count, expected->tensors);
    return code;
}

enum error_code gguf_open_parts(struct gguf *g, struct error *e)
{
    const char *path = g->files[0].path;
    struct split_keys keys;
    enum error_code code = read_split_keys(&g->keys, path, &keys, e);
    if (code != ERROR_OK || keys.count <= 1)
        return code;
    if (!name_agrees(path, &keys))
        return error_set(e, ERROR_FORMAT,
                         "%s: its keys say part %" PRIu64 " of %" PRIu64
                         ", expected a name that ends in -%05u-of-%05u.gguf: rename it",
                         path, keys.no + 1, keys.count, (unsigned)keys.no + 1,
                         (unsigned)keys.count);
    /* Open all parts from the first, whichever the caller named: one code path for all. */
    struct gguf parts = {0};
    parts.opened = g->opened;
    parts.opened_count = g->opened_count;
    g->opened = NULL;
    g->opened_count = 0;
    code = add_all_parts(&parts, path, &keys, e);
    struct gguf old = *g;
    if (code == ERROR_OK) {
        *g = parts;
        parts = old;
    }
    gguf_fini(&parts);
    return code;
}
