/* Combines the keywords of a leaf; see leaf.h. */
#include "grammar/leaf.h"

#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BEYOND 1e200 /* numbers that are written are smaller */

static const struct {
    const char *name;
    unsigned types;
} type_names[] = {{"null", TYPE_NULL},     {"boolean", TYPE_BOOLEAN}, {"integer", TYPE_INTEGER},
                  {"number", TYPE_NUMBER}, {"string", TYPE_STRING},   {"array", TYPE_ARRAY},
                  {"object", TYPE_OBJECT}};

static unsigned named_type(const json_t *name)
{
    const char *text = json_string_value(name);
    for (size_t i = 0; text && i < sizeof type_names / sizeof type_names[0]; i++)
        if (strcmp(type_names[i].name, text) == 0)
            return type_names[i].types;
    return 0;
}

/* Of a name or a list of names; 0: one of them is unknown, or there is none. */
static unsigned named_types(const json_t *type)
{
    unsigned types = named_type(type);
    size_t i;
    json_t *name;
    json_array_foreach(type, i, name)
    {
        if (!named_type(name))
            return 0;
        types |= named_type(name);
    }
    return types;
}

bool type_is_known(const json_t *type)
{
    return named_types(type) != 0;
}

static unsigned type_of(const json_t *value)
{
    struct decimal d;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return TYPE_OBJECT;
    case JSON_ARRAY:
        return TYPE_ARRAY;
    case JSON_STRING:
        return TYPE_STRING;
    case JSON_INTEGER:
        return TYPE_INTEGER;
    case JSON_REAL:
        return decimal_from_json(value, &d) && !decimal_is_integer(&d) ? TYPE_FRACTION
                                                                       : TYPE_INTEGER;
    case JSON_NULL:
        return TYPE_NULL;
    default:
        return TYPE_BOOLEAN;
    }
}

/* OpenAPI 3.0; subschema.c refuses it where it says more than that. */
static bool is_nullable(const struct leaf *l, uint32_t node)
{
    return json_is_true(json_object_get(l->s->nodes[node], "nullable"));
}

static enum error_code add_type(struct leaf *l, uint32_t node, json_t *value)
{
    unsigned types = named_types(value);
    if (!types)
        return schema_refuse(l->s, ERROR_USAGE, node, "type", "%s",
                             json_array_size(value) ? "an unknown type in the list"
                                                    : "must be a type or a list of types");
    l->types &= is_nullable(l, node) ? types | TYPE_NULL : types;
    return ERROR_OK;
}

static bool values_equal(const json_t *a, const json_t *b)
{
    struct decimal x, y;
    if (!json_is_number(a) || !json_is_number(b))
        return json_equal(a, b);
    return decimal_from_json(a, &x) && decimal_from_json(b, &y) && decimal_compare(&x, &y) == 0;
}

static bool list_has(json_t *const *list, size_t n, const json_t *value)
{
    for (size_t i = 0; i < n; i++)
        if (values_equal(list[i], value))
            return true;
    return false;
}

bool leaf_lists(const struct leaf *l, const json_t *value)
{
    return list_has(l->values, l->n_values, value);
}

static enum error_code add_values(struct leaf *l, json_t *const *values, size_t n)
{
    if (!l->has_values) {
        l->values = malloc((n + 1) * sizeof *l->values);
        if (!l->values)
            return schema_out_of_memory(l->s);
        if (n)
            memcpy(l->values, values, n * sizeof *values);
        l->n_values = n;
        l->has_values = true;
        return ERROR_OK;
    }
    size_t kept = 0;
    enum error_code error = schema_work(l->s, COMPARISON_STEPS * (uint64_t)n * l->n_values);
    for (size_t i = 0; i < l->n_values && !error; i++)
        if (list_has(values, n, l->values[i]))
            l->values[kept++] = l->values[i];
    l->n_values = kept;
    return error;
}

