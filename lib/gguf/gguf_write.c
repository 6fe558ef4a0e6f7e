/* Writes a GGUF file; see gguf_write.h. Keys and descriptions gather in memory; the data streams to
 * the file (base/file_writer.h).
 *
 * States: DECLARING -(first data, or close)-> WRITING -(close)-> gone. w->error keeps the first
 * failure; every later call that can fail returns it. */
#include "gguf/gguf_write.h"

#include "base/checked.h"
#include "base/file_writer.h"
#include "base/strbuf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 32

struct gguf_writer {
    struct file_writer *file;
    struct error error;
    struct strbuf keys, descriptions;
    uint64_t key_count, tensor_count;
    uint64_t *tensor_bytes; /* of each declared tensor */
    uint64_t data_bytes;    /* of all, with padding */
    bool writing;
    uint64_t current, current_done; /* the tensor that is being written, its bytes so far */
};

static void put_bytes(struct strbuf *b, uint64_t value, unsigned bytes)
{
    uint8_t little[8];
    for (unsigned i = 0; i < bytes; i++)
        little[i] = (uint8_t)(value >> 8 * i);
    strbuf_append(b, little, bytes);
}

static void put_string(struct strbuf *b, const char *data, uint64_t len)
{
    put_bytes(b, len, 8);
    strbuf_append(b, data, (size_t)len);
}

static uint32_t bits_of_float(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static enum error_code keep_error(struct gguf_writer *w, enum error_code code, const char *what)
{
    if (w->error.code == ERROR_OK)
        error_set(&w->error, code, "%s: %s", file_writer_path(w->file), what);
    return w->error.code;
}

static enum error_code report(const struct gguf_writer *w, struct error *e)
{
    if (e && w->error.code != ERROR_OK)
        *e = w->error;
    return w->error.code;
}

static void free_writer(struct gguf_writer *w)
{
    file_writer_abandon(w->file);
    strbuf_fini(&w->keys);
    strbuf_fini(&w->descriptions);
    free(w->tensor_bytes);
    free(w);
}

enum error_code gguf_writer_open(const char *path, struct gguf_writer **out, struct error *e)
{
    struct gguf_writer *w = calloc(1, sizeof *w);
    if (!w)
        return error_set(e, ERROR_MEMORY, "%s: no memory to write it", path);
    strbuf_init(&w->keys);
    strbuf_init(&w->descriptions);
    enum error_code code = file_writer_open(path, FILE_WRITER_MODE, &w->file, e);
    if (code) {
        free_writer(w);
        return code;
    }
    *out = w;
    return ERROR_OK;
}

static void begin_key(struct gguf_writer *w, const char *key, enum gguf_value_type type)
{
    if (w->writing)
        keep_error(w, ERROR_INTERNAL, "a key was added after the data had begun");
    put_string(&w->keys, key, strlen(key));
    put_bytes(&w->keys, type, 4);
    w->key_count++;
}

static void begin_array(struct gguf_writer *w, const char *key, enum gguf_value_type element,
                        uint64_t count)
{
    begin_key(w, key, GGUF_ARRAY);
    put_bytes(&w->keys, element, 4);
    put_bytes(&w->keys, count, 8);
}

void gguf_writer_u16(struct gguf_writer *w, const char *key, uint16_t value)
{
    begin_key(w, key, GGUF_U16);
    put_bytes(&w->keys, value, 2);
}

void gguf_writer_u32(struct gguf_writer *w, const char *key, uint32_t value)
{
    begin_key(w, key, GGUF_U32);
    put_bytes(&w->keys, value, 4);
}

void gguf_writer_i32(struct gguf_writer *w, const char *key, int32_t value)
{
    begin_key(w, key, GGUF_I32);
    put_bytes(&w->keys, (uint32_t)value, 4);
}

void gguf_writer_f32(struct gguf_writer *w, const char *key, float value)
{
    begin_key(w, key, GGUF_F32);
    put_bytes(&w->keys, bits_of_float(value), 4);
}

void gguf_writer_bool(struct gguf_writer *w, const char *key, bool value)
{
    begin_key(w, key, GGUF_BOOL);
    put_bytes(&w->keys, value, 1);
}

void gguf_writer_string(struct gguf_writer *w, const char *key, const char *data, size_t len)
{
    begin_key(w, key, GGUF_STRING);
    put_string(&w->keys, data, len);
}

void gguf_writer_strings(struct gguf_writer *w, const char *key, const struct gguf_string *v,
                         uint64_t count)
{
    begin_array(w, key, GGUF_STRING, count);
    for (uint64_t i = 0; i < count; i++)
        put_string(&w->keys, v[i].data, v[i].len);
}

void gguf_writer_i32s(struct gguf_writer *w, const char *key, const int32_t *v, uint64_t count)
{
    begin_array(w, key, GGUF_I32, count);
    for (uint64_t i = 0; i < count; i++)
        put_bytes(&w->keys, (uint32_t)v[i], 4);
}

void gguf_writer_bools(struct gguf_writer *w, const char *key, const bool *v, uint64_t count)
{
    begin_array(w, key, GGUF_BOOL, count);
    for (uint64_t i = 0; i < count; i++)
        put_bytes(&w->keys, v[i], 1);
}

void gguf_writer_f32s(struct gguf_writer *w, const char *key, const float *v, uint64_t count)
{
    begin_array(w, key, GGUF_F32, count);
    for (uint64_t i = 0; i < count; i++)
        put_bytes(&w->keys, bits_of_float(v[i]), 4);
}

/* Bytes of a tensor. False: its shape or type is impossible. */
static bool tensor_size(enum tensor_type type, uint32_t n_dims, const uint64_t *ne, uint64_t *out)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    uint64_t values = 1;
    if (!info || n_dims < 1 || n_dims > GGUF_MAX_DIMS || ne[0] % info->block_values != 0)
        return false;
    for (uint32_t i = 0; i < n_dims; i++)
        if (ne[i] == 0 || !checked_mul(values, ne[i], &values))
            return false;
    return checked_mul(values / info->block_values, info->block_bytes, out);
}

