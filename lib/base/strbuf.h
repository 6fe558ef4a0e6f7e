/* A growing string for text that is built in parts (Prometheus text, JSON, reports). The caller
 * owns the structure. After a failed allocation `failed` is set and further appends have no effect,
 * so a caller checks `failed` once, at the end. */
#ifndef MOED_BASE_STRBUF_H
#define MOED_BASE_STRBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct strbuf {
    char *data; /* NUL-terminated after the first append; may be NULL before */
    size_t len, capacity;
    bool failed;
};

void strbuf_init(struct strbuf *b);
void strbuf_fini(struct strbuf *b);
void strbuf_clear(struct strbuf *b); /* keeps the memory */
void strbuf_append(struct strbuf *b, const void *data, size_t len);
void strbuf_printf(struct strbuf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline void strbuf_text(struct strbuf *b, const char *text)
{
    strbuf_append(b, text, strlen(text));
}
/* As %llu and as %.6g write it, in a fraction of the time. */
void strbuf_uint(struct strbuf *b, uint64_t v);
void strbuf_float(struct strbuf *b, float v);
/* Append as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD. data may be NULL
 * where len is 0. */
void strbuf_json_string(struct strbuf *b, const char *data, size_t len);
void strbuf_json_escape(struct strbuf *b, unsigned char c); /* of a control character */
/* Append as a JSON array of numbers. */
void strbuf_json_bytes(struct strbuf *b, const void *data, size_t len);
/* Appends `from`, which is empty then; without a copy where `to` is empty. */
void strbuf_move(struct strbuf *to, struct strbuf *from);

#endif
