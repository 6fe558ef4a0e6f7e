/* The filters and tests by name: `self` of their function is the value that they are applied to. */
#ifndef MOED_JINJA_FILTERS_H
#define MOED_JINJA_FILTERS_H

#include "jinja/value.h"

struct filter_entry {
    const char *name;
    function_call *call;
};

function_call *filter_find(const struct text *name); /* NULL: none */
function_call *test_find(const struct text *name);

/* The tables of each file; they end with a NULL name. */
extern const struct filter_entry filters_text[], filters_sequence[], filters_select[],
    filters_json[];

/* v.a.b.0 by the dotted path that `attribute=` takes; an integer is an index. */
struct value filter_attribute(struct run *r, struct value v, struct value path);

#endif
