/* See schema_loosen.h. */
#include "grammar/schema_loosen.h"

#include "grammar/leaf.h"
#include "grammar/regex.h"
#include "grammar/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GOOD_TEXTS = 64,
    PATTERN_STATES = 100000,   /* of all patterns; those beyond are removed */
    STEPS = SCHEMA_STEPS / 25, /* to try texts; those beyond stay as they are */
};

/* Strings with a pattern or format, built to see whether they exceed a limit. */
struct trial {
    const struct grammar_limits *limits;
    struct network n;
    struct json_rules rules;
    struct schema_steps *steps;
    json_t *good; /* an array of those that do not; [GOOD_TEXTS] */
};

struct loosening {
    const json_t *root;
    struct trial trial;
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

/* ---- Limits ---- */

static const char *const of_texts[] = {"format", "maxLength", "minLength", "pattern"};

/* ERROR_LIMIT: the strings of a schema cannot be followed. They can, or it is not known: ERROR_OK.
 */
static enum error_code try_text(struct trial *t, json_t *schema)
{
    char *text = json_dumps(schema, JSON_COMPACT);
    if (!text)
        return ERROR_OK;
    const struct schema_source source = {.text = text, .len = strlen(text), .place = SCHEMA_PLACE};
    const struct schema_context c = {t->limits, &t->n, &t->rules, t->steps};
    struct network_extent before = network_extent(&t->n);
    struct json_rules rules_before = t->rules;
    uint32_t root;
    enum error_code error = schema_build(&source, &c, &root, NULL);
    if (!error)
        error = t->n.error;
    if (error) {
        network_withdraw(&t->n, before);
        t->rules = rules_before;
    } else if (json_array_size(t->good) < GOOD_TEXTS) {
        json_array_append(t->good, schema);
    }
    free(text);
    return error == ERROR_LIMIT && t->steps->done <= t->steps->most ? error : ERROR_OK;
}

static bool text_exceeds(struct trial *t, const json_t *schema)
{
    size_t i;
    json_t *known, *text = json_pack("{s:s}", "type", "string");
    bool exceeds = false, is_known = false;
    for (i = 0; i < sizeof of_texts / sizeof *of_texts; i++)
        if (json_object_get(schema, of_texts[i]))
            json_object_set(text, of_texts[i], json_object_get(schema, of_texts[i]));
    json_array_foreach(t->good, i, known)
    {
        is_known = is_known || json_equal(known, text);
    }
    if (text && !is_known)
        exceeds = try_text(t, text) == ERROR_LIMIT;
    json_decref(text);
    return exceeds;
}

/* First the lengths, then the pattern, until it does not; a format alone never exceeds a limit. */
static void remove_what_exceeds(struct loosening *l, json_t *schema)
{
    if (!json_object_get(schema, "pattern") && !json_object_get(schema, "format"))
        return;
    for (size_t i = 1; i < sizeof of_texts / sizeof *of_texts; i++) {
        if (!json_object_get(schema, of_texts[i]))
            continue;
        if (!text_exceeds(&l->trial, schema))
            return;
        remove_key(l, schema, of_texts[i]);
    }
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
    remove_what_exceeds(l, schema);
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

unsigned schema_loosen(json_t *schema, const struct grammar_limits *limits,
                       struct schema_steps *steps, char keyword[SCHEMA_KEYWORD_BYTES])
{
    struct schema_steps own = {.most = STEPS};
    struct loosening l = {.root = schema, .states_left = PATTERN_STATES, .keyword = keyword};
    l.trial = (struct trial){.limits = limits, .steps = steps ? steps : &own, .good = json_array()};
    network_init(&l.trial.n, limits->states / 4 * 3);
    json_rules_init(&l.trial.rules);
    keyword[0] = '\0';
    walk(&l, schema, loosen);
    walk(&l, schema, mend_reference);
    network_fini(&l.trial.n);
    json_decref(l.trial.good);
    return l.removed;
}
