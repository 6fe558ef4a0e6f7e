/* A bounds-checked cursor over the bytes of one untrusted file. The first failure fills the error
 * with file, byte offset, what was found and what was expected. All later reads fail too. */
#ifndef MOED_GGUF_CURSOR_H
#define MOED_GGUF_CURSOR_H

#include "base/error.h"
#include "gguf/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cursor {
    const uint8_t *data;
    uint64_t len, pos;
    const char *file; /* for messages */
    struct error *error;
    enum error_code code; /* ERROR_OK until something failed */
};

/* Little-endian reads. `what` completes the message "the file ends within WHAT". */
bool cursor_u32(struct cursor *c, const char *what, uint32_t *out);
bool cursor_u64(struct cursor *c, const char *what, uint64_t *out);
/* A 64-bit length of at most max_len, then that many bytes. */
bool cursor_string(struct cursor *c, const char *what, uint64_t max_len, struct gguf_string *out);
bool cursor_skip(struct cursor *c, const char *what, uint64_t bytes);

/* Records a failure at byte `at` of the file: "FILE: byte AT: TEXT". Returns false. */
bool cursor_fail(struct cursor *c, enum error_code code, uint64_t at, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Untrusted text made safe for a message: at most 60 bytes, with '?' for all that is not printable
 * UTF-8. */
#define SHOWN_BYTES 64
struct shown {
    char text[SHOWN_BYTES];
};
struct shown shown_text(const char *data, uint64_t len);

#endif
