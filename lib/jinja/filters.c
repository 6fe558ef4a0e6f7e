/* Finds filters, and reads attributes for them; see filters.h. */
#include "jinja/filters.h"

#include "jinja/interpreter.h"

#include <ctype.h>
#include <string.h>

function_call *filter_find(const struct text *name)
{
    static const struct filter_entry *const tables[] = {filters_text, filters_sequence,
                                                        filters_select, filters_json};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const struct filter_entry *f = tables[i]; f->name; f++)
            if (text_is(name, f->name))
                return f->call;
    return NULL;
}

static struct value path_part(struct run *r, const struct text *path, size_t from, size_t to)
{
    int64_t index = 0;
    bool number = to > from && to - from < 18;
    for (size_t i = from; i < to && number; i++) {
        number = isdigit((unsigned char)path->data[i]) != 0;
        index = index * 10 + (path->data[i] - '0');
    }
    return number ? value_int(index) : value_text(text_part(r, path, from, to));
}

struct value filter_attribute(struct run *r, struct value v, struct value path)
{
    if (path.kind == VALUE_MISSING || path.kind == VALUE_NONE)
        return v;
    if (path.kind != VALUE_STRING)
        return item_get(r, v, path);
    size_t from = 0;
    for (size_t i = 0; i <= path.text->len; i++)
        if (i == path.text->len || path.text->data[i] == '.') {
            v = item_get(r, v, path_part(r, path.text, from, i));
            from = i + 1;
        }
    return v;
}
