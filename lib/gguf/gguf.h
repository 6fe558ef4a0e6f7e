/* Reads GGUF model files, versions 2 and 3, single or split, through a memory map.
 *
 * A file is untrusted. The parser checks every count, length, offset and string against the file
 * before use. It allocates no more memory than the file's own size justifies. An error is one line:
 * what is wrong, at which byte of the file, and what was expected. Specification: ggml's
 * docs/gguf.md.
 *
 * A struct gguf never changes after opening: any number of threads may read it. It owns the
 * mappings. The strings and arrays that it returns point into them and live until gguf_close. */
#ifndef MOED_GGUF_GGUF_H
#define MOED_GGUF_GGUF_H

#include "base/error.h"
#include "gguf/tensor_type.h"

#include <stddef.h>
#include <stdint.h>

enum gguf_value_type {
    GGUF_U8 = 0,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
};

struct gguf_string {
    const char *data; /* not NUL-terminated; any bytes */
    uint64_t len;
};

/* A scalar or an array. data is unaligned and little-endian: read it with memcpy. Each string in it
 * follows its 64-bit length, as in the file: read strings with gguf_get_string and
 * gguf_next_string. */
struct gguf_kv {
    struct gguf_string key;
    enum gguf_value_type type;         /* GGUF_ARRAY for arrays */
    enum gguf_value_type element_type; /* the type itself for scalars */
    uint64_t count;                    /* 1 for scalars */
    const uint8_t *data;
    uint64_t bytes; /* of data */
};

#define GGUF_NAME_BYTES 128
#define GGUF_MAX_DIMS   4

struct gguf_tensor {
    char name[GGUF_NAME_BYTES];
    enum tensor_type type; /* any type of the list, computed with or not */
    uint32_t n_dims;
    uint64_t ne[GGUF_MAX_DIMS]; /* ne[0] is contiguous (columns); absent dimensions are 1 */
    uint64_t bytes;
    uint32_t file;   /* index of the split file */
    uint64_t offset; /* absolute, in that file */
};

struct gguf;

/* Opens PATH. If PATH is one part of a split model, NAME-0000K-of-0000N.gguf, opens all parts.
 * Checks everything that does not depend on the architecture. */
enum error_code gguf_open(const char *path, struct gguf **out, struct error *e);

/* How many files the model has of which `path` is one, by the path alone: N of
 * NAME-0000K-of-0000N.gguf, else 1. */
uint32_t gguf_count_parts(const char *path);
/* The path of part `no`, from 0; `path` is another part's. The caller frees it; NULL: no memory. */
char *gguf_part_path(const char *path, uint64_t no, uint64_t count);

/* Opens a file's metadata in memory, as gguf_metadata returns it: keys and tensor descriptions, no
 * tensor data. Does not check the tensors' offsets against a file size. Borrows data. */
enum error_code gguf_open_metadata(const void *data, size_t len, const char *name,
                                   struct gguf **out, struct error *e);
void gguf_close(struct gguf *g); /* takes NULL */

/* For a program that has another process parse the file (reader/model_reader.h). Opens the files
 * and reads nothing in them. Until gguf_parse or gguf_adopt has succeeded only gguf_close may
 * follow. */
enum error_code gguf_open_unparsed(const char *path, struct gguf **out, struct error *e);
/* In the other process: maps the files; parses and checks them as gguf_open does, without opening
 * any. */
enum error_code gguf_map_unparsed(struct gguf *g, struct error *e);
/* There too: the least file descriptor of these files from `from` on; -1: none. */
int gguf_next_descriptor(const struct gguf *g, int from);
/* There, in a handler of SIGBUS: why reading the address fails. ERROR_IO: the file was cut, or the
 * disk returns an error, which reading that page shows again. ERROR_OK: it is in no mapping. */
