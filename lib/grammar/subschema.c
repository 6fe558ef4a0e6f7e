/* Subschemas, goals and errors of the schema compiler; see subschema.h. */
#include "grammar/subschema.h"

#include "base/strbuf.h"
#include "base/word_list.h"
#include "grammar/schema_reference.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool id_list_add(struct id_list *l, uint32_t id)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (l->ids[i] == id)
            return true;
    if (l->n == l->capacity) {
        uint32_t capacity = l->capacity ? l->capacity * 2 : 8;
        uint32_t *larger = realloc(l->ids, capacity * sizeof *larger);
        if (!larger)
            return false;
        l->ids = larger;
        l->capacity = capacity;
    }
    l->ids[l->n++] = id;
    return true;
}

void id_list_fini(struct id_list *l)
{
    free(l->ids);
    *l = (struct id_list){0};
}

enum error_code schema_out_of_memory(struct schema *s)
{
    return error_set(s->error, ERROR_MEMORY, "out of memory for a schema");
}

enum error_code schema_work(struct schema *s, uint64_t steps)
{
    s->steps->done += steps;
    return s->steps->done > s->steps->most
               ? error_set(s->error, ERROR_LIMIT, "the schema takes too many steps to compile")
               : ERROR_OK;
}

/* -- Errors -- */

enum error_code schema_locate(struct schema *s, uint32_t node, const char *keyword)
{
    struct strbuf b;
    if (!s->error)
        return ERROR_INTERNAL;
    s->blame.schema = s->nodes[node];
    snprintf(s->blame.keyword, sizeof s->blame.keyword, "%s", keyword ? keyword : "");
    strbuf_init(&b);
    (void)schema_pointer(s->document, s->nodes[node], &b);
    if (keyword)
        schema_pointer_token(&b, keyword);
    strbuf_append(&b, "", 1); /* ends it where it was cut */
    enum error_code code = error_prefix(s->error, "%s%s\"", s->place, b.data ? b.data : "");
    strbuf_fini(&b);
    return code;
}

enum error_code schema_locate_in(struct schema *s, const struct id_list *nodes,
                                 const char *const *keywords)
{
    for (; *keywords; keywords++)
        for (uint32_t i = 0; i < nodes->n; i++)
            if (json_object_get(s->nodes[nodes->ids[i]], *keywords))
                return schema_locate(s, nodes->ids[i], *keywords);
    return schema_locate(s, nodes->ids[0], NULL);
}

static void fill_error(struct schema *s, enum error_code code, const char *format, va_list args)
{
    char text[256];
    vsnprintf(text, sizeof text, format, args);
    error_fill(s->error, code, "%s", text);
}

enum error_code schema_refuse(struct schema *s, enum error_code code, uint32_t node,
                              const char *keyword, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fill_error(s, code, format, args);
    va_end(args);
    (void)schema_locate(s, node, keyword);
    return error_same(code);
}

enum error_code schema_refuse_in(struct schema *s, enum error_code code,
                                 const struct id_list *nodes, const char *const *keywords,
                                 const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fill_error(s, code, format, args);
    va_end(args);
    (void)schema_locate_in(s, nodes, keywords);
    return error_same(code);
}

enum error_code schema_refuse_marks(struct schema *s, uint32_t node, const char *keyword)
{
    return schema_refuse(s, ERROR_UNSUPPORTED, node, keyword,
                         "a text that has %s or %s cannot be written in this format",
                         s->rules->quote, s->rules->without);
}

/* -- Keywords -- */

static const char *const keywords[] = {
    /* handled */
    "$ref", "allOf", "anyOf", "oneOf", "type", "enum", "const", "minimum", "maximum",
    "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern",
    "format", "prefixItems", "items", "minItems", "maxItems", "properties", "patternProperties",
    "additionalProperties", "propertyNames", "required", "minProperties", "maxProperties",
    /* without a meaning for validation */
    "$defs", "definitions", "title", "description", "default", "examples", "$comment", "deprecated",
    "readOnly", "writeOnly", "$schema", "$anchor", "$vocabulary", "contentEncoding",
    "contentMediaType", "contentSchema",
    /* of OpenAPI, also without one */
    "discriminator", "example", "externalDocs", "xml", NULL};

/* OpenAPI 3.0's nullable has a meaning beside a type. Beside these the specification leaves open
 * what it does. */
static const char *const not_beside_nullable[] = {"$ref", "allOf", "anyOf", "oneOf", "const"};

static bool is_known(const char *key)
{
    return word_list_has(keywords, key) || strncmp(key, "x-", 2) == 0;
}

/* A dialect of json-schema.org is read as 2020-12; others can give keywords other meanings. */
static bool is_dialect(const json_t *value)
{
    const char *uri = json_string_value(value);
    return uri && (strncmp(uri, "http://json-schema.org/", 23) == 0 ||
                   strncmp(uri, "https://json-schema.org/", 24) == 0);
}

