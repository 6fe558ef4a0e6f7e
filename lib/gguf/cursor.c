/* The bounds-checked cursor; see cursor.h. */
#include "gguf/cursor.h"

#include "base/utf8.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct shown shown_text(const char *data, uint64_t len)
{
    struct shown s;
    size_t used = 0;
    const size_t limit = SHOWN_BYTES - 4; /* space for "..." */
    for (uint64_t i = 0; i < len;) {
        size_t n = utf8_valid_length(data + i, (size_t)(len - i));
        bool printable = n > 0 && (unsigned char)data[i] >= 0x20 && data[i] != 0x7f;
        size_t width = printable ? n : 1;
        if (used + width > limit) {
            memcpy(s.text + used, "...", 3);
            used += 3;
            break;
        }
        if (printable)
            memcpy(s.text + used, data + i, n);
        else
            s.text[used] = '?';
        used += width;
        i += n ? n : 1;
    }
    s.text[used] = 0;
    return s;
}

bool cursor_fail(struct cursor *c, enum error_code code, uint64_t at, const char *format, ...)
{
    if (c->code != ERROR_OK)
        return false;
    char text[ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    c->code = error_set(c->error, code, "%s: byte %" PRIu64 ": %s", c->file, at, text);
    return false;
}

/* True where the next `bytes` bytes are in the file. */
static bool cursor_has(struct cursor *c, const char *what, uint64_t bytes)
{
    if (c->code != ERROR_OK)
        return false;
    if (bytes <= c->len - c->pos)
        return true;
    return cursor_fail(c, ERROR_FORMAT, c->pos,
                       "%s needs %" PRIu64 " bytes, but the file ends after %" PRIu64
                       " more: truncated or damaged, download or convert it again",
                       what, bytes, c->len - c->pos);
}

bool cursor_u32(struct cursor *c, const char *what, uint32_t *out)
{
    if (!cursor_has(c, what, 4))
        return false;
    const uint8_t *p = c->data + c->pos;
    *out = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    c->pos += 4;
    return true;
}

bool cursor_u64(struct cursor *c, const char *what, uint64_t *out)
{
    uint32_t low, high;
    if (!cursor_has(c, what, 8) || !cursor_u32(c, what, &low) || !cursor_u32(c, what, &high))
        return false;
    *out = (uint64_t)high << 32 | low;
    return true;
}

bool cursor_skip(struct cursor *c, const char *what, uint64_t bytes)
{
    if (!cursor_has(c, what, bytes))
        return false;
    c->pos += bytes;
    return true;
}

bool cursor_string(struct cursor *c, const char *what, uint64_t max_len, struct gguf_string *out)
{
    uint64_t at = c->pos, len;
    if (!cursor_u64(c, what, &len))
        return false;
    if (len > max_len)
        return cursor_fail(c, ERROR_FORMAT, at,
                           "the length of %s is %" PRIu64 ", expected at most %" PRIu64, what, len,
                           max_len);
    if (!cursor_has(c, what, len))
        return false;
    *out = (struct gguf_string){(const char *)c->data + c->pos, len};
    c->pos += len;
    return true;
}