enum error_code gguf_explain_fault(const struct gguf *g, const void *address, struct error *e);
enum error_code gguf_parse(struct gguf *g, struct error *e);
/* What gguf_parse found, apart from keys and tensors. */
struct gguf_parsed {
    uint32_t version, file_count;
    uint64_t tensor_count, metadata_bytes;
};
void gguf_describe(const struct gguf *g, struct gguf_parsed *out);
/* In the first process: takes over what the other one found, which it does not believe: tensors
 * [tensor_count] that lie in the files, and their metadata's length. g then has no keys and no
 * mapping. ERROR_PROTOCOL: it cannot be. */
enum error_code gguf_adopt(struct gguf *g, const struct gguf_parsed *parsed,
                           const struct gguf_tensor *tensors, struct error *e);

uint32_t gguf_version(const struct gguf *g);
const char *gguf_path(const struct gguf *g, uint32_t file);
uint32_t gguf_file_count(const struct gguf *g);
int gguf_fd(const struct gguf *g, uint32_t file); /* for pread; g owns it */
/* ERROR_FORMAT: the file was written or cut since gguf_open. */
enum error_code gguf_check_unchanged(const struct gguf *g, uint32_t file, struct error *e);
uint64_t gguf_file_bytes(const struct gguf *g, uint32_t file);
/* The first file's bytes from its start to the end of its tensor descriptions; NULL (and the
 * length) where the file is not mapped. */
const void *gguf_metadata(const struct gguf *g, size_t *len);
/* Reads them, mapped or not. out: as many bytes. */
enum error_code gguf_read_metadata(const struct gguf *g, void *out, struct error *e);

uint64_t gguf_kv_count(const struct gguf *g);
const struct gguf_kv *gguf_kv_at(const struct gguf *g, uint64_t i);
const struct gguf_kv *gguf_find(const struct gguf *g, const char *key); /* NULL when absent */

uint64_t gguf_tensor_count(const struct gguf *g); /* over all files */
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, uint64_t i);
const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name);
/* The tensor's data in the mapping; NULL where the file is not mapped. Daemons use the next one, or
 * gguf_fd and pread, because a file that shrinks under a mapping kills the reader. */
const void *gguf_tensor_data(const struct gguf *g, const struct gguf_tensor *t);
/* Reads it. out: t->bytes. Not for a struct gguf from metadata. */
enum error_code gguf_read_tensor(const struct gguf *g, const struct gguf_tensor *t, void *out,
                                 struct error *e);

/* Typed access. Integers convert between widths where the value fits; otherwise the error is
 * ERROR_FORMAT with key, value and expected range. Floats convert between F32 and F64. An absent
 * key is ERROR_NOT_FOUND with the key and the file. */
enum error_code gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out, struct error *e);
enum error_code gguf_get_f32(const struct gguf *g, const char *key, float *out, struct error *e);
/* Any integer or float. */
enum error_code gguf_get_number(const struct gguf *g, const char *key, double *out,
                                struct error *e);
enum error_code gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct error *e);
enum error_code gguf_get_string(const struct gguf *g, const char *key, struct gguf_string *out,
                                struct error *e);
/* The same, with a default for an absent key. A wrong type is still an error. */
enum error_code gguf_get_u32_or(const struct gguf *g, const char *key, uint32_t absent,
                                uint32_t *out, struct error *e);
enum error_code gguf_get_f32_or(const struct gguf *g, const char *key, float absent, float *out,
                                struct error *e);
enum error_code gguf_get_bool_or(const struct gguf *g, const char *key, bool absent, bool *out,
                                 struct error *e);

bool gguf_string_is(struct gguf_string s, const char *text);
/* Whether the file has the key, and it is this string. */
bool gguf_key_is(const struct gguf *g, const char *key, const char *text);

/* Reads the next string of an array and advances *cursor, which starts at 0. False at the end. */
bool gguf_next_string(const struct gguf_kv *array, uint64_t *cursor, struct gguf_string *out);

#endif
