/* Private to lib/gguf: the opened model, its files, the parser of one file, the sorted names.
 *
 * Calls run one way: unparsed.c -> gguf.c -> split.c -> files.c, parse.c, index.c. */
#ifndef MOED_GGUF_INTERNAL_H
#define MOED_GGUF_INTERNAL_H

#include "base/file_map.h"
#include "gguf/cursor.h"
#include "gguf/gguf.h"

/* The keys of one file. */
struct kv_list {
    struct gguf_kv *items;
    uint64_t count;
    uint32_t *sorted; /* indices of items, by key */
};

struct gguf_file {
    char *path;
    int fd; /* -1 for metadata in memory */
    const uint8_t *data;
    uint64_t bytes;
    struct file_map map;     /* zeros for metadata in memory */
    uint64_t metadata_bytes; /* from the start to the end of the tensor descriptions */
};

struct gguf {
    uint32_t version;
    struct gguf_file *files;
    uint32_t file_count;
    struct kv_list keys; /* of the first file */
    struct gguf_tensor *tensors;
    uint64_t tensor_count, tensor_capacity;
    uint32_t *tensors_sorted; /* indices of tensors, by name */
    /* Files that were opened before parsing (unparsed.c), from which gguf_add_file borrows; NULL:
     * it opens them. */
    struct gguf_file *opened;
    uint32_t opened_count;
};

/* Parses file number `index` of g. Appends its tensors to g and its keys to the empty *keys, which
 * the caller frees, also after an error. check_extent: tensor data must lie inside the file. */
enum error_code gguf_parse_file(struct gguf *g, uint32_t index, bool check_extent,
                                struct kv_list *keys, struct error *e);

/* Sorts the names of all tensors. A duplicate name is an error. */
enum error_code gguf_index_tensors(struct gguf *g, struct error *e);

/* Sorts keys->items into keys->sorted. A duplicate key is an error. */
enum error_code kv_list_index(struct kv_list *keys, const char *path, struct error *e);
const struct gguf_kv *kv_list_find(const struct kv_list *keys, const char *key);
void kv_list_free(struct kv_list *keys);

/* The value of an integer key as 64 bits. path is for messages. ERROR_NOT_FOUND: no such key. */
enum error_code kv_list_integer(const struct kv_list *keys, const char *path, const char *key,
                                uint64_t max, uint64_t *out, struct error *e);

const char *gguf_value_type_name(uint32_t type);
/* Bytes of a scalar of this type; 0 for strings, arrays and unknown types. */
uint64_t gguf_value_bytes(uint32_t type);

/* Appends an entry named `name` with no file behind it to g->files. NULL without memory. */
struct gguf_file *gguf_append_file(struct gguf *g, const char *name);

/* The error of a file that was not opened, for a directory with what to take instead. */
enum error_code gguf_open_failed(const char *path, enum error_code code, struct error *e);

/* Opens and maps one more file as g->files[g->file_count], or borrows it from g->opened. Refuses
 * all but regular files. */
enum error_code gguf_add_file(struct gguf *g, const char *path, struct error *e);

/* Parses the file of this path, and all parts of its model. g is empty but for `opened`. */
enum error_code gguf_parse_all(struct gguf *g, const char *path, struct error *e);

/* Frees everything that g owns, not g itself. */
void gguf_fini(struct gguf *g);

/* If the keys of g's only file say that it is one part of several, opens all parts. The file may be
 * any of them. On success g->keys are the first part's. */
enum error_code gguf_open_parts(struct gguf *g, struct error *e);

#endif
