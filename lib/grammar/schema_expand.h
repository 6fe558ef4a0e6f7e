/* The leaves of a goal (schema.h), and whether two goals exclude each other. */
#ifndef MOED_GRAMMAR_SCHEMA_EXPAND_H
#define MOED_GRAMMAR_SCHEMA_EXPAND_H

#include "grammar/subschema.h"

/* Calls take(context, leaf) for each leaf of the goal. strict: a oneOf whose branches may overlap
 * is refused; else it is taken as anyOf. */
typedef enum error_code schema_take_leaf(struct schema *s, const struct id_list *leaf,
                                         void *context);
enum error_code schema_expand(struct schema *s, const struct id_list *goal, bool strict,
                              schema_take_leaf *take, void *context);

/* *out: no value satisfies both goals; false where that is not known. */
enum error_code schema_disjoint(struct schema *s, const struct id_list *a, const struct id_list *b,
                                unsigned depth, bool *out);

#endif
