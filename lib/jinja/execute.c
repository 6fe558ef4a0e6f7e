/* Statements; see interpreter.h. */
#include "jinja/interpreter.h"

struct value execute_capture(struct run *r, struct scope *s, const struct statement *body)
{
    struct text_builder b;
    builder_init(&b, r);
    execute(r, s, body, &b);
    return value_text(builder_text(&b));
}

static enum flow execute_if(struct run *r, struct scope *s, const struct statement *st,
                            struct text_builder *out)
{
    bool holds = value_truth(evaluate(r, s, st->value));
    return execute(r, s, holds ? st->body : st->otherwise, out);
}

static void execute_for(struct run *r, struct scope *s, const struct statement *st,
                        struct text_builder *out)
{
    struct loop *l = run_alloc_array(r, 1, sizeof *l);
    *l = (struct loop){.statement = st, .scope = s};
    l->source = value_elements(r, evaluate(r, s, st->value));
    const struct text *name = text_from(r, "loop");
    struct scope *inner = NULL;
    bool any = false;
    if (st->test)
        scope_keep(s); /* `loop` may be read where the loop is over */
    while (loop_advance(r, l)) {
        inner = scope_again(r, inner, s);
        scope_set(r, inner, name, (struct value){.kind = VALUE_LOOP, .loop = l});
        assign_target(r, inner, st->target, l->current);
        enum flow flow = execute(r, inner, st->body, out);
        any |= flow == FLOW_NEXT; /* Jinja's `else` runs too where each turn was cut short */
        if (flow == FLOW_BREAK)
            break;
    }
    if (!any)
        execute(r, scope_new(r, s), st->otherwise, out);
}

static struct value execute_set_block(struct run *r, struct scope *s, const struct statement *st)
{
    struct value v = execute_capture(r, scope_new(r, s), st->body);
    return st->value ? apply_filters(r, s, st->value, v) : v;
}

static struct value make_macro(struct run *r, struct scope *s, const struct macro_syntax *syntax)
{
    struct macro *m = run_alloc(r, sizeof *m);
    *m = (struct macro){.syntax = syntax, .scope = s};
    scope_keep(s);
    return (struct value){.kind = VALUE_MACRO, .macro = m};
}

static void execute_call(struct run *r, struct scope *s, const struct statement *st,
                         struct text_builder *out)
{
    struct named_value caller = {.name = st->macro->name, .value = make_macro(r, s, st->macro)};
    value_print(out, call_expression(r, s, st->value, &caller));
}

static enum flow execute_with(struct run *r, struct scope *s, const struct statement *st,
                              struct text_builder *out)
{
    struct scope *inner = scope_new(r, s);
    for (size_t i = 0; i < st->count; i++) /* a value does not see the names before it */
        assign_target(r, inner, st->targets[i], evaluate(r, s, st->values[i]));
    return execute(r, inner, st->body, out);
}

static enum flow execute_one(struct run *r, struct scope *s, const struct statement *st,
                             struct text_builder *out)
{
    switch (st->kind) {
    case STATEMENT_DATA:
        builder_add_text(out, st->text);
        return FLOW_NEXT;
    case STATEMENT_OUTPUT:
        value_print(out, evaluate(r, s, st->value));
        return FLOW_NEXT;
    case STATEMENT_IF:
        return execute_if(r, s, st, out);
    case STATEMENT_FOR:
        execute_for(r, s, st, out);
        return FLOW_NEXT;
    case STATEMENT_SET:
        assign_target(r, s, st->target, evaluate(r, s, st->value));
        return FLOW_NEXT;
    case STATEMENT_SET_BLOCK:
        assign_target(r, s, st->target, execute_set_block(r, s, st));
        return FLOW_NEXT;
    case STATEMENT_MACRO:
        scope_set(r, s, st->macro->name, make_macro(r, s, st->macro));
        return FLOW_NEXT;
    case STATEMENT_CALL:
        execute_call(r, s, st, out);
        return FLOW_NEXT;
    case STATEMENT_FILTER:
        value_print(out,
                    apply_filters(r, s, st->value, execute_capture(r, scope_new(r, s), st->body)));
        return FLOW_NEXT;
    case STATEMENT_WITH:
        return execute_with(r, s, st, out);
    case STATEMENT_SCOPE:
        return execute(r, scope_new(r, s), st->body, out);
    case STATEMENT_BREAK:
        return FLOW_BREAK;
    case STATEMENT_CONTINUE:
        return FLOW_CONTINUE;
    }
    return FLOW_NEXT;
}

enum flow execute(struct run *r, struct scope *s, const struct statement *first,
                  struct text_builder *out)
{
    enum flow flow = FLOW_NEXT;
    run_enter(r);
    for (const struct statement *st = first; st && flow == FLOW_NEXT; st = st->next) {
        run_work(r, 1);
        r->line = st->line;
        flow = execute_one(r, s, st, out);
    }
    run_leave(r);
    return flow;
}
