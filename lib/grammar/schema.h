/* JSON Schema 2020-12 into a network.
 *
 * Goals. A goal is a set of subschemas that a value must satisfy together; it has one rule. The
 * root schema is the first goal; members and elements lead to further goals, which schema_build
 * works off from a list. Recursive schemas meet known goals again.
 *
 * Leaves. schema_expand follows $ref and allOf and chooses one branch of each anyOf and oneOf, so a
 * goal becomes the union of leaves; a leaf's subschemas have only plain keywords, which leaf.h
 * combines exactly. */
#ifndef MOED_GRAMMAR_SCHEMA_H
#define MOED_GRAMMAR_SCHEMA_H

#include "base/error.h"
#include "grammar/grammar.h"
#include "grammar/network.h"

#include <stddef.h>
#include <stdint.h>

/* Adds the schema's rules; *root is its rule. *work: the steps so far of all schemas of one
 * grammar, which have a limit together. */
enum error_code schema_build(const char *text, size_t len, const struct grammar_limits *limits,
                             struct network *n, uint64_t *work, uint32_t *root, struct error *e);

#endif
