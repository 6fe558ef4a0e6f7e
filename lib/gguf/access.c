/* Typed access to keys, arrays of strings, and the plain getters of struct gguf. */
#include "gguf/internal.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

const char *gguf_value_type_name(uint32_t type)
{
    static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
    return type < sizeof names / sizeof names[0] ? names[type] : "unknown type";
}

uint64_t gguf_value_bytes(uint32_t type)
{
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < sizeof bytes ? bytes[type] : 0;
}

static enum error_code wrong_type(const struct gguf_kv *kv, const char *path, const char *expected,
                                  struct error *e)
{
    return error_set(e, ERROR_FORMAT, "%s: key '%s' has type %s, expected %s", path,
                     shown_text(kv->key.data, kv->key.len).text, gguf_value_type_name(kv->type),
                     expected);
}

static enum error_code absent_key(const char *path, const char *key, struct error *e)
{
    return error_set(e, ERROR_NOT_FOUND, "%s: key '%s' is missing from the file", path, key);
}

/* A scalar integer. *negative: read *value as int64_t. False for other types. */
static bool read_integer(const struct gguf_kv *kv, uint64_t *value, bool *negative)
{
    uint64_t raw = 0, width = gguf_value_bytes(kv->type);
    switch (kv->type) {
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32:
    case GGUF_U64:
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64:
        break;
    default:
        return false;
    }
    for (uint64_t i = 0; i < width; i++)
        raw |= (uint64_t)kv->data[i] << 8 * i;
    bool is_signed =
        kv->type == GGUF_I8 || kv->type == GGUF_I16 || kv->type == GGUF_I32 || kv->type == GGUF_I64;
    *negative = is_signed && raw >> (8 * width - 1) & 1;
    if (*negative && width < 8)
        raw |= UINT64_MAX << 8 * width; /* extend the sign */
    *value = raw;
    return true;
}

enum error_code kv_list_integer(const struct kv_list *keys, const char *path, const char *key,
                                uint64_t max, uint64_t *out, struct error *e)
{
    const struct gguf_kv *kv = kv_list_find(keys, key);
    uint64_t value;
    bool negative;
    if (!kv)
        return absent_key(path, key, e);
    if (!read_integer(kv, &value, &negative))
        return wrong_type(kv, path, "an integer", e);
    if (negative)
        return error_set(e, ERROR_FORMAT, "%s: key '%s' is %" PRId64 ", expected 0 to %" PRIu64,
                         path, key, (int64_t)value, max);
    if (value > max)
        return error_set(e, ERROR_FORMAT, "%s: key '%s' is %" PRIu64 ", expected 0 to %" PRIu64,
                         path, key, value, max);
    *out = value;
    return ERROR_OK;
}

enum error_code gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out, struct error *e)
{
    uint64_t value;
    enum error_code code = kv_list_integer(&g->keys, g->files[0].path, key, UINT32_MAX, &value, e);
    if (code == ERROR_OK)
        *out = (uint32_t)value;
    return code;
}

enum error_code gguf_get_number(const struct gguf *g, const char *key, double *out, struct error *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    uint64_t value;
    bool negative;
    float narrow;
    if (!kv)
        return absent_key(g->files[0].path, key, e);
    if (read_integer(kv, &value, &negative)) {
        *out = negative ? (double)(int64_t)value : (double)value;
        return ERROR_OK;
    }
    if (kv->type == GGUF_F32) {
        memcpy(&narrow, kv->data, sizeof narrow);
        *out = (double)narrow;
        return ERROR_OK;
    }
    if (kv->type != GGUF_F64)
        return wrong_type(kv, g->files[0].path, "a number", e);
    memcpy(out, kv->data, sizeof *out);
    return ERROR_OK;
}

enum error_code gguf_get_f32(const struct gguf *g, const char *key, float *out, struct error *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv)
        return absent_key(g->files[0].path, key, e);
    if (kv->type == GGUF_F32) {
        memcpy(out, kv->data, sizeof *out);
        return ERROR_OK;
    }
    if (kv->type != GGUF_F64)
        return wrong_type(kv, g->files[0].path, "f32", e);
    double wide;
    memcpy(&wide, kv->data, sizeof wide);
    if (isfinite(wide) && fabs(wide) > (double)FLT_MAX)
        return error_set(e, ERROR_FORMAT,
                         "%s: key '%s' is %g, expected a value that a 32-bit float can hold",
                         g->files[0].path, key, wide);
    *out = (float)wide;
    return ERROR_OK;
}

enum error_code gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct error *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv)
        return absent_key(g->files[0].path, key, e);
    if (kv->type != GGUF_BOOL)
        return wrong_type(kv, g->files[0].path, "bool", e);
    *out = kv->data[0] != 0;
    return ERROR_OK;
}

