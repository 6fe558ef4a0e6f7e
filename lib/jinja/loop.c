/* Loops and their variable; see interpreter.h. */
#include "jinja/interpreter.h"

static bool accepts(struct run *r, struct loop *l, struct value element)
{
    const struct statement *st = l->statement;
    if (!st->test)
        return true;
    l->test_scope = scope_again(r, l->test_scope, l->scope);
    assign_target(r, l->test_scope, st->target, element);
    return value_truth(evaluate(r, l->test_scope, st->test));
}

/* Reads the element after the current one, once. */
static bool look_ahead(struct run *r, struct loop *l)
{
    while (!l->has_after && l->next < l->source->count) {
        run_work(r, 1);
        struct value element = l->source->items[l->next++];
        l->has_after = accepts(r, l, element);
        l->after = element;
    }
    return l->has_after;
}

bool loop_advance(struct run *r, struct loop *l)
{
    bool first = l->current.kind == VALUE_MISSING;
    if (!look_ahead(r, l))
        return false;
    l->has_before = !first;
    l->before = l->current;
    l->current = l->after;
    l->has_after = false;
    l->index0 += !first;
    return true;
}

/* Elements behind the current one. Python's loop reads the rest of a filtered source for this. */
static size_t remaining(struct run *r, struct loop *l)
{
    size_t n = l->has_after;
    if (!l->statement->test)
        return n + l->source->count - l->next;
    struct value rest = value_sequence(r, SEQUENCE_LIST, 0);
    for (size_t i = l->next; i < l->source->count; i++)
        if (accepts(r, l, l->source->items[i]))
            sequence_add(r, rest.sequence, l->source->items[i]);
    return n + rest.sequence->count;
}

static struct value cycle(struct run *r, struct value self, const struct arguments *a)
{
    if (a->count == 0)
        run_refuse(r, "no items for cycling given");
    return a->items[self.loop->index0 % a->count];
}

static struct value changed(struct run *r, struct value self, const struct arguments *a)
{
    struct loop *l = self.loop;
    struct value now = value_sequence(r, SEQUENCE_TUPLE, a->count);
    for (size_t i = 0; i < a->count; i++)
        sequence_add(r, now.sequence, a->items[i]);
    if (l->changed.kind != VALUE_MISSING && value_equal(r, l->changed, now))
        return value_bool(false);
    l->changed = now;
    return value_bool(true);
}

static struct value method(struct run *r, struct loop *l, const char *name, function_call *call)
{
    struct function *f = run_alloc(r, sizeof *f);
    *f = (struct function){name, call, {.kind = VALUE_LOOP, .loop = l}};
    return (struct value){.kind = VALUE_FUNCTION, .function = f};
}

struct value loop_attribute(struct run *r, struct loop *l, const struct text *name)
{
    size_t index = l->index0;
    if (text_is(name, "index0"))
        return value_int((int64_t)index);
    if (text_is(name, "index"))
        return value_int((int64_t)index + 1);
    if (text_is(name, "first"))
        return value_bool(index == 0);
    if (text_is(name, "last"))
        return value_bool(!look_ahead(r, l));
    if (text_is(name, "length"))
        return value_int((int64_t)(index + 1 + remaining(r, l)));
    if (text_is(name, "revindex"))
        return value_int((int64_t)remaining(r, l) + 1);
    if (text_is(name, "revindex0"))
        return value_int((int64_t)remaining(r, l));
    if (text_is(name, "previtem"))
        return l->has_before ? l->before : value_undefined(r, "there is no previous item");
    if (text_is(name, "nextitem"))
        return look_ahead(r, l) ? l->after : value_undefined(r, "there is no next item");
    if (text_is(name, "depth"))
        return value_int(1);
    if (text_is(name, "depth0"))
        return value_int(0);
    if (text_is(name, "cycle"))
        return method(r, l, "cycle", cycle);
    if (text_is(name, "changed"))
        return method(r, l, "changed", changed);
    return value_undefined(r, "'jinja2.runtime.LoopContext object' has no attribute '%.*s'",
                           (int)name->len, name->data);
}
