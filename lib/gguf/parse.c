/* The parser of one GGUF file: header, keys, tensor descriptions.
 *
 * The file's layout (ggml's docs/gguf.md): magic, version, tensor count, key count; the keys (name,
 * type, value); the tensor descriptions (name, dimensions, type, offset); padding; the tensors'
 * data. The parser refuses a count that the remaining bytes cannot hold. Arrays grow as entries are
 * read, so a wrong count costs no memory. */
#include "gguf/internal.h"

#include "base/checked.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The fewest bytes of a key (length, one byte of name, type, one byte of value) and of a tensor
 * description (length, one byte of name, dimension count, one dimension, type, offset). */
#define MIN_KV_BYTES     14
#define MIN_TENSOR_BYTES 33

/* Far above any real model (hundreds of keys, some ten thousand tensors). Far below the counts with
 * which a huge file could exhaust the machine's memory. */
#define MAX_KEYS    1000000
#define MAX_TENSORS 1000000

#define MAX_KEY_BYTES     65535 /* the format's own limit */
#define DEFAULT_ALIGNMENT 32

static bool well_formed_name(const struct gguf_string *s)
{
    if (s->len == 0)
        return false;
    for (uint64_t i = 0; i < s->len;) {
        size_t n = utf8_valid_length(s->data + i, (size_t)(s->len - i));
        if (n == 0 || (unsigned char)s->data[i] < 0x20 || s->data[i] == 0x7f)
            return false;
        i += n;
    }
    return true;
}

static bool parse_count(struct cursor *c, const char *what, uint64_t min_bytes, uint64_t max,
                        uint64_t *out)
{
    uint64_t at = c->pos, count;
    if (!cursor_u64(c, what, &count))
        return false;
    if (count > max || count > (c->len - c->pos) / min_bytes)
        return cursor_fail(
            c, ERROR_FORMAT, at,
            "the %s is %" PRIu64 ", expected at most %" PRIu64
            " (what the rest of the file can hold)",
            what, count, (c->len - c->pos) / min_bytes < max ? (c->len - c->pos) / min_bytes : max);
    *out = count;
    return true;
}

static bool parse_version(struct cursor *c, uint32_t *version)
{
    uint32_t v;
    if (!cursor_u32(c, "the version", &v))
        return false;
    if (v == 2 || v == 3) {
        *version = v;
        return true;
    }
    uint32_t swapped = __builtin_bswap32(v);
    if (swapped >= 1 && swapped <= 16)
        return cursor_fail(c, ERROR_UNSUPPORTED, 4,
                           "a big-endian GGUF file (version %u), expected a little-endian one: "
                           "convert the model again for little-endian machines",
                           swapped);
    if (v == 1)
        return cursor_fail(c, ERROR_UNSUPPORTED, 4,
                           "GGUF version 1, expected 2 or 3: convert the model again");
    return cursor_fail(c, v > 3 && v <= 64 ? ERROR_UNSUPPORTED : ERROR_FORMAT, 4,
                       "GGUF version %u, expected 2 or 3", v);
}

/* The length of a JSON object in 8 bytes, and its first byte. */
static bool is_safetensors(const struct cursor *c)
{
    uint64_t json;
    if (c->len < 10 || memcmp(c->data + 8, "{\"", 2) != 0)
        return false;
    memcpy(&json, c->data, sizeof json);
    return json >= 2 && json <= c->len - 8;
}

static bool parse_header(struct cursor *c, uint32_t *version, uint64_t *tensors, uint64_t *keys)
{
    if (c->len == 0)
        return cursor_fail(c, ERROR_FORMAT, 0, "the file is empty, expected a GGUF model");
    if (is_safetensors(c))
        return cursor_fail(c, ERROR_FORMAT, 0,
                           "not a GGUF file but original weights (safetensors): take a GGUF file "
                           "of this model");
    if (c->len < 4 || memcmp(c->data, "GGUF", 4) != 0) {
        struct shown magic = shown_text((const char *)c->data, c->len < 4 ? c->len : 4);
        return cursor_fail(c, ERROR_FORMAT, 0, "not a GGUF file: starts with '%s', expected 'GGUF'",
                           magic.text);
    }
    c->pos = 4;
    return parse_version(c, version) &&
           parse_count(c, "number of tensors", MIN_TENSOR_BYTES, MAX_TENSORS, tensors) &&
           parse_count(c, "number of keys", MIN_KV_BYTES, MAX_KEYS, keys);
}

