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
#include "grammar/json_text.h"
#include "grammar/network.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Adds the schema's rules; *root is its rule. *work: the steps so far of all schemas of one
 * grammar, which have a limit together. */
enum error_code schema_build(const char *text, size_t len, const struct grammar_limits *limits,
                             struct network *n, uint64_t *work, uint32_t *root, struct error *e);

/* -- For the parts of the compiler -- */

struct id_list {
    uint32_t *ids;
    uint32_t n, capacity;
};

struct goal {
    uint32_t from, count; /* in goal_nodes: sorted */
    uint32_t rule;
};

struct schema {
    json_t *document;
    const struct grammar_limits *limits;
    struct network *n;
    struct json_rules rules;
    json_t **nodes; /* the subschemas that were met, by number; borrowed */
    uint32_t n_nodes, nodes_capacity;
    struct goal *goals;
    uint32_t n_goals, goals_capacity;
    struct id_list goal_nodes;
    uint32_t leaves, expansions; /* of the goal at work */
    uint64_t work;               /* steps so far, for schema_work */
    struct error *error;
};

bool id_list_add(struct id_list *l, uint32_t id); /* if it is not in it; false: no memory */
void id_list_fini(struct id_list *l);

enum error_code schema_out_of_memory(struct schema *s);
/* Counts steps of loops whose number the schema decides. ERROR_LIMIT: they are too many for one
 * schema. */
enum error_code schema_work(struct schema *s, uint64_t steps);

/* The number of a subschema. Refuses what is no schema, and keywords that are not supported. */
enum error_code schema_node(struct schema *s, json_t *json, uint32_t *out);
/* Sets the error: the JSON pointer of `keyword` in a node (NULL: of the node), then the text. */
enum error_code schema_refuse(struct schema *s, enum error_code code, uint32_t node,
                              const char *keyword, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Puts the JSON pointer before the text of the present error. */
enum error_code schema_locate(struct schema *s, uint32_t node, const char *keyword);

/* The node that a $ref in `node` names. */
enum error_code schema_resolve(struct schema *s, uint32_t node, const char *ref, uint32_t *out);
/* Every keyword of the node is supported, or explains nothing but itself. */
enum error_code schema_check_keywords(struct schema *s, uint32_t node);

/* The rule of a goal, which may be built later. Takes the list's content. */
enum error_code schema_goal(struct schema *s, struct id_list *nodes, uint32_t *rule);

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
