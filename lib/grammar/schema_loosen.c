/* See schema_loosen.h. */
#include "grammar/schema_loosen.h"

#include "base/word_list.h"
#include "grammar/decimal.h"
#include "grammar/leaf.h"
#include "grammar/regex.h"
#include "grammar/schema.h"
#include "grammar/schema_dialect.h"
#include "grammar/schema_nodes.h"

#include <stdio.h>
#include <string.h>

enum {
    GOOD_TEXTS = 64,
    PATTERN_STATES = 100000,   /* of all patterns; those beyond are removed */
    STEPS = SCHEMA_STEPS / 25, /* to try texts; those beyond stay as they are */
    ATTEMPTS = 64,             /* to compile the schema */
    ATTEMPTS_STEPS = SCHEMA_STEPS / 25,
    STATE_STEPS = 64, /* a state's share of an attempt, beside the steps that are counted */
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
    struct schema_nodes nodes;
    struct trial trial;
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
    static const char *const lists[] = {"anyOf", "allOf", "oneOf", NULL};
    static const char *const numbers[] = {
        "minLength",        "maxLength",        "minItems", "maxItems",
        "minProperties",    "maxProperties",    "minimum",  "maximum",
        "exclusiveMinimum", "exclusiveMaximum", NULL};
    const char *text = json_string_value(value);
    if (word_list_has(lists, key))
        return json_array_size(value) > 0;
    if (word_list_has(numbers, key))
        return json_is_number(value);
    if (strcmp(key, "multipleOf") == 0)
        return number_multiple_is_supported(value);
    if (strcmp(key, "required") == 0 || strcmp(key, "enum") == 0)
        return json_is_array(value);
    if (strcmp(key, "type") == 0)
        return type_is_known(value);
    if (strcmp(key, "pattern") == 0)
        return text && pattern_is_supported(l, text);
    if (strcmp(key, "format") == 0)
        return text && format_expression(text);
    return schema_keyword_is_supported(key, value, is_root);
}

static void note(struct loosening *l, const char *key)
{
    if (l->removed++ == 0)
        snprintf(l->keyword, SCHEMA_KEYWORD_BYTES, "%s", key);
}

static void remove_key(struct loosening *l, json_t *object, const char *key)
{
    note(l, key);
    json_object_del(object, key);
}

/* Without some of the first keyword's members the second one would speak of their values. */
static void remove_dependent(json_t *schema, const char *key)
{
    if (strcmp(key, "properties") == 0 || strcmp(key, "patternProperties") == 0)
        json_object_del(schema, "additionalProperties");
    else if (strcmp(key, "prefixItems") == 0)
        json_object_del(schema, "items");
}

/* ---- Limits ---- */

static const char *const of_texts[] = {"format", "maxLength", "minLength", "pattern"};

static const struct schema_source trial_source = {.place = SCHEMA_PLACE};

/* ERROR_LIMIT: the strings of a schema cannot be followed. They can, or it is not known: ERROR_OK.
 */
