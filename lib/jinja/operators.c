/* Python's operators; see interpreter.h. Integers have 64 bits: what does not fit ends the run. */
#include "jinja/interpreter.h"

#include "jinja/format.h"

#include <math.h>
#include <string.h>

static const char *operator_name(int operator, char buffer[4])
{
    static const char *const pairs[] = {"==", "!=", "<=", ">=", "//", "**"};
    if (operator>= OPERATOR_EQUAL)
        return pairs[operator- OPERATOR_EQUAL];
    buffer[0] = (char)operator;
    buffer[1] = '\0';
    return buffer;
}

static noreturn void refuse(struct run *r, int operator, struct value a, struct value b)
{
    char buffer[4];
    value_require(r, a);
    value_require(r, b);
    run_refuse(r, "unsupported operand type(s) for %s: '%s' and '%s'",
               operator_name(operator, buffer), value_type_name(a), value_type_name(b));
}

/* ---- Numbers ---- */

static noreturn void too_large(struct run *r)
{
    run_refuse(r, "an integer is too large: the engine has 64 bits");
}

static int64_t floor_divide(int64_t a, int64_t b)
{
    int64_t quotient = a / b;
    return quotient - ((a % b != 0) && ((a < 0) != (b < 0)));
}

static int64_t integer_power(struct run *r, int64_t base, int64_t exponent)
{
    int64_t result = 1;
    if (base == 0 || base == 1 || base == -1)
        return exponent == 0 ? 1 : base == -1 && exponent % 2 == 0 ? 1 : base;
    for (; exponent > 0; exponent--)
        if (__builtin_mul_overflow(result, base, &result))
            too_large(r);
    return result;
}

static struct value binary_float(struct run *r, int operator, double a, double b)
{
    bool divides = operator== '/' || operator== '%' || operator== OPERATOR_FLOOR_DIVIDE;
    if (divides && b == 0)
        run_refuse(r, "division by zero");
    switch (operator) {
    case '+':
        return value_float(a + b);
    case '-':
        return value_float(a - b);
    case '*':
        return value_float(a * b);
    case '/':
        return value_float(a / b);
    case OPERATOR_POWER:
        if (a < 0 && b != floor(b))
            run_refuse(r, "complex numbers are not supported");
        if (a == 0 && b < 0)
            run_refuse(r, "0.0 cannot be raised to a negative power");
        return value_float(pow(a, b));
    default:
        break;
    }
    double rest = fmod(a, b);
    if (rest != 0 && (rest < 0) != (b < 0))
        rest += b;
    if (operator== '%')
        return value_float(rest == 0 ? copysign(0, b) : rest);
    return value_float(a / b == 0 ? copysign(0, a / b) : round((a - rest) / b));
}

static struct value binary_integer(struct run *r, int operator, int64_t a, int64_t b)
{
    int64_t result = 0;
    bool overflow = false;
    bool divides = operator== '%' || operator== OPERATOR_FLOOR_DIVIDE;
    if (divides && b == 0)
        run_refuse(r, "integer division or modulo by zero");
    switch (operator) {
    case '+':
        overflow = __builtin_add_overflow(a, b, &result);
        break;
    case '-':
        overflow = __builtin_sub_overflow(a, b, &result);
        break;
    case '*':
        overflow = __builtin_mul_overflow(a, b, &result);
        break;
    case OPERATOR_FLOOR_DIVIDE:
        overflow = a == INT64_MIN && b == -1;
        result = overflow ? 0 : floor_divide(a, b);
        break;
    case '%':
        result = b == -1 ? 0 : a - floor_divide(a, b) * b;
        break;
    case OPERATOR_POWER:
        if (b < 0)
            return binary_float(r, operator,(double) a, (double)b);
        result = integer_power(r, a, b);
        break;
    default: /* '/' */
        return binary_float(r, operator,(double) a, (double)b);
    }
    if (overflow)
        too_large(r);
    return value_int(result);
}

struct value negate(struct run *r, struct value v, bool negative)
{
    int64_t integer;
    value_require(r, v);
    if (v.kind == VALUE_FLOAT)
        return value_float(negative ? -v.real : v.real);
    if (!value_is_integer(v, &integer))
        run_refuse(r, "bad operand type for unary %c: '%s'", negative ? '-' : '+',
                   value_type_name(v));
    if (negative && integer == INT64_MIN)
        too_large(r);
    return value_int(negative ? -integer : integer);
}

