/* Whether two goals exclude each other, as the branches of a oneOf must: by types, lists of values,
 * ranges of numbers, contents of strings, required members and first elements. A "no" may be wrong,
 * a "yes" is not. */
#include "grammar/leaf.h"
#include "grammar/schema_expand.h"

#include <string.h>

struct comparison {
    const struct id_list *other; /* the second goal; then a leaf of the first one */
    const struct leaf *first;
    unsigned depth;
    bool *disjoint;
};

static bool ranges_disjoint(const struct number_range *a, const struct number_range *b)
{
    int order = a->has_high && b->has_low ? decimal_compare(&a->high, &b->low) : 1;
    return order < 0 || (order == 0 && (a->high_open || b->low_open));
}

/* Does any listed value of `a` satisfy what `b` asks of its kind? Not more than that is found. */
static bool values_may_satisfy(const struct leaf *a, const struct leaf *b)
{
    for (size_t i = 0; i < a->n_values; i++) {
        json_t *value = a->values[i];
        unsigned type = json_is_object(value)    ? TYPE_OBJECT
                        : json_is_array(value)   ? TYPE_ARRAY
                        : json_is_string(value)  ? TYPE_STRING
                        : json_is_null(value)    ? TYPE_NULL
                        : json_is_boolean(value) ? TYPE_BOOLEAN
                                                 : TYPE_NUMBER;
        bool found = !b->has_values || leaf_lists(b, value);
        struct decimal x;
        if (found && type & b->types &&
            !(json_is_number(value) && decimal_from_json(value, &x) &&
              !number_range_has(&b->range, &x)))
            return true;
    }
    return false;
}

/* Do both leaves allow no text of *form? A dfa that would be too large says nothing. */
static enum error_code lengths_exclude(const struct leaf *a, const struct leaf *b, struct dfa *form,
                                       bool *out)
{
    enum error_code error = dfa_limit_length(form, bounds_both(a->length, b->length), a->s->error);
    if (error == ERROR_LIMIT)
        return schema_work(a->s, form->states_max * (uint64_t)256);
    *out = !error && dfa_is_empty(form);
    return error ? error : schema_work(a->s, form->work);
}

static enum error_code strings_disjoint(const struct leaf *a, const struct leaf *b, bool *disjoint)
{
    struct dfa x, y;
    bool plain = !a->has_text && !a->has_values && !b->has_text && !b->has_values;
    *disjoint = bounds_exclude(a->length, b->length);
    if (*disjoint || plain)
        return ERROR_OK;
    dfa_init(&x, a->s->limits->dfa_states);
    dfa_init(&y, a->s->limits->dfa_states);
    enum error_code error = leaf_form(a, &x);
    if (!error)
        error = leaf_form(b, &y);
    if (!error)
        error = dfa_combine(&x, &y, DFA_BOTH, a->s->error);
    if (!error)
        error = schema_work(a->s, x.work);
    *disjoint = !error && dfa_is_empty(&x);
    if (!error && !*disjoint && (bounds_bind(a->length) || bounds_bind(b->length)))
        error = lengths_exclude(a, b, &x, disjoint);
    dfa_fini(&x);
    dfa_fini(&y);
    return error;
}

static enum error_code goals_disjoint(struct schema *s, struct id_list *a, struct id_list *b,
                                      bool forbidden, unsigned depth, bool *disjoint)
{
    enum error_code error = ERROR_OK;
    *disjoint = forbidden;
    if (!forbidden && a->n > 0 && b->n > 0)
        error = schema_disjoint(s, a, b, depth, disjoint);
    id_list_fini(a);
    id_list_fini(b);
    return error;
}

/* A key that one side requires, and whose values exclude each other, or that the other forbids. */
static enum error_code key_excludes(const struct members *a, const struct members *b,
                                    const char *key, unsigned depth, bool *disjoint)
{
    struct id_list x = {0}, y = {0};
    bool x_forbidden = false, y_forbidden = false;
    enum error_code error = members_goal(a, key, &x, &x_forbidden);
    if (!error)
        error = members_goal(b, key, &y, &y_forbidden);
    if (error) {
        id_list_fini(&x);
        id_list_fini(&y);
        return error;
    }
    return goals_disjoint(a->leaf->s, &x, &y, x_forbidden || y_forbidden, depth, disjoint);
}