static enum error_code try_text(struct trial *t, json_t *schema)
{
    const struct schema_context c = {t->limits, &t->n, &t->rules, t->steps};
    struct network_extent before = network_extent(&t->n);
    struct json_rules rules_before = t->rules;
    uint32_t root;
    enum error_code error = schema_build_document(schema, &trial_source, &c, &root, NULL, NULL);
    if (!error)
        error = t->n.error;
    if (error) {
        network_withdraw(&t->n, before);
        t->rules = rules_before;
    } else if (json_array_size(t->good) < GOOD_TEXTS) {
        json_array_append(t->good, schema);
    }
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

/* What is no schema where one is expected: one that allows everything. */
static json_t *as_schema(struct loosening *l, const char *key, json_t *value)
{
    if (json_is_object(value) || json_is_boolean(value))
        return NULL;
    note(l, key);
    return json_true();
}

static void loosen_places(struct loosening *l, json_t *schema)
{
    static const char *const of_members[] = {"properties", "patternProperties"};
    static const char *const of_elements[] = {"anyOf", "allOf", "oneOf", "prefixItems"};
    static const char *const single[] = {"items", "additionalProperties", "propertyNames"};
    const char *key;
    json_t *value;
    size_t i, k;
    for (i = 0; i < sizeof of_members / sizeof *of_members; i++)
        json_object_foreach(json_object_get(schema, of_members[i]), key, value)
        {
            if (as_schema(l, of_members[i], value))
                json_object_set_new(json_object_get(schema, of_members[i]), key, json_true());
        }
    for (i = 0; i < sizeof of_elements / sizeof *of_elements; i++)
        json_array_foreach(json_object_get(schema, of_elements[i]), k, value)
        {
            if (as_schema(l, of_elements[i], value))
                json_array_set_new(json_object_get(schema, of_elements[i]), k, json_true());
        }
    for (i = 0; i < sizeof single / sizeof *single; i++)
        if ((value = json_object_get(schema, single[i])) && as_schema(l, single[i], value))
            json_object_set_new(schema, single[i], json_true());
}

/* Keys of patternProperties are patterns. */
static void loosen_keys(struct loosening *l, json_t *schema)
{
    const char *key;
    json_t *value, *patterns = json_object_get(schema, "patternProperties");
    void *next;
    json_object_foreach_safe(patterns, next, key, value)
    {
        if (!pattern_is_supported(l, key)) {
            remove_key(l, patterns, key);
            remove_dependent(schema, "patternProperties");
        }
    }
}

static void loosen_names(struct loosening *l, json_t *required)
{
    for (size_t i = json_array_size(required); i-- > 0;)
        if (!json_is_string(json_array_get(required, i))) {
            note(l, "required");
            json_array_remove(required, i);
        }
}

/* A oneOf is an anyOf, which is the same where its branches exclude each other. */
static void replace_one_of(json_t *schema)
{
    json_t *branches = json_object_get(schema, "oneOf"), *all = json_object_get(schema, "allOf");
    if (!branches)
        return;
    if (!json_object_get(schema, "anyOf"))
        json_object_set(schema, "anyOf", branches);
    else if (json_is_array(all))
        json_array_append_new(all, json_pack("{s:O}", "anyOf", branches));
    else
        json_object_set_new(schema, "allOf", json_pack("[{s:O}]", "anyOf", branches));
    json_object_del(schema, "oneOf");
}

/* Listed objects and arrays are not compared with keywords for their content. */
static void loosen_lists(struct loosening *l, json_t *schema)
{
    static const char *const content[] = {
        "properties",    "patternProperties", "required",      "additionalProperties",
        "propertyNames", "minProperties",     "maxProperties", "prefixItems",
        "items",         "minItems",          "maxItems"};
    json_t *value, *list = json_object_get(schema, "enum"), *one = json_object_get(schema, "const");
    bool found = json_is_object(one) || json_is_array(one);
    size_t i;
    json_array_foreach(list, i, value)
    {
        found = found || json_is_object(value) || json_is_array(value);
    }
    for (i = 0; i < sizeof content / sizeof *content && found; i++)
        if (json_object_get(schema, content[i]))
            remove_key(l, schema, content[i]);
}

static void loosen(struct loosening *l, json_t *schema)
{
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(schema, next, key, value)
    {
        if (!keyword_is_supported(l, key, value, schema == l->nodes.document))
            remove_key(l, schema, key);
    }
    loosen_places(l, schema);
    replace_one_of(schema);
    loosen_keys(l, schema);
    loosen_names(l, json_object_get(schema, "required"));
    loosen_lists(l, schema);
    remove_what_exceeds(l, schema);
}

static void loosen_nodes(struct loosening *l)
{
    struct schema_nodes *nodes = &l->nodes;
    size_t i;
    for (i = 0; i < nodes->n; i++)
        schema_modernise(nodes->list[i].schema, l->trial.limits->alternatives);
    for (i = 0; i < nodes->n; i++) {
        if (nodes->list[i].dangling)
            remove_key(l, nodes->list[i].schema, "$ref");
        loosen(l, nodes->list[i].schema);
    }
    for (i = 0; i < nodes->n; i++) {
        json_t *inner = schema_split_nullable(nodes->list[i].schema);
        if (!inner)
            continue;
        json_incref(inner);
        json_decref(nodes->list[i].schema); /* which the document has */
        nodes->list[i].schema = inner;
    }
    schema_nodes_mend(nodes);
}

/* ---- The whole ---- */

/* False: there is nothing to remove. */
static bool remove_blamed(struct loosening *l, const struct schema_blame *blame)
{
    static const char *const any[] = {
        "pattern",    "format",        "maxLength",     "minLength",
        "multipleOf", "maxProperties", "minProperties", "patternProperties",
        "anyOf",      "allOf",         "propertyNames", "maxItems",
        "minItems",   "properties",    "prefixItems",   "items",
        "enum",       "const",         "required",      "$ref"};
    json_t *schema = blame->schema;
    const char *key = blame->keyword;
    for (size_t i = 0; i < sizeof any / sizeof *any && !*key; i++)
        if (json_object_get(schema, any[i]))
            key = any[i];
    json_t *value = json_object_get(schema, key);
    if (!value)
        return false;
    remove_dependent(schema, key);
    if (strcmp(key, "minProperties") == 0 && json_is_number(value) &&
        json_number_value(value) > 1) {
        note(l, key);
        json_object_set_new(schema, key, json_integer(1)); /* that many can be counted */
    } else if (strcmp(key, "patternProperties") == 0 && json_object_size(value) > 1) {
        const char *pattern, *last = NULL;
        json_t *member;
        json_object_foreach(value, pattern, member)
        {
            last = pattern;
        }
        note(l, key);
        json_object_del(value, last);
    } else {
        remove_key(l, schema, key);
    }
    return true;
}

/* What is refused only because of something else in the schema: each time one keyword. */
static void remove_while_refused(struct loosening *l)
{
    const struct trial *t = &l->trial;
    bool again = json_is_object(l->nodes.document);
    for (unsigned i = 0; i < ATTEMPTS && again && t->steps->done <= t->steps->most; i++) {
        struct network n;
        struct json_rules rules;
        struct schema_blame blame = {0};
        const struct schema_context c = {t->limits, &n, &rules, t->steps};
        uint32_t root;
        network_init(&n, t->limits->states / 4 * 3);
        json_rules_init(&rules);
        enum error_code error =
            schema_build_document(l->nodes.document, &trial_source, &c, &root, &blame, NULL);
        t->steps->done += STATE_STEPS * (uint64_t)n.n_states;
        network_fini(&n);
        again = error && error != ERROR_MEMORY && t->steps->done <= t->steps->most &&
                blame.schema && remove_blamed(l, &blame);
    }
}

unsigned schema_loosen(json_t *schema, const struct grammar_limits *limits,
                       struct schema_steps *steps, char keyword[SCHEMA_KEYWORD_BYTES])
{
    struct schema_steps own = {.most = STEPS};
    struct loosening l = {.states_left = PATTERN_STATES, .keyword = keyword};
    l.trial = (struct trial){.limits = limits, .steps = steps ? steps : &own, .good = json_array()};
    network_init(&l.trial.n, limits->states / 4 * 3);
    json_rules_init(&l.trial.rules);
    keyword[0] = '\0';
    schema_nodes_init(&l.nodes, schema, l.trial.steps);
    loosen_nodes(&l);
    own.most += ATTEMPTS_STEPS;
    remove_while_refused(&l);
    schema_nodes_fini(&l.nodes);
    network_fini(&l.trial.n);
    json_decref(l.trial.good);
    return l.removed;
}
