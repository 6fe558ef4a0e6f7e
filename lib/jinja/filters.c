/* Finds filters; see filters.h. */
#include "jinja/filters.h"

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
