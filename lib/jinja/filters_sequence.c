/* Filters of lists, dicts and other sequences; see filters.h. */
#include "jinja/filters.h"

#include "jinja/arguments.h"
#include "jinja/interpreter.h"
#include "jinja/methods.h"

#include <string.h>

#define NAMES(...) ((const char *const[]){__VA_ARGS__})

static struct value filter_length(struct run *r, struct value v, const struct arguments *a)
{
    size_t length;
    arguments_bind(r, "length", a, NULL, 0, 0, NULL);
    if (!value_length(v, &length))
        run_refuse(r, "object of type '%s' has no len()", value_type_name(v));
    return value_int((int64_t)length);
}

static struct value filter_default(struct run *r, struct value v, const struct arguments *a)
{
    struct value argument[2];
    arguments_bind(r, "default", a, NAMES("default_value", "boolean"), 2, 0, argument);
    bool absent = v.kind == VALUE_UNDEFINED || (value_truth(argument[1]) && !value_truth(v));
    if (!absent)
        return v;
    return argument[0].kind == VALUE_MISSING ? value_string(r, "") : argument[0];
}

static struct value filter_first(struct run *r, struct value v, const struct arguments *a)
{
    arguments_bind(r, "first", a, NULL, 0, 0, NULL);
    if (v.kind == VALUE_SEQUENCE && v.sequence->kind == SEQUENCE_GENERATOR &&
        v.sequence->taken < v.sequence->count)
        return v.sequence->items[v.sequence->taken++];
    const struct sequence *s = value_elements(r, v);
    return s->count ? s->items[0] : value_undefined(r, "No first item, sequence was empty.");
}

static void require_reversible(struct run *r, struct value v)
{
    if (!value_is_iterable(v) ||
        (v.kind == VALUE_SEQUENCE && v.sequence->kind == SEQUENCE_GENERATOR))
        run_refuse(r, "'%s' object is not reversible", value_type_name(v));
}

static struct value filter_last(struct run *r, struct value v, const struct arguments *a)
{
    arguments_bind(r, "last", a, NULL, 0, 0, NULL);
    if (v.kind != VALUE_UNDEFINED)
        require_reversible(r, v);
    const struct sequence *s = value_elements(r, v);
    return s->count ? s->items[s->count - 1]
                    : value_undefined(r, "No last item, sequence was empty.");
}

static struct value copy_elements(struct run *r, struct value v, enum sequence_kind kind)
{
    const struct sequence *s = value_elements(r, v);
    struct value copy = value_sequence(r, kind, s->count);
    run_work(r, s->count / 8);
    for (size_t i = 0; i < s->count; i++)
        sequence_add(r, copy.sequence, s->items[i]);
    return copy;
}

static struct value filter_list(struct run *r, struct value v, const struct arguments *a)
{
    arguments_bind(r, "list", a, NULL, 0, 0, NULL);
    return copy_elements(r, v, SEQUENCE_LIST);
}

static struct value filter_reverse(struct run *r, struct value v, const struct arguments *a)
{
    arguments_bind(r, "reverse", a, NULL, 0, 0, NULL);
    bool generator = v.kind == VALUE_SEQUENCE && v.sequence->kind == SEQUENCE_GENERATOR;
    if (v.kind == VALUE_STRING)
        return slice_get(r, v, (struct value[]){value_none(), value_none(), value_int(-1)});
    struct value copy = copy_elements(r, v, generator ? SEQUENCE_LIST : SEQUENCE_GENERATOR);
    struct sequence *s = copy.sequence;
    for (size_t i = 0; i < s->count / 2; i++) {
        struct value item = s->items[i];
        s->items[i] = s->items[s->count - 1 - i];
        s->items[s->count - 1 - i] = item;
    }
    return copy;
}

static struct value filter_items(struct run *r, struct value v, const struct arguments *a)
{
    arguments_bind(r, "items", a, NULL, 0, 0, NULL);
    if (v.kind == VALUE_UNDEFINED)
        return value_sequence(r, SEQUENCE_GENERATOR, 0);
    if (v.kind != VALUE_DICT)
        run_refuse(r, "Can only get item pairs from a mapping.");
    return dict_view(r, v.dict, SEQUENCE_GENERATOR);
}

/* No key of a dict. */
static struct value filter_attr(struct run *r, struct value v, const struct arguments *a)
{
    struct value argument;
    arguments_bind(r, "attr", a, NAMES("name"), 1, 1, &argument);
    const struct text *name = argument_text(r, argument, "attr's name");
    if (v.kind == VALUE_DICT && !method_find(v, name))
        return value_undefined(r, "'dict object' has no attribute '%.*s'", (int)name->len,
                               name->data);
    return attribute_get(r, v, name);
}

