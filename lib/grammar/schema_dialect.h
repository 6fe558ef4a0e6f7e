/* Keywords of older drafts, OpenAPI 3.0 and Google's SDKs, written as JSON Schema 2020-12. */
#ifndef MOED_GRAMMAR_SCHEMA_DIALECT_H
#define MOED_GRAMMAR_SCHEMA_DIALECT_H

#include <jansson.h>
#include <stdint.h>

/* Rewrites, in place, the keywords of one subschema, not of those in it. The result allows the
 * values that the schema allowed in its own dialect, and no others.
 *
 * - A keyword whose value is null is removed; const, default and example can be null.
 * - items [A, B], additionalItems C becomes prefixItems [A, B], items C.
 * - minimum 1, exclusiveMinimum true becomes exclusiveMinimum 1; the same for maximum.
 * - The type OBJECT becomes object, and so on. The type any is removed.
 * - minItems "1" becomes 1; the same for the other counts.
 * - anyOf or oneOf with more than `most` branches becomes enum, if each is a const or an enum. */
void schema_modernise(json_t *schema, uint32_t most);

/* Replaces a `nullable: true` that is not plain (schema_nullable_is_plain). Where the other
 * keywords may exclude null, the schema becomes an anyOf of them and of the type null. Returns the
 * branch that has them, borrowed; NULL: there is no such anyOf. */
json_t *schema_split_nullable(json_t *schema);

#endif