static enum error_code objects_disjoint(const struct leaf *a, const struct leaf *b, unsigned depth,
                                        bool *disjoint)
{
    struct members x, y;
    *disjoint = bounds_exclude(a->members, b->members);
    enum error_code error = members_init(a, &x);
    if (error)
        return error;
    error = members_init(b, &y);
    for (size_t i = 0; i < x.n_keys + (error ? 0 : y.n_keys) && !error && !*disjoint; i++) {
        const char *key = i < x.n_keys ? x.keys[i] : y.keys[i - x.n_keys];
        if (members_required(&x, key) || members_required(&y, key))
            error = key_excludes(&x, &y, key, depth, disjoint);
    }
    members_fini(&x);
    members_fini(&y);
    return error;
}

static enum error_code arrays_disjoint(const struct leaf *a, const struct leaf *b, unsigned depth,
                                       bool *disjoint)
{
    uint32_t both = bounds_both(a->items, b->items).min;
    size_t most = leaf_prefix(a) > leaf_prefix(b) ? leaf_prefix(a) : leaf_prefix(b);
    enum error_code error = ERROR_OK;
    *disjoint = bounds_exclude(a->items, b->items);
    for (size_t i = 0; i < both && i <= most && !*disjoint && !error; i++) {
        struct id_list x = {0}, y = {0};
        bool x_forbidden = false, y_forbidden = false;
        error = leaf_element_goal(a, i, &x, &x_forbidden);
        if (!error)
            error = leaf_element_goal(b, i, &y, &y_forbidden);
        if (error) {
            id_list_fini(&x);
            id_list_fini(&y);
        } else {
            error = goals_disjoint(a->s, &x, &y, x_forbidden || y_forbidden, depth, disjoint);
        }
    }
    return error;
}

static enum error_code leaves_disjoint(const struct leaf *a, const struct leaf *b, unsigned depth,
                                       bool *disjoint)
{
    unsigned types = a->types & b->types;
    enum error_code error =
        schema_work(a->s, COMPARISON_STEPS * (uint64_t)(a->n_values + 1) * (b->n_values + 1));
    if (error)
        return error;
    *disjoint = !types || (a->has_values && !values_may_satisfy(a, b)) ||
                (b->has_values && !values_may_satisfy(b, a));
    if (*disjoint || types & (TYPE_NULL | TYPE_BOOLEAN))
        return ERROR_OK;
    *disjoint = !(types & TYPE_NUMBER) || ranges_disjoint(&a->range, &b->range) ||
                ranges_disjoint(&b->range, &a->range);
    if (*disjoint && types & TYPE_STRING)
        error = strings_disjoint(a, b, disjoint);
    if (*disjoint && !error && types & TYPE_ARRAY)
        error = arrays_disjoint(a, b, depth, disjoint);
    if (*disjoint && !error && types & TYPE_OBJECT)
        error = objects_disjoint(a, b, depth, disjoint);
    return error;
}

static enum error_code take_second(struct schema *s, const struct id_list *nodes, void *context)
{
    struct comparison *c = context;
    struct leaf second;
    bool disjoint = false;
    if (!*c->disjoint)
        return ERROR_OK;
    enum error_code error = leaf_init(s, nodes, &second);
    if (error)
        return error;
    error = leaves_disjoint(c->first, &second, c->depth - 1, &disjoint);
    *c->disjoint = disjoint;
    leaf_fini(&second);
    return error;
}

static enum error_code take_first(struct schema *s, const struct id_list *nodes, void *context)
{
    struct comparison *c = context;
    struct leaf first;
    if (!*c->disjoint)
        return ERROR_OK;
    enum error_code error = leaf_init(s, nodes, &first);
    if (error)
        return error;
    c->first = &first;
    error = schema_expand(s, c->other, false, take_second, c);
    leaf_fini(&first);
    return error;
}

enum error_code schema_disjoint(struct schema *s, const struct id_list *a, const struct id_list *b,
                                unsigned depth, bool *out)
{
    bool disjoint = true;
    struct comparison c = {.other = b, .depth = depth, .disjoint = &disjoint};
    if (depth == 0) {
        *out = false;
        return ERROR_OK;
    }
    enum error_code error = schema_expand(s, a, false, take_first, &c);
    *out = !error && disjoint;
    return error;
}
