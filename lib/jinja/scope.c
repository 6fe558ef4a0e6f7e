/* Names; see interpreter.h. */
#include "jinja/interpreter.h"

#include <string.h>

struct scope *scope_new(struct run *r, struct scope *outer)
{
    struct scope *s = run_alloc_array(r, 1, sizeof *s);
    s->outer = outer;
    return s;
}

static struct binding *find(const struct scope *s, const struct text *name)
{
    for (size_t i = 0; i < s->count; i++)
        if (text_equal(s->bindings[i].name, name))
            return &s->bindings[i];
    return NULL;
}

void scope_set(struct run *r, struct scope *s, const struct text *name, struct value v)
{
    struct binding *b = find(s, name);
    if (b) {
        b->value = v;
        return;
    }
    if (s->count == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 4;
        struct binding *bindings = run_alloc_array(r, capacity, sizeof *bindings);
        if (s->count)
            memcpy(bindings, s->bindings, s->count * sizeof *bindings);
        s->bindings = bindings;
        s->capacity = capacity;
    }
    s->bindings[s->count++] = (struct binding){name, v};
}

struct value scope_get(struct run *r, const struct scope *s, const struct text *name)
{
    for (; s; s = s->outer) {
        run_work(r, s->count / 8);
        const struct binding *b = find(s, name);
        if (b)
            return b->value;
    }
    return value_undefined(r, "'%.*s' is undefined", (int)name->len, name->data);
}

static void assign_attribute(struct run *r, struct scope *s, const struct expression *target,
                             struct value v)
{
    struct value namespace = evaluate(r, s, target->a);
    if (namespace.kind != VALUE_NAMESPACE)
        run_refuse(r, "cannot assign attribute on non-namespace object");
    dict_set(r, namespace.dict, value_text(target->name), v);
}

static void assign_tuple(struct run *r, struct scope *s, const struct expression *target,
                         struct value v)
{
    value_require(r, v);
    const struct sequence *elements = value_elements(r, v);
    if (elements->count != target->count)
        run_refuse(r, "cannot unpack %zu values into %zu names", elements->count, target->count);
    for (size_t i = 0; i < target->count; i++)
        scope_assign(r, s, target->items[i], elements->items[i]);
}

void scope_assign(struct run *r, struct scope *s, const struct expression *target, struct value v)
{
    if (target->kind == EXPRESSION_NAME)
        scope_set(r, s, target->name, v);
    else if (target->kind == EXPRESSION_ATTRIBUTE)
        assign_attribute(r, s, target, v);
    else
        assign_tuple(r, s, target, v);
}
