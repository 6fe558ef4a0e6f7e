/* Custom tools; see custom_tool.h. */
#include "client/http/api/custom_tool.h"

#include "base/utf8.h"
#include "json/json_write.h"

#include <string.h>

#define REPLACEMENT 0xfffd

/* ---- The function ---- */

/* A new reference; NULL: no memory. */
static json_t *description_of(const json_t *tool)
{
    const json_t *format = json_object_get(tool, "format");
    const char *own = json_string_value(json_object_get(tool, "description"));
    const char *syntax = json_string_value(json_object_get(format, "syntax"));
    const char *grammar = json_string_value(json_object_get(format, "definition"));
    struct strbuf text;
    strbuf_init(&text);
    if (own && *own)
        strbuf_printf(&text, "%s\n", own);
    strbuf_printf(&text, "The argument `input` is the tool's whole input, a plain text.");
    if (grammar)
        strbuf_printf(&text, " It follows this grammar%s%s:\n%s",
                      syntax ? ", in the notation " : "", syntax ? syntax : "", grammar);
    json_t *description = json_string_of(&text);
    strbuf_fini(&text);
    return description;
}

json_t *custom_tool_function(const json_t *tool)
{
    json_t *description = description_of(tool);
    return description ? json_pack("{s:O*, s:o, s:{s:s, s:{s:{s:s}}, s:[s], s:b}}", "name",
                                   json_object_get(tool, "name"), "description", description,
                                   "parameters", "type", "object", "properties", "input", "type",
                                   "string", "required", "input", "additionalProperties", 0)
                       : NULL;
}

/* ---- The text ---- */

static void append_code(uint32_t code, struct strbuf *out)
{
    char bytes[4];
    strbuf_append(out, bytes, utf8_encode(code, bytes));
}

/* What follows is no second half. */
static void end_pair(struct custom_input *in, struct strbuf *out)
{
    if (in->high)
        append_code(REPLACEMENT, out);
    in->high = 0;
}

/* Four digits have come. */
static void take_code(struct custom_input *in, struct strbuf *out)
{
    uint32_t code = in->code;
    bool second = code >= 0xdc00 && code <= 0xdfff;
    in->place = INPUT_TEXT;
    if (second && in->high) {
        append_code(0x10000 + ((in->high - 0xd800) << 10) + (code - 0xdc00), out);
        in->high = 0;
        return;
    }
    end_pair(in, out);
    if (code >= 0xd800 && code <= 0xdbff)
        in->high = code;
    else
        append_code(second ? REPLACEMENT : code, out);
}

static void take_escape(struct custom_input *in, char c, struct strbuf *out)
{
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    if (c == 'u') {
        in->place = INPUT_HEX;
        in->digits = in->code = 0;
        return;
    }
    const char *known = c ? strchr(from, c) : NULL;
    end_pair(in, out);
    strbuf_append(out, known ? &to[known - from] : &c, 1);
    in->place = INPUT_TEXT;
}

static void take_digit(struct custom_input *in, char c, struct strbuf *out)
{
    unsigned digit = c <= '9' ? (unsigned)(c - '0') : (unsigned)((c | 0x20) - 'a') + 10;
    in->code = in->code << 4 | (digit & 15);
    if (++in->digits == 4)
        take_code(in, out);
}

/* Outside of an escape; returns how many bytes it has taken. */
static size_t take_text(struct custom_input *in, const char *text, size_t len, struct strbuf *out)
{
    size_t n = 0;
    while (n < len && text[n] != '"' && text[n] != '\\')
        n++;
    if (n < len && text[n] == '\\')
        in->place = INPUT_ESCAPE;
    else if (n < len)
        in->place = INPUT_END;
    if (n || in->place == INPUT_END)
        end_pair(in, out);
    strbuf_append(out, text, n);
    return n < len ? n + 1 : n;
}

void custom_input_take(struct custom_input *in, const char *arguments, size_t len,
                       struct strbuf *out)
{
    for (size_t i = 0; i < len;)
        switch (in->place) {
        case INPUT_BEFORE: /* two quotes are the key's */
            if (arguments[i++] == '"' && ++in->quotes == 3)
                in->place = INPUT_TEXT;
            break;
        case INPUT_TEXT:
            i += take_text(in, arguments + i, len - i, out);
            break;
        case INPUT_ESCAPE:
            take_escape(in, arguments[i++], out);
            break;
        case INPUT_HEX:
            take_digit(in, arguments[i++], out);
            break;
        case INPUT_END:
            return;
        }
}
