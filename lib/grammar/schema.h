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
#include "grammar/subschema.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SCHEMA_STEPS = 500000000 }; /* of the schemas of one grammar: some seconds */
#define SCHEMA_PLACE "schema at \"#"

struct schema_source {
    const char *text;
    size_t len;
    const char *place; /* errors begin with it; the JSON pointer and a quote follow. SCHEMA_PLACE */
    /* Only the strings, without quotes and escapes; see leaf_build_bare. */
    bool bare;
    const char *without, *unlike;
};

struct schema_context {
    const struct grammar_limits *limits;
    struct network *n;
    struct json_rules *rules;   /* shared by the schemas of a grammar */
    struct schema_steps *steps; /* of all of them */
};

/* Adds the schema's rules; *root is its rule. blame: NULL, or the place of an error. */
enum error_code schema_build_document(json_t *document, const struct schema_source *source,
                                      const struct schema_context *c, uint32_t *root,
                                      struct schema_blame *blame, struct error *e);
/* The same of source->text; above, text and len are not read. */
enum error_code schema_build(const struct schema_source *source, const struct schema_context *c,
                             uint32_t *root, struct error *e);

#endif
