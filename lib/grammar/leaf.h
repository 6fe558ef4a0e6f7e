/* What the subschemas of one leaf (schema.h) ask of a value together. */
#ifndef MOED_GRAMMAR_LEAF_H
#define MOED_GRAMMAR_LEAF_H

#include "grammar/decimal.h"
#include "grammar/dfa.h"
#include "grammar/subschema.h"

enum {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INTEGER = 4,
    TYPE_FRACTION = 8, /* numbers that are no integers */
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_ALL = 127,
    TYPE_NUMBER = TYPE_INTEGER | TYPE_FRACTION,
};

struct leaf {
    struct schema *s;
    const struct id_list *nodes;
    unsigned types;
    bool has_values; /* enum or const: only these, which satisfy all else */
    json_t **values;
    size_t n_values;
    struct number_range range;
    bool has_text; /* a pattern or a format */
    struct count_bounds length, items, members;
};

enum error_code leaf_init(struct schema *s, const struct id_list *nodes, struct leaf *out);
void leaf_fini(struct leaf *l);
bool type_is_known(const json_t *type);                     /* a name, or a list of them */
bool leaf_has_bounds(const struct leaf *l);                 /* of numbers */
bool leaf_lists(const struct leaf *l, const json_t *value); /* enum and const have it */

/* -- Strings -- */

/* All contents of strings that the leaf allows. Fills an initialised *out. */
enum error_code leaf_text(const struct leaf *l, struct dfa *out);
/* The same of any length. */
enum error_code leaf_form(const struct leaf *l, struct dfa *out);
/* The expression of the leaf's only format; NULL: it has none, two, or a pattern. */
const char *leaf_sole_format(const struct leaf *l);
/* Puts the place of the keywords for strings before the text of the present error. */
enum error_code leaf_locate_text(const struct leaf *l);
/* Restricts *all to the leaf's lengths. */
enum error_code leaf_limit_length(const struct leaf *l, struct dfa *all);
/* The texts that an expression occurs in, or all texts (NULL). The error does not name the place.
 */
enum error_code text_matching(struct schema *s, const char *expression, struct dfa *out);
/* Restricts *all to texts that match the expression, or to those that do not. */
enum error_code text_restrict(struct schema *s, const char *expression, enum dfa_product kind,
                              struct dfa *all);
/* Leaves out texts that have `part`. */
enum error_code text_without(struct schema *s, const char *part, struct dfa *all);
/* A dfa of the given texts. */
enum error_code text_list(struct schema *s, const char *const *texts, size_t n, struct dfa *out);
/* The expression of a format; NULL: the format is not supported. */
const char *format_expression(const char *name);

/* -- Objects and arrays -- */

enum error_code leaf_build_object(const struct leaf *l, uint32_t from, uint32_t to);
enum error_code leaf_build_array(const struct leaf *l, uint32_t from, uint32_t to);

/* A pattern of a patternProperties. */
struct member_pattern {
    uint32_t owner, schema; /* nodes */
    struct dfa text;
};

struct member_word {
    struct member_word *next;
    char text[];
};

/* What the leaf says of the members of an object. */
struct members {
    const struct leaf *leaf;
    const char **keys; /* of properties, of required, then of short lists, in their order */
    size_t n_keys, keys_capacity;
    struct member_word *words; /* owned: other keys are borrowed from the document */
    struct member_pattern *patterns;
    size_t n_patterns;
    bool has_names; /* propertyNames */
    struct dfa names;
};

enum { MEMBER_CELLS_MAX = 65536 }; /* keys times numbers of members that must be told apart */

enum error_code members_init(const struct leaf *l, struct members *out);
void members_fini(struct members *m);
bool members_required(const struct members *m, const char *key);
/* Adds to an empty list what the value of a key must satisfy. *forbidden: there can be no value. */
enum error_code members_goal(const struct members *m, const char *key, struct id_list *out,
                             bool *forbidden);

/* What element `index` of an array must satisfy; an index behind all prefixItems: of any further
 * one. */
enum error_code leaf_element_goal(const struct leaf *l, size_t index, struct id_list *out,
                                  bool *forbidden);
size_t leaf_prefix(const struct leaf *l); /* the longest prefixItems */

#endif
