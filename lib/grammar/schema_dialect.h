/* Keywords of older drafts, OpenAPI 3.0 and Google's SDKs, written as JSON Schema 2020-12. */
#ifndef MOED_GRAMMAR_SCHEMA_DIALECT_H
#define MOED_GRAMMAR_SCHEMA_DIALECT_H

#include <jansson.h>
#include <stdint.h>

/* Rewrites, in place, the keywords of one subschema, not of those in it. Every value that the
 * schema allows in its own dialect stays allowed, and no other one:
 *
 *     a null that is no const, default or example    as if the keyword were not there
 *     items [A, B], additionalItems C                prefixItems [A, B], items C
 *     minimum 1, exclusiveMinimum true               exclusiveMinimum 1; maximum the same
 *     type OBJECT; type any                          object; no type
 *     minItems "1", and the like                     1
 *     anyOf or oneOf with more than `most` branches  enum, if each branch is a const or an enum
 */
void schema_modernise(json_t *schema, uint32_t most);

/* Writes a `nullable: true` that schema_nullable_is_plain does not take as anyOf: the schema, or
 * null. Returns the schema that has the other keywords then, which is borrowed; else NULL. */
json_t *schema_split_nullable(json_t *schema);

#endif
