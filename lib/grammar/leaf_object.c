/* Objects: the named members in the order of the schema, then others; see leaf.h.
 *
 * The automaton is a grid: row i is before named member i, column c after c members. The last
 * column stands for all further numbers of members if there is no maximum. In column 0 no comma
 * comes first.
 *
 *     {  (0,0) -- "a": v --> (1,1) -- , "b": v --> (2,2) ...  }  where enough members are there
 *          \-- left out --> (1,0) ...
 */
#include "grammar/leaf.h"

#include <stdlib.h>
#include <string.h>

enum { PATTERNS_MAX = 4, CELLS_MAX = 65536 };

struct object {
    const struct leaf *leaf;
    struct members m;
    struct network *n;
    uint32_t *cells; /* [(n_keys + 1)][columns] */
    uint32_t columns;
    bool others; /* members beside the named ones are possible */
};

static uint32_t cell(const struct object *o, size_t row, uint32_t column)
{
    return o->cells[row * o->columns + column];
}

/* The column after one more member; NETWORK_NONE: there may be no more. */
static uint32_t next_column(const struct object *o, uint32_t column)
{
    if (column + 1 < o->columns)
        return column + 1;
    return o->leaf->max_members == NETWORK_NONE ? column : NETWORK_NONE;
}

/* From each cell of a row, behind the comma, to a state that the member's key follows. */
static uint32_t before_key(struct object *o, size_t row, uint32_t column)
{
    uint32_t from = cell(o, row, column);
    if (column > 0)
        return json_mark(o->n, from, ',');
    uint32_t to = network_state(o->n);
    if (!o->n->error)
        network_empty(o->n, from, to);
    return to;
}

static void value_after(struct object *o, uint32_t from, uint32_t rule, uint32_t to)
{
    uint32_t value = json_mark(o->n, from, ':');
    if (!o->n->error)
        network_call(o->n, value, rule, to);
}

static enum error_code add_named(struct object *o, size_t row)
{
    const char *key = o->m.keys[row];
    bool required = members_required(&o->m, key), forbidden = false;
    struct id_list goal = {0};
    uint32_t rule = 0;
    enum error_code error = members_goal(&o->m, key, &goal, &forbidden);
    if (!error && !forbidden)
        error = schema_goal(o->leaf->s, &goal, &rule);
    else
        id_list_fini(&goal);
    if (!error && !forbidden && !json_key_has_text(o->leaf->s->rules, key))
        return schema_refuse_marks(o->leaf->s, o->leaf->nodes->ids[0], "properties");
    uint32_t member = 0, member_next = NETWORK_NONE; /* where a member begins that leads to it */
    for (uint32_t c = 0; c < o->columns && !error && !o->n->error; c++) {
        uint32_t next = next_column(o, c);
        if (!required)
            network_empty(o->n, cell(o, row, c), cell(o, row + 1, c));
        if (forbidden || next == NETWORK_NONE)
            continue;
        uint32_t from = before_key(o, row, c);
        if (next == member_next && !o->n->error) {
            network_empty(o->n, from, member);
            continue;
        }
        uint32_t after = json_key_constant(o->leaf->s->rules, o->n, from, key);
        value_after(o, after, rule, cell(o, row + 1, next));
        member = from;
        member_next = next;
    }
    return error;
}

/* What a key satisfies that exactly the patterns in `set` match, and no named one. */
static enum error_code other_goal(const struct object *o, unsigned set, struct id_list *out,
                                  bool *forbidden)
{
    const struct leaf *l = o->leaf;
    enum error_code error = ERROR_OK;
    *forbidden = false;
    for (uint32_t i = 0; i < l->nodes->n && !error; i++) {
        uint32_t node = l->nodes->ids[i], target = 0;
        json_t *others = json_object_get(l->s->nodes[node], "additionalProperties");
        for (size_t p = 0; p < o->m.n_patterns; p++)
            if (o->m.patterns[p].owner == node && set >> p & 1) {
                others = NULL;
                *forbidden = *forbidden || json_is_false(l->s->nodes[o->m.patterns[p].schema]);
                if (!id_list_add(out, o->m.patterns[p].schema))
                    error = schema_out_of_memory(l->s);
            }
        *forbidden = *forbidden || (others && json_is_false(others));
        if (others && !error)
            error = schema_node(l->s, others, &target);
        if (others && !error && !id_list_add(out, target))
            error = schema_out_of_memory(l->s);
    }
    return error;
}

/* The keys of other_goal. */
static enum error_code other_keys(const struct object *o, unsigned set, struct dfa *out)
{
    struct schema *s = o->leaf->s;
    struct dfa named;
    enum error_code error = text_matching(s, NULL, out);
    dfa_init(&named, s->limits->dfa_states);
    if (!error && s->rules->quote) /* a key that is no word is left out */
        error = text_restrict(s, "^[a-zA-Z0-9_-]+$", DFA_BOTH, out);
    if (!error && o->m.has_names)
        error = dfa_combine(out, &o->m.names, DFA_BOTH, s->error);
    if (!error && s->rules->without)
        error = text_without(s, s->rules->without, out);
    for (size_t p = 0; p < o->m.n_patterns && !error; p++)
        error = dfa_combine(out, &o->m.patterns[p].text, set >> p & 1 ? DFA_BOTH : DFA_WITHOUT,
                            s->error);
    if (!error)
        error = text_list(s, o->m.keys, o->m.n_keys, &named);
    if (!error)
        error = dfa_combine(out, &named, DFA_WITHOUT, s->error);
    if (!error)
        error = schema_work(s, out->work);
    dfa_fini(&named);
    return error ? schema_locate(s, o->leaf->nodes->ids[0], NULL) : ERROR_OK;
}

