/* The tests of `is`; see filters.h. */
#include "jinja/arguments.h"
#include "jinja/filters.h"
#include "jinja/interpreter.h"

static struct value simple(struct run *r, const struct arguments *a, bool holds)
{
    arguments_bind(r, "the test", a, NULL, 0, 0, NULL);
    return value_bool(holds);
}

#define SIMPLE(name, condition)                                                                    \
    static struct value test_##name(struct run *r, struct value v, const struct arguments *a)      \
    {                                                                                              \
        return simple(r, a, (condition));                                                          \
    }

static bool is_number(struct value v)
{
    double number;
    return value_is_number(v, &number);
}

/* Has a length and items. */
static bool is_sequence(struct value v)
{
    return v.kind == VALUE_UNDEFINED || v.kind == VALUE_STRING || v.kind == VALUE_DICT ||
           (v.kind == VALUE_SEQUENCE && v.sequence->kind <= SEQUENCE_RANGE);
}

static bool divides(struct run *r, struct value v, int64_t by)
{
    return !value_truth(binary(r, '%', v, value_int(by)));
}

SIMPLE(defined, v.kind != VALUE_UNDEFINED)
SIMPLE(undefined, v.kind == VALUE_UNDEFINED)
SIMPLE(none, v.kind == VALUE_NONE)
SIMPLE(boolean, v.kind == VALUE_BOOL)
SIMPLE(true, v.kind == VALUE_BOOL && v.truth)
SIMPLE(false, v.kind == VALUE_BOOL && !v.truth)
SIMPLE(integer, v.kind == VALUE_INT)
SIMPLE(float, v.kind == VALUE_FLOAT)
SIMPLE(number, is_number(v))
SIMPLE(string, v.kind == VALUE_STRING)
SIMPLE(mapping, v.kind == VALUE_DICT)
SIMPLE(sequence, is_sequence(v))
SIMPLE(iterable, value_is_iterable(v) || v.kind == VALUE_LOOP)
SIMPLE(callable, v.kind == VALUE_FUNCTION || v.kind == VALUE_MACRO || v.kind == VALUE_UNDEFINED)
SIMPLE(odd, value_equal(r, binary(r, '%', v, value_int(2)), value_int(1)))
SIMPLE(even, divides(r, v, 2))

/* str(v).islower(), str(v).isupper() */
static struct value text_method(struct run *r, struct value v, const struct arguments *a,
                                const char *name)
{
    struct value text = value_text(value_to_text(r, v));
    return call_value(r, attribute_get(r, text, text_from(r, name)), a);
}

static struct value test_lower(struct run *r, struct value v, const struct arguments *a)
{
    return text_method(r, v, a, "islower");
}

static struct value test_upper(struct run *r, struct value v, const struct arguments *a)
{
    return text_method(r, v, a, "isupper");
}

static struct value one_argument(struct run *r, const struct arguments *a)
{
    struct value other;
    arguments_bind(r, "the test", a, (const char *const[]){"other"}, 1, 1, &other);
    return other;
}

static struct value test_divisibleby(struct run *r, struct value v, const struct arguments *a)
{
    struct value by = one_argument(r, a);
    return value_bool(value_equal(r, binary(r, '%', v, by), value_int(0)));
}

static struct value test_sameas(struct run *r, struct value v, const struct arguments *a)
{
    struct value other = one_argument(r, a);
    if (v.kind != other.kind)
        return value_bool(false);
    if (v.kind == VALUE_SEQUENCE)
        return value_bool(v.sequence == other.sequence);
    if (v.kind == VALUE_DICT)
        return value_bool(v.dict == other.dict);
    return value_bool(value_equal(r, v, other));
}

#define COMPARISON(name, operator)                                                                 \
    static struct value test_##name(struct run *r, struct value v, const struct arguments *a)      \
    {                                                                                              \
        return value_bool(compare_values(r, operator, v, one_argument(r, a)));                     \
    }

COMPARISON(eq, OPERATOR_EQUAL)
COMPARISON(ne, OPERATOR_NOT_EQUAL)
COMPARISON(lt, '<')
COMPARISON(le, OPERATOR_LESS_EQUAL)
COMPARISON(gt, '>')
COMPARISON(ge, OPERATOR_GREATER_EQUAL)
COMPARISON(in, OPERATOR_IN)

static struct value test_filter(struct run *r, struct value v, const struct arguments *a)
{
    arguments_bind(r, "the test", a, NULL, 0, 0, NULL);
    return value_bool(v.kind == VALUE_STRING && filter_find(v.text));
}

static struct value test_test(struct run *r, struct value v, const struct arguments *a)
{
    arguments_bind(r, "the test", a, NULL, 0, 0, NULL);
    return value_bool(v.kind == VALUE_STRING && test_find(v.text));
}

static const struct filter_entry tests[] = {
    {"filter", test_filter},
    {"test", test_test},
    {"defined", test_defined},
    {"undefined", test_undefined},
    {"none", test_none},
    {"boolean", test_boolean},
    {"true", test_true},
    {"false", test_false},
    {"integer", test_integer},
    {"float", test_float},
    {"number", test_number},
    {"string", test_string},
    {"mapping", test_mapping},
    {"sequence", test_sequence},
    {"iterable", test_iterable},
    {"callable", test_callable},
    {"odd", test_odd},
    {"even", test_even},
    {"divisibleby", test_divisibleby},
    {"sameas", test_sameas},
    {"lower", test_lower},
    {"upper", test_upper},
    {"in", test_in},
    {"eq", test_eq},
    {"==", test_eq},
    {"equalto", test_eq},
    {"ne", test_ne},
    {"!=", test_ne},
    {"lt", test_lt},
    {"<", test_lt},
    {"lessthan", test_lt},
    {"le", test_le},
    {"<=", test_le},
    {"gt", test_gt},
    {">", test_gt},
    {"greaterthan", test_gt},
    {"ge", test_ge},
    {">=", test_ge},
};

function_call *test_find(const struct text *name)
{
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (text_is(name, tests[i].name))
            return tests[i].call;
    return NULL;
}
