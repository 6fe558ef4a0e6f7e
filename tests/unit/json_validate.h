/* Whether a value satisfies a JSON schema, by the definitions of JSON Schema 2020-12 one by one:
 * the keywords that the tests of tool calls use. An expression must mean the same to POSIX. */
#ifndef MOED_TESTS_JSON_VALIDATE_H
#define MOED_TESTS_JSON_VALIDATE_H

#include <jansson.h>
#include <math.h>
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static inline bool json_is_of_type(const json_t *v, const char *type)
{
    if (strcmp(type, "integer") == 0)
        return json_is_number(v) && floor(json_number_value(v)) == json_number_value(v);
    return (strcmp(type, "string") == 0 && json_is_string(v)) ||
           (strcmp(type, "number") == 0 && json_is_number(v)) ||
           (strcmp(type, "boolean") == 0 && json_is_boolean(v)) ||
           (strcmp(type, "null") == 0 && json_is_null(v)) ||
           (strcmp(type, "array") == 0 && json_is_array(v)) ||
           (strcmp(type, "object") == 0 && json_is_object(v));
}

static inline size_t json_code_points(const json_t *string)
{
    size_t n = 0;
    for (size_t i = 0; i < json_string_length(string); i++)
        n += ((unsigned char)json_string_value(string)[i] & 0xc0) != 0x80;
    return n;
}

static inline bool json_matches(const json_t *string, const char *expression)
{
    regex_t r;
    assert_int_equal(regcomp(&r, expression, REG_EXTENDED | REG_NOSUB), 0);
    bool matches = regexec(&r, json_string_value(string), 0, NULL, 0) == 0;
    regfree(&r);
    return matches;
}

static inline bool json_validate(const json_t *root, const json_t *schema, const json_t *v);

static inline size_t json_valid_branches(const json_t *root, const json_t *list, const json_t *v)
{
    size_t i, n = 0;
    json_t *branch;
    json_array_foreach(list, i, branch) n += json_validate(root, branch, v);
    return n;
}

static inline bool json_validate_object(const json_t *root, const json_t *schema, const json_t *v)
{
    const char *key;
    json_t *member, *name, *own, *others = json_object_get(schema, "additionalProperties");
    size_t i;
    json_array_foreach(json_object_get(schema, "required"), i, name)
    {
        if (!json_object_get(v, json_string_value(name)))
            return false;
    }
    json_object_foreach((json_t *)v, key, member)
    {
        own = json_object_get(json_object_get(schema, "properties"), key);
        own = own ? own : others;
        if (own && !json_validate(root, own, member))
            return false;
    }
    return true;
}

static inline bool json_validate_bounds(const json_t *schema, const char *least, const char *most,
                                        double value)
{
    const json_t *low = json_object_get(schema, least), *high = json_object_get(schema, most);
    return (!low || value >= json_number_value(low)) && (!high || value <= json_number_value(high));
}

static inline bool json_validate_string(const json_t *schema, const json_t *v)
{
    const json_t *pattern = json_object_get(schema, "pattern"),
                 *format = json_object_get(schema, "format");
    if (format)
        assert_string_equal(json_string_value(format), "date");
    return (!pattern || json_matches(v, json_string_value(pattern))) &&
           (!format || json_matches(v, "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$")) &&
           json_validate_bounds(schema, "minLength", "maxLength", (double)json_code_points(v));
}

static inline bool json_validate_array(const json_t *root, const json_t *schema, const json_t *v)
{
    const json_t *items = json_object_get(schema, "items");
    size_t i;
    json_t *element;
    json_array_foreach(v, i, element)
    {
        if (items && !json_validate(root, items, element))
            return false;
    }
    return json_validate_bounds(schema, "minItems", "maxItems", (double)json_array_size(v));
}

static inline bool json_validate_type(const json_t *type, const json_t *v)
{
    size_t i;
    json_t *name;
    if (!type)
        return true;
    if (json_is_string(type))
        return json_is_of_type(v, json_string_value(type));
    json_array_foreach(type, i, name)
    {
        if (json_is_of_type(v, json_string_value(name)))
            return true;
    }
    return false;
}

static inline bool json_validate_values(const json_t *schema, const json_t *v)
{
    const json_t *constant = json_object_get(schema, "const"),
                 *list = json_object_get(schema, "enum");
    size_t i;
    json_t *value;
    bool found = !list;
    json_array_foreach(list, i, value) found = found || json_equal(value, v);
    return found && (!constant || json_equal(constant, v));
}

/* Only "#/KEYWORD/NAME". */
static inline const json_t *json_resolve(const json_t *root, const json_t *ref)
{
    const char *keyword = json_string_value(ref) + 2, *name = strchr(keyword, '/') + 1;
    const json_t *found =
        json_object_get(json_object_getn(root, keyword, (size_t)(name - 1 - keyword)), name);
    assert_non_null(found);
    return found;
}

static inline bool json_validate(const json_t *root, const json_t *schema, const json_t *v)
{
    const json_t *ref = json_object_get(schema, "$ref"), *any = json_object_get(schema, "anyOf"),
                 *one = json_object_get(schema, "oneOf"), *all = json_object_get(schema, "allOf");
    if (json_is_boolean(schema))
        return json_is_true(schema);
    if (!json_validate_type(json_object_get(schema, "type"), v) || !json_validate_values(schema, v))
        return false;
    if ((ref && !json_validate(root, json_resolve(root, ref), v)) ||
        (any && json_valid_branches(root, any, v) == 0) ||
        (one && json_valid_branches(root, one, v) != 1) ||
        (all && json_valid_branches(root, all, v) != json_array_size(all)))
        return false;
    if (json_is_number(v))
        return json_validate_bounds(schema, "minimum", "maximum", json_number_value(v));
    if (json_is_string(v))
        return json_validate_string(schema, v);
    if (json_is_array(v))
        return json_validate_array(root, schema, v);
    return !json_is_object(v) || json_validate_object(root, schema, v);
}

#endif
