/* Strips annotations: those of a large set of tools are most of its bytes. */
#include "toolcall/schema_strip.h"

#include <string.h>

static bool is_one_of(const char *const *list, const char *word)
{
    for (; *list; list++)
        if (strcmp(*list, word) == 0)
            return true;
    return false;
}

bool schema_is_annotation(const char *keyword)
{
    static const char *const names[] = {
        "title",    "description", "default",   "examples",     "example",
        "$comment", "readOnly",    "writeOnly", "externalDocs", "discriminator",
        "xml",      "deprecated",  NULL};
    return is_one_of(names, keyword) || strncmp(keyword, "x-", 2) == 0;
}

/* What a keyword's value is. */
enum content { CONTENT_OTHER, CONTENT_SCHEMA, CONTENT_LIST, CONTENT_MAP };

static enum content content_of(const char *keyword, const json_t *value)
{
    static const char *const maps[] = {"properties", "patternProperties", "$defs", "definitions",
                                       NULL};
    static const char *const lists[] = {"allOf", "anyOf", "oneOf", "prefixItems", NULL};
    static const char *const schemas[] = {"items", "additionalProperties", "propertyNames", NULL};
    if (json_is_object(value) && is_one_of(maps, keyword))
        return CONTENT_MAP;
    if (json_is_object(value) && is_one_of(schemas, keyword))
        return CONTENT_SCHEMA;
    return json_is_array(value) && is_one_of(lists, keyword) ? CONTENT_LIST : CONTENT_OTHER;
}

static json_t *strip_list(const json_t *list)
{
    size_t i;
    json_t *schema, *out = json_array();
    json_array_foreach(list, i, schema)
    {
        if (out && json_array_append_new(out, schema_strip(schema))) {
            json_decref(out);
            out = NULL;
        }
    }
    return out;
}

static json_t *strip_map(const json_t *map)
{
    const char *key;
    json_t *schema, *out = json_object();
    json_object_foreach((json_t *)map, key, schema)
    {
        if (out && json_object_set_new(out, key, schema_strip(schema))) {
            json_decref(out);
            out = NULL;
        }
    }
    return out;
}

static json_t *strip_value(const char *keyword, json_t *value)
{
    switch (content_of(keyword, value)) {
    case CONTENT_SCHEMA:
        return schema_strip(value);
    case CONTENT_LIST:
        return strip_list(value);
    case CONTENT_MAP:
        return strip_map(value);
    default:
        return json_incref(value);
    }
}

json_t *schema_strip(const json_t *schema)
{
    const char *key;
    json_t *value, *out;
    if (!json_is_object(schema))
        return json_incref((json_t *)schema);
    out = json_object();
    json_object_foreach((json_t *)schema, key, value)
    {
        if (!out || schema_is_annotation(key))
            continue;
        if (json_object_set_new(out, key, strip_value(key, value))) {
            json_decref(out);
            out = NULL;
        }
    }
    return out;
}
