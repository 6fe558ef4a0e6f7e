/* The values of a leaf (leaf.h) as a part of a network. */
#ifndef MOED_GRAMMAR_LEAF_BUILD_H
#define MOED_GRAMMAR_LEAF_BUILD_H

#include "grammar/subschema.h"

/* Adds all values of a leaf between two states. */
enum error_code leaf_build(struct schema *s, const struct id_list *nodes, uint32_t from,
                           uint32_t to);

/* Adds the texts of the strings among the values, without quotes and escapes. Leaves out those that
 * have `without`, and those that the expression `unlike` matches; "": none. Of these two, s->rules
 * are for one pair. */
enum error_code leaf_build_bare(struct schema *s, const struct id_list *nodes, const char *without,
                                const char *unlike, uint32_t from, uint32_t to);

#endif