enum error_code gguf_get_string(const struct gguf *g, const char *key, struct gguf_string *out,
                                struct error *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    uint64_t cursor = 0;
    if (!kv)
        return absent_key(g->files[0].path, key, e);
    if (kv->type != GGUF_STRING)
        return wrong_type(kv, g->files[0].path, "string", e);
    gguf_next_string(kv, &cursor, out);
    return ERROR_OK;
}

bool gguf_string_is(struct gguf_string s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

bool gguf_key_is(const struct gguf *g, const char *key, const char *text)
{
    struct gguf_string value = {"", 0};
    return gguf_get_string(g, key, &value, NULL) == ERROR_OK && gguf_string_is(value, text);
}

enum error_code gguf_get_u32_or(const struct gguf *g, const char *key, uint32_t absent,
                                uint32_t *out, struct error *e)
{
    if (gguf_find(g, key))
        return gguf_get_u32(g, key, out, e);
    *out = absent;
    return ERROR_OK;
}

enum error_code gguf_get_f32_or(const struct gguf *g, const char *key, float absent, float *out,
                                struct error *e)
{
    if (gguf_find(g, key))
        return gguf_get_f32(g, key, out, e);
    *out = absent;
    return ERROR_OK;
}

enum error_code gguf_get_bool_or(const struct gguf *g, const char *key, bool absent, bool *out,
                                 struct error *e)
{
    if (gguf_find(g, key))
        return gguf_get_bool(g, key, out, e);
    *out = absent;
    return ERROR_OK;
}

/* The parser has checked the lengths. This function checks them again because the file is mapped:
 * another process may have written to it since. */
bool gguf_next_string(const struct gguf_kv *array, uint64_t *cursor, struct gguf_string *out)
{
    uint64_t len;
    if (array->element_type != GGUF_STRING || *cursor >= array->bytes ||
        array->bytes - *cursor < sizeof len)
        return false;
    memcpy(&len, array->data + *cursor, sizeof len);
    uint64_t start = *cursor + sizeof len;
    if (len > array->bytes - start)
        return false;
    *out = (struct gguf_string){(const char *)array->data + start, len};
    *cursor = start + len;
    return true;
}

uint32_t gguf_version(const struct gguf *g)
{
    return g->version;
}

const char *gguf_path(const struct gguf *g, uint32_t file)
{
    return g->files[file].path;
}

uint32_t gguf_file_count(const struct gguf *g)
{
    return g->file_count;
}

int gguf_fd(const struct gguf *g, uint32_t file)
{
    return g->files[file].fd;
}

enum error_code gguf_check_unchanged(const struct gguf *g, uint32_t file, struct error *e)
{
    enum file_change change = file_map_change(&g->files[file].map);
    if (change == FILE_UNCHANGED)
        return ERROR_OK;
    if (change == FILE_CHANGE_UNKNOWN)
        return error_set(e, ERROR_IO, "%s: cannot be looked at: %s", g->files[file].path,
                         strerror(errno));
    return error_set(e, ERROR_FORMAT,
                     "%s: the file was changed while it is in use: answers would mix two files; "
                     "restart the deployment",
                     g->files[file].path);
}

uint64_t gguf_file_bytes(const struct gguf *g, uint32_t file)
{
    return g->files[file].bytes;
}

const void *gguf_metadata(const struct gguf *g, size_t *len)
{
    *len = (size_t)g->files[0].metadata_bytes;
    return g->files[0].data;
}

static enum error_code read_file(const struct gguf_file *f, uint64_t at, uint64_t bytes, void *out,
                                 struct error *e)
{
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = pread(f->fd, (char *)out + done, (size_t)(bytes - done), (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set(e, ERROR_IO, "%s: reading at byte %" PRIu64 ": %m", f->path,
                             at + done);
        if (n == 0)
            return error_set(e, ERROR_IO, "%s: the file was cut while it was read", f->path);
        done += (uint64_t)n;
    }
    return ERROR_OK;
}

enum error_code gguf_read_metadata(const struct gguf *g, void *out, struct error *e)
{
    const struct gguf_file *f = &g->files[0];
    if (!f->data)
        return read_file(f, 0, f->metadata_bytes, out, e);
    memcpy(out, f->data, (size_t)f->metadata_bytes);
    return ERROR_OK;
}

enum error_code gguf_read_tensor(const struct gguf *g, const struct gguf_tensor *t, void *out,
                                 struct error *e)
{
    return read_file(&g->files[t->file], t->offset, t->bytes, out, e);
}

uint64_t gguf_kv_count(const struct gguf *g)
{
    return g->keys.count;
}

const struct gguf_kv *gguf_kv_at(const struct gguf *g, uint64_t i)
{
    return &g->keys.items[i];
}

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key)
{
    return kv_list_find(&g->keys, key);
}

uint64_t gguf_tensor_count(const struct gguf *g)
{
    return g->tensor_count;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, uint64_t i)
{
    return &g->tensors[i];
}

const void *gguf_tensor_data(const struct gguf *g, const struct gguf_tensor *t)
{
    const struct gguf_file *f = &g->files[t->file];
    return f->map.data ? f->data + t->offset : NULL;
}
