/* Makes a JSON schema looser until it can be followed. For callers whose clients asked for no more
 * than an attempt; what is left binds. */
#ifndef MOED_GRAMMAR_SCHEMA_LOOSEN_H
#define MOED_GRAMMAR_SCHEMA_LOOSEN_H

#include <jansson.h>

/* Removes, in place and in all subschemas, the keywords that grammar_compile refuses whatever the
 * rest of the schema says: those it does not know, unknown formats, patterns with look-around and
 * the like, references to other documents. Of a string with a pattern or format that exceeds a
 * limit it removes the lengths, then the pattern. oneOf becomes anyOf, which is the same where
 * branches exclude each other, and so do references into it. What subschemas demand together may
 * still be refused.
 *
 * steps: counts those that trying the strings takes; beyond its limit strings stay as they are.
 * NULL: schema_loosen has a limit of its own. Returns how many keywords were removed; keyword: one
 * of them, perhaps cut; empty: none. */
enum { SCHEMA_KEYWORD_BYTES = 32 };
struct grammar_limits;
struct schema_steps;
unsigned schema_loosen(json_t *schema, const struct grammar_limits *limits,
                       struct schema_steps *steps, char keyword[SCHEMA_KEYWORD_BYTES]);

#endif
