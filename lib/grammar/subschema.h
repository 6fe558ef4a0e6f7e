/* What the parts of the schema compiler (schema.h) share: the subschemas that were met, the goals
 * to build, and errors that name the place in the schema. */
#ifndef MOED_GRAMMAR_SUBSCHEMA_H
#define MOED_GRAMMAR_SUBSCHEMA_H

#include "base/error.h"
#include "grammar/grammar.h"
#include "grammar/json_text.h"
#include "grammar/network.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct id_list {
    uint32_t *ids;
    uint32_t n, capacity;
};

/* Steps of loops whose number the schemas decide. */
struct schema_steps {
    uint64_t done, most;
};

struct goal {
    uint32_t from, count; /* in goal_nodes: sorted */
    uint32_t rule;
};

/* The place of an error in the document. */
enum { SCHEMA_KEYWORD_BYTES = 32 };
struct schema_blame {
    json_t *schema;                     /* borrowed; NULL: the error has no place */
    char keyword[SCHEMA_KEYWORD_BYTES]; /* perhaps cut; empty: the schema as a whole */
};

struct schema {
    json_t *document;
    const struct grammar_limits *limits;
    struct network *n;
    struct json_rules *rules;
    json_t **nodes; /* the subschemas that were met, by number; borrowed */
    uint32_t n_nodes, nodes_capacity;
    struct goal *goals;
    uint32_t n_goals, goals_capacity;
    struct id_list goal_nodes;
    uint32_t leaves, expansions; /* of the goal at work */
    struct schema_steps *steps;  /* for schema_work */
    const char *place;           /* what errors say before the JSON pointer */
    struct error *error;
    struct schema_blame blame; /* of the last error with a place */
};

bool id_list_add(struct id_list *l, uint32_t id); /* if it is not in it; false: no memory */
void id_list_fini(struct id_list *l);

enum error_code schema_out_of_memory(struct schema *s);
/* Counts steps of loops whose number the schema decides. ERROR_LIMIT: they are too many. */
enum error_code schema_work(struct schema *s, uint64_t steps);
enum { COMPARISON_STEPS = 64 }; /* of two listed values, or a look at a node of the document */

/* False: a keyword that is refused wherever it stands, with this value. */
bool schema_keyword_is_supported(const char *key, const json_t *value, bool is_root);

/* Does `nullable`, if the schema has it, only add null to its type and enum? */
bool schema_nullable_is_plain(const json_t *schema);

/* The number of a subschema. Refuses what is no schema, and keywords that are not supported. */
enum error_code schema_node(struct schema *s, json_t *json, uint32_t *out);
/* Sets the error: the JSON pointer of `keyword` in a node (NULL: of the node), then the text. */
enum error_code schema_refuse(struct schema *s, enum error_code code, uint32_t node,
                              const char *keyword, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* The same for texts that have a mark of s->rules. */
enum error_code schema_refuse_marks(struct schema *s, uint32_t node, const char *keyword);
/* Puts the JSON pointer before the text of the present error. */
enum error_code schema_locate(struct schema *s, uint32_t node, const char *keyword);

/* Locates at the first of the keywords (a list that ends with NULL) that one of the nodes has; if
 * none has one, at the first node. */
enum error_code schema_locate_in(struct schema *s, const struct id_list *nodes,
                                 const char *const *keywords);
/* Sets the error, and locates it so. */
enum error_code schema_refuse_in(struct schema *s, enum error_code code,
                                 const struct id_list *nodes, const char *const *keywords,
                                 const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The rule of a goal, which may be built later. Takes the list's content. */
enum error_code schema_goal(struct schema *s, struct id_list *nodes, uint32_t *rule);

#endif
