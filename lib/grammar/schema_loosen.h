/* Makes a JSON schema looser until it can be followed. For callers whose clients asked for no more
 * than an attempt; what is left binds. */
#ifndef MOED_GRAMMAR_SCHEMA_LOOSEN_H
#define MOED_GRAMMAR_SCHEMA_LOOSEN_H

#include <jansson.h>

/* Removes, in place and in all subschemas, the keywords that grammar_compile refuses whatever the
 * rest of the schema says: those it does not know, unknown formats, patterns with look-around and
 * the like, references to other documents. oneOf becomes anyOf, which is the same where branches
 * exclude each other, and so do references into it. What the schema demands together, such as
 * limits, may still be refused. Returns how many were removed; keyword: one of them, perhaps cut;
 * empty: none. */
enum { SCHEMA_KEYWORD_BYTES = 32 };
unsigned schema_loosen(json_t *schema, char keyword[SCHEMA_KEYWORD_BYTES]);

#endif
