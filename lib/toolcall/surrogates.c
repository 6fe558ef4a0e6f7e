/* See surrogates.h. */
#include "toolcall/surrogates.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char replacement[] = "\\ufffd";
enum { ESCAPE = 6 }; /* bytes of \u0000 */

static void flush(struct surrogates *s, struct strbuf *out)
{
    strbuf_append(out, s->held, s->n);
    s->n = 0;
}

/* The first escape is half of a pair: what was read behind it stays. */
static void replace_first(struct surrogates *s, struct strbuf *out)
{
    strbuf_append(out, replacement, ESCAPE);
    s->n -= ESCAPE;
    memmove(s->held, s->held + ESCAPE, s->n);
}

static unsigned long unit_at(const char *escape)
{
    char digits[5] = "";
    memcpy(digits, escape + 2, 4);
    return strtoul(digits, NULL, 16);
}

static bool is_low(unsigned long unit)
{
    return unit >= 0xdc00 && unit <= 0xdfff;
}

/* What is held has six bytes: another escape waits only behind the first half of a pair. */
static void decide_first(struct surrogates *s, struct strbuf *out)
{
    unsigned long unit = unit_at(s->held);
    if (is_low(unit))
        replace_first(s, out);
    else if (unit < 0xd800 || unit > 0xdfff)
        flush(s, out);
}

static void decide_second(struct surrogates *s, struct strbuf *out)
{
    if (is_low(unit_at(s->held + ESCAPE))) {
        flush(s, out);
        return;
    }
    replace_first(s, out);
    decide_first(s, out);
}

static void add(struct surrogates *s, struct strbuf *out, char c)
{
    s->held[s->n++] = c;
    size_t in_escape = (s->n - 1u) % ESCAPE; /* the byte's place in its escape */
    if ((in_escape == 0 && c != '\\') || (in_escape == 1 && c != 'u')) {
        if (s->n > ESCAPE)
            replace_first(s, out);
        flush(s, out);
    } else if (s->n == ESCAPE) {
        decide_first(s, out);
    } else if (s->n == 2 * ESCAPE) {
        decide_second(s, out);
    }
}

void surrogates_append(struct surrogates *s, struct strbuf *out, const char *text, size_t len)
{
    for (size_t i = 0; i < len;) {
        const char *next = s->n ? text + i : memchr(text + i, '\\', len - i);
        size_t plain = next ? (size_t)(next - text) - i : len - i;
        strbuf_append(out, text + i, plain);
        i += plain;
        if (i < len)
            add(s, out, text[i++]);
    }
}

void surrogates_end(struct surrogates *s, struct strbuf *out)
{
    if (s->n >= ESCAPE)
        replace_first(s, out);
    flush(s, out);
}
