/* JSON texts; see json_text.h. */
#include "client/http/api/json_text.h"

#include "base/json_space.h"
#include "base/utf8.h"
#include "toolcall/json_scan.h"

#include <stdlib.h>
#include <string.h>

/* The code unit that an escape of four hexadecimal digits names; 0: another escape. The text is
 * valid JSON. */
static unsigned code_unit(const char *text, size_t len)
{
    char digits[5] = {0};
    if (len < 6 || text[0] != '\\' || text[1] != 'u')
        return 0;
    memcpy(digits, text + 2, 4);
    return (unsigned)strtoul(digits, NULL, 16);
}

/* Appends an escape, or a pair of them; returns its length. */
static size_t add_escape(const char *text, size_t len, struct strbuf *out)
{
    unsigned first = code_unit(text, len);
    size_t n = first ? 6 : 2;
    if (first >= 0xd800 && first < 0xdc00) {
        unsigned second = code_unit(text + 6, len - 6);
        n = second >= 0xdc00 && second < 0xe000 ? 12 : 6;
    }
    bool half = first >= 0xd800 && first < 0xe000 && n == 6;
    strbuf_append(out, half ? "\\ufffd" : text, n);
    return n;
}

/* Appends what a string has at `text`; returns its length. */
static size_t add_character(const char *text, size_t len, struct strbuf *out)
{
    size_t n = utf8_valid_length(text, len);
    if (text[0] == '\\')
        return add_escape(text, len, out);
    if (n)
        strbuf_append(out, text, n);
    else
        strbuf_append(out, "\\ufffd", 6);
    return n ? n : 1;
}

bool json_text_compact(const char *text, size_t len, struct strbuf *out)
{
    bool string = false;
    text = json_space_trim(text, &len);
    if (!len || *text != '{' || !json_scan_whole(text, len))
        return false;
    for (size_t at = 0; at < len;) {
        string ^= text[at] == '"';
        if (string)
            at += add_character(text + at, len - at, out);
        else if (json_space(text[at]))
            at++;
        else
            strbuf_append(out, text + at++, 1);
    }
    return true;
}
