/* Writes a GGUF version 3 file: keys, tensor descriptions, then the data of each tensor in order.
 * `moed mkmodel` and tests use it. The sizes are declared before the data, so the writer holds no
 * data in memory. */
#ifndef MOED_GGUF_WRITE_H
#define MOED_GGUF_WRITE_H

#include "base/error.h"
#include "gguf/gguf.h"

struct gguf_writer;

/* Keys and declarations return no error. The next gguf_writer_data or gguf_writer_close reports
 * what went wrong with them: no memory, or a row that is no multiple of the block. */
enum error_code gguf_writer_open(const char *path, struct gguf_writer **out, struct error *e);
void gguf_writer_u16(struct gguf_writer *w, const char *key, uint16_t value);
void gguf_writer_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_writer_i32(struct gguf_writer *w, const char *key, int32_t value);
void gguf_writer_f32(struct gguf_writer *w, const char *key, float value);
void gguf_writer_bool(struct gguf_writer *w, const char *key, bool value);
void gguf_writer_string(struct gguf_writer *w, const char *key, const char *data, size_t len);
void gguf_writer_strings(struct gguf_writer *w, const char *key, const struct gguf_string *v,
                         uint64_t count);
void gguf_writer_i32s(struct gguf_writer *w, const char *key, const int32_t *v, uint64_t count);
void gguf_writer_bools(struct gguf_writer *w, const char *key, const bool *v, uint64_t count);
void gguf_writer_f32s(struct gguf_writer *w, const char *key, const float *v, uint64_t count);
/* Declares a tensor. ne[0] must be a multiple of the type's block. */
void gguf_writer_tensor(struct gguf_writer *w, const char *name, enum tensor_type type,
                        uint32_t n_dims, const uint64_t *ne);
/* After the last declaration: appends the next bytes of tensor data, in the order of declaration.
 * The writer pads between tensors. */
enum error_code gguf_writer_data(struct gguf_writer *w, const void *data, size_t len,
                                 struct error *e);
/* Checks that every declared byte was written, flushes, renames the unfinished file to PATH. Frees
 * w. */
enum error_code gguf_writer_close(struct gguf_writer *w, struct error *e);
void gguf_writer_abort(
    struct gguf_writer *w); /* frees w, removes the unfinished file; takes NULL */

#endif
