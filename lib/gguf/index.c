/* Finds entries by name: binary search over sorted indices. Sorting has two advantages over
 * hashing: no file can slow it down with collisions, and duplicate names become neighbours. */
#include "gguf/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int compare_bytes(const char *a, uint64_t a_len, const char *b, uint64_t b_len)
{
    int order = memcmp(a, b, (size_t)(a_len < b_len ? a_len : b_len));
    if (order != 0)
        return order;
    return a_len < b_len ? -1 : a_len > b_len;
}

static int compare_keys(const void *a, const void *b, void *arg)
{
    const struct gguf_kv *items = arg;
    const struct gguf_string *x = &items[*(const uint32_t *)a].key;
    const struct gguf_string *y = &items[*(const uint32_t *)b].key;
    return compare_bytes(x->data, x->len, y->data, y->len);
}

static int compare_tensors(const void *a, const void *b, void *arg)
{
    const struct gguf_tensor *items = arg;
    return strcmp(items[*(const uint32_t *)a].name, items[*(const uint32_t *)b].name);
}

/* Indices 0..count-1 in the order of compare; NULL without memory. */
static uint32_t *sort_indices(void *items, uint64_t count,
                              int (*compare)(const void *, const void *, void *))
{
    uint32_t *sorted = malloc((size_t)(count + 1) * sizeof *sorted);
    if (!sorted)
        return NULL;
    for (uint64_t i = 0; i < count; i++)
        sorted[i] = (uint32_t)i;
    if (count)
        qsort_r(sorted, (size_t)count, sizeof *sorted, compare, items);
    return sorted;
}

enum error_code kv_list_index(struct kv_list *keys, const char *path, struct error *e)
{
    keys->sorted = sort_indices(keys->items, keys->count, compare_keys);
    if (!keys->sorted)
        return error_set(e, ERROR_MEMORY, "%s: no memory to index %" PRIu64 " keys", path,
                         keys->count);
    for (uint64_t i = 1; i < keys->count; i++)
        if (compare_keys(&keys->sorted[i - 1], &keys->sorted[i], keys->items) == 0) {
            const struct gguf_string *key = &keys->items[keys->sorted[i]].key;
            return error_set(e, ERROR_FORMAT,
                             "%s: key '%s' stands twice in the file, expected once", path,
                             shown_text(key->data, key->len).text);
        }
    return ERROR_OK;
}

const struct gguf_kv *kv_list_find(const struct kv_list *keys, const char *key)
{
    uint64_t low = 0, high = keys->count, len = strlen(key);
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        const struct gguf_kv *kv = &keys->items[keys->sorted[middle]];
        int order = compare_bytes(kv->key.data, kv->key.len, key, len);
        if (order == 0)
            return kv;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

void kv_list_free(struct kv_list *keys)
{
    free(keys->items);
    free(keys->sorted);
    *keys = (struct kv_list){0};
}

enum error_code gguf_index_tensors(struct gguf *g, struct error *e)
{
    free(g->tensors_sorted);
    g->tensors_sorted = sort_indices(g->tensors, g->tensor_count, compare_tensors);
    if (!g->tensors_sorted)
        return error_set(e, ERROR_MEMORY, "%s: no memory to index %" PRIu64 " tensors",
                         g->files[0].path, g->tensor_count);
    for (uint64_t i = 1; i < g->tensor_count; i++) {
        const struct gguf_tensor *t = &g->tensors[g->tensors_sorted[i]];
        const struct gguf_tensor *before = &g->tensors[g->tensors_sorted[i - 1]];
        if (strcmp(before->name, t->name) == 0)
            return error_set(e, ERROR_FORMAT, "%s: tensor '%s' is described twice, expected once",
                             g->files[t->file].path, t->name);
    }
    return ERROR_OK;
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name)
{
    uint64_t low = 0, high = g->tensor_count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        const struct gguf_tensor *t = &g->tensors[g->tensors_sorted[middle]];
        int order = strcmp(t->name, name);
        if (order == 0)
            return t;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}