static struct value filter_join(struct run *r, struct value v, const struct arguments *a)
{
    struct value argument[2];
    struct text_builder b;
    arguments_bind(r, "join", a, NAMES("d", "attribute"), 2, 0, argument);
    const struct text *between =
        argument[0].kind == VALUE_MISSING ? text_from(r, "") : value_to_text(r, argument[0]);
    const struct sequence *s = value_elements(r, v);
    builder_init(&b, r);
    for (size_t i = 0; i < s->count; i++) {
        run_work(r, 1);
        if (i)
            builder_add_text(&b, between);
        value_print(&b, path_get(r, s->items[i], argument[1]));
    }
    return value_text(builder_text(&b));
}

static struct value filter_sum(struct run *r, struct value v, const struct arguments *a)
{
    struct value argument[2];
    arguments_bind(r, "sum", a, NAMES("attribute", "start"), 2, 0, argument);
    struct value sum = argument[1].kind == VALUE_MISSING ? value_int(0) : argument[1];
    if (sum.kind == VALUE_STRING)
        run_refuse(r, "sum() can't sum strings [use ''.join(seq) instead]");
    const struct sequence *s = value_elements(r, v);
    for (size_t i = 0; i < s->count; i++) {
        run_work(r, 1);
        sum = binary(r, '+', sum, path_get(r, s->items[i], argument[0]));
    }
    return sum;
}

/* ---- Order ---- */

struct keyed {
    struct value key, item;
};

/* Lower case, unless upper and lower differ for the caller. */
static struct value sort_key(struct run *r, struct value v, bool case_sensitive)
{
    if (v.kind != VALUE_STRING || case_sensitive)
        return v;
    return text_change_case(r, v.text, CASE_LOWER);
}

/* A stable merge sort of a[0..n); b: as much memory. Equal elements keep their order in reverse
 * too, as in Python. */
static void merge_sort(struct run *r, struct keyed *a, struct keyed *b, size_t n, bool reverse)
{
    if (n < 2)
        return;
    size_t half = n / 2, i = 0, j = half;
    merge_sort(r, a, b, half, reverse);
    merge_sort(r, a + half, b, n - half, reverse);
    run_work(r, n);
    for (size_t k = 0; k < n; k++) {
        bool second = i == half;
        if (i < half && j < n)
            second = reverse ? value_compare(r, a[i].key, a[j].key, "<") < 0
                             : value_compare(r, a[j].key, a[i].key, "<") < 0;
        b[k] = second ? a[j++] : a[i++];
    }
    memcpy(a, b, n * sizeof *a);
}

/* The elements in order, with their keys: an attribute, or a pair's part. otherwise: see
 * path_get_or. */
static struct keyed *sorted_keys(struct run *r, const struct sequence *s, struct value attribute,
                                 struct value otherwise, bool case_sensitive, bool reverse)
{
    struct keyed *a = run_alloc_array(r, s->count + 1, sizeof *a);
    struct keyed *b = run_alloc_array(r, s->count + 1, sizeof *b);
    for (size_t i = 0; i < s->count; i++) {
        struct value key = path_get_or(r, s->items[i], attribute, otherwise);
        a[i] = (struct keyed){sort_key(r, key, case_sensitive), s->items[i]};
    }
    merge_sort(r, a, b, s->count, reverse);
    return a;
}

static struct value sorted(struct run *r, const struct sequence *s, struct value attribute,
                           bool case_sensitive, bool reverse)
{
    const struct keyed *a = sorted_keys(r, s, attribute, (struct value){.kind = VALUE_MISSING},
                                        case_sensitive, reverse);
    struct value list = value_sequence(r, SEQUENCE_LIST, s->count);
    for (size_t i = 0; i < s->count; i++)
        sequence_add(r, list.sequence, a[i].item);
    return list;
}

static struct value filter_sort(struct run *r, struct value v, const struct arguments *a)
{
    struct value argument[3];
    arguments_bind(r, "sort", a, NAMES("reverse", "case_sensitive", "attribute"), 3, 0, argument);
    const struct text *path = argument[2].kind == VALUE_STRING ? argument[2].text : NULL;
    if (path && path->len && memchr(path->data, ',', path->len))
        run_fail(r, ERROR_UNSUPPORTED, "sort by several attributes is not supported");
    return sorted(r, value_elements(r, v), argument[2], value_truth(argument[1]),
                  value_truth(argument[0]));
}

struct value filter_dictsort(struct run *r, struct value v, const struct arguments *a)
{
    struct value argument[3];
    int64_t part = 0;
    arguments_bind(r, "dictsort", a, NAMES("case_sensitive", "by", "reverse"), 3, 0, argument);
    value_require(r, v);
    if (v.kind != VALUE_DICT)
        run_refuse(r, "'%s' object has no attribute 'items'", value_type_name(v));
    if (argument[1].kind != VALUE_MISSING) {
        const struct text *by = argument_text(r, argument[1], "by");
        part = text_is(by, "value");
        if (!part && !text_is(by, "key"))
            run_refuse(r, "You can only sort by either \"key\" or \"value\"");
    }
    return sorted(r, dict_view(r, v.dict, SEQUENCE_ITEMS).sequence, value_int(part),
                  value_truth(argument[0]), value_truth(argument[2]));
}

