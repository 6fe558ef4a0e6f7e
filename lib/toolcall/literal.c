/* Recursive descent over a whole text; every function returns false at the first fault. */
#include "toolcall/literal.h"

#include "base/json_space.h"
#include "base/utf8.h"
#include "toolcall/json_scan.h"
#include "toolcall/tools.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define GEMMA_QUOTE "<|\"|>"

struct reader {
    const char *at, *end;
    struct strbuf *out;
    bool gemma;
    unsigned depth;
};

static void space(struct reader *r)
{
    r->at += json_space_length(r->at, (size_t)(r->end - r->at));
}

static bool read_char(struct reader *r, char c)
{
    space(r);
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

static bool read_text(struct reader *r, const char *text)
{
    size_t n = strlen(text);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, text, n) != 0)
        return false;
    r->at += n;
    return true;
}

static bool read_name(struct reader *r, const char **name, size_t *len)
{
    space(r);
    *name = r->at;
    while (r->at < r->end && tool_name_byte(*r->at) && !(r->gemma && *r->at == ':'))
        r->at++;
    *len = (size_t)(r->at - *name);
    return *len > 0;
}

static bool read_hex(struct reader *r, unsigned digits, uint32_t *out)
{
    *out = 0;
    while (digits-- > 0) {
        if (r->at == r->end)
            return false;
        char c = *r->at++;
        unsigned letter = (unsigned)(c | 32);
        if (c >= '0' && c <= '9')
            *out = *out * 16 + (uint32_t)(c - '0');
        else if (letter >= 'a' && letter <= 'f')
            *out = *out * 16 + letter - 'a' + 10;
        else
            return false;
    }
    return true;
}

