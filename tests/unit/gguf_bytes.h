/* GGUF files built byte by byte, for tests of the reader that do not depend on the writer. Include
 * after cmocka.h. */
#ifndef MOED_TESTS_GGUF_BYTES_H
#define MOED_TESTS_GGUF_BYTES_H

#include "base/strbuf.h"
#include "gguf/gguf.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static inline void u32(struct strbuf *b, uint32_t v)
{
    uint8_t p[4] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24)};
    strbuf_append(b, p, 4);
}

static inline void u64(struct strbuf *b, uint64_t v)
{
    u32(b, (uint32_t)v);
    u32(b, (uint32_t)(v >> 32));
}

static inline void str(struct strbuf *b, const char *s)
{
    u64(b, strlen(s));
    strbuf_append(b, s, strlen(s));
}

static inline void header(struct strbuf *b, uint32_t version, uint64_t tensors, uint64_t keys)
{
    strbuf_append(b, "GGUF", 4);
    u32(b, version);
    u64(b, tensors);
    u64(b, keys);
}

static inline void kv_u32(struct strbuf *b, const char *key, uint32_t value)
{
    str(b, key);
    u32(b, GGUF_U32);
    u32(b, value);
}

static inline void tensor2(struct strbuf *b, const char *name, uint32_t type, uint64_t columns,
                           uint64_t rows, uint64_t offset)
{
    str(b, name);
    u32(b, 2);
    u64(b, columns);
    u64(b, rows);
    u32(b, type);
    u64(b, offset);
}

static inline void zeros(struct strbuf *b, size_t n)
{
    while (b->len % 32)
        strbuf_append(b, "", 1);
    for (size_t i = 0; i < n; i++)
        strbuf_append(b, "", 1);
}

/* Open bytes as a file of memory. */
static inline enum error_code open_bytes(const void *data, size_t len, struct gguf **g,
                                         struct error *e)
{
    char path[64];
    int fd = memfd_create("model", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), len);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    enum error_code code = gguf_open(path, g, e);
    close(fd);
    return code;
}

#endif
