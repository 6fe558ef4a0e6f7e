/* See schema_loosen.h. */
#include "grammar/schema_loosen.h"

#include "grammar/leaf.h"
#include "grammar/regex.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATTERN_STATES = 100000 }; /* of all patterns; those beyond are removed */

struct loosening {
    const json_t *root;
    bool renamed; /* a oneOf */
    uint32_t states_left;
    unsigned removed;
    char *keyword; /* SCHEMA_KEYWORD_BYTES */
};

static bool pattern_is_supported(struct loosening *l, const char *pattern)
{
    struct network n;
    struct fragment part;
    struct error e;
    network_init(&n, l->states_left);
    bool good =
        regex_parse(pattern, strlen(pattern), &n, &part, &e) == ERROR_OK && n.error == ERROR_OK;
    l->states_left -= n.n_states;
    network_fini(&n);
    return good;
}

static bool keyword_is_supported(struct loosening *l, const char *key, const json_t *value,
                                 bool is_root)
{
    const char *text = json_string_value(value);
    if (strcmp(key, "pattern") == 0)
        return !text || pattern_is_supported(l, text);
    if (strcmp(key, "format") == 0)
        return !text || format_expression(text);
    return schema_keyword_is_supported(key, value, is_root);
}

static void remove_key(struct loosening *l, json_t *object, const char *key)
{
    if (l->removed++ == 0)
        snprintf(l->keyword, SCHEMA_KEYWORD_BYTES, "%s", key);
    json_object_del(object, key);
}

/* ---- Every subschema ---- */

typedef void visit_schema(struct loosening *l, json_t *schema);

static void walk(struct loosening *l, json_t *schema, visit_schema *visit);

static void walk_members(struct loosening *l, json_t *schemas, visit_schema *visit)
{
    const char *key;
    json_t *value;
    json_object_foreach(schemas, key, value)
    {
        walk(l, value, visit);
    }
}

static void walk_elements(struct loosening *l, json_t *schemas, visit_schema *visit)
{
    size_t i;
    json_t *value;
    json_array_foreach(schemas, i, value)
    {
        walk(l, value, visit);
    }
}

/* First the schema, then those in it. */
static void walk(struct loosening *l, json_t *schema, visit_schema *visit)
{
    static const char *const of_members[] = {"properties", "patternProperties", "$defs",
                                             "definitions"};
    static const char *const of_elements[] = {"anyOf", "allOf", "oneOf", "prefixItems"};
    static const char *const single[] = {"items", "additionalProperties", "propertyNames"};
    if (!json_is_object(schema))
        return;
    visit(l, schema);
    for (size_t i = 0; i < sizeof of_members / sizeof *of_members; i++)
        walk_members(l, json_object_get(schema, of_members[i]), visit);
    for (size_t i = 0; i < sizeof of_elements / sizeof *of_elements; i++)
        walk_elements(l, json_object_get(schema, of_elements[i]), visit);
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        walk(l, json_object_get(schema, single[i]), visit);
}

/* ---- What is changed ---- */

/* Keys of patternProperties are patterns. */
static void loosen_keys(struct loosening *l, json_t *patterns)
{
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(patterns, next, key, value)
    {
        if (!pattern_is_supported(l, key))
            remove_key(l, patterns, key);
    }
}

static void loosen(struct loosening *l, json_t *schema)
{
    const char *key;
    json_t *value, *branches = json_object_get(schema, "oneOf");
    void *next;
    if (json_is_array(branches) && !json_object_get(schema, "anyOf")) {
        json_object_set(schema, "anyOf", branches);
        json_object_del(schema, "oneOf");
        l->renamed = true;
    }
    json_object_foreach_safe(schema, next, key, value)
    {
        if (!keyword_is_supported(l, key, value, schema == l->root))
            remove_key(l, schema, key);
    }
    loosen_keys(l, json_object_get(schema, "patternProperties"));
}

/* A reference into a oneOf that is an anyOf now; one to another document is removed. */
static void mend_reference(struct loosening *l, json_t *schema)
{
    static const char before[] = "/oneOf/", now[] = "/anyOf/";
    const char *reference = json_string_value(json_object_get(schema, "$ref"));
    char *mended = reference ? strdup(reference) : NULL;
    if (!mended)
        return;
    for (char *at = mended; l->renamed && (at = strstr(at, before));)
        memcpy(at, now, sizeof now - 1);
    if (mended[0] != '#')
        remove_key(l, schema, "$ref");
    else if (l->renamed)
        json_object_set_new(schema, "$ref", json_string(mended));
    free(mended);
}

unsigned schema_loosen(json_t *schema, char keyword[SCHEMA_KEYWORD_BYTES])
{
    struct loosening l = {.root = schema, .states_left = PATTERN_STATES, .keyword = keyword};
    keyword[0] = '\0';
    walk(&l, schema, loosen);
    walk(&l, schema, mend_reference);
    return l.removed;
}
