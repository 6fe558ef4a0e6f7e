/* Arrays: the elements of prefixItems one by one, then a repetition of items; see leaf.h. */
#include "grammar/leaf.h"

size_t leaf_prefix(const struct leaf *l)
{
    size_t longest = 0;
    for (uint32_t i = 0; i < l->nodes->n; i++) {
        size_t n = json_array_size(json_object_get(l->s->nodes[l->nodes->ids[i]], "prefixItems"));
        longest = n > longest ? n : longest;
    }
    return longest;
}

enum error_code leaf_element_goal(const struct leaf *l, size_t index, struct id_list *out,
                                  bool *forbidden)
{
    enum error_code error = ERROR_OK;
    *forbidden = false;
    for (uint32_t i = 0; i < l->nodes->n && !error; i++) {
        uint32_t id = l->nodes->ids[i], node = 0;
        json_t *prefix = json_object_get(l->s->nodes[id], "prefixItems");
        json_t *schema = index < json_array_size(prefix)
                             ? json_array_get(prefix, index)
                             : json_object_get(l->s->nodes[id], "items");
        if (prefix && !json_is_array(prefix))
            return schema_refuse(l->s, ERROR_USAGE, id, "prefixItems", "must be an array");
        if (!schema)
            continue;
        if (json_is_array(schema))
            return schema_refuse(
                l->s, ERROR_UNSUPPORTED, id, "items",
                "must be a schema; a list of schemas is prefixItems since 2020-12");
        *forbidden = *forbidden || json_is_false(schema);
        error = schema_node(l->s, schema, &node);
        if (!error && !id_list_add(out, node))
            error = schema_out_of_memory(l->s);
    }
    return error;
}

/* The rule of an element; *forbidden: the array must end before it. */
static enum error_code element_rule(const struct leaf *l, size_t index, uint32_t *rule,
                                    bool *forbidden)
{
    struct id_list goal = {0};
    enum error_code error = leaf_element_goal(l, index, &goal, forbidden);
    if (!error && !*forbidden)
        return schema_goal(l->s, &goal, rule);
    id_list_fini(&goal);
    return error;
}

/* Behind the elements one by one: the rest of them, each with its comma. */
static enum error_code add_rest(const struct leaf *l, uint32_t from, size_t written, uint32_t close)
{
    struct network *n = l->s->n;
    bool forbidden = false;
    uint32_t rule = 0, n_written = (uint32_t)written;
    struct count_bounds rest = {l->items.min > n_written ? l->items.min - n_written : 0,
                                l->items.max == BOUNDS_OPEN ? BOUNDS_OPEN
                                                            : l->items.max - n_written};
    enum error_code error = element_rule(l, written, &rule, &forbidden);
    if (error)
        return error;
    if (forbidden || rest.max == 0) {
        if (rest.min == 0)
            network_empty(n, from, close);
        return ERROR_OK;
    }
    uint32_t element = network_rule(n);
    if (n->error)
        return network_error(n, l->s->error);
    uint32_t value = json_mark(n, n->rules[element].start, ',');
    if (!n->error)
        network_call(n, value, rule, n->rules[element].end);
    uint32_t after = network_repeat_rule(n, from, element, rest);
    if (!n->error)
        network_empty(n, after, close);
    return network_error(n, l->s->error);
}

enum error_code leaf_build_array(const struct leaf *l, uint32_t from, uint32_t to)
{
    struct network *n = l->s->n;
    size_t one_by_one = leaf_prefix(l) ? leaf_prefix(l) : 1, i = 0;
    uint32_t at = network_literal(n, from, "[", 1), close = network_state(n);
    enum error_code error = network_error(n, l->s->error);
    if (error || bounds_are_empty(l->items))
        return error;
    network_byte(n, close, ']', ']', to);
    for (; i < one_by_one && i < l->items.max; i++) {
        bool forbidden = false;
        uint32_t rule = 0;
        error = element_rule(l, i, &rule, &forbidden);
        if (error)
            return error;
        if (i >= l->items.min)
            network_empty(n, at, close);
        if (forbidden)
            return ERROR_OK;
        if (i > 0)
            at = json_mark(n, at, ',');
        uint32_t after = network_state(n);
        if (n->error)
            return network_error(n, l->s->error);
        network_call(n, at, rule, after);
        at = after;
    }
    if (i < one_by_one) { /* maxItems ends it */
        network_empty(n, at, close);
        return ERROR_OK;
    }
    return add_rest(l, at, i, close);
}
