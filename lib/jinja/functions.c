/* See functions.h. */
#include "jinja/functions.h"

#include "jinja/arguments.h"

#include <string.h>
#include <time.h>

#define LARGEST_RANGE 100000 /* of Jinja's sandbox */

/* How many numbers a range has, but no more than the largest. */
static size_t range_length(int64_t start, int64_t stop, int64_t step)
{
    if (step > 0 ? start >= stop : start <= stop)
        return 0;
    uint64_t distance =
        step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    uint64_t stride = step > 0 ? (uint64_t)step : -(uint64_t)step;
    uint64_t n = (distance - 1) / stride + 1;
    return n < LARGEST_RANGE ? (size_t)n : LARGEST_RANGE;
}

static struct value range(struct run *r, struct value self, const struct arguments *a)
{
    struct value v[3];
    arguments_bind(r, "range", a, (const char *const[]){"start", "stop", "step"}, 3, 1, v);
    bool one = v[1].kind == VALUE_MISSING;
    for (size_t i = 0; i < 3; i++)
        value_require(r, v[i]);
    int64_t start = one ? 0 : argument_integer(r, v[0], 0);
    int64_t stop = argument_integer(r, v[one ? 0 : 1], 0);
    int64_t step = argument_integer(r, v[2], 1);
    if (step == 0)
        run_refuse(r, "range() arg 3 must not be zero");
    struct value list = value_sequence(r, SEQUENCE_RANGE, range_length(start, stop, step));
    list.sequence->range[0] = start;
    list.sequence->range[1] = stop;
    list.sequence->range[2] = step;
    int64_t i = start;
    while (step > 0 ? i < stop : i > stop) {
        run_work(r, 1);
        if (list.sequence->count == LARGEST_RANGE)
            run_refuse(r,
                       "Range too big. The sandbox blocks ranges larger than "
                       "MAX_RANGE (%d).",
                       LARGEST_RANGE);
        sequence_add(r, list.sequence, value_int(i));
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    return list;
}

/* Of another dict's entries, or pairs. */
static void add_entries(struct run *r, struct dict *d, struct value from)
{
    if (from.kind == VALUE_DICT) {
        for (size_t i = 0; i < from.dict->count; i++)
            dict_set(r, d, from.dict->entries[i].key, from.dict->entries[i].value);
        return;
    }
    const struct sequence *s = value_elements(r, from);
    for (size_t i = 0; i < s->count; i++) {
        const struct sequence *pair = value_elements(r, s->items[i]);
        run_work(r, 1);
        if (pair->count != 2)
            run_refuse(r, "dictionary update sequence element #%zu has length %zu; 2 is required",
                       i, pair->count);
        dict_set(r, d, pair->items[0], pair->items[1]);
    }
}

/* Of another dict or pairs, and names. */
static struct value make(struct run *r, const struct arguments *a, enum value_kind kind)
{
    struct value d = value_dict(r, kind);
    if (a->count > 1)
        run_refuse(r, "dict() and namespace() take one dict and names");
    if (a->count)
        add_entries(r, d.dict, a->items[0]);
    for (size_t i = 0; i < a->named_count; i++)
        dict_set(r, d.dict, value_text(a->named[i].name), a->named[i].value);
    return d;
}

static struct value dict(struct run *r, struct value self, const struct arguments *a)
{
    return make(r, a, VALUE_DICT);
}

static struct value namespace(struct run *r, struct value self, const struct arguments *a)
{
    return make(r, a, VALUE_NAMESPACE);
}

/* ---- Objects with a state, whose members are in a namespace ---- */

static struct value *member(struct run *r, struct value object, const char *name)
{
    return dict_find_name(r, object.dict, text_from(r, name));
}

static void set_member(struct run *r, struct value object, const char *name, struct value v)
{
    dict_set(r, object.dict, value_string(r, name), v);
}

static struct value method(struct run *r, struct value object, const char *name,
                           function_call *call)
{
    struct function *f = run_alloc(r, sizeof *f);
    *f = (struct function){name, call, object};
    return (struct value){.kind = VALUE_FUNCTION, .function = f};
}

/* Nothing the first time. */
static struct value join_next(struct run *r, struct value self, const struct arguments *a)
{
    arguments_bind(r, "joiner", a, NULL, 0, 0, NULL);
    struct value between = *member(r, self, "between");
    *member(r, self, "between") = *member(r, self, "later");
    return between;
}

static struct value joiner(struct run *r, struct value self, const struct arguments *a)
{
    struct value between, object = value_dict(r, VALUE_NAMESPACE);
    arguments_bind(r, "joiner", a, (const char *const[]){"sep"}, 1, 0, &between);
    set_member(r, object, "between", value_string(r, ""));
    set_member(r, object, "later", between.kind == VALUE_MISSING ? value_string(r, ", ") : between);
    return method(r, object, "joiner", join_next);
}

/* cycle: the place and the items. The object that has its methods is another namespace, because a
 * template may set any member of that one. */
static void cycle_to(struct run *r, struct value cycle, size_t place)
{
    const struct sequence *items = member(r, cycle, "items")->sequence;
    set_member(r, cycle, "pos", value_int((int64_t)(place % items->count)));
    set_member(r, *member(r, cycle, "object"), "current", items->items[place % items->count]);
}

static struct value cycle_next(struct run *r, struct value self, const struct arguments *a)
{
    arguments_bind(r, "next", a, NULL, 0, 0, NULL);
    size_t place = (size_t)member(r, self, "pos")->integer;
    struct value current = member(r, self, "items")->sequence->items[place];
    cycle_to(r, self, place + 1);
    return current;
}

static struct value cycle_reset(struct run *r, struct value self, const struct arguments *a)
{
    arguments_bind(r, "reset", a, NULL, 0, 0, NULL);
    cycle_to(r, self, 0);
    return value_none();
}

static struct value cycler(struct run *r, struct value self, const struct arguments *a)
{
    struct value object = value_dict(r, VALUE_NAMESPACE), cycle = value_dict(r, VALUE_NAMESPACE);
    struct value items = value_sequence(r, SEQUENCE_TUPLE, a->count);
    if (a->count == 0)
        run_refuse(r, "at least one item has to be provided");
    for (size_t i = 0; i < a->count; i++)
        sequence_add(r, items.sequence, a->items[i]);
    set_member(r, cycle, "items", items);
    set_member(r, cycle, "object", object);
    set_member(r, object, "next", method(r, cycle, "next", cycle_next));
    set_member(r, object, "reset", method(r, cycle, "reset", cycle_reset));
    cycle_to(r, cycle, 0);
    return object;
}

static struct value raise_exception(struct run *r, struct value self, const struct arguments *a)
{
    struct value message;
    arguments_bind(r, "raise_exception", a, (const char *const[]){"message"}, 1, 1, &message);
    const struct text *text = value_to_text(r, message);
    run_refuse(r, "%.*s", text->len > 400 ? 400 : (int)text->len, text->data);
}

static struct value strftime_now(struct run *r, struct value self, const struct arguments *a)
{
    struct value v;
    struct tm local;
    arguments_bind(r, "strftime_now", a, (const char *const[]){"format"}, 1, 1, &v);
    const struct text *format = argument_text(r, v, "the format");
    time_t now = r->now_s >= 0 ? (time_t)r->now_s : time(NULL);
    if (format->len == 0 || !localtime_r(&now, &local))
        return value_string(r, "");
    char *zero_ended = run_alloc(r, format->len + 1);
    memcpy(zero_ended, format->data, format->len);
    zero_ended[format->len] = '\0';
    char text[1024];
    size_t len = strftime(text, sizeof text, zero_ended, &local);
    char *copy = run_alloc(r, len + 1);
    memcpy(copy, text, len);
    return value_text(text_new(r, copy, len, false));
}

void functions_define(struct run *r, struct scope *globals)
{
    static const struct function functions[] = {
        {.name = "range", .call = range},
        {.name = "dict", .call = dict},
        {.name = "namespace", .call = namespace},
        {.name = "joiner", .call = joiner},
        {.name = "cycler", .call = cycler},
        {.name = "raise_exception", .call = raise_exception},
        {.name = "strftime_now", .call = strftime_now},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        scope_set(r, globals, text_from(r, functions[i].name),
                  (struct value){.kind = VALUE_FUNCTION, .function = &functions[i]});
}
