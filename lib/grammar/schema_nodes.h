/* The subschemas of a document that its root leads to, also through references. */
#ifndef MOED_GRAMMAR_SCHEMA_NODES_H
#define MOED_GRAMMAR_SCHEMA_NODES_H

#include "grammar/subschema.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct schema_reached {
    json_t *schema; /* an object; owned: it may leave the document */
    json_t *target; /* what its $ref names; owned; NULL: nothing, or it has none */
    bool dangling;  /* its $ref names no schema of the document */
};

struct schema_nodes {
    json_t *document; /* borrowed */
    struct schema_steps *steps;
    struct schema_reached *list; /* [n] */
    size_t n, capacity;
    json_t *seen;     /* an object; keys: addresses of those in list */
    unsigned defined; /* names of definitions that were tried */
};

/* Finds them, in keywords of older drafts too. Stops where memory or steps are at their end. */
void schema_nodes_init(struct schema_nodes *s, json_t *document, struct schema_steps *steps);
void schema_nodes_fini(struct schema_nodes *s);

/* After the document was changed: references name their targets again. A target that is in the
 * document no more is added to its $defs. */
void schema_nodes_mend(struct schema_nodes *s);

#endif
