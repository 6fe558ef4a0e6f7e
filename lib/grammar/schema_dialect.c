/* See schema_dialect.h. */
#include "grammar/schema_dialect.h"

#include "base/word_list.h"
#include "grammar/subschema.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static void drop_nulls(json_t *schema)
{
    static const char *const values[] = {"const", "default", "example", NULL};
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(schema, next, key, value)
    {
        if (json_is_null(value) && !word_list_has(values, key))
            json_object_del(schema, key);
    }
}

/* ---- Types ---- */

enum { TYPE_BYTES = 16 };

static json_t *lowered(const json_t *name)
{
    char text[TYPE_BYTES] = "";
    const char *from = json_string_value(name);
    for (size_t i = 0; i < json_string_length(name) && i + 1 < TYPE_BYTES; i++)
        text[i] = (char)tolower((unsigned char)from[i]);
    return json_string(text);
}

static bool is_any(const json_t *name)
{
    const char *text = json_string_value(name);
    return text && (strcmp(text, "any") == 0 || strcmp(text, "ANY") == 0);
}

static void rewrite_type(json_t *schema)
{
    json_t *type = json_object_get(schema, "type"), *name;
    bool any = is_any(type);
    size_t i;
    json_array_foreach(type, i, name)
    {
        any = any || is_any(name);
        if (json_is_string(name) && json_string_length(name) < TYPE_BYTES)
            json_array_set_new(type, i, lowered(name));
    }
    if (any)
        json_object_del(schema, "type");
    else if (json_is_string(type) && json_string_length(type) < TYPE_BYTES)
        json_object_set_new(schema, "type", lowered(type));
}

/* ---- Arrays and numbers ---- */

static void rewrite_items(json_t *schema)
{
    json_t *items = json_object_get(schema, "items");
    json_t *others = json_object_get(schema, "additionalItems");
    if (json_is_array(items) && !json_object_get(schema, "prefixItems")) {
        json_object_set(schema, "prefixItems", items);
        json_object_del(schema, "items");
        if (others)
            json_object_set(schema, "items", others);
    }
    json_object_del(schema, "additionalItems"); /* says nothing beside a schema */
}

/* exclusive: a boolean of draft 4. */
static void rewrite_bound(json_t *schema, const char *bound, const char *exclusive)
{
    json_t *flag = json_object_get(schema, exclusive), *value = json_object_get(schema, bound);
    if (!json_is_boolean(flag))
        return;
    if (json_is_true(flag) && value) {
        json_object_set(schema, exclusive, value);
        json_object_del(schema, bound);
    } else {
        json_object_del(schema, exclusive);
    }
}

static void rewrite_counts(json_t *schema)
{
    static const char *const counts[] = {"minItems",  "maxItems",      "minLength",
                                         "maxLength", "minProperties", "maxProperties"};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        const char *text = json_string_value(json_object_get(schema, counts[i]));
        size_t n = text ? strlen(text) : 0;
        if (n > 0 && n < 19 && strspn(text, "0123456789") == n)
            json_object_set_new(schema, counts[i], json_integer(strtoll(text, NULL, 10)));
    }
}

/* ---- Literals ---- */

static bool has_type(const json_t *value, const json_t *type)
{
    const char *name = json_string_value(type);
    return !type || (name && ((strcmp(name, "string") == 0 && json_is_string(value)) ||
                              (strcmp(name, "integer") == 0 && json_is_integer(value)) ||
                              (strcmp(name, "number") == 0 && json_is_number(value))));
}

/* Appends what a branch lists. False: it asks for something else, too. */
static bool add_literals(const json_t *branch, json_t *out)
{
    static const char *const known[] = {"const",       "enum",    "type",       "title",
                                        "description", "default", "deprecated", NULL};
    json_t *value, *list = json_object_get(branch, "enum"), *one = json_object_get(branch, "const");
    const char *key;
    size_t i, before = json_array_size(out);
    json_object_foreach((json_t *)branch, key, value)
    {
        if (!word_list_has(known, key))
            return false;
    }
    if (!list == !one)
        return false;
    if (one)
        json_array_append(out, one);
    json_array_extend(out, list);
    for (i = before; i < json_array_size(out); i++)
        if (!has_type(json_array_get(out, i), json_object_get(branch, "type")))
            return false;
    return true;
}

static void join_literals(json_t *schema, const char *keyword, uint32_t most)
{
    json_t *branch, *branches = json_object_get(schema, keyword);
    size_t i;
    if (json_array_size(branches) <= most || json_object_get(schema, "enum"))
        return;
    json_t *all = json_array();
    bool literal = all != NULL;
    json_array_foreach(branches, i, branch)
    {
        literal = literal && add_literals(branch, all);
    }
    if (literal && json_object_set(schema, "enum", all) == 0)
        json_object_del(schema, keyword);
    json_decref(all);
}

void schema_modernise(json_t *schema, uint32_t most)
{
    drop_nulls(schema);
    rewrite_type(schema);
    rewrite_items(schema);
    rewrite_bound(schema, "minimum", "exclusiveMinimum");
    rewrite_bound(schema, "maximum", "exclusiveMaximum");
    rewrite_counts(schema);
    join_literals(schema, "anyOf", most);
    join_literals(schema, "oneOf", most);
}

/* ---- Nullable ---- */

json_t *schema_split_nullable(json_t *schema)
{
    static const char *const outside[] = {"$defs",   "definitions", "$schema",     "$id",
                                          "$anchor", "nullable",    "$vocabulary", NULL};
    static const char *const of_null[] = {"type",  "enum",  "const", "$ref",
                                          "allOf", "anyOf", "oneOf"};
    const char *key;
    json_t *value, *inner;
    void *next;
    bool binds = false;
    if (!json_is_true(json_object_get(schema, "nullable")) || schema_nullable_is_plain(schema))
        return NULL;
    for (size_t i = 0; i < sizeof of_null / sizeof of_null[0]; i++)
        binds = binds || json_object_get(schema, of_null[i]);
    json_object_del(schema, "nullable");
    inner = binds ? json_object() : NULL; /* else null is allowed anyway */
    json_t *branches = inner ? json_pack("[O,{s:s}]", inner, "type", "null") : NULL;
    json_object_foreach_safe(schema, next, key, value)
    {
        if (!branches || word_list_has(outside, key))
            continue;
        json_object_set(inner, key, value);
        json_object_del(schema, key);
    }
    if (branches)
        json_object_set_new(schema, "anyOf", branches);
    json_decref(inner); /* the array has it */
    return branches ? inner : NULL;
}
