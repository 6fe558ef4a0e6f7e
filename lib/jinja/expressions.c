/* Parses expressions by the precedence of operators, from the loosest: if, or, and, not,
 * comparison,
 * + -, ~, * / // %, **, sign. primary.c has what binds closer. See parser.h. */
#include "jinja/parser_internal.h"

static const struct expression *two(struct parser *p, enum expression_kind kind, int operator,
                                    const struct expression * a, const struct expression *b)
{
    struct expression *e = parse_new(p, kind);
    e->line = a->line;
    e->operator= operator;
    e->a = a;
    e->b = b;
    return e;
}

/* ---- Operators ---- */

static const struct expression *sign(struct parser *p, bool filters)
{
    run_enter(p->run);
    const struct expression *e;
    bool negative = parse_at(p, '-');
    if (negative || parse_at(p, '+')) {
        struct expression *s = parse_new(p, negative ? EXPRESSION_NEGATE : EXPRESSION_POSITIVE);
        p->at++;
        s->a = sign(p, false);
        e = s;
    } else {
        e = parse_primary(p);
    }
    e = parse_postfix(p, e);
    if (filters)
        e = parse_filters_and_tests(p, e);
    run_leave(p->run);
    return e;
}

static const struct expression *power(struct parser *p)
{
    const struct expression *a = sign(p, true);
    while (parse_skip(p, OPERATOR_POWER))
        a = two(p, EXPRESSION_BINARY, OPERATOR_POWER, a, sign(p, true));
    return a;
}

/* The operator at p, if it is one of these; 0 if not. */
static int one_of(const struct parser *p, const int *operators, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (parse_at(p, operators[i]))
            return operators[i];
    return 0;
}

static const struct expression *product(struct parser *p)
{
    static const int operators[] = {'*', '/', OPERATOR_FLOOR_DIVIDE, '%'};
    const struct expression *a = power(p);
    for (int op; (op = one_of(p, operators, 4)) != 0;) {
        p->at++;
        a = two(p, EXPRESSION_BINARY, op, a, power(p));
    }
    return a;
}

static const struct expression *concat(struct parser *p)
{
    struct item_list items = {0};
    struct expression *e = parse_new(p, EXPRESSION_CONCAT);
    do
        parse_item_add(p, &items, product(p), 0);
    while (parse_skip(p, '~'));
    return items.count == 1 ? items.items[0] : parse_with_items(e, &items);
}

static const struct expression *sum(struct parser *p)
{
    static const int operators[] = {'+', '-'};
    const struct expression *a = concat(p);
    for (int op; (op = one_of(p, operators, 2)) != 0;) {
        p->at++;
        a = two(p, EXPRESSION_BINARY, op, a, concat(p));
    }
    return a;
}

static int comparison(struct parser *p)
{
    static const int operators[] = {OPERATOR_EQUAL,         OPERATOR_NOT_EQUAL, '<', '>',
                                    OPERATOR_GREATER_EQUAL, OPERATOR_LESS_EQUAL};
    int op = one_of(p, operators, 6);
    if (op) {
        p->at++;
        return op;
    }
    if (parse_skip_word(p, "in"))
        return OPERATOR_IN;
    bool not_in =
        parse_at_word(p, "not") && p->at[1].type == TOKEN_NAME && text_is(p->at[1].text, "in");
    p->at += not_in ? 2 : 0;
    return not_in ? OPERATOR_NOT_IN : 0;
}

static const struct expression *compare(struct parser *p)
{
    struct item_list items = {0};
    struct expression *e = parse_new(p, EXPRESSION_COMPARE);
    e->a = sum(p);
    for (int op; (op = comparison(p)) != 0;)
        parse_item_add(p, &items, sum(p), op);
    return items.count == 0 ? e->a : parse_with_items(e, &items);
}

static const struct expression *negation(struct parser *p)
{
    if (!parse_at_word(p, "not"))
        return compare(p);
    run_enter(p->run);
    struct expression *e = parse_new(p, EXPRESSION_NOT);
    p->at++;
    e->a = negation(p);
    run_leave(p->run);
    return e;
}

static const struct expression *conjunction(struct parser *p)
{
    const struct expression *a = negation(p);
    while (parse_skip_word(p, "and"))
        a = two(p, EXPRESSION_AND, 0, a, negation(p));
    return a;
}

const struct expression *parse_or(struct parser *p)
{
    const struct expression *a = conjunction(p);
    while (parse_skip_word(p, "or"))
        a = two(p, EXPRESSION_OR, 0, a, conjunction(p));
    return a;
}

const struct expression *parse_expression(struct parser *p)
{
    run_enter(p->run);
    const struct expression *value = parse_or(p);
    while (parse_skip_word(p, "if")) {
        struct expression *e = parse_new(p, EXPRESSION_CONDITION);
        e->b = value;
        e->a = parse_or(p);
        e->c = parse_skip_word(p, "else") ? parse_expression(p) : NULL;
        value = e;
    }
    run_leave(p->run);
    return value;
}

/* ---- Targets ---- */

static const struct expression *one_target(struct parser *p, bool namespaces)
{
    if (parse_skip(p, '(')) {
        const struct expression *inner = parse_target(p, namespaces);
        parse_expect(p, ')', ")");
        return inner;
    }
    const struct expression *e = parse_name_or_constant(p);
    if (e->kind != EXPRESSION_NAME)
        parse_unexpected(p, "a name to assign to");
    if (!namespaces || !parse_at(p, '.'))
        return e;
    return parse_attribute(p, e);
}

const struct expression *parse_target(struct parser *p, bool namespaces)
{
    struct item_list items = {0};
    struct expression *e = parse_new(p, EXPRESSION_TUPLE);
    run_enter(p->run);
    do
        parse_item_add(p, &items, one_target(p, namespaces), 0);
    while (parse_skip(p, ',') &&
           (parse_at(p, '(') || (p->at->type == TOKEN_NAME && !parse_at_word(p, "in"))));
    run_leave(p->run);
    return items.count == 1 ? items.items[0] : parse_with_items(e, &items);
}
