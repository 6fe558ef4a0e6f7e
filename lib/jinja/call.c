/* Calls of macros, functions, filters and tests; see interpreter.h. */
#include "jinja/interpreter.h"

#include "jinja/filters.h"

#include <string.h>

/* ---- Macros ---- */

static const struct value *find_named(const struct arguments *a, const struct text *name)
{
    for (size_t i = 0; i < a->named_count; i++)
        if (text_equal(a->named[i].name, name))
            return &a->named[i].value;
    return NULL;
}

static bool has_parameter(const struct macro_syntax *m, const struct text *name)
{
    for (size_t i = 0; i < m->count; i++)
        if (text_equal(m->parameters[i], name))
            return true;
    return false;
}

static void bind_parameter(struct run *r, struct scope *s, const struct macro_syntax *m, size_t i,
                           const struct arguments *a)
{
    const struct text *name = m->parameters[i];
    const struct value *named = find_named(a, name);
    struct value v;
    if (i < a->count && named)
        run_refuse(r, "macro '%.*s' got multiple values for argument '%.*s'", (int)m->name->len,
                   m->name->data, (int)name->len, name->data);
    if (i < a->count)
        v = a->items[i];
    else if (named)
        v = *named;
    else if (m->defaults[i])
        v = evaluate(r, s, m->defaults[i]);
    else
        v = value_undefined(r, "parameter '%.*s' was not provided", (int)name->len, name->data);
    scope_set(r, s, name, v);
}

/* Arguments without a parameter: caller, varargs and kwargs, where the body names them. */
static void bind_rest(struct run *r, struct scope *s, const struct macro_syntax *m,
                      const struct arguments *a)
{
    struct value varargs = value_sequence(r, SEQUENCE_TUPLE, 0), kwargs = value_dict(r, VALUE_DICT);
    for (size_t i = m->count; i < a->count; i++)
        sequence_add(r, varargs.sequence, a->items[i]);
    struct value caller = value_undefined(r, "No caller defined");
    for (size_t i = 0; i < a->named_count; i++) {
        const struct text *name = a->named[i].name;
        if (has_parameter(m, name))
            continue;
        if (m->takes_caller && text_is(name, "caller"))
            caller = a->named[i].value;
        else if (m->takes_kwargs)
            dict_set(r, kwargs.dict, value_text(name), a->named[i].value);
        else
            run_refuse(r, "macro '%.*s' takes no keyword argument '%.*s'", (int)m->name->len,
                       m->name->data, (int)name->len, name->data);
    }
    if (a->count > m->count && !m->takes_varargs)
        run_refuse(r, "macro '%.*s' takes not more than %zu argument(s)", (int)m->name->len,
                   m->name->data, m->count);
    if (m->takes_caller)
        scope_set(r, s, text_from(r, "caller"), caller);
    if (m->takes_varargs)
        scope_set(r, s, text_from(r, "varargs"), varargs);
    if (m->takes_kwargs)
        scope_set(r, s, text_from(r, "kwargs"), kwargs);
}

static struct value call_macro(struct run *r, const struct macro *macro, const struct arguments *a)
{
    const struct macro_syntax *m = macro->syntax;
    struct scope *s = scope_new(r, macro->scope);
    int line = r->line;
    bind_rest(r, s, m, a);
    for (size_t i = 0; i < m->count; i++)
        bind_parameter(r, s, m, i, a);
    struct value v = execute_capture(r, s, m->body);
    r->line = line;
    return v;
}

struct value call_value(struct run *r, struct value callee, const struct arguments *a)
{
    value_require(r, callee);
    run_work(r, 1);
    if (callee.kind == VALUE_MACRO)
        return call_macro(r, callee.macro, a);
    if (callee.kind == VALUE_FUNCTION)
        return callee.function->call(r, callee.function->self, a);
    run_refuse(r, "'%s' object is not callable", value_type_name(callee));
}

/* ---- Arguments ---- */

static struct arguments evaluate_arguments(struct run *r, struct scope *s,
                                           const struct expression *e,
                                           const struct named_value *extra)
{
    struct value *items = run_alloc_array(r, e->argument_count, sizeof *items);
    struct named_value *named = run_alloc_array(r, e->argument_count + 1, sizeof *named);
    struct arguments a = {.items = items, .named = named};
    for (size_t i = 0; i < e->argument_count; i++) {
        const struct call_argument *argument = &e->arguments[i];
        struct value v = evaluate(r, s, argument->value);
        if (argument->name)
            named[a.named_count++] = (struct named_value){argument->name, v};
        else
            items[a.count++] = v;
    }
    if (extra)
        named[a.named_count++] = *extra;
    r->line = e->line;
    return a;
}

struct value call_expression(struct run *r, struct scope *s, const struct expression *e,
                             const struct named_value *extra)
{
    struct value callee = evaluate(r, s, e->a);
    struct arguments a = evaluate_arguments(r, s, e, extra);
    return call_value(r, callee, &a);
}

/* ---- Filters and tests ---- */

struct value call_filter(struct run *r, const struct text *name, struct value v,
                         const struct arguments *a)
{
    function_call *filter = filter_find(name);
    if (!filter)
        run_fail(r, ERROR_UNSUPPORTED, "No filter named '%.*s'.", (int)name->len, name->data);
    run_work(r, 1);
    return filter(r, v, a);
}

bool call_test(struct run *r, const struct text *name, struct value v, const struct arguments *a)
{
    function_call *test = test_find(name);
    if (!test)
        run_fail(r, ERROR_UNSUPPORTED, "No test named '%.*s'.", (int)name->len, name->data);
    return value_truth(test(r, v, a));
}

struct value apply_filters(struct run *r, struct scope *s, const struct expression *e,
                           struct value inner)
{
    bool chained = e->a && e->a->kind == EXPRESSION_FILTER;
    run_enter(r);
    struct value v = !e->a     ? inner
                     : chained ? apply_filters(r, s, e->a, inner)
                               : evaluate(r, s, e->a);
    run_leave(r);
    struct arguments a = evaluate_arguments(r, s, e, NULL);
    r->line = e->line;
    if (e->kind == EXPRESSION_TEST)
        return value_bool(call_test(r, e->name, v, &a));
    return call_filter(r, e->name, v, &a);
}
