/* Parses what operators stand between: literals, names, brackets, then filters, tests, attributes,
 * items and calls. See parser.h. */
#include "jinja/parser_internal.h"

#include <string.h>

struct expression *parse_new(struct parser *p, enum expression_kind kind)
{
    struct expression *e = run_alloc_array(p->run, 1, sizeof *e);
    e->kind = kind;
    e->line = p->at->line;
    return e;
}

void parse_item_add(struct parser *p, struct item_list *l, const struct expression *e, int operator)
{
    if (l->count == l->capacity) {
        size_t capacity = l->capacity ? 2 * l->capacity : 4;
        const struct expression **items = run_alloc_array(p->run, capacity, sizeof *items);
        int *operators = run_alloc_array(p->run, capacity, sizeof *operators);
        if (l->count) {
            memcpy(items, l->items, l->count * sizeof *items);
            memcpy(operators, l->operators, l->count * sizeof *operators);
        }
        *l = (struct item_list){items, operators, l->count, capacity};
    }
    l->items[l->count] = e;
    l->operators[l->count++] = operator;
}

struct expression *parse_with_items(struct expression *e, const struct item_list *l)
{
    e->items = l->items;
    e->operators = l->operators;
    e->count = l->count;
    return e;
}

/* ---- Literals, names, brackets ---- */

static const struct expression *literal(struct parser *p, struct value v)
{
    struct expression *e = parse_new(p, EXPRESSION_LITERAL);
    e->literal = v;
    return e;
}

const struct expression *parse_name_or_constant(struct parser *p)
{
    static const char *const words[] = {"true", "True", "false", "False", "none", "None"};
    for (size_t i = 0; i < 6; i++)
        if (parse_at_word(p, words[i])) {
            const struct expression *e = literal(p, i < 4 ? value_bool(i < 2) : value_none());
            p->at++;
            return e;
        }
    struct expression *e = parse_new(p, EXPRESSION_NAME);
    e->name = parse_name(p);
    if (p->macro) {
        p->macro->takes_caller |= text_is(e->name, "caller");
        p->macro->takes_varargs |= text_is(e->name, "varargs");
        p->macro->takes_kwargs |= text_is(e->name, "kwargs");
    }
    return e;
}

static const struct expression *string(struct parser *p)
{
    struct text_builder b;
    builder_init(&b, p->run);
    struct expression *e = parse_new(p, EXPRESSION_LITERAL);
    for (; p->at->type == TOKEN_STRING; p->at++)
        builder_add_text(&b, p->at->text);
    e->literal = value_text(builder_text(&b));
    return e;
}

static const struct expression *list(struct parser *p)
{
    struct item_list items = {0};
    struct expression *e = parse_new(p, EXPRESSION_LIST);
    p->at++;
    while (!parse_at(p, ']')) {
        if (items.count)
            parse_expect(p, ',', ",");
        if (parse_at(p, ']'))
            break;
        parse_item_add(p, &items, parse_expression(p), 0);
    }
    p->at++;
    return parse_with_items(e, &items);
}

static const struct expression *dict(struct parser *p)
{
    struct item_list items = {0};
    struct expression *e = parse_new(p, EXPRESSION_DICT);
    p->at++;
    while (!parse_at(p, '}')) {
        if (items.count)
            parse_expect(p, ',', ",");
        if (parse_at(p, '}'))
            break;
        parse_item_add(p, &items, parse_expression(p), 0);
        parse_expect(p, ':', ":");
        parse_item_add(p, &items, parse_expression(p), 0);
    }
    p->at++;
    return parse_with_items(e, &items);
}

static bool at_tuple_end(const struct parser *p)
{
    return p->at->type == TOKEN_VARIABLE_END || p->at->type == TOKEN_BLOCK_END || parse_at(p, ')');
}