/* Every byte of a run of booleans is 0 or 1. */
static bool check_bools(struct cursor *c, const char *key, uint64_t at, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (c->data[at + i] > 1)
            return cursor_fail(c, ERROR_FORMAT, at + i,
                               "a boolean of key '%s' is %u, expected 0 or 1", key,
                               c->data[at + i]);
    return true;
}

static bool parse_strings(struct cursor *c, const char *key, uint64_t count)
{
    struct gguf_string ignored;
    for (uint64_t i = 0; i < count; i++)
        if (!cursor_string(c, key, UINT64_MAX, &ignored))
            return false;
    return true;
}

/* The elements of a scalar (count 1) or an array, all of kv->element_type. */
static bool parse_elements(struct cursor *c, const char *key, struct gguf_kv *kv)
{
    uint64_t at = c->pos, bytes;
    if (kv->element_type == GGUF_STRING) {
        if (!parse_strings(c, key, kv->count))
            return false;
    } else {
        if (!checked_mul(kv->count, gguf_value_bytes(kv->element_type), &bytes))
            return cursor_fail(c, ERROR_FORMAT, at,
                               "the array of key '%s' has %" PRIu64
                               " elements, more than any file can hold",
                               key, kv->count);
        if (!cursor_skip(c, key, bytes))
            return false;
        if (kv->element_type == GGUF_BOOL && !check_bools(c, key, at, kv->count))
            return false;
    }
    kv->data = c->data + at;
    kv->bytes = c->pos - at;
    return true;
}

static bool parse_array(struct cursor *c, const char *key, struct gguf_kv *kv)
{
    uint32_t type;
    uint64_t at = c->pos;
    if (!cursor_u32(c, key, &type))
        return false;
    if (type == GGUF_ARRAY)
        return cursor_fail(c, ERROR_UNSUPPORTED, at,
                           "key '%s' is an array of arrays, expected an array of scalars", key);
    if (type != GGUF_STRING && gguf_value_bytes(type) == 0)
        return cursor_fail(c, ERROR_FORMAT, at,
                           "the array of key '%s' has element type %u, expected 0 to 12", key,
                           type);
    kv->element_type = type;
    at = c->pos;
    if (!cursor_u64(c, key, &kv->count))
        return false;
    uint64_t element = type == GGUF_STRING ? 8 : gguf_value_bytes(type);
    if (kv->count > (c->len - c->pos) / element)
        return cursor_fail(c, ERROR_FORMAT, at,
                           "the array of key '%s' has %" PRIu64
                           " elements, expected at most %" PRIu64
                           " (what the rest of the file can hold)",
                           key, kv->count, (c->len - c->pos) / element);
    return parse_elements(c, key, kv);
}

static bool parse_kv(struct cursor *c, struct gguf_kv *kv)
{
    uint64_t at = c->pos;
    uint32_t type;
    if (!cursor_string(c, "the name of a key", MAX_KEY_BYTES, &kv->key))
        return false;
    struct shown key = shown_text(kv->key.data, kv->key.len);
    if (!well_formed_name(&kv->key))
        return cursor_fail(c, ERROR_FORMAT, at,
                           "the name of a key is '%s', expected printable UTF-8, not empty",
                           key.text);
    at = c->pos;
    if (!cursor_u32(c, key.text, &type))
        return false;
    if (type > GGUF_F64)
        return cursor_fail(c, ERROR_FORMAT, at, "key '%s' has value type %u, expected 0 to 12",
                           key.text, type);
    kv->type = type;
    if (type == GGUF_ARRAY)
        return parse_array(c, key.text, kv);
    kv->element_type = type;
    kv->count = 1;
    return parse_elements(c, key.text, kv);
}

