/* Puts texts together; see text.h. */
#include "jinja/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void builder_init(struct text_builder *b, struct run *r)
{
    *b = (struct text_builder){.run = r};
}

/* Space for len more bytes. */
static void reserve(struct text_builder *b, size_t len)
{
    struct run *r = b->run;
    if (len > r->output_limit || b->len > r->output_limit - len)
        run_fail(r, ERROR_LIMIT, "the template makes a text of more than %zu bytes",
                 r->output_limit);
    run_work(r, len / 64);
    if (b->len + len <= b->capacity)
        return;
    size_t capacity = b->len + len < 32 ? 64 : 2 * (b->len + len);
    char *data = run_alloc(r, capacity);
    if (b->len)
        memcpy(data, b->data, b->len);
    b->data = data;
    b->capacity = capacity;
    if (!b->marks)
        return;
    char *marks = run_alloc(r, capacity);
    memcpy(marks, b->marks, b->len);
    b->marks = marks;
}

/* From here on each byte has its own mark. */
static void mark_each(struct text_builder *b)
{
    b->marks = run_alloc(b->run, b->capacity);
    memset(b->marks, b->request, b->len);
}

void builder_add(struct text_builder *b, const char *data, size_t len, bool request)
{
    if (len == 0)
        return;
    reserve(b, len);
    if (b->len == 0)
        b->request = request;
    else if (!b->marks && b->request != request)
        mark_each(b);
    memcpy(b->data + b->len, data, len);
    if (b->marks)
        memset(b->marks + b->len, request, len);
    b->len += len;
}

void builder_add_literal(struct text_builder *b, const char *literal)
{
    builder_add(b, literal, strlen(literal), false);
}

void builder_add_part(struct text_builder *b, const struct text *t, size_t from, size_t to)
{
    if (from >= to)
        return;
    if (!t->marks) {
        builder_add(b, t->data + from, to - from, t->request);
        return;
    }
    reserve(b, to - from);
    if (!b->marks)
        mark_each(b);
    memcpy(b->data + b->len, t->data + from, to - from);
    memcpy(b->marks + b->len, t->marks + from, to - from);
    b->len += to - from;
}

void builder_add_text(struct text_builder *b, const struct text *t)
{
    builder_add_part(b, t, 0, t->len);
}

void builder_printf(struct text_builder *b, bool request, const char *format, ...)
{
    char small[400]; /* numbers and names: callers print nothing longer */
    va_list args;
    va_start(args, format);
    int len = vsnprintf(small, sizeof small, format, args);
    va_end(args);
    if (len < 0 || (size_t)len >= sizeof small)
        run_refuse(b->run, "a number has too many digits");
    builder_add(b, small, (size_t)len, request);
}

const struct text *builder_text(struct text_builder *b)
{
    const struct text *plain = text_new(b->run, b->data ? b->data : "", b->len, b->request);
    if (!b->marks)
        return plain;
    struct text *marked = run_alloc(b->run, sizeof *marked);
    *marked = *plain;
    marked->marks = b->marks;
    return marked;
}
