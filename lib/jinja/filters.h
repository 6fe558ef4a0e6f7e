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

/* The filter of that name: tojson sorts keys as it does. */
struct value filter_dictsort(struct run *r, struct value v, const struct arguments *a);

#endif