static bool parse_keys(struct cursor *c, uint64_t count, struct kv_list *keys)
{
    uint64_t capacity = 0;
    while (keys->count < count) {
        if (keys->count == capacity) {
            capacity = capacity ? 2 * capacity : 64;
            struct gguf_kv *grown = realloc(keys->items, capacity * sizeof *grown);
            if (!grown)
                return cursor_fail(c, ERROR_MEMORY, c->pos, "no memory for %" PRIu64 " keys",
                                   capacity);
            keys->items = grown;
        }
        if (!parse_kv(c, &keys->items[keys->count]))
            return false;
        keys->count++;
    }
    return true;
}

static bool parse_dimensions(struct cursor *c, struct gguf_tensor *t, uint64_t *values)
{
    uint64_t at = c->pos;
    if (!cursor_u32(c, t->name, &t->n_dims))
        return false;
    if (t->n_dims < 1 || t->n_dims > GGUF_MAX_DIMS)
        return cursor_fail(c, ERROR_FORMAT, at, "tensor '%s' has %u dimensions, expected 1 to %d",
                           t->name, t->n_dims, GGUF_MAX_DIMS);
    *values = 1;
    for (uint32_t i = 0; i < GGUF_MAX_DIMS; i++)
        t->ne[i] = 1;
    for (uint32_t i = 0; i < t->n_dims; i++) {
        at = c->pos;
        if (!cursor_u64(c, t->name, &t->ne[i]))
            return false;
        if (t->ne[i] == 0)
            return cursor_fail(c, ERROR_FORMAT, at,
                               "dimension %u of tensor '%s' is 0, expected at least 1", i, t->name);
        if (!checked_mul(*values, t->ne[i], values) || *values > INT64_MAX)
            return cursor_fail(c, ERROR_FORMAT, at,
                               "the dimensions of tensor '%s' overflow at dimension %u, %" PRIu64,
                               t->name, i, t->ne[i]);
    }
    return true;
}

/* Type and size in bytes. */
static bool parse_type(struct cursor *c, struct gguf_tensor *t, uint64_t values)
{
    uint64_t at = c->pos;
    uint32_t type;
    if (!cursor_u32(c, t->name, &type))
        return false;
    const struct tensor_type_info *info = tensor_type_info(type);
    struct tensor_type_foreign foreign;
    if (!info && tensor_type_foreign(type, &foreign))
        return cursor_fail(c, ERROR_UNSUPPORTED, at,
                           "tensor '%s' has type %u (%s), which moed does not compute: take a file "
                           "of the model in %s",
                           t->name, type, foreign.name, foreign.take);
    if (!info)
        return cursor_fail(c, ERROR_UNSUPPORTED, at,
                           "tensor '%s' has type %u, which moed does not know: quantise the model "
                           "to another type",
                           t->name, type);
    t->type = type;
    if (t->ne[0] % info->block_values != 0)
        return cursor_fail(c, ERROR_FORMAT, at,
                           "tensor '%s' has rows of %" PRIu64
                           " values, expected a multiple of %u, the block of its type %s",
                           t->name, t->ne[0], info->block_values, info->name);
    if (!checked_mul(values / info->block_values, info->block_bytes, &t->bytes))
        return cursor_fail(c, ERROR_FORMAT, at, "the size of tensor '%s' overflows", t->name);
    return true;
}

/* Leaves the offset as in the file, relative to the data section, whose start is not yet known. */
static bool parse_tensor(struct cursor *c, uint64_t alignment, struct gguf_tensor *t)
{
    uint64_t at = c->pos, values = 0;
    struct gguf_string name;
    memset(t, 0, sizeof *t);
    if (!cursor_string(c, "the name of a tensor", GGUF_NAME_BYTES - 1, &name))
        return false;
    if (!well_formed_name(&name))
        return cursor_fail(c, ERROR_FORMAT, at,
                           "the name of a tensor is '%s', expected printable UTF-8, not empty",
                           shown_text(name.data, name.len).text);
    memcpy(t->name, name.data, name.len);
    if (!parse_dimensions(c, t, &values) || !parse_type(c, t, values))
        return false;
    at = c->pos;
    if (!cursor_u64(c, t->name, &t->offset))
        return false;
    if (t->offset % alignment != 0)
        return cursor_fail(c, ERROR_FORMAT, at,
                           "tensor '%s' has offset %" PRIu64 ", expected a multiple of %" PRIu64
                           " (general.alignment)",
                           t->name, t->offset, alignment);
    return true;
}

