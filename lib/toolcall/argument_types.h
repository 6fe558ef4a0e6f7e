/* The types that a schema allows for an argument, and bare values into JSON. */
#ifndef MOED_TOOLCALL_ARGUMENT_TYPES_H
#define MOED_TOOLCALL_ARGUMENT_TYPES_H

#include "base/strbuf.h"

#include <jansson.h>
#include <stddef.h>

enum {
    ARGUMENT_STRING = 1,
    ARGUMENT_NUMBER = 2,
    ARGUMENT_BOOLEAN = 4,
    ARGUMENT_NULL = 8,
    ARGUMENT_ARRAY = 16,
    ARGUMENT_OBJECT = 32,
    ARGUMENT_ANY = 63,
};

/* Of the argument `key` of a tool with these parameters (NULL: none are known). */
unsigned argument_types(const json_t *parameters, const char *key);
/* Of a schema; root: the document that its $ref refer to. ARGUMENT_ANY if this takes more than
 * 1,000 schemas to find. */
unsigned schema_types(const json_t *root, const json_t *schema);

/* Appends a bare value as JSON. JSON of an allowed type but string is taken as it is; Python
 * literals of an allowed type (True, None, ['a']) become JSON; else the value is a string. */
void argument_write(struct strbuf *out, unsigned types, const char *text, size_t len);

#endif