static struct value extreme(struct run *r, struct value v, const struct arguments *a,
                            const char *name, bool largest)
{
    struct value argument[2], best = {.kind = VALUE_MISSING}, best_key = best;
    arguments_bind(r, name, a, NAMES("case_sensitive", "attribute"), 2, 0, argument);
    const struct sequence *s = value_elements(r, v);
    for (size_t i = 0; i < s->count; i++) {
        run_work(r, 1);
        struct value key =
            sort_key(r, path_get(r, s->items[i], argument[1]), value_truth(argument[0]));
        int order = i ? value_compare(r, key, best_key, largest ? ">" : "<") : 0;
        if (i && (largest ? order <= 0 : order >= 0))
            continue;
        best = s->items[i];
        best_key = key;
    }
    return s->count ? best : value_undefined(r, "No aggregated item, sequence was empty.");
}

static struct value filter_min(struct run *r, struct value v, const struct arguments *a)
{
    return extreme(r, v, a, "min", false);
}

static struct value filter_max(struct run *r, struct value v, const struct arguments *a)
{
    return extreme(r, v, a, "max", true);
}

static struct value filter_unique(struct run *r, struct value v, const struct arguments *a)
{
    struct value argument[2], result = value_sequence(r, SEQUENCE_GENERATOR, 0);
    arguments_bind(r, "unique", a, NAMES("case_sensitive", "attribute"), 2, 0, argument);
    const struct sequence *s = value_elements(r, v);
    struct dict *seen = value_dict(r, VALUE_DICT).dict;
    for (size_t i = 0; i < s->count; i++) {
        struct value key =
            sort_key(r, path_get(r, s->items[i], argument[1]), value_truth(argument[0]));
        run_work(r, 1);
        if (dict_find(r, seen, key))
            continue;
        dict_set(r, seen, key, value_none());
        sequence_add(r, result.sequence, s->items[i]);
    }
    return result;
}

/* ---- Groups ---- */

/* Pairs of a key, as the first element of the group has it, and a list; in the order of keys. */
static struct value filter_groupby(struct run *r, struct value v, const struct arguments *a)
{
    struct value argument[3], result = value_sequence(r, SEQUENCE_LIST, 0), list = {0};
    arguments_bind(r, "groupby", a, NAMES("attribute", "default", "case_sensitive"), 3, 1,
                   argument);
    if (argument[1].kind == VALUE_NONE)
        argument[1].kind = VALUE_MISSING;
    const struct sequence *s = value_elements(r, v);
    const struct keyed *k =
        sorted_keys(r, s, argument[0], argument[1], value_truth(argument[2]), false);
    for (size_t i = 0; i < s->count; i++) {
        if (i == 0 || !value_equal(r, k[i].key, k[i - 1].key)) {
            list = value_sequence(r, SEQUENCE_LIST, 0);
            struct value key = path_get_or(r, k[i].item, argument[0], argument[1]);
            struct value pair = value_pair(r, key, list);
            pair.sequence->group = true;
            sequence_add(r, result.sequence, pair);
        }
        sequence_add(r, list.sequence, k[i].item);
    }
    return result;
}

static struct value filter_batch(struct run *r, struct value v, const struct arguments *a)
{
    struct value argument[2], result = value_sequence(r, SEQUENCE_GENERATOR, 0), group = {0};
    arguments_bind(r, "batch", a, NAMES("linecount", "fill_with"), 2, 1, argument);
    int64_t size = argument_integer(r, argument[0], 0);
    const struct sequence *s = value_elements(r, v);
    for (size_t i = 0; i < s->count; i++) {
        run_work(r, 1);
        if (group.kind == VALUE_MISSING || (int64_t)group.sequence->count == size) {
            group = value_sequence(r, SEQUENCE_LIST, 0);
            sequence_add(r, result.sequence, group);
        }
        sequence_add(r, group.sequence, s->items[i]);
    }
    bool fill = argument[1].kind != VALUE_MISSING && argument[1].kind != VALUE_NONE;
    while (fill && group.kind == VALUE_SEQUENCE && (int64_t)group.sequence->count < size) {
        run_work(r, 1);
        sequence_add(r, group.sequence, argument[1]);
    }
    return result;
}

const struct filter_entry filters_sequence[] = {
    {"length", filter_length},     {"count", filter_length},
    {"default", filter_default},   {"d", filter_default},
    {"first", filter_first},       {"last", filter_last},
    {"list", filter_list},         {"reverse", filter_reverse},
    {"items", filter_items},       {"join", filter_join},
    {"sum", filter_sum},           {"sort", filter_sort},
    {"dictsort", filter_dictsort}, {"min", filter_min},
    {"max", filter_max},           {"unique", filter_unique},
    {"batch", filter_batch},       {"groupby", filter_groupby},
    {"attr", filter_attr},         {NULL, NULL},
};
