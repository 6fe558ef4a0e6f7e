/* Schemas without what has no meaning for validation. */
#ifndef MOED_TOOLCALL_SCHEMA_STRIP_H
#define MOED_TOOLCALL_SCHEMA_STRIP_H

#include <jansson.h>
#include <stdbool.h>

/* A title, a description, examples and the like. */
bool schema_is_annotation(const char *keyword);
/* A copy of a document without annotations, also in the schemas inside, but with those that a $ref
 * leads into. NULL: no memory. */
json_t *schema_strip(const json_t *document);

#endif
