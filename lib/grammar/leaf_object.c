/* Objects: the named members in the order of the schema, then others; or all in any order. See
 * leaf.h.
 *
 * With an order the automaton is a grid: row i is before named member i, column c after c members.
 * The last column stands for all further numbers of members if there is no maximum. In column 0 no
 * comma comes first.
 *
 *     {  (0,0) -- "a": v --> (1,1) -- , "b": v --> (2,2) ...  }  where enough members are there
 *          \-- left out --> (1,0) ...
 *
 * Without, it is one row of two columns, and the rule's set (network.h) has the named members that
 * were there. Others come behind all required members, so that these come at last. There are
 * objects for which that does not suffice (is_unordered). Optional members beyond NETWORK_SET have
 * no number, and can repeat.
 */
#include "grammar/leaf.h"

#include <stdlib.h>
#include <string.h>

enum { PATTERNS_MAX = 4 };

struct object {
    const struct leaf *leaf;
    struct members m;
    struct network *n;
    bool unordered;
    size_t rows;     /* before the last one */
    uint32_t *cells; /* [(rows + 1)][columns] */
    uint32_t columns;
    unsigned n_required;   /* of the named members */
    unsigned n_numbers[2]; /* unordered: given to optional and to required members */
    uint32_t end;          /* unordered: where each required member is in the set */
    bool others;           /* members beside the named ones are possible */
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
    return o->leaf->members.max == BOUNDS_OPEN ? column : NETWORK_NONE;
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

/* The rule of a member's value; NETWORK_NONE: there can be none. */
static enum error_code named_value(struct object *o, const char *key, uint32_t *rule)
{
    bool forbidden = false;
    struct id_list goal = {0};
    enum error_code error = members_goal(&o->m, key, &goal, &forbidden);
    *rule = NETWORK_NONE;
    if (!error && !forbidden)
        error = schema_goal(o->leaf->s, &goal, rule);
    else
        id_list_fini(&goal);
    if (!error && !forbidden && !json_key_has_text(o->leaf->s->rules, key))
        return schema_refuse_marks(o->leaf->s, o->leaf->nodes->ids[0], "properties");
    return error;
}

/* Unordered: the number of a member in the set; required ones come first. */
static unsigned number_of(struct object *o, bool required)
{
    return (required ? 0 : o->n_required) + o->n_numbers[required]++;
}

static enum error_code add_unordered(struct object *o, size_t i)
{
    struct network *n = o->n;
    const char *key = o->m.keys[i];
    bool required = members_required(&o->m, key);
    uint32_t rule = 0;
    enum error_code error = named_value(o, key, &rule);
    if (error)
        return error;
    uint32_t comma = network_state(n), begin = json_mark(n, comma, ',');
    uint32_t after = network_state(n), needed = network_state(n);
    if (n->error)
        return network_error(n, o->leaf->s->error);
    unsigned number = number_of(o, required);
    if (required && rule != NETWORK_NONE)
        network_need(n, o->end, number, rule, needed);
    if (required) /* without a value nothing leads there */
        o->end = needed;
    if (rule == NETWORK_NONE)
        return ERROR_OK;
    for (uint32_t c = 0; c < o->columns; c++) { /* a comma comes only if a member can follow */
        uint32_t to = c > 0 ? comma : begin;
        if (number < NETWORK_SET)
            network_unused(n, cell(o, 0, c), number, to);
        else
            network_empty(n, cell(o, 0, c), to);
    }
    value_after(o, json_key_constant(o->leaf->s->rules, n, begin, key), rule, after);
    if (!n->error && number < NETWORK_SET)
        network_use(n, after, number, cell(o, 0, 1));
    else if (!n->error)
        network_empty(n, after, cell(o, 0, 1));
    return ERROR_OK;
}

static enum error_code add_ordered(struct object *o, size_t row)
{
    const char *key = o->m.keys[row];
    bool required = members_required(&o->m, key);
    uint32_t rule = 0;
    enum error_code error = named_value(o, key, &rule);
    uint32_t member = 0, member_next = NETWORK_NONE; /* where a member begins that leads to it */
    for (uint32_t c = 0; c < o->columns && !error && !o->n->error; c++) {
        uint32_t next = next_column(o, c);
        if (!required)
            network_empty(o->n, cell(o, row, c), cell(o, row + 1, c));
        if (rule == NETWORK_NONE || next == NETWORK_NONE)
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
    static const char *const keywords[] = {"patternProperties", "propertyNames", "properties",
                                           NULL};
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
    return error ? schema_locate_in(s, o->leaf->nodes, keywords) : ERROR_OK;
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
        if (next == NETWORK_NONE || (o->n_required > 0 && o->unordered && c == 0))
            continue;
        uint32_t from =
            o->unordered && c > 0 ? json_mark(o->n, o->end, ',') : before_key(o, o->rows, c);
        if (!o->n->error)
            network_call(o->n, from, others, cell(o, o->rows, next));
    }
    return error;
}

/* Keys that are not named can repeat; so members can be counted only if one of them suffices. */
static enum error_code check_count(const struct object *o)
{
    static const char *const keywords[] = {"minProperties", NULL};
    if (!o->others || o->leaf->members.min <= o->n_required + 1)
        return ERROR_OK;
    return schema_refuse_in(o->leaf->s, ERROR_UNSUPPORTED, o->leaf->nodes, keywords,
                            "minProperties above the number of required properties and one is only "
                            "supported without other properties");
}

static enum error_code make_cells(struct object *o)
{
    static const char *const keywords[] = {"maxProperties", "minProperties", NULL};
    const struct leaf *l = o->leaf;
    uint32_t most = bounds_last(l->members);
    uint64_t columns = (most > 1 || l->members.max != BOUNDS_OPEN ? most : 1) + (uint64_t)1;
    if (o->unordered)
        columns = 2;
    if (columns * (o->rows + 1) > MEMBER_CELLS_MAX)
        return schema_refuse_in(l->s, ERROR_LIMIT, l->nodes, keywords,
                                "minProperties or maxProperties is too large");
    o->columns = (uint32_t)columns;
    o->cells = malloc(columns * (o->rows + 1) * sizeof *o->cells);
    if (!o->cells)
        return schema_out_of_memory(l->s);
    for (size_t i = 0; i < columns * (o->rows + 1); i++)
        o->cells[i] = network_state(o->n);
    return network_error(o->n, l->s->error);
}

/* Where a set of the required members decides whether the object may end. */
static bool is_unordered(const struct object *o)
{
    const struct leaf *l = o->leaf;
    uint32_t enough = o->n_required > 0 ? o->n_required : 1;
    return l->s->rules->unordered && l->members.max == BOUNDS_OPEN && l->members.min <= enough &&
           o->n_required <= NETWORK_SET;
}

/* Where `}` can follow. */
static void add_end(struct object *o, uint32_t to)
{
    if (o->unordered) {
        network_byte(o->n, o->end, '}', '}', to);
        if (o->n_required == 0 && o->leaf->members.min == 0)
            network_byte(o->n, cell(o, 0, 0), '}', '}', to);
        return;
    }
    for (uint32_t c = o->leaf->members.min; c < o->columns && !o->n->error; c++)
        network_byte(o->n, cell(o, o->rows, c), '}', '}', to);
}

static enum error_code build(struct object *o, uint32_t from, uint32_t to)
{
    for (size_t i = 0; i < o->m.n_keys; i++)
        o->n_required += members_required(&o->m, o->m.keys[i]);
    o->unordered = is_unordered(o);
    o->rows = o->unordered ? 0 : o->m.n_keys;
    enum error_code error = make_cells(o);
    if (error)
        return error;
    uint32_t open = network_literal(o->n, from, "{", 1);
    if (!o->n->error)
        network_empty(o->n, open, cell(o, 0, 0));
    if (o->unordered)
        o->end = cell(o, 0, 1);
    for (size_t i = 0; i < o->m.n_keys && !error; i++)
        error = o->unordered ? add_unordered(o, i) : add_ordered(o, i);
    if (!error)
        error = add_others(o);
    if (!error)
        error = check_count(o);
    if (!error && !o->n->error)
        add_end(o, to);
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
