/* References and the leaves of a goal; see schema_expand.h. */
#include "grammar/schema_expand.h"

#include "grammar/schema_reference.h"

#include <stdlib.h>
#include <string.h>

enum { LEAF_NODES_MAX = 512, EXPANSIONS_MAX = 4096, DISJOINT_DEPTH = 3 };

static enum error_code resolve(struct schema *s, uint32_t node, const char *ref, uint32_t *out)
{
    if (ref[0] != '#')
        return schema_refuse(s, ERROR_UNSUPPORTED, node, "$ref",
                             "\"%.100s\": only references within the schema (#...) are supported",
                             ref);
    uint64_t looks = strlen(ref);
    json_t *found = schema_reference(s->document, ref, &looks);
    enum error_code error = schema_work(s, COMPARISON_STEPS * looks);
    if (error)
        return error;
    if (!found)
        return schema_refuse(s, ERROR_USAGE, node, "$ref", "\"%.100s\" names nothing", ref);
    return schema_node(s, found, out);
}

/* -- Leaves -- */

enum stage { STAGE_ALL, STAGE_ANY, STAGE_ONE, STAGE_COUNT };

struct expansion {
    struct schema *s;
    bool strict;
    schema_take_leaf *take;
    void *context;
};

static enum error_code expand_from(struct expansion *x, struct id_list *list, uint32_t at,
                                   enum stage stage);

static enum error_code add_node(struct expansion *x, struct id_list *list, uint32_t node)
{
    if (list->n >= LEAF_NODES_MAX)
        return schema_refuse(x->s, ERROR_LIMIT, node, NULL,
                             "more than %d schemas apply to one value", LEAF_NODES_MAX);
    return id_list_add(list, node) ? ERROR_OK : schema_out_of_memory(x->s);
}

static enum error_code add_all(struct expansion *x, struct id_list *list, uint32_t node)
{
    json_t *json = x->s->nodes[node], *ref = json_object_get(json, "$ref");
    json_t *all = json_object_get(json, "allOf"), *branch;
    enum error_code error = ERROR_OK;
    uint32_t target = 0;
    size_t i;
    if (ref && !json_is_string(ref))
        return schema_refuse(x->s, ERROR_USAGE, node, "$ref", "must be a string");
    if (ref) {
        error = resolve(x->s, node, json_string_value(ref), &target);
        error = error ? error : add_node(x, list, target);
    }
    if (all && !error && json_array_size(all) == 0)
        return schema_refuse(x->s, ERROR_USAGE, node, "allOf", "must be a non-empty array");
    json_array_foreach(all, i, branch)
    {
        if (!error)
            error = schema_node(x->s, branch, &target);
        if (!error)
            error = add_node(x, list, target);
    }
    return error;
}

static enum error_code copy_with(struct expansion *x, const struct id_list *list, uint32_t node,
                                 struct id_list *out)
{
    enum error_code error = ERROR_OK;
    *out = (struct id_list){0};
    for (uint32_t i = 0; i < list->n && !error; i++)
        if (!id_list_add(out, list->ids[i]))
            error = schema_out_of_memory(x->s);
    if (!error)
        error = add_node(x, out, node);
    if (error)
        id_list_fini(out);
    return error;
}

/* A value may satisfy only one branch of a oneOf: each two must exclude each other, together with
 * what else is asked of the value. */
static enum error_code check_exclusive(struct expansion *x, const struct id_list *list,
                                       uint32_t node, const uint32_t *branches, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = i + 1; k < n; k++) {
            struct id_list a, b;
            bool disjoint = false;
            enum error_code error = copy_with(x, list, branches[i], &a);
            if (error)
                return error;
            error = copy_with(x, list, branches[k], &b);
            if (!error) {
                error = schema_disjoint(x->s, &a, &b, DISJOINT_DEPTH, &disjoint);
                id_list_fini(&b);
            }
            id_list_fini(&a);
            if (error)
                return error;
            if (!disjoint)
                return schema_refuse(x->s, ERROR_UNSUPPORTED, node, "oneOf",
                                     "a value may satisfy both branch %zu and branch %zu; use "
                                     "anyOf, or make them exclude each other",
                                     i, k);
        }
    return ERROR_OK;
}

static enum error_code choose(struct expansion *x, struct id_list *list, uint32_t at,
                              enum stage stage, json_t *branches)
{
    const char *keyword = stage == STAGE_ANY ? "anyOf" : "oneOf";
    uint32_t node = list->ids[at];
    size_t n = json_array_size(branches);
    enum error_code error = ERROR_OK;
    if (n == 0)
        return schema_refuse(x->s, ERROR_USAGE, node, keyword, "must be a non-empty array");
    if (n > x->s->limits->alternatives)
        return schema_refuse(x->s, ERROR_LIMIT, node, keyword, "more than %u branches",
                             x->s->limits->alternatives);
    uint32_t *ids = malloc(n * sizeof *ids);
    if (!ids)
        return schema_out_of_memory(x->s);
    for (size_t i = 0; i < n && !error; i++)
        error = schema_node(x->s, json_array_get(branches, i), &ids[i]);
    if (!error && stage == STAGE_ONE && x->strict)
        error = check_exclusive(x, list, node, ids, n);
    for (size_t i = 0; i < n && !error; i++) {
        struct id_list copy;
        error = copy_with(x, list, ids[i], &copy);
        if (error)
            break;
        error = expand_from(x, &copy, at, stage + 1);
        id_list_fini(&copy);
    }
    free(ids);
    return error;
}

/* Handles what combines schemas in list[at..), from a stage of the first on. */
static enum error_code expand_from(struct expansion *x, struct id_list *list, uint32_t at,
                                   enum stage stage)
{
    static const char *const keywords[] = {"oneOf", "anyOf", NULL};
    if (++x->s->expansions > EXPANSIONS_MAX)
        return schema_refuse_in(x->s, ERROR_LIMIT, list, keywords,
                                "the combinations of anyOf and oneOf are too many");
    for (; at < list->n; at++, stage = STAGE_ALL) {
        json_t *json = x->s->nodes[list->ids[at]];
        enum error_code error = ERROR_OK;
        if (json_is_false(json))
            return ERROR_OK; /* no leaf */
        if (stage == STAGE_ALL)
            error = add_all(x, list, list->ids[at]);
        if (error)
            return error;
        if (stage <= STAGE_ANY && json_object_get(json, "anyOf"))
            return choose(x, list, at, STAGE_ANY, json_object_get(json, "anyOf"));
        if (stage <= STAGE_ONE && json_object_get(json, "oneOf"))
            return choose(x, list, at, STAGE_ONE, json_object_get(json, "oneOf"));
    }
    if (++x->s->leaves > x->s->limits->alternatives && x->strict)
        return schema_refuse_in(x->s, ERROR_LIMIT, list, keywords,
                                "more than %u alternatives after anyOf and oneOf are multiplied "
                                "out",
                                x->s->limits->alternatives);
    return x->take(x->s, list, x->context);
}

enum error_code schema_expand(struct schema *s, const struct id_list *goal, bool strict,
                              schema_take_leaf *take, void *context)
{
    struct expansion x = {s, strict, take, context};
    struct id_list list = {0};
    enum error_code error = ERROR_OK;
    for (uint32_t i = 0; i < goal->n && !error; i++)
        error = add_node(&x, &list, goal->ids[i]);
    if (!error && list.n > 0)
        error = expand_from(&x, &list, 0, STAGE_ALL);
    id_list_fini(&list);
    return error;
}
