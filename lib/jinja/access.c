/* Attributes, items and slices; see interpreter.h. As in Jinja, v.name looks for a method of the
 * type first and for a key then; v["name"] the other way round. */
#include "jinja/interpreter.h"

#include "jinja/methods.h"

#include <ctype.h>
#include <string.h>

/* "'dict object'", as Jinja names it in its messages */
static const char *object_name(struct value v)
{
    if (v.kind == VALUE_NONE)
        return "None";
    if (v.kind == VALUE_NAMESPACE)
        return "jinja2.utils.Namespace object";
    if (v.kind == VALUE_MACRO)
        return "jinja2.runtime.Macro object";
    static _Thread_local char name[40];
    const char *type = value_type_name(v);
    memcpy(name, type, strlen(type));
    strcpy(name + strlen(type), " object");
    return name;
}

static struct value no_attribute(struct run *r, struct value v, const struct text *name)
{
    return value_undefined(r, "'%s' has no attribute '%.*s'", object_name(v), (int)name->len,
                           name->data);
}

/* A method of v's type by this name; MISSING: none. */
static struct value method_of(struct run *r, struct value v, const struct text *name)
{
    const struct method_entry *m = method_find(v, name);
    if (!m)
        return (struct value){.kind = VALUE_MISSING};
    struct function *f = run_alloc(r, sizeof *f);
    *f = (struct function){m->name, m->call, v};
    return (struct value){.kind = VALUE_FUNCTION, .function = f};
}

struct value attribute_get(struct run *r, struct value v, const struct text *name)
{
    value_require(r, v);
    if (v.kind == VALUE_LOOP)
        return loop_attribute(r, v.loop, name);
    struct value method = method_of(r, v, name);
    if (method.kind != VALUE_MISSING)
        return method;
    if (v.kind == VALUE_DICT || v.kind == VALUE_NAMESPACE) {
        const struct value *found = dict_find_name(r, v.dict, name);
        if (found)
            return *found;
    }
    if (v.kind == VALUE_SEQUENCE && v.sequence->group &&
        (text_is(name, "grouper") || text_is(name, "list")))
        return v.sequence->items[text_is(name, "list")];
    if (v.kind == VALUE_MACRO && text_is(name, "name"))
        return value_text(v.macro->syntax->name);
    return no_attribute(r, v, name);
}

static struct value no_element(struct run *r, struct value v, struct value key)
{
    struct text_builder b;
    if (key.kind == VALUE_STRING)
        return no_attribute(r, v, key.text);
    builder_init(&b, r);
    value_repr(&b, key);
    const struct text *text = builder_text(&b);
    return value_undefined(r, "%s has no element %.*s", object_name(v), (int)text->len, text->data);
}

static struct value character_at(struct run *r, const struct text *t, size_t index)
{
    return value_text(text_part(r, t, text_offset(t, index), text_offset(t, index + 1)));
}

static struct value indexed(struct run *r, struct value v, struct value key, int64_t index)
{
    bool view = v.kind == VALUE_SEQUENCE && v.sequence->kind > SEQUENCE_RANGE;
    size_t length;
    if (view || !value_length(v, &length))
        return no_element(r, v, key);
    if (index < 0)
        index += (int64_t)length;
    if (index < 0 || (uint64_t)index >= length)
        return no_element(r, v, key);
    if (v.kind == VALUE_STRING)
        return character_at(r, v.text, (size_t)index);
    return v.sequence->items[index];
}

struct value item_get(struct run *r, struct value v, struct value key)
{
    int64_t index;
    value_require(r, v);
    if (v.kind == VALUE_DICT) {
        const struct value *found = dict_find(r, v.dict, key);
        if (found)
            return *found;
    } else if ((v.kind == VALUE_SEQUENCE || v.kind == VALUE_STRING) &&
               value_is_integer(key, &index)) {
        return indexed(r, v, key, index);
    }
    if (key.kind != VALUE_STRING)
        return no_element(r, v, key);
    if (v.kind == VALUE_NAMESPACE || v.kind == VALUE_LOOP)
        return attribute_get(r, v, key.text);
    struct value method = method_of(r, v, key.text);
    return method.kind == VALUE_MISSING ? no_attribute(r, v, key.text) : method;
}

/* ---- Slices ---- */

struct range {
    int64_t start, stop, step;
};

static int64_t clamp(int64_t index, int64_t length, int64_t least, int64_t most)
{
    if (index < 0)
        index += length;
    return index < least ? least : index > most ? most : index;
}

static bool slice_bound(struct run *r, struct value v, int64_t *bound)
{
    if (v.kind == VALUE_NONE)
        return false;
    if (!value_is_integer(v, bound))
        run_refuse(r, "slice indices must be integers or None or have an __index__ method");
    return true;
}

