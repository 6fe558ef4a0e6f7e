/* Order and membership, as Python has them; see value.h. */
#include "jinja/value.h"

#include <string.h>

static int order(double x, double y)
{
    return (x > y) - (x < y);
}

static int compare_sequences(struct run *r, const struct sequence *a, const struct sequence *b,
                             const char *op)
{
    run_enter(r);
    size_t both = a->count < b->count ? a->count : b->count;
    int result = (a->count > b->count) - (a->count < b->count);
    run_work(r, both / 4);
    for (size_t i = 0; i < both; i++) {
        if (value_equal(r, a->items[i], b->items[i]))
            continue;
        result = value_compare(r, a->items[i], b->items[i], op);
        break;
    }
    run_leave(r);
    return result;
}

static bool both_ordered(struct value a, struct value b)
{
    return a.kind == VALUE_SEQUENCE && b.kind == VALUE_SEQUENCE &&
           a.sequence->kind == b.sequence->kind && a.sequence->kind <= SEQUENCE_TUPLE;
}

int value_compare(struct run *r, struct value a, struct value b, const char *op)
{
    double x, y;
    int64_t i, j;
    value_require(r, a);
    value_require(r, b);
    if (value_is_integer(a, &i) && value_is_integer(b, &j))
        return (i > j) - (i < j);
    if (value_is_number(a, &x) && value_is_number(b, &y))
        return order(x, y);
    if (a.kind == VALUE_STRING && b.kind == VALUE_STRING)
        return text_compare(a.text, b.text);
    if (both_ordered(a, b))
        return compare_sequences(r, a.sequence, b.sequence, op);
    run_refuse(r, "'%s' not supported between instances of '%s' and '%s'", op, value_type_name(a),
               value_type_name(b));
}

bool value_contains(struct run *r, struct value container, struct value item)
{
    if (container.kind == VALUE_STRING) {
        value_require(r, item);
        if (item.kind != VALUE_STRING)
            run_refuse(r, "'in <string>' requires string as left operand, not %s",
                       value_type_name(item));
        run_work(r, container.text->len / 256);
        return text_find(container.text, item.text, 0) != SIZE_MAX;
    }
    if (container.kind == VALUE_DICT)
        value_require_hashable(r, item);
    if (container.kind == VALUE_DICT)
        return dict_find(r, container.dict, item) != NULL;
    if (!value_is_iterable(container))
        run_refuse(r, "argument of type '%s' is not iterable", value_type_name(container));
    const struct sequence *s = value_elements(r, container);
    run_work(r, s->count / 8);
    for (size_t i = 0; i < s->count; i++)
        if (value_equal(r, s->items[i], item))
            return true;
    return false;
}
