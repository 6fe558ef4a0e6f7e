/* Expressions, and assigning to those that can be assigned to; see interpreter.h. */
#include "jinja/interpreter.h"

static struct value evaluate_sequence(struct run *r, struct scope *s, const struct expression *e)
{
    bool list = e->kind == EXPRESSION_LIST;
    struct value v = value_sequence(r, list ? SEQUENCE_LIST : SEQUENCE_TUPLE, e->count);
    for (size_t i = 0; i < e->count; i++)
        sequence_add(r, v.sequence, evaluate(r, s, e->items[i]));
    return v;
}

static struct value evaluate_dict(struct run *r, struct scope *s, const struct expression *e)
{
    struct value v = value_dict(r, VALUE_DICT);
    for (size_t i = 0; i + 1 < e->count; i += 2) {
        struct value key = evaluate(r, s, e->items[i]);
        dict_set(r, v.dict, key, evaluate(r, s, e->items[i + 1]));
    }
    return v;
}

static struct value evaluate_compare(struct run *r, struct scope *s, const struct expression *e)
{
    struct value left = evaluate(r, s, e->a);
    for (size_t i = 0; i < e->count; i++) {
        struct value right = evaluate(r, s, e->items[i]);
        r->line = e->line;
        if (!compare_values(r, e->operators[i], left, right))
            return value_bool(false);
        left = right;
    }
    return value_bool(true);
}

static struct value evaluate_concat(struct run *r, struct scope *s, const struct expression *e)
{
    struct text_builder b;
    builder_init(&b, r);
    for (size_t i = 0; i < e->count; i++)
        value_print(&b, evaluate(r, s, e->items[i]));
    return value_text(builder_text(&b));
}

static struct value evaluate_condition(struct run *r, struct scope *s, const struct expression *e)
{
    if (value_truth(evaluate(r, s, e->a)))
        return evaluate(r, s, e->b);
    if (e->c)
        return evaluate(r, s, e->c);
    return value_undefined(r,
                           "the inline if-expression on line %d evaluated to false and no else "
                           "section was defined.",
                           e->line);
}

static struct value evaluate_slice(struct run *r, struct scope *s, const struct expression *e)
{
    struct value part[3], v = evaluate(r, s, e->a);
    for (size_t i = 0; i < 3; i++)
        part[i] = e->items[i] ? evaluate(r, s, e->items[i]) : value_none();
    r->line = e->line;
    return slice_get(r, v, part);
}

static struct value evaluate_item(struct run *r, struct scope *s, const struct expression *e)
{
    struct value v = evaluate(r, s, e->a), key = evaluate(r, s, e->b);
    r->line = e->line;
    return item_get(r, v, key);
}

static struct value evaluate_attribute(struct run *r, struct scope *s, const struct expression *e)
{
    struct value v = evaluate(r, s, e->a);
    r->line = e->line;
    return attribute_get(r, v, e->name);
}

static struct value evaluate_binary(struct run *r, struct scope *s, const struct expression *e)
{
    struct value a = evaluate(r, s, e->a), b = evaluate(r, s, e->b);
    r->line = e->line;
    return binary(r, e->operator, a, b);
}

/* `and` and `or` give one of their operands, as in Python. */
static struct value evaluate_logic(struct run *r, struct scope *s, const struct expression *e)
{
    struct value a = evaluate(r, s, e->a);
    return value_truth(a) == (e->kind == EXPRESSION_AND) ? evaluate(r, s, e->b) : a;
}

static struct value evaluate_one(struct run *r, struct scope *s, const struct expression *e)
{
    switch (e->kind) {
    case EXPRESSION_LITERAL:
        return e->literal;
    case EXPRESSION_NAME:
        return scope_get(r, s, e->name);
    case EXPRESSION_LIST:
    case EXPRESSION_TUPLE:
        return evaluate_sequence(r, s, e);
    case EXPRESSION_DICT:
        return evaluate_dict(r, s, e);
    case EXPRESSION_NEGATE:
    case EXPRESSION_POSITIVE:
        return negate(r, evaluate(r, s, e->a), e->kind == EXPRESSION_NEGATE);
    case EXPRESSION_NOT:
        return value_bool(!value_truth(evaluate(r, s, e->a)));
    case EXPRESSION_AND:
    case EXPRESSION_OR:
        return evaluate_logic(r, s, e);
    case EXPRESSION_BINARY:
        return evaluate_binary(r, s, e);
    case EXPRESSION_COMPARE:
        return evaluate_compare(r, s, e);
    case EXPRESSION_CONCAT:
        return evaluate_concat(r, s, e);
    case EXPRESSION_CONDITION:
        return evaluate_condition(r, s, e);
    case EXPRESSION_ATTRIBUTE:
        return evaluate_attribute(r, s, e);
    case EXPRESSION_ITEM:
        return evaluate_item(r, s, e);
    case EXPRESSION_SLICE:
        return evaluate_slice(r, s, e);
    case EXPRESSION_CALL:
        return call_expression(r, s, e, NULL);
    case EXPRESSION_FILTER:
    case EXPRESSION_TEST:
        return apply_filters(r, s, e, (struct value){0});
    }
    return value_none();
}

struct value evaluate(struct run *r, struct scope *s, const struct expression *e)
{
    run_enter(r);
    run_work(r, 1);
    struct value v = evaluate_one(r, s, e);
    run_leave(r);
    return v;
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
        assign_target(r, s, target->items[i], elements->items[i]);
}

void assign_target(struct run *r, struct scope *s, const struct expression *target, struct value v)
{
    if (target->kind == EXPRESSION_NAME)
        scope_set(r, s, target->name, v);
    else if (target->kind == EXPRESSION_ATTRIBUTE)
        assign_attribute(r, s, target, v);
    else
        assign_tuple(r, s, target, v);
}