static enum error_code add_enum(struct leaf *l, uint32_t node, json_t *value)
{
    size_t n = json_array_size(value);
    if (!json_is_array(value))
        return schema_refuse(l->s, ERROR_USAGE, node, "enum", "must be an array");
    json_t **list = malloc((n + 1) * sizeof *list);
    if (!list)
        return schema_out_of_memory(l->s);
    for (size_t i = 0; i < n; i++)
        list[i] = json_array_get(value, i);
    if (is_nullable(l, node) && !list_has(list, n, json_null()))
        list[n++] = json_null();
    enum error_code error = add_values(l, list, n);
    free(list);
    return error;
}

static enum error_code read_count(struct leaf *l, uint32_t node, const char *keyword,
                                  const json_t *value, uint32_t *out)
{
    double count = json_is_number(value) ? json_number_value(value) : -1;
    if (count < 0 || count != floor(count))
        return schema_refuse(l->s, ERROR_USAGE, node, keyword, "must be a non-negative integer");
    *out = count < 4e9 ? (uint32_t)count : 4000000000u;
    return ERROR_OK;
}

static enum error_code add_count(struct leaf *l, uint32_t node, const char *keyword,
                                 const json_t *value)
{
    uint32_t count = 0;
    const struct {
        const char *name;
        uint32_t *least, *most;
    } counts[] = {
        {"minLength", &l->length.min, NULL},      {"maxLength", NULL, &l->length.max},
        {"minItems", &l->items.min, NULL},        {"maxItems", NULL, &l->items.max},
        {"minProperties", &l->members.min, NULL}, {"maxProperties", NULL, &l->members.max}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        if (strcmp(counts[i].name, keyword) != 0)
            continue;
        enum error_code error = read_count(l, node, keyword, value, &count);
        if (error)
            return error;
        if (counts[i].least && count > *counts[i].least)
            *counts[i].least = count;
        if (counts[i].most && count < *counts[i].most)
            *counts[i].most = count;
    }
    return ERROR_OK;
}

static void add_low(struct number_range *r, const struct decimal *d, bool open)
{
    int order = r->has_low ? decimal_compare(d, &r->low) : 1;
    if (order > 0 || (order == 0 && open)) {
        r->low = *d;
        r->low_open = open;
    }
    r->has_low = true;
}

static void add_high(struct number_range *r, const struct decimal *d, bool open)
{
    int order = r->has_high ? decimal_compare(d, &r->high) : -1;
    if (order < 0 || (order == 0 && open)) {
        r->high = *d;
        r->high_open = open;
    }
    r->has_high = true;
}

/* A limit of doubles, such as 1.797e308: no number that is written lies beyond it. */
static bool bound_is_beyond(const char *keyword, const json_t *value)
{
    double bound = json_number_value(value);
    return strstr(keyword, "inimum") ? bound < -BEYOND
                                     : strstr(keyword, "aximum") && bound > BEYOND;
}

static enum error_code add_bound(struct leaf *l, uint32_t node, const char *keyword,
                                 const json_t *value)
{
    struct decimal d;
    bool open = strncmp(keyword, "exclusive", 9) == 0;
    if (!json_is_number(value))
        return schema_refuse(l->s, ERROR_USAGE, node, keyword, "must be a number");
    if (bound_is_beyond(keyword, value))
        return ERROR_OK;
    if (!decimal_from_json(value, &d))
        return schema_refuse(l->s, ERROR_UNSUPPORTED, node, keyword,
                             "numbers of more than %d digits are not supported", DECIMAL_DIGITS);
    if (strcmp(keyword, "multipleOf") == 0)
        return number_range_multiple(&l->range, &d)
                   ? ERROR_OK
                   : schema_refuse(l->s, ERROR_UNSUPPORTED, node, keyword,
                                   "must be positive, with at most 9 digits");
    if (strstr(keyword, "inimum"))
        add_low(&l->range, &d, open);
    else
        add_high(&l->range, &d, open);
    return ERROR_OK;
}