bool schema_keyword_is_supported(const char *key, const json_t *value, bool is_root)
{
    if (strcmp(key, "$schema") == 0)
        return is_dialect(value);
    return is_known(key) || (strcmp(key, "uniqueItems") == 0 && json_is_false(value)) ||
           (strcmp(key, "nullable") == 0 && json_is_boolean(value)) ||
           (strcmp(key, "$id") == 0 && is_root);
}

bool schema_nullable_is_plain(const json_t *schema)
{
    for (size_t i = 0; i < sizeof not_beside_nullable / sizeof not_beside_nullable[0]; i++)
        if (json_object_get(schema, not_beside_nullable[i]))
            return false;
    return json_object_get(schema, "type");
}

static enum error_code check_keywords(struct schema *s, uint32_t node)
{
    const char *key;
    json_t *value;
    json_object_foreach(s->nodes[node], key, value)
    {
        if (schema_keyword_is_supported(key, value, s->nodes[node] == s->document))
            continue;
        return schema_refuse(s, ERROR_UNSUPPORTED, node, key,
                             strcmp(key, "$schema") == 0
                                 ? "only dialects of json-schema.org are supported"
                                 : "the keyword is not supported");
    }
    if (json_is_true(json_object_get(s->nodes[node], "nullable")) &&
        !schema_nullable_is_plain(s->nodes[node]))
        return schema_refuse(s, ERROR_UNSUPPORTED, node, "nullable",
                             "supported beside a type only, without $ref, allOf, anyOf, oneOf and "
                             "const; use anyOf with the type null");
    return ERROR_OK;
}

/* -- Subschemas -- */

enum error_code schema_node(struct schema *s, json_t *json, uint32_t *out)
{
    enum error_code error = schema_work(s, s->n_nodes);
    if (error)
        return error;
    for (uint32_t i = 0; i < s->n_nodes; i++)
        if (s->nodes[i] == json) {
            *out = i;
            return ERROR_OK;
        }
    if (s->n_nodes == s->nodes_capacity) {
        uint32_t capacity = s->nodes_capacity ? s->nodes_capacity * 2 : 32;
        json_t **larger = realloc(s->nodes, capacity * sizeof *larger);
        if (!larger)
            return schema_out_of_memory(s);
        s->nodes = larger;
        s->nodes_capacity = capacity;
    }
    s->nodes[s->n_nodes] = json;
    *out = s->n_nodes++;
    if (json_is_object(json))
        return check_keywords(s, *out);
    return json_is_boolean(json) ? ERROR_OK
                                 : schema_refuse(s, ERROR_USAGE, *out, NULL,
                                                 "a schema must be an object or a boolean");
}

/* -- Goals -- */

static int compare_ids(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static bool goal_has(const struct schema *s, const struct goal *g, const struct id_list *nodes)
{
    return g->count == nodes->n && (nodes->n == 0 || memcmp(s->goal_nodes.ids + g->from, nodes->ids,
                                                            nodes->n * sizeof *nodes->ids) == 0);
}

static enum error_code append_goal(struct schema *s, const struct id_list *nodes)
{
    struct id_list *all = &s->goal_nodes;
    if (s->n_goals == s->goals_capacity) {
        uint32_t capacity = s->goals_capacity ? s->goals_capacity * 2 : 32;
        struct goal *larger = realloc(s->goals, capacity * sizeof *larger);
        if (!larger)
            return schema_out_of_memory(s);
        s->goals = larger;
        s->goals_capacity = capacity;
    }
    if (all->capacity - all->n < nodes->n) {
        uint32_t capacity = all->capacity * 2 + nodes->n;
        uint32_t *larger = realloc(all->ids, capacity * sizeof *larger);
        if (!larger)
            return schema_out_of_memory(s);
        all->ids = larger;
        all->capacity = capacity;
    }
    if (nodes->n)
        memcpy(all->ids + all->n, nodes->ids, nodes->n * sizeof *nodes->ids);
    s->goals[s->n_goals++] = (struct goal){all->n, nodes->n, network_rule(s->n)};
    all->n += nodes->n;
    return network_error(s->n, s->error);
}

enum error_code schema_goal(struct schema *s, struct id_list *nodes, uint32_t *rule)
{
    enum error_code error = schema_work(s, s->n_goals);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < nodes->n; i++) /* `true` asks for nothing */
        if (!json_is_true(s->nodes[nodes->ids[i]]))
            nodes->ids[kept++] = nodes->ids[i];
    nodes->n = kept;
    if (nodes->n == 0) {
        *rule = json_rule(s->rules, s->n, JSON_RULE_VALUE);
        id_list_fini(nodes);
        return network_error(s->n, s->error);
    }
    qsort(nodes->ids, nodes->n, sizeof *nodes->ids, compare_ids);
    uint32_t i = 0;
    while (i < s->n_goals && !goal_has(s, &s->goals[i], nodes))
        i++;
    if (!error && i == s->n_goals)
        error = append_goal(s, nodes);
    if (!error)
        *rule = s->goals[i].rule;
    id_list_fini(nodes);
    return error;
}