/* ---- Strings and sequences ---- */

/* What `safe` has marked escapes what is added to it. */
static void add_markup(struct text_builder *b, const struct text *t)
{
    if (t->markup)
        builder_add_text(b, t);
    else
        format_escape(b, t);
}

static struct value concat_texts(struct run *r, const struct text *a, const struct text *b)
{
    struct text_builder out;
    builder_init(&out, r);
    if (!a->markup && !b->markup) {
        builder_add_text(&out, a);
        builder_add_text(&out, b);
        return value_text(builder_text(&out));
    }
    add_markup(&out, a);
    add_markup(&out, b);
    struct text *sum = run_alloc(r, sizeof *sum);
    *sum = *builder_text(&out);
    sum->markup = true;
    return value_text(sum);
}

static struct value concat_sequences(struct run *r, const struct sequence *a,
                                     const struct sequence *b)
{
    struct value v = value_sequence(r, a->kind, a->count + b->count);
    run_work(r, (a->count + b->count) / 8);
    for (size_t i = 0; i < a->count + b->count; i++)
        sequence_add(r, v.sequence, i < a->count ? a->items[i] : b->items[i - a->count]);
    return v;
}

static struct value repeat(struct run *r, struct value v, int64_t times)
{
    if (v.kind == VALUE_STRING) {
        struct text_builder b;
        builder_init(&b, r);
        for (int64_t i = 0; i < times && v.text->len; i++) {
            run_work(r, 1);
            builder_add_text(&b, v.text);
        }
        return value_text(builder_text(&b));
    }
    struct value result = value_sequence(r, v.sequence->kind, 0);
    for (int64_t i = 0; i < times && v.sequence->count; i++) {
        run_work(r, v.sequence->count);
        for (size_t j = 0; j < v.sequence->count; j++)
            sequence_add(r, result.sequence, v.sequence->items[j]);
    }
    return result;
}

static bool is_list_or_tuple(struct value v)
{
    return v.kind == VALUE_SEQUENCE && v.sequence->kind <= SEQUENCE_TUPLE;
}

static bool repeats(struct value v)
{
    return v.kind == VALUE_STRING || is_list_or_tuple(v);
}

struct value binary(struct run *r, int operator, struct value a, struct value b)
{
    double x, y;
    int64_t i, j;
    if (value_is_integer(a, &i) && value_is_integer(b, &j))
        return binary_integer(r, operator, i, j);
    if (value_is_number(a, &x) && value_is_number(b, &y))
        return binary_float(r, operator, x, y);
    if (operator== '+' && a.kind == VALUE_STRING && b.kind == VALUE_STRING)
        return concat_texts(r, a.text, b.text);
    if (operator== '+' && is_list_or_tuple(a) && is_list_or_tuple(b) &&
        a.sequence->kind == b.sequence->kind)
        return concat_sequences(r, a.sequence, b.sequence);
    if (operator== '*' && repeats(a) && value_is_integer(b, &j))
        return repeat(r, a, j);
    if (operator== '*' && value_is_integer(a, &i) && repeats(b))
        return repeat(r, b, i);
    if (operator== '%' && a.kind == VALUE_STRING)
        return format_percent(r, a.text, b);
    refuse(r, operator, a, b);
}

bool compare_values(struct run *r, int operator, struct value a, struct value b)
{
    switch (operator) {
    case OPERATOR_EQUAL:
        return value_equal(r, a, b);
    case OPERATOR_NOT_EQUAL:
        return !value_equal(r, a, b);
    case OPERATOR_IN:
        return value_contains(r, b, a);
    case OPERATOR_NOT_IN:
        return !value_contains(r, b, a);
    case '<':
        return value_compare(r, a, b, "<") < 0;
    case '>':
        return value_compare(r, a, b, ">") > 0;
    case OPERATOR_LESS_EQUAL:
        return value_compare(r, a, b, "<=") <= 0;
    default:
        return value_compare(r, a, b, ">=") >= 0;
    }
}
