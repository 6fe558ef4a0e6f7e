/* Filters that apply a test or a filter to each element; see filters.h. */
#include "jinja/filters.h"

#include "jinja/arguments.h"
#include "jinja/interpreter.h"

/* The arguments behind the first `used` ones. */
static struct arguments behind(const struct arguments *a, size_t used)
{
    struct arguments rest = *a;
    rest.items += used;
    rest.count -= used;
    return rest;
}

/* Keeps the elements of which the test (without one: truth) gives `wanted`. */
static struct value choose(struct run *r, struct value v, const struct arguments *a, bool attribute,
                           bool wanted)
{
    struct value result = value_sequence(r, SEQUENCE_GENERATOR, 0);
    size_t used = attribute;
    if (!value_truth(v))
        return result;
    if (a->count < used)
        run_refuse(r, "Missing parameter for attribute name");
    const struct text *test =
        a->count > used ? argument_text(r, a->items[used], "the test's name") : NULL;
    struct arguments rest = behind(a, used + (test != NULL));
    const struct sequence *s = value_elements(r, v);
    for (size_t i = 0; i < s->count; i++) {
        run_work(r, 1);
        struct value item = attribute ? path_get(r, s->items[i], a->items[0]) : s->items[i];
        bool holds = test ? call_test(r, test, item, &rest) : value_truth(item);
        if (holds == wanted)
            sequence_add(r, result.sequence, s->items[i]);
    }
    return result;
}

static struct value filter_select(struct run *r, struct value v, const struct arguments *a)
{
    return choose(r, v, a, false, true);
}

static struct value filter_reject(struct run *r, struct value v, const struct arguments *a)
{
    return choose(r, v, a, false, false);
}

static struct value filter_selectattr(struct run *r, struct value v, const struct arguments *a)
{
    return choose(r, v, a, true, true);
}

static struct value filter_rejectattr(struct run *r, struct value v, const struct arguments *a)
{
    return choose(r, v, a, true, false);
}

static const struct value *named(const struct arguments *a, const char *name)
{
    for (size_t i = 0; i < a->named_count; i++)
        if (text_is(a->named[i].name, name))
            return &a->named[i].value;
    return NULL;
}

/* map(attribute=..., default=...), or map("filter", arguments...) */
static struct value filter_map(struct run *r, struct value v, const struct arguments *a)
{
    struct value result = value_sequence(r, SEQUENCE_GENERATOR, 0);
    const struct value *attribute = a->count ? NULL : named(a, "attribute");
    const struct value *given = named(a, "default");
    struct value otherwise =
        given && given->kind != VALUE_NONE ? *given : (struct value){.kind = VALUE_MISSING};
    if (!value_truth(v))
        return result;
    if (!attribute && !a->count)
        run_refuse(r, "map requires a filter argument");
    if (attribute && a->named_count > 1u + (given != NULL))
        run_refuse(r, "Unexpected keyword argument of map");
    const struct text *filter =
        attribute ? NULL : argument_text(r, a->items[0], "the filter's name");
    struct arguments rest = behind(a, filter != NULL);
    const struct sequence *s = value_elements(r, v);
    for (size_t i = 0; i < s->count; i++) {
        run_work(r, 1);
        struct value item = s->items[i];
        item = attribute ? path_get_or(r, item, *attribute, otherwise)
                         : call_filter(r, filter, item, &rest);
        sequence_add(r, result.sequence, item);
    }
    return result;
}

const struct filter_entry filters_select[] = {
    {"select", filter_select},         {"reject", filter_reject}, {"selectattr", filter_selectattr},
    {"rejectattr", filter_rejectattr}, {"map", filter_map},       {NULL, NULL},
};