/* brackets: "()" is a tuple. */
static const struct expression *tuple(struct parser *p, bool brackets)
{
    struct item_list items = {0};
    struct expression *e = parse_new(p, EXPRESSION_TUPLE);
    bool comma = false;
    while (!at_tuple_end(p)) {
        parse_item_add(p, &items, parse_expression(p), 0);
        if (!parse_skip(p, ','))
            break;
        comma = true;
    }
    if (!comma && items.count)
        return items.items[0];
    if (!comma && !brackets)
        parse_unexpected(p, "an expression");
    return parse_with_items(e, &items);
}

const struct expression *parse_tuple(struct parser *p)
{
    return tuple(p, false);
}

const struct expression *parse_primary(struct parser *p)
{
    const struct token *t = p->at;
    const struct expression *e;
    switch (t->type) {
    case TOKEN_NAME:
        return parse_name_or_constant(p);
    case TOKEN_STRING:
        return string(p);
    case TOKEN_INTEGER:
    case TOKEN_FLOAT:
        e = literal(p, t->type == TOKEN_FLOAT ? value_float(t->real) : value_int(t->integer));
        p->at++;
        return e;
    default:
        break;
    }
    if (parse_at(p, '['))
        return list(p);
    if (parse_at(p, '{'))
        return dict(p);
    if (!parse_skip(p, '('))
        parse_unexpected(p, "an expression");
    e = tuple(p, true);
    parse_expect(p, ')', ")");
    return e;
}

/* ---- Attributes, items, calls ---- */

static const struct expression *slice(struct parser *p, const struct expression *a,
                                      const struct expression *start)
{
    struct item_list parts = {0};
    struct expression *e = parse_new(p, EXPRESSION_SLICE);
    e->a = a;
    parse_item_add(p, &parts, start, 0);
    while (parts.count < 3 && parse_skip(p, ':')) {
        bool empty = parse_at(p, ':') || parse_at(p, ']');
        parse_item_add(p, &parts, empty ? NULL : parse_expression(p), 0);
    }
    while (parts.count < 3)
        parse_item_add(p, &parts, NULL, 0);
    return parse_with_items(e, &parts);
}

static const struct expression *subscript(struct parser *p, const struct expression *a)
{
    struct expression *e = parse_new(p, EXPRESSION_ITEM);
    e->a = a;
    p->at++;
    const struct expression *key = parse_at(p, ':') ? NULL : parse_expression(p);
    const struct expression *result = e;
    if (parse_at(p, ':'))
        result = slice(p, a, key);
    else if (parse_at(p, ',')) {
        struct item_list items = {0};
        struct expression *keys = parse_new(p, EXPRESSION_TUPLE);
        parse_item_add(p, &items, key, 0);
        while (parse_skip(p, ','))
            parse_item_add(p, &items, parse_expression(p), 0);
        e->b = parse_with_items(keys, &items);
    } else {
        e->b = key;
    }
    parse_expect(p, ']', "]");
    return result;
}

const struct expression *parse_attribute(struct parser *p, const struct expression *a)
{
    p->at++;
    struct expression *e = parse_new(p, EXPRESSION_ATTRIBUTE);
    e->a = a;
    if (p->at->type == TOKEN_INTEGER) {
        e->kind = EXPRESSION_ITEM;
        e->b = literal(p, value_int(p->at->integer));
        p->at++;
    } else {
        e->name = parse_name(p);
    }
    return e;
}

