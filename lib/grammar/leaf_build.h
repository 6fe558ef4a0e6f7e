/* The values of a leaf (leaf.h) as a part of a network. */
#ifndef MOED_GRAMMAR_LEAF_BUILD_H
#define MOED_GRAMMAR_LEAF_BUILD_H

#include "grammar/subschema.h"

/* Adds all values of a leaf between two states. */
enum error_code leaf_build(struct schema *s, const struct id_list *nodes, uint32_t from,
                           uint32_t to);

#endif
