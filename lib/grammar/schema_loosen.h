/* Makes a JSON schema looser until it can be followed. For callers whose clients asked for no more
 * than an attempt; what is left binds. */
#ifndef MOED_GRAMMAR_SCHEMA_LOOSEN_H
#define MOED_GRAMMAR_SCHEMA_LOOSEN_H

#include "grammar/subschema.h"

#include <jansson.h>

/* Changes a schema in place.
 *
 * Keywords of older drafts, OpenAPI 3.0 and Google's SDKs are rewritten exactly (schema_dialect.h).
 * A `nullable` adds null. oneOf becomes anyOf, which is the same where branches exclude each other.
 *
 * Removed, in all subschemas, are the keywords that grammar_compile refuses whatever the rest of
 * the schema says: those it does not know, unknown formats, patterns with look-around and the like,
 * malformed ones, references to other documents. Of a string with a pattern or format that exceeds
 * a limit it removes the lengths, then the pattern. Then it compiles the schema, removes the
 * keyword that is refused, and tries again, a limited number of times. What a reference names is
 * kept: where the keyword that has it is removed it moves to $defs.
 *
 * steps: counts those that trying takes; beyond its limit the schema stays as it is, and may still
 * be refused. NULL: schema_loosen has a limit of its own. Returns how many keywords were removed;
 * keyword: one of them, perhaps cut; empty: none. */
unsigned schema_loosen(json_t *schema, const struct grammar_limits *limits,
                       struct schema_steps *steps, char keyword[SCHEMA_KEYWORD_BYTES]);

#endif
