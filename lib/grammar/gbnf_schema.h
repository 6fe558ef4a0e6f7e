/* Items of GBNF that stand for the values of a JSON schema; moed's own.
 *
 *     %json ["PLACE"] SCHEMA [%else RULE]                      its JSON texts
 *     %unordered ["PLACE"] SCHEMA [%else RULE]                 the same, members in any order
 *     %value "WITHOUT" ["PLACE"] SCHEMA [%else RULE]           its JSON texts
 *     %text "WITHOUT" "UNLIKE" ["PLACE"] SCHEMA [%else RULE]   its strings, bare
 *     %gemma ["PLACE"] SCHEMA [%else RULE]                     its values as Gemma 4 writes them
 *     %any ( ["TEXT"] ITEM | ... ) [%else RULE]                what any of these items stands for
 *     %note "TEXT"                                             nothing
 *
 * PLACE stands before the JSON pointer in errors. With %else, a schema that cannot be followed is
 * followed without the keywords to blame (schema_loosen.h). RULE stands for what is malformed or
 * satisfied by no value even so, and for what exceeds a limit. These schemas share a part of the
 * limits, so that the rest of the grammar has its own. The items of %any have no %else of their
 * own: RULE stands for all of them if one cannot be followed, but one that no value satisfies is
 * only left out. In all but %json the named members of an object stand in any order, each once at
 * most, with the exceptions of leaf_object.c. %value and %text leave out texts that have WITHOUT: a
 * mark (json_text.h); of %text also any text, and "": none. %text leaves out texts that the
 * expression UNLIKE matches; "": none. %note says why the text of the grammar has no item for a
 * schema. */
#ifndef MOED_GRAMMAR_GBNF_SCHEMA_H
#define MOED_GRAMMAR_GBNF_SCHEMA_H

#include "base/error.h"
#include "base/strbuf.h"
#include "grammar/json_text.h"
#include "grammar/schema.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GBNF_TEXT_BYTES = 2048 };

enum schema_item_form { ITEM_JSON, ITEM_UNORDERED, ITEM_VALUE, ITEM_TEXT, ITEM_GEMMA, ITEM_FORMS };
extern const char *const schema_item_names[ITEM_FORMS]; /* with the % */

/* Texts are borrowed from the grammar's text. */
struct schema_item {
    enum schema_item_form form;
    const char *schema;
    size_t len;
    const char *options; /* WITHOUT and UNLIKE as they are written */
    size_t options_len;
    char place[GBNF_TEXT_BYTES];
    char without[GBNF_TEXT_BYTES]; /* ITEM_VALUE, ITEM_TEXT */
    char unlike[GBNF_TEXT_BYTES];  /* ITEM_TEXT */
};

enum { SCHEMA_ITEMS_MAX = 4 }; /* of %any */

/* A schema that has a rule: a later item with the same text has the same rule. */
struct known_schema {
    enum schema_item_form form;
    const char *schema, *options;
    size_t len, options_len;
    uint32_t rule;
};

enum { KNOWN_SCHEMAS = 512 };

/* Of ITEM_TEXT: what texts of one WITHOUT and UNLIKE share. */
enum { BARE_UNLIKE_BYTES = 256, BARE_PAIRS = 6 };
struct bare_rules {
    struct json_rules rules;
    bool known; /* the pair is */
    char without[JSON_MARK_MAX + 1], unlike[BARE_UNLIKE_BYTES];
};

/* Rules that are made at their first use. */
struct gbnf_rules {
    struct json_rules json, unordered, gemma, value;
    char value_without[JSON_MARK_MAX + 1];  /* of the last ITEM_VALUE */
    struct bare_rules bare[1 + BARE_PAIRS]; /* the last ones; the first one: without a mark */
    uint32_t bare_pairs;                    /* how many there were */
};

/* What the schemas of one grammar share. */
struct gbnf_schemas {
    const struct grammar_limits *limits;
    struct network *n;
    struct gbnf_rules rules;
    struct schema_steps steps, steps_with_else;
    struct known_schema *known; /* [n_known] */
    uint32_t n_known, known_capacity;
    uint32_t replaced; /* schemas that are not followed as they are */
    struct strbuf why; /* the errors of the first GRAMMAR_REPLACED_MAX, a line each */
};

/* marks [n_marks]: see compiled.h. */
void gbnf_schemas_init(struct gbnf_schemas *s, const struct grammar_limits *limits,
                       struct network *n, const char *const *marks, uint32_t n_marks);
void gbnf_schemas_fini(struct gbnf_schemas *s);

/* Counts a schema that is not followed as it is. */
void gbnf_schemas_note(struct gbnf_schemas *s, const char *why);
/* The rules of items [n] that are alternatives. other: the rule of %else; NETWORK_NONE: there is no
 * %else. *replaced: `other` stands for all items. With %else, rules[i] of an item that no value
 * satisfies is NETWORK_NONE. */
enum error_code schema_items_build(const struct schema_item *items, size_t n, uint32_t other,
                                   struct gbnf_schemas *s, uint32_t *rules, bool *replaced,
                                   struct error *e);

#endif