/* A rule for `"key": value` of other members of one kind; none if there are no such keys. */
static enum error_code other_member(struct object *o, unsigned set, uint32_t rule, uint32_t start,
                                    uint32_t end)
{
    struct network *n = o->n;
    struct json_rules *rules = o->leaf->s->rules;
    uint32_t after = network_state(n);
    enum error_code error = network_error(n, o->leaf->s->error);
    if (error)
        return error;
    if (o->m.n_keys == 0 && o->m.n_patterns == 0 && !o->m.has_names) {
        network_call(n, start, json_rule(rules, n, JSON_RULE_KEY), after);
        o->others = true;
    } else {
        struct dfa keys;
        dfa_init(&keys, o->leaf->s->limits->dfa_states);
        error = other_keys(o, set, &keys);
        if (!error && !dfa_is_empty(&keys)) {
            uint32_t inside = rules->quote ? start : json_quote(rules, n, start);
            uint32_t last = network_state(n);
            dfa_emit(&keys, n, inside, last, !rules->quote);
            uint32_t behind = rules->quote ? last : json_quote(rules, n, last);
            if (!n->error)
                network_empty(n, behind, after);
            o->others = true;
        }
        dfa_fini(&keys);
    }
    if (!error)
        value_after(o, after, rule, end);
    return error;
}

/* One rule for all members that are not named. */
static enum error_code add_others(struct object *o)
{
    struct schema *s = o->leaf->s;
    uint32_t others = network_rule(o->n);
    enum error_code error = network_error(o->n, s->error);
    if (!error && o->m.n_patterns > PATTERNS_MAX)
        return schema_refuse(s, ERROR_LIMIT, o->m.patterns[0].owner, "patternProperties",
                             "more than %d patterns apply to one object", PATTERNS_MAX);
    for (unsigned set = 0; set < 1u << o->m.n_patterns && !error; set++) {
        struct id_list goal = {0};
        bool forbidden = false;
        uint32_t rule = 0;
        error = other_goal(o, set, &goal, &forbidden);
        if (error || forbidden) {
            id_list_fini(&goal);
            continue;
        }
        error = schema_goal(s, &goal, &rule);
        if (!error)
            error = other_member(o, set, rule, o->n->rules[others].start, o->n->rules[others].end);
    }
    for (uint32_t c = 0; c < o->columns && !error && o->others && !o->n->error; c++) {
        uint32_t next = next_column(o, c);
        if (next == NETWORK_NONE)
            continue;
        uint32_t from = before_key(o, o->m.n_keys, c);
        if (!o->n->error)
            network_call(o->n, from, others, cell(o, o->m.n_keys, next));
    }
    return error;
}

/* Keys that are not named can repeat; so members can be counted only if one of them suffices. */
static enum error_code check_count(const struct object *o)
{
    uint32_t required = 0;
    for (size_t i = 0; i < o->m.n_keys; i++)
        required += members_required(&o->m, o->m.keys[i]);
    if (o->others && o->leaf->min_members > required + 1)
        return schema_refuse(o->leaf->s, ERROR_UNSUPPORTED, o->leaf->nodes->ids[0], NULL,
                             "minProperties above the number of required properties and one is "
                             "only supported without other properties");
    return ERROR_OK;
}

static enum error_code make_cells(struct object *o)
{
    const struct leaf *l = o->leaf;
    uint32_t most = l->max_members == NETWORK_NONE ? l->min_members : l->max_members;
    uint64_t columns = (most > 1 || l->max_members != NETWORK_NONE ? most : 1) + (uint64_t)1;
    if (columns * (o->m.n_keys + 1) > CELLS_MAX)
        return schema_refuse(l->s, ERROR_LIMIT, l->nodes->ids[0], NULL,
                             "minProperties or maxProperties is too large");
    o->columns = (uint32_t)columns;
    o->cells = malloc(columns * (o->m.n_keys + 1) * sizeof *o->cells);
    if (!o->cells)
        return schema_out_of_memory(l->s);
    for (size_t i = 0; i < columns * (o->m.n_keys + 1); i++)
        o->cells[i] = network_state(o->n);
    return network_error(o->n, l->s->error);
}

static enum error_code build(struct object *o, uint32_t from, uint32_t to)
{
    enum error_code error = make_cells(o);
    if (error)
        return error;
    uint32_t open = network_literal(o->n, from, "{", 1);
    if (!o->n->error)
        network_empty(o->n, open, cell(o, 0, 0));
    for (size_t row = 0; row < o->m.n_keys && !error; row++)
        error = add_named(o, row);
    if (!error)
        error = add_others(o);
    if (!error)
        error = check_count(o);
    for (uint32_t c = o->leaf->min_members; c < o->columns && !error && !o->n->error; c++)
        network_byte(o->n, cell(o, o->m.n_keys, c), '}', '}', to);
    return error ? error : network_error(o->n, o->leaf->s->error);
}

enum error_code leaf_build_object(const struct leaf *l, uint32_t from, uint32_t to)
{
    struct object o = {.leaf = l, .n = l->s->n};
    enum error_code error = members_init(l, &o.m);
    if (error)
        return error;
    error = build(&o, from, to);
    free(o.cells);
    members_fini(&o.m);
    return error;
}