void gguf_writer_tensor(struct gguf_writer *w, const char *name, enum tensor_type type,
                        uint32_t n_dims, const uint64_t *ne)
{
    uint64_t bytes, end;
    if (w->error.code != ERROR_OK)
        return;
    if (w->writing) {
        keep_error(w, ERROR_INTERNAL, "a tensor was declared after the data had begun");
        return;
    }
    /* The reader refuses offsets beyond 2^63, so rounding up below cannot overflow. */
    if (!tensor_size(type, n_dims, ne, &bytes) || !checked_add(w->data_bytes, bytes, &end) ||
        end > INT64_MAX || strlen(name) >= GGUF_NAME_BYTES) {
        error_set(&w->error, ERROR_INTERNAL,
                  "%s: tensor '%s' cannot be declared: name, shape or type is impossible",
                  file_writer_path(w->file), name);
        return;
    }
    uint64_t *grown = realloc(w->tensor_bytes, (w->tensor_count + 1) * sizeof *grown);
    if (!grown) {
        keep_error(w, ERROR_MEMORY, "no memory to declare a tensor");
        return;
    }
    w->tensor_bytes = grown;
    w->tensor_bytes[w->tensor_count++] = bytes;
    put_string(&w->descriptions, name, strlen(name));
    put_bytes(&w->descriptions, n_dims, 4);
    for (uint32_t i = 0; i < n_dims; i++)
        put_bytes(&w->descriptions, ne[i], 8);
    put_bytes(&w->descriptions, type, 4);
    put_bytes(&w->descriptions, w->data_bytes, 8);
    w->data_bytes = round_up(end, ALIGNMENT);
}

static enum error_code write_bytes(struct gguf_writer *w, const void *data, size_t len)
{
    return w->error.code ? w->error.code : file_writer_write(w->file, data, len, &w->error);
}

static enum error_code write_padding(struct gguf_writer *w, uint64_t after)
{
    static const uint8_t zeros[ALIGNMENT];
    return write_bytes(w, zeros, (size_t)(round_up(after, ALIGNMENT) - after));
}

/* Everything before the data. */
static enum error_code write_header(struct gguf_writer *w)
{
    struct strbuf head;
    if (w->keys.failed || w->descriptions.failed)
        return keep_error(w, ERROR_MEMORY, "no memory for the keys");
    strbuf_init(&head);
    strbuf_append(&head, "GGUF", 4);
    put_bytes(&head, 3, 4);
    put_bytes(&head, w->tensor_count, 8);
    put_bytes(&head, w->key_count, 8);
    if (head.failed)
        keep_error(w, ERROR_MEMORY, "no memory for the header");
    w->writing = true;
    if (w->error.code == ERROR_OK && write_bytes(w, head.data, head.len) == ERROR_OK &&
        write_bytes(w, w->keys.data, w->keys.len) == ERROR_OK &&
        write_bytes(w, w->descriptions.data, w->descriptions.len) == ERROR_OK)
        write_padding(w, head.len + w->keys.len + w->descriptions.len);
    strbuf_fini(&head);
    return w->error.code;
}

enum error_code gguf_writer_data(struct gguf_writer *w, const void *data, size_t len,
                                 struct error *e)
{
    const uint8_t *p = data;
    if (w->error.code == ERROR_OK && !w->writing)
        write_header(w);
    while (len > 0 && w->error.code == ERROR_OK) {
        if (w->current == w->tensor_count) {
            keep_error(w, ERROR_INTERNAL, "more data than the declared tensors have");
            break;
        }
        uint64_t left = w->tensor_bytes[w->current] - w->current_done;
        size_t part = len < left ? len : (size_t)left;
        write_bytes(w, p, part);
        w->current_done += part;
        if (part == left) {
            write_padding(w, w->current_done);
            w->current++;
            w->current_done = 0;
        }
        p += part;
        len -= part;
    }
    return report(w, e);
}

static enum error_code finish_file(struct gguf_writer *w)
{
    if (!w->writing && write_header(w) != ERROR_OK)
        return w->error.code;
    if (w->current != w->tensor_count) {
        error_set(&w->error, ERROR_INTERNAL,
                  "%s: the data of %" PRIu64 " of %" PRIu64 " tensors was not written",
                  file_writer_path(w->file), w->tensor_count - w->current, w->tensor_count);
        return w->error.code;
    }
    struct file_writer *file = w->file;
    w->file = NULL;
    return file_writer_finish(file, &w->error);
}

enum error_code gguf_writer_close(struct gguf_writer *w, struct error *e)
{
    if (w->error.code == ERROR_OK)
        finish_file(w);
    enum error_code code = report(w, e);
    free_writer(w);
    return code;
}

void gguf_writer_abort(struct gguf_writer *w)
{
    if (w)
        free_writer(w);
}
