/* The goals of a schema, worked off; see schema.h. */
#include "grammar/schema.h"

#include "grammar/leaf_build.h"
#include "grammar/schema_expand.h"

#include <stdlib.h>
#include <string.h>

static enum error_code build_leaf(struct schema *s, const struct id_list *leaf, void *context)
{
    uint32_t rule = *(const uint32_t *)context;
    return leaf_build(s, leaf, s->n->rules[rule].start, s->n->rules[rule].end);
}

static enum error_code build_goals(struct schema *s)
{
    for (uint32_t i = 0; i < s->n_goals; i++) {
        struct goal g = s->goals[i];
        struct id_list nodes = {0};
        enum error_code error = ERROR_OK;
        for (uint32_t k = 0; k < g.count && !error; k++)
            if (!id_list_add(&nodes, s->goal_nodes.ids[g.from + k]))
                error = schema_out_of_memory(s);
        s->leaves = s->expansions = 0;
        if (!error)
            error = schema_expand(s, &nodes, true, build_leaf, &g.rule);
        if (!error)
            error = network_error(s->n, s->error);
        id_list_fini(&nodes);
        if (error)
            return error;
    }
    return ERROR_OK;
}

struct bare {
    const struct schema_source *source;
    uint32_t rule;
};

static enum error_code build_bare_leaf(struct schema *s, const struct id_list *leaf, void *context)
{
    const struct bare *b = context;
    return leaf_build_bare(s, leaf, b->source->without, b->source->unlike,
                           s->n->rules[b->rule].start, s->n->rules[b->rule].end);
}

static enum error_code build_bare(struct schema *s, const struct schema_source *source,
                                  const struct id_list *goal, uint32_t *root)
{
    struct bare b = {source, network_rule(s->n)};
    enum error_code error = network_error(s->n, s->error);
    if (!error)
        error = schema_expand(s, goal, true, build_bare_leaf, &b);
    *root = b.rule;
    return error;
}

static enum error_code build(struct schema *s, const struct schema_source *source, uint32_t *root)
{
    struct id_list goal = {0};
    uint32_t node;
    enum error_code error = schema_node(s, s->document, &node);
    if (error)
        return error;
    if (!id_list_add(&goal, node))
        return schema_out_of_memory(s);
    if (source->bare) {
        error = build_bare(s, source, &goal, root);
        id_list_fini(&goal);
        return error;
    }
    error = schema_goal(s, &goal, root);
    return error ? error : build_goals(s);
}

enum error_code schema_build_document(json_t *document, const struct schema_source *source,
                                      const struct schema_context *c, uint32_t *root,
                                      struct schema_blame *blame, struct error *e)
{
    struct error own = {0};
    struct schema s = {.document = document,
                       .limits = c->limits,
                       .n = c->n,
                       .rules = c->rules,
                       .steps = c->steps,
                       .place = source->place,
                       .error = e ? e : &own};
    enum error_code error = build(&s, source, root);
    if (error && blame && strncmp(s.error->text, s.place, strlen(s.place)) == 0)
        *blame = s.blame;
    free(s.nodes);
    free(s.goals);
    id_list_fini(&s.goal_nodes);
    return error;
}

enum error_code schema_build(const struct schema_source *source, const struct schema_context *c,
                             uint32_t *root, struct error *e)
{
    json_error_t where;
    json_t *document =
        json_loadb(source->text, source->len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &where);
    if (!document)
        return error_set(
            e,
            json_error_code(&where) == json_error_null_character ? ERROR_UNSUPPORTED : ERROR_USAGE,
            "the schema is not JSON: line %d, column %d: %s", where.line, where.column, where.text);
    enum error_code error = schema_build_document(document, source, c, root, NULL, e);
    json_decref(document);
    return error;
}