/* Python's slice.indices(). */
static struct range resolve(struct run *r, const struct value part[3], int64_t length)
{
    struct range range = {.step = 1};
    int64_t start, stop;
    if (slice_bound(r, part[2], &range.step) && range.step == 0)
        run_refuse(r, "slice step cannot be zero");
    if (range.step == INT64_MIN)
        range.step = -INT64_MAX;
    bool back = range.step < 0;
    int64_t least = back ? -1 : 0, most = back ? length - 1 : length;
    range.start = slice_bound(r, part[0], &start) ? clamp(start, length, least, most)
                  : back                          ? most
                                                  : least;
    range.stop = slice_bound(r, part[1], &stop) ? clamp(stop, length, least, most)
                 : back                         ? least
                                                : most;
    return range;
}

static bool inside(struct range range, int64_t i)
{
    return range.step > 0 ? i < range.stop : i > range.stop;
}

/* i + step, without passing the end of the numbers */
static int64_t step_on(struct range range, int64_t i)
{
    return __builtin_add_overflow(i, range.step, &i) ? range.stop : i;
}

static struct value slice_text(struct run *r, const struct text *t, struct range range)
{
    if (range.step == 1 && range.start < range.stop)
        return value_text(text_part(r, t, text_offset(t, (size_t)range.start),
                                    text_offset(t, (size_t)range.stop)));
    struct text_builder b;
    builder_init(&b, r);
    for (int64_t i = range.start; inside(range, i); i = step_on(range, i)) {
        run_work(r, 1 + (t->chars == t->len ? 0 : (uint64_t)i / 64));
        builder_add_part(&b, t, text_offset(t, (size_t)i), text_offset(t, (size_t)i + 1));
    }
    return value_text(builder_text(&b));
}

struct value slice_get(struct run *r, struct value v, const struct value part[3])
{
    size_t length;
    bool view = v.kind == VALUE_SEQUENCE && v.sequence->kind > SEQUENCE_RANGE;
    value_require(r, v);
    bool sliced = v.kind == VALUE_STRING || v.kind == VALUE_SEQUENCE;
    if (v.kind == VALUE_DICT)
        run_refuse(r, "unhashable type: 'slice'");
    if (view || !sliced || !value_length(v, &length))
        run_refuse(r, "'%s' object is not subscriptable", value_type_name(v));
    struct range range = resolve(r, part, (int64_t)length);
    if (v.kind == VALUE_STRING)
        return slice_text(r, v.text, range);
    size_t most = range.step == 1 && range.start < range.stop ? (size_t)(range.stop - range.start)
                                                              : 0; /* other steps: as it grows */
    struct value result = value_sequence(r, v.sequence->kind, most);
    const int64_t *whole = v.sequence->range;
    result.sequence->range[0] = whole[0] + range.start * whole[2];
    result.sequence->range[1] = whole[0] + range.stop * whole[2];
    result.sequence->range[2] = whole[2] * range.step;
    for (int64_t i = range.start; inside(range, i); i = step_on(range, i)) {
        run_work(r, 1);
        sequence_add(r, result.sequence, v.sequence->items[i]);
    }
    return result;
}

static struct value path_part(struct run *r, const struct text *path, size_t from, size_t to)
{
    int64_t index = 0;
    bool number = to > from && to - from < 18;
    for (size_t i = from; i < to && number; i++) {
        number = isdigit((unsigned char)path->data[i]) != 0;
        index = index * 10 + (path->data[i] - '0');
    }
    return number ? value_int(index) : value_text(text_part(r, path, from, to));
}

static struct value item_or(struct run *r, struct value v, struct value key, struct value otherwise)
{
    struct value item = item_get(r, v, key);
    bool absent = item.kind == VALUE_UNDEFINED && otherwise.kind != VALUE_MISSING;
    return absent ? otherwise : item;
}

struct value path_get_or(struct run *r, struct value v, struct value path, struct value otherwise)
{
    if (path.kind == VALUE_MISSING || path.kind == VALUE_NONE)
        return v;
    if (path.kind != VALUE_STRING)
        return item_or(r, v, path, otherwise);
    size_t from = 0;
    for (size_t i = 0; i <= path.text->len; i++)
        if (i == path.text->len || path.text->data[i] == '.') {
            v = item_or(r, v, path_part(r, path.text, from, i), otherwise);
            from = i + 1;
        }
    return v;
}

struct value path_get(struct run *r, struct value v, struct value path)
{
    return path_get_or(r, v, path, (struct value){.kind = VALUE_MISSING});
}
