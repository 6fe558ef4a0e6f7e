/* Framing; see framing.h. */
#include "client/http/server/framing.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

#define HEAD_MAX 65536 /* bytes; more than libmicrohttpd's pool has */
#define FOLDED   "a header field that goes on in another line, or has a NUL"

/* Digits only: no sign, space, list or number above 2^53. */
static bool parse_length(const char *text, uint64_t *out)
{
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n > 15 || text[n])
        return false;
    *out = 0;
    for (size_t i = 0; i < n; i++)
        *out = *out * 10 + (uint64_t)(text[i] - '0');
    return true;
}

static const char *take_length(struct framing *f, const char *value)
{
    if (f->has_length)
        return "more than one Content-Length";
    f->has_length = true;
    return parse_length(value, &f->length) ? NULL : "Content-Length is not a number";
}

static const char *take_encoding(struct framing *f, const char *value)
{
    if (f->chunked)
        return "more than one Transfer-Encoding";
    f->chunked = true;
    return strcasecmp(value, "chunked") == 0 ? NULL : "a Transfer-Encoding other than chunked";
}

/* ---- Where the texts stand ---- */

/* Whether `next` is behind `lines` ends of lines, of one or two bytes each. */
static bool follows(const char *end, const char *next, uintptr_t lines)
{
    uintptr_t gap = (uintptr_t)next - (uintptr_t)end;
    return gap >= lines && gap <= 2 * lines;
}

/* Whether only blanks are between a separator, as a name's colon, and the text behind it. */
static bool follows_separator(const char *separator, const char *text)
{
    uintptr_t gap = (uintptr_t)text - (uintptr_t)separator;
    if (gap == 0 || gap > HEAD_MAX)
        return false;
    for (uintptr_t i = 1; i < gap; i++)
        if (separator[i] != ' ' && separator[i] != '\t')
            return false;
    return true;
}

static bool is_in_place(const struct framing *f, const char *name, const char *value)
{
    return !f->end || (follows(f->end, name, 1) && follows_separator(name + strlen(name), value));
}

void framing_line(struct framing *f, const char *method, const char *target, const char *target_end,
                  const char *version)
{
    if (!follows_separator(method + strlen(method), target) ||
        !follows_separator(target_end, version))
        f->fault = "a NUL in the request's first line";
}

void framing_at(struct framing *f, const char *end)
{
    f->end = end;
}

/* ---- Fields ---- */

void framing_field(struct framing *f, const char *name, const char *value)
{
    if (f->fault)
        return;
    bool in_place = is_in_place(f, name, value);
    f->end = f->end ? value + strlen(value) : NULL;
    if (!in_place || value[strcspn(value, "\r\n")])
        f->fault = FOLDED;
    else if (!*name || name[strcspn(name, " \t\r\n:")])
        f->fault = "a header field's name with a space in it";
    else if (strcasecmp(name, "content-length") == 0)
        f->fault = take_length(f, value);
    else if (strcasecmp(name, "transfer-encoding") == 0)
        f->fault = take_encoding(f, value);
    else if (strcasecmp(name, "host") == 0)
        f->hosts++;
}

const char *framing_end(struct framing *f, const char *version, const char *head_end)
{
    bool old = strcmp(version, "HTTP/1.0") == 0;
    if (!f->fault && f->end && !follows(f->end, head_end, 2))
        f->fault = FOLDED;
    if (f->fault)
        return f->fault;
    if (!old && strcmp(version, "HTTP/1.1") != 0)
        f->fault = "an HTTP version other than 1.0 and 1.1";
    else if (f->has_length && f->chunked)
        f->fault = "both Content-Length and Transfer-Encoding";
    else if (old && f->chunked)
        f->fault = "Transfer-Encoding in an HTTP/1.0 request";
    else if (f->hosts > 1 || (!old && f->hosts == 0))
        f->fault = "not exactly one Host";
    return f->fault;
}
