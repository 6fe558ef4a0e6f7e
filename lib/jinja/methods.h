/* The methods of strings, lists, tuples, dicts and namespaces. */
#ifndef MOED_JINJA_METHODS_H
#define MOED_JINJA_METHODS_H

#include "jinja/value.h"

struct method_entry {
    const char *name;
    function_call *call;
};

/* The method of v's type by this name; NULL: none. */
const struct method_entry *method_find(struct value v, const struct text *name);

extern const struct method_entry methods_text[], methods_text_tests[], methods_list[],
    methods_tuple[], methods_dict[]; /* end with a NULL name */

/* What filters share with methods. chars: the set of characters; MISSING or none: white space. */
struct value text_strip(struct run *r, const struct text *t, struct value chars, bool left,
                        bool right);
/* most: at most so many; < 0: all */
struct value text_replace(struct run *r, const struct text *t, const struct text *old,
                          const struct text *new, int64_t most);
enum text_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITALIZE, CASE_SWAP };
struct value text_change_case(struct run *r, const struct text *t, enum text_case to);

#endif
