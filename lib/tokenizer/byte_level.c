/* Byte-level alphabet; see byte_level.h. */
#include "tokenizer/byte_level.h"

#include "base/utf8.h"

/* The byte that a code point below 0x800 stands for; -1: none. The bytes without a printable
 * character (0-32, 127-160, 173) have code points from U+0100 in order. */
static int byte_of(unsigned code)
{
    if ((code >= 33 && code <= 126) || (code >= 161 && code <= 172) || (code >= 174 && code <= 255))
        return (int)code;
    if (code < 256)
        return -1;
    unsigned n = code - 256;
    if (n <= 32)
        return (int)n;
    if (n <= 66)
        return (int)(n - 33 + 127);
    return n == 67 ? 173 : -1;
}

bool byte_level_decode(const char *text, size_t len, uint8_t *out, size_t *out_len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned code = (unsigned char)text[i];
        if (code >= 0xc2 && code <= 0xdf && i + 1 < len && utf8_continues(text[i + 1])) {
            code = (code & 0x1f) << 6 | ((unsigned char)text[i + 1] & 0x3f);
            i++;
        } else if (code >= 0x80) {
            return false;
        }
        int byte = byte_of(code);
        if (byte < 0)
            return false;
        out[n++] = (uint8_t)byte;
    }
    *out_len = n;
    return true;
}
