/* Binds arguments to names; see arguments.h. */
#include "jinja/arguments.h"

#include <string.h>

static size_t find_name(const char *const *names, size_t n, const struct text *name)
{
    size_t i = 0;
    while (i < n && !text_is(name, names[i]))
        i++;
    return i;
}

void arguments_bind(struct run *r, const char *name, const struct arguments *a,
                    const char *const *names, size_t n, size_t required, struct value *out)
{
    if (a->count > n)
        run_refuse(r, "%s() takes at most %zu argument(s), but %zu were given", name, n, a->count);
    for (size_t i = 0; i < n; i++)
        out[i] = i < a->count ? a->items[i] : (struct value){.kind = VALUE_MISSING};
    for (size_t i = 0; i < a->named_count; i++) {
        const struct text *given = a->named[i].name;
        size_t at = find_name(names, n, given);
        if (at == n)
            run_refuse(r, "%s() got an unexpected keyword argument '%.*s'", name, (int)given->len,
                       given->data);
        if (out[at].kind != VALUE_MISSING)
            run_refuse(r, "%s() got multiple values for argument '%s'", name, names[at]);
        out[at] = a->named[i].value;
    }
    for (size_t i = 0; i < required; i++)
        if (out[i].kind == VALUE_MISSING)
            run_refuse(r, "%s() missing required argument '%s'", name, names[i]);
}

int64_t argument_integer(struct run *r, struct value v, int64_t otherwise)
{
    int64_t integer;
    if (v.kind == VALUE_MISSING)
        return otherwise;
    if (!value_is_integer(v, &integer))
        run_refuse(r, "'%s' object cannot be interpreted as an integer", value_type_name(v));
    return integer;
}

const struct text *argument_text(struct run *r, struct value v, const char *what)
{
    value_require(r, v);
    if (v.kind != VALUE_STRING)
        run_refuse(r, "%s must be str, not %s", what, value_type_name(v));
    return v.text;
}