/* Behind a backslash. An escape that Python does not know stays as it is. */
static bool read_escape(struct reader *r, struct strbuf *s)
{
    if (r->at == r->end)
        return false;
    static const char from[] = "ntr0abfv\\'\"", to[] = "\n\t\r\0\a\b\f\v\\'\"";
    char c = *r->at++, bytes[4];
    const char *known = c ? strchr(from, c) : NULL;
    if (known) {
        strbuf_append(s, to + (known - from), 1);
    } else if (c == 'x' || c == 'u' || c == 'U') {
        uint32_t code;
        if (!read_hex(r,
                      c == 'x'   ? 2
                      : c == 'u' ? 4
                                 : 8,
                      &code) ||
            code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
            return false;
        strbuf_append(s, bytes, utf8_encode(code, bytes));
    } else if (c != '\n') {
        strbuf_append(s, "\\", 1);
        strbuf_append(s, &c, 1);
    }
    return true;
}

static bool python_string(struct reader *r, char quote)
{
    struct strbuf s;
    strbuf_init(&s);
    bool ok = true;
    while (ok && r->at < r->end && *r->at != quote) {
        const char *from = r->at;
        while (r->at < r->end && *r->at != quote && *r->at != '\\')
            r->at++;
        strbuf_append(&s, from, (size_t)(r->at - from));
        if (r->at < r->end && *r->at == '\\') {
            r->at++;
            ok = read_escape(r, &s);
        }
    }
    ok = ok && r->at < r->end && !s.failed;
    if (ok) {
        r->at++;
        strbuf_json_string(r->out, s.data, s.len);
    }
    strbuf_fini(&s);
    return ok;
}

static bool gemma_string(struct reader *r)
{
    const char *from = r->at;
    while (r->at < r->end) {
        const char *to = r->at;
        if (read_text(r, GEMMA_QUOTE)) {
            strbuf_json_string(r->out, from, (size_t)(to - from));
            return true;
        }
        r->at++;
    }
    return false;
}

/* True: a string began and was read whole. *fault: it began and is broken. */
static bool read_string(struct reader *r, bool *fault)
{
    bool ok = false, begun = false;
    if (r->gemma && read_text(r, GEMMA_QUOTE)) {
        begun = true;
        ok = gemma_string(r);
    } else if (r->at < r->end && (*r->at == '"' || (!r->gemma && *r->at == '\''))) {
        begun = true;
        r->at++;
        ok = python_string(r, r->at[-1]);
    }
    *fault = begun && !ok;
    return ok;
}

static bool read_value(struct reader *r);

/* Gemma's keys are bare, whatever is in them: letters of any language, blanks. */
static bool read_bare_key(struct reader *r, const char **name, size_t *len)
{
    *name = r->at;
    while (r->at < r->end && (unsigned char)*r->at >= ' ' && !strchr(":,{}[]\"", *r->at))
        r->at++;
    const char *end = r->at;
    while (end > *name && end[-1] == ' ')
        end--;
    *len = (size_t)(end - *name);
    return *len > 0;
}

static bool read_key(struct reader *r)
{
    bool fault;
    const char *name;
    size_t len;
    space(r);
    if (read_string(r, &fault))
        return true;
    if (fault || !r->gemma || !read_bare_key(r, &name, &len))
        return false;
    strbuf_json_string(r->out, name, len);
    return true;
}

/* Behind the opening bracket, to the closing one; a comma may stand before it. */
static bool read_members(struct reader *r, char close, bool keys)
{
    for (size_t n = 0; !read_char(r, close); n++) {
        if (n > 0 && !read_char(r, ','))
            return false;
        if (n > 0 && read_char(r, close))
            break;
        if (n > 0)
            strbuf_append(r->out, ",", 1);
        if (keys) {
            if (!read_key(r) || !read_char(r, ':'))
                return false;
            strbuf_append(r->out, ":", 1);
        }
        if (!read_value(r))
            return false;
    }
    strbuf_append(r->out, keys ? "}" : "]", 1);
    return true;
}

static bool read_scalar(struct reader *r)
{
    static const char *const words[][2] = {
        {"True", "true"}, {"False", "false"}, {"None", "null"},
        {"true", "true"}, {"false", "false"}, {"null", "null"},
    };
    const char *from = r->at;
    while (r->at < r->end && (tool_name_byte(*r->at) || *r->at == '+'))
        r->at++;
    size_t n = (size_t)(r->at - from);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (n == strlen(words[i][0]) && memcmp(from, words[i][0], n) == 0) {
            strbuf_append(r->out, words[i][1], strlen(words[i][1]));
            return true;
        }
    if (!json_scan_whole(from, n)) /* what is left are numbers */
        return false;
    strbuf_append(r->out, from, n);
    return true;
}

static bool read_value(struct reader *r)
{
    bool fault;
    space(r);
    if (r->at == r->end || r->depth == LITERAL_DEPTH_MAX)
        return false;
    if (read_string(r, &fault))
        return true;
    if (fault)
        return false;
    char c = *r->at;
    bool object = c == '{', list = c == '[' || (c == '(' && !r->gemma);
    if (!object && !list)
        return read_scalar(r);
    r->at++;
    r->depth++;
    strbuf_append(r->out, object ? "{" : "[", 1);
    bool ok = read_members(r, object ? '}' : c == '(' ? ')' : ']', object);
    r->depth--;
    return ok;
}

static bool python_arguments(struct reader *r)
{
    const char *name;
    size_t len;
    strbuf_append(r->out, "{", 1);
    for (size_t n = 0; !read_char(r, ')'); n++) {
        if (n > 0 && !read_char(r, ','))
            return false;
        if (n > 0 && read_char(r, ')'))
            break;
        if (!read_name(r, &name, &len) || !read_char(r, '='))
            return false;
        if (n > 0)
            strbuf_append(r->out, ",", 1);
        strbuf_json_string(r->out, name, len);
        strbuf_append(r->out, ":", 1);
        if (!read_value(r))
            return false;
    }
    strbuf_append(r->out, "}", 1);
    return true;
}

static bool take_call(struct reader *r, bool (*arguments)(struct reader *), literal_call_fn *take,
                      void *context)
{
    const char *name;
    size_t len;
    strbuf_clear(r->out);
    return read_name(r, &name, &len) && arguments(r) && !r->out->failed &&
           take(context, name, len, r->out);
}

static bool python_call(struct reader *r)
{
    return read_char(r, '(') && python_arguments(r);
}

static bool gemma_call(struct reader *r)
{
    if (!read_char(r, '{'))
        return false;
    strbuf_append(r->out, "{", 1);
    return read_members(r, '}', true);
}

static bool at_end(struct reader *r)
{
    space(r);
    return r->at == r->end;
}

bool literal_python(const char *text, size_t len, literal_call_fn *take, void *context)
{
    struct strbuf out;
    strbuf_init(&out);
    struct reader r = {text, text + len, &out, false, 0};
    bool list = read_char(&r, '['), ok = true, more = true;
    while (ok && more) {
        ok = take_call(&r, python_call, take, context);
        more = ok && read_char(&r, ',');
    }
    ok = ok && (!list || read_char(&r, ']')) && at_end(&r);
    strbuf_fini(&out);
    return ok;
}

bool literal_gemma(const char *text, size_t len, literal_call_fn *take, void *context)
{
    struct strbuf out;
    strbuf_init(&out);
    struct reader r = {text, text + len, &out, true, 0};
    bool ok = true;
    do {
        space(&r);
        ok = read_text(&r, "call:") && take_call(&r, gemma_call, take, context);
    } while (ok && !at_end(&r));
    strbuf_fini(&out);
    return ok;
}

bool literal_python_value(const char *text, size_t len, struct strbuf *out)
{
    struct strbuf value;
    strbuf_init(&value);
    struct reader r = {text, text + len, &value, false, 0};
    bool ok = read_value(&r) && at_end(&r) && !value.failed;
    if (ok)
        strbuf_append(out, value.data, value.len);
    strbuf_fini(&value);
    return ok;
}
