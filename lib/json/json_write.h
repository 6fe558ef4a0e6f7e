/* JSON values as text on one line, and texts as JSON values. Numbers stay what they were: jansson
 * writes 52.52 as 52.520000000000003. */
#ifndef MOED_JSON_WRITE_H
#define MOED_JSON_WRITE_H

#include "base/strbuf.h"

#include <jansson.h>

enum json_blanks {
    JSON_WITHOUT_BLANKS, /* {"a":[1,2]} */
    JSON_WITH_BLANKS,    /* {"a": [1, 2]}, as Python writes it */
};

/* Appends a value, NULL as null; reals in the shortest form that reads back the same. */
void json_write(const json_t *value, enum json_blanks blanks, struct strbuf *out);
/* A string of the text, a new reference. NULL: no memory, also for the text, or it is not UTF-8. */
json_t *json_string_of(const struct strbuf *text);

#endif