void parse_arguments(struct parser *p, struct expression *e)
{
    struct call_argument *arguments = NULL;
    size_t count = 0, capacity = 0;
    p->at++; /* ( */
    while (!parse_at(p, ')')) {
        if (count)
            parse_expect(p, ',', ",");
        if (parse_at(p, ')'))
            break;
        if (count == capacity) {
            capacity = capacity ? 2 * capacity : 4;
            struct call_argument *grown = run_alloc_array(p->run, capacity, sizeof *grown);
            if (count)
                memcpy(grown, arguments, count * sizeof *grown);
            arguments = grown;
        }
        bool named =
            p->at->type == TOKEN_NAME && p->at[1].type == TOKEN_OPERATOR && p->at[1].operator== '=';
        if (!named && count && arguments[count - 1].name)
            parse_unexpected(p, "NAME=VALUE: arguments by position come first");
        if (parse_at(p, '*') || parse_at(p, OPERATOR_POWER))
            run_fail(p->run, ERROR_UNSUPPORTED, "*args and **kwargs are not supported in a call");
        arguments[count].name = named ? parse_name(p) : NULL;
        p->at += named;
        arguments[count++].value = parse_expression(p);
    }
    p->at++;
    e->arguments = arguments;
    e->argument_count = count;
}

static const struct expression *call(struct parser *p, const struct expression *a)
{
    struct expression *e = parse_new(p, EXPRESSION_CALL);
    e->a = a;
    parse_arguments(p, e);
    return e;
}

const struct expression *parse_postfix(struct parser *p, const struct expression *a)
{
    for (;; run_work(p->run, 1)) {
        if (parse_at(p, '.'))
            a = parse_attribute(p, a);
        else if (parse_at(p, '['))
            a = subscript(p, a);
        else if (parse_at(p, '('))
            a = call(p, a);
        else
            return a;
    }
}

/* ---- Filters and tests ---- */

/* NAME.NAME(arguments) */
static struct expression *named(struct parser *p, enum expression_kind kind,
                                const struct expression *a)
{
    struct expression *e = parse_new(p, kind);
    e->a = a;
    e->name = parse_name(p);
    while (parse_skip(p, '.')) {
        struct text_builder b;
        builder_init(&b, p->run);
        builder_add_text(&b, e->name);
        builder_add_literal(&b, ".");
        builder_add_text(&b, parse_name(p));
        e->name = builder_text(&b);
    }
    return e;
}

static const struct expression *filter(struct parser *p, const struct expression *a)
{
    struct expression *e = named(p, EXPRESSION_FILTER, a);
    if (parse_at(p, '('))
        parse_arguments(p, e);
    return e;
}

/* Whether a test's argument follows without brackets: "is divisibleby 3". */
static bool at_bare_argument(struct parser *p)
{
    if (parse_at_word(p, "else") || parse_at_word(p, "or") || parse_at_word(p, "and"))
        return false;
    if (parse_at_word(p, "is"))
        parse_unexpected(p, "one test only");
    return p->at->type == TOKEN_NAME || p->at->type == TOKEN_STRING ||
           p->at->type == TOKEN_INTEGER || p->at->type == TOKEN_FLOAT || parse_at(p, '[') ||
           parse_at(p, '{');
}

static const struct expression *test(struct parser *p, const struct expression *a)
{
    struct expression *not = parse_new(p, EXPRESSION_NOT);
    p->at++;
    bool negated = parse_skip_word(p, "not");
    struct expression *e = named(p, EXPRESSION_TEST, a);
    if (parse_at(p, '(')) {
        parse_arguments(p, e);
    } else if (at_bare_argument(p)) {
        e->arguments = run_alloc_array(p->run, 1, sizeof *e->arguments);
        e->arguments[0].value = parse_postfix(p, parse_primary(p));
        e->argument_count = 1;
    }
    not ->a = e;
    return negated ? not : e;
}

const struct expression *parse_filters_and_tests(struct parser *p, const struct expression *a)
{
    for (;; run_work(p->run, 1)) {
        if (parse_skip(p, '|'))
            a = filter(p, a);
        else if (parse_at_word(p, "is"))
            a = test(p, a);
        else if (parse_at(p, '('))
            a = call(p, a);
        else
            return a;
    }
}

const struct expression *parse_filters(struct parser *p)
{
    const struct expression *e = filter(p, NULL);
    while (parse_skip(p, '|'))
        e = filter(p, e);
    return e;
}
