/* Model files of a test's keys and tensors, read for their hyper-parameters. Include after
 * cmocka.h.
 */
#ifndef MOED_TESTS_MODEL_FILE_H
#define MOED_TESTS_MODEL_FILE_H

#include "model/params.h"
#include "tests/unit/gguf_bytes.h"

struct file {
    const char *arch;
    struct strbuf keys, tensors;
    uint64_t n_keys, n_tensors;
};

/* A key's name, "ARCH.suffix", and type; its value follows. */
static inline void key(struct file *f, const char *suffix, uint32_t type)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", f->arch, suffix);
    str(&f->keys, name);
    u32(&f->keys, type);
    f->n_keys++;
}

static inline void number(struct file *f, const char *suffix, uint32_t value)
{
    key(f, suffix, GGUF_U32);
    u32(&f->keys, value);
}

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline void real(struct file *f, const char *suffix, float value)
{
    key(f, suffix, GGUF_F32);
    u32(&f->keys, bits_of(value));
}

/* name: whole. */
static inline void text(struct file *f, const char *name, const char *value)
{
    str(&f->keys, name);
    u32(&f->keys, GGUF_STRING);
    str(&f->keys, value);
    f->n_keys++;
}

enum { FILE_COLUMNS = 16, FILE_ROWS = 4, FILE_TENSOR_BYTES = 4 * FILE_COLUMNS * FILE_ROWS };

/* Of zeros; all have the same shape. */
static inline void tensor(struct file *f, const char *name)
{
    tensor2(&f->tensors, name, TENSOR_F32, FILE_COLUMNS, FILE_ROWS,
            f->n_tensors * FILE_TENSOR_BYTES);
    f->n_tensors++;
}

/* A file of its architecture and an embedding. */
static inline void file_begin(struct file *f, const char *arch)
{
    *f = (struct file){.arch = arch};
    strbuf_init(&f->keys);
    strbuf_init(&f->tensors);
    text(f, "general.architecture", arch);
    tensor(f, "token_embd.weight");
}

/* Reads the file and frees it. */
static inline enum error_code read_params(struct file *f, struct model_params *p, struct error *e)
{
    struct strbuf b;
    struct gguf *g;
    strbuf_init(&b);
    header(&b, 3, f->n_tensors, f->n_keys);
    strbuf_append(&b, f->keys.data, f->keys.len);
    strbuf_append(&b, f->tensors.data, f->tensors.len);
    zeros(&b, f->n_tensors * FILE_TENSOR_BYTES);
    if (open_bytes(b.data, b.len, &g, e))
        fail_msg("%s", e->text);
    enum error_code code = model_params_read(g, p, e);
    gguf_close(g);
    strbuf_fini(&b);
    strbuf_fini(&f->keys);
    strbuf_fini(&f->tensors);
    return code;
}

static inline struct model_params params_of(struct file *f)
{
    struct model_params p;
    struct error e;
    if (read_params(f, &p, &e))
        fail_msg("%s", e.text);
    return p;
}

/* part: of the message, which is one line. */
static inline void expect_error(struct file *f, enum error_code code, const char *part)
{
    struct model_params p;
    struct error e;
    assert_int_equal(read_params(f, &p, &e), code);
    if (!strstr(e.text, part) || strchr(e.text, '\n'))
        fail_msg("expected '%s' in: %s", part, e.text);
}

#endif