static bool parse_tensors(struct cursor *c, struct gguf *g, uint32_t index, uint64_t count,
                          uint64_t alignment)
{
    for (uint64_t i = 0; i < count; i++) {
        if (g->tensor_count == MAX_TENSORS)
            return cursor_fail(c, ERROR_LIMIT, c->pos, "more than %d tensors", MAX_TENSORS);
        if (g->tensor_count == g->tensor_capacity) {
            uint64_t capacity = g->tensor_capacity ? 2 * g->tensor_capacity : 64;
            struct gguf_tensor *grown = realloc(g->tensors, capacity * sizeof *grown);
            if (!grown)
                return cursor_fail(c, ERROR_MEMORY, c->pos, "no memory for %" PRIu64 " tensors",
                                   capacity);
            g->tensors = grown;
            g->tensor_capacity = capacity;
        }
        struct gguf_tensor *t = &g->tensors[g->tensor_count];
        if (!parse_tensor(c, alignment, t))
            return false;
        t->file = index;
        g->tensor_count++;
    }
    return true;
}

/* Offsets become absolute; the data of each tensor must lie in the file. */
static bool place_tensors(struct cursor *c, struct gguf *g, uint64_t first, uint64_t alignment,
                          bool check_extent)
{
    uint64_t start = round_up(c->pos, alignment);
    for (uint64_t i = first; i < g->tensor_count; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        uint64_t offset = t->offset, end;
        if (!checked_add(start, offset, &t->offset) || !checked_add(t->offset, t->bytes, &end))
            return cursor_fail(c, ERROR_FORMAT, start,
                               "the offset of tensor '%s', %" PRIu64 ", overflows", t->name,
                               offset);
        if (check_extent && end > c->len)
            return cursor_fail(c, ERROR_FORMAT, t->offset,
                               "the data of tensor '%s' (%" PRIu64 " bytes) ends at byte %" PRIu64
                               ", but the file has %" PRIu64
                               ": truncated or damaged, download or convert it again",
                               t->name, t->bytes, end, c->len);
    }
    return true;
}

static bool parse_alignment(struct cursor *c, const struct kv_list *keys, uint64_t *out)
{
    const char *key = "general.alignment";
    *out = DEFAULT_ALIGNMENT;
    const struct gguf_kv *kv = kv_list_find(keys, key);
    if (!kv)
        return true;
    c->code = kv_list_integer(keys, c->file, key, UINT32_MAX, out, c->error);
    if (c->code != ERROR_OK)
        return false;
    if (*out == 0 || (*out & (*out - 1)) != 0)
        return cursor_fail(c, ERROR_FORMAT, (uint64_t)(kv->data - c->data),
                           "%s is %" PRIu64 ", expected a power of two", key, *out);
    return true;
}

enum error_code gguf_parse_file(struct gguf *g, uint32_t index, bool check_extent,
                                struct kv_list *keys, struct error *e)
{
    struct gguf_file *f = &g->files[index];
    struct cursor c = {.data = f->data, .len = f->bytes, .file = f->path, .error = e};
    uint64_t tensors = 0, key_count = 0, alignment, first = g->tensor_count;
    uint32_t version = 0;
    if (!parse_header(&c, &version, &tensors, &key_count) || !parse_keys(&c, key_count, keys))
        return c.code;
    enum error_code code = kv_list_index(keys, f->path, e);
    if (code != ERROR_OK)
        return code;
    if (!parse_alignment(&c, keys, &alignment) || !parse_tensors(&c, g, index, tensors, alignment))
        return c.code;
    f->metadata_bytes = c.pos;
    if (!place_tensors(&c, g, first, alignment, check_extent))
        return c.code;
    if (index == 0)
        g->version = version;
    return ERROR_OK;
}