static enum error_code add_keyword(struct leaf *l, uint32_t node, const char *keyword,
                                   json_t *value)
{
    static const char *const bounds[] = {"minimum", "maximum", "exclusiveMinimum",
                                         "exclusiveMaximum", "multipleOf"};
    if (strcmp(keyword, "type") == 0)
        return add_type(l, node, value);
    if (strcmp(keyword, "enum") == 0)
        return add_enum(l, node, value);
    if (strcmp(keyword, "const") == 0)
        return add_values(l, &value, 1);
    if (strcmp(keyword, "pattern") == 0 || strcmp(keyword, "format") == 0)
        l->has_text = true;
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++)
        if (strcmp(bounds[i], keyword) == 0)
            return add_bound(l, node, keyword, value);
    return add_count(l, node, keyword, value);
}

static bool has_keyword(const struct leaf *l, const char *const *names)
{
    for (uint32_t i = 0; i < l->nodes->n; i++)
        for (const char *const *name = names; *name; name++)
            if (json_object_get(l->s->nodes[l->nodes->ids[i]], *name))
                return true;
    return false;
}

bool leaf_has_bounds(const struct leaf *l)
{
    return l->range.has_low || l->range.has_high || l->range.step;
}

static bool has_length(const struct leaf *l, const json_t *text)
{
    uint32_t length = 0;
    for (size_t i = 0; i < json_string_length(text); i++)
        length += !utf8_continues(json_string_value(text)[i]);
    return bounds_have(l->length, length);
}

/* Of the listed values those that satisfy the other keywords. */
static enum error_code filter_values(struct leaf *l)
{
    static const char *const of_objects[] = {
        "properties",    "patternProperties", "required",      "additionalProperties",
        "propertyNames", "minProperties",     "maxProperties", NULL};
    static const char *const of_arrays[] = {"items", "prefixItems", "minItems", "maxItems", NULL};
    bool objects = has_keyword(l, of_objects), arrays = has_keyword(l, of_arrays);
    bool texts = l->has_text;
    struct dfa text;
    size_t kept = 0;
    enum error_code error = ERROR_OK;
    dfa_init(&text, l->s->limits->dfa_states);
    if (texts && l->types & TYPE_STRING) {
        l->has_values = false;
        error = leaf_form(l, &text);
        l->has_values = true;
    }
    for (size_t i = 0; i < l->n_values && !error; i++) {
        json_t *value = l->values[i];
        struct decimal d;
        if (!(type_of(value) & l->types))
            continue;
        if ((json_is_object(value) && objects) || (json_is_array(value) && arrays))
            error = schema_refuse_in(l->s, ERROR_UNSUPPORTED, l->nodes,
                                     json_is_object(value) ? of_objects : of_arrays,
                                     "enum or const with objects or arrays, together with keywords "
                                     "for their content, is not supported");
        if (json_is_string(value) && texts &&
            !dfa_matches(&text, json_string_value(value), json_string_length(value)))
            continue;
        if (json_is_string(value) && !has_length(l, value))
            continue;
        if (json_is_number(value) && leaf_has_bounds(l) &&
            !(decimal_from_json(value, &d) && number_range_has(&l->range, &d)))
            continue;
        l->values[kept++] = value;
    }
    l->n_values = kept;
    dfa_fini(&text);
    return error;
}

enum error_code leaf_init(struct schema *s, const struct id_list *nodes, struct leaf *out)
{
    enum error_code error = ERROR_OK;
    *out = (struct leaf){.s = s,
                         .nodes = nodes,
                         .types = TYPE_ALL,
                         .length = bounds_any(),
                         .items = bounds_any(),
                         .members = bounds_any()};
    for (uint32_t i = 0; i < nodes->n && !error; i++) {
        const char *key;
        json_t *value;
        json_object_foreach(s->nodes[nodes->ids[i]], key, value)
        {
            if (!error)
                error = add_keyword(out, nodes->ids[i], key, value);
        }
    }
    out->range.integer = !(out->types & TYPE_FRACTION);
    if (!error && out->has_values)
        error = filter_values(out);
    if (error)
        leaf_fini(out);
    return error;
}

void leaf_fini(struct leaf *l)
{
    free(l->values);
    l->values = NULL;
}
