/* From a network to a compiled grammar; see compiled.h. In order:
 *
 * 1. Heights, backwards from the ends of rules: how many nested calls the shortest way from a state
 *    to the end of its rule needs. What has no height can never end; its edges are left out, so
 *    that every place in an answer can be continued to a complete one. EDGE_EXIT and EDGE_AFTER
 *    count as empty edges, so the height behind a call is the least over the exits of the called
 *    rule. The code that makes exits, counted.c, ensures that a way leads on from each exit that an
 *    answer can take, and that no exit needs more depth than the call itself. EDGE_NEED counts as a
 *    call: the part that it wants may be still to come. So a state's height is the same before and
 *    after that part, and enough for it.
 * 2. Nullable states: the end is reachable without a byte.
 * 3. Ranks: an order of the rules in which callers at the same place come first. There is none if
 *    a rule is left-recursive.
 * 4. Classes of bytes, and the arrays. */
#include "grammar/compiled.h"

#include "base/arrays.h"

#include <stdlib.h>
#include <string.h>

#define NO_HEIGHT UINT32_MAX

struct finishing {
    const struct network *n;
    uint32_t root;
    uint32_t *alias; /* [n_states]: of a state with one empty edge its target */
    uint32_t *height;
    uint32_t *rule_of_start; /* [n_states]: the first rule that starts here; NETWORK_NONE */
    uint32_t *next_start;    /* [n_rules]: the next rule with the same start */
    bool *is_end, *nullable, *reached;
    uint32_t *edge_source;                /* [n_edges] */
    uint32_t *into_first, *into_next;     /* [n_states], [n_edges]: edges into a state */
    uint32_t *callers_first, *call_next;  /* [n_rules], [n_edges]: calls of a rule */
    uint32_t *stack, *later;              /* [n_edges + n_states + n_rules] */
    uint32_t *number;                     /* [n_states]: in the compiled grammar */
    uint32_t *rank, *left_from, *visited; /* [n_rules] */
    void *memory;
};

static bool finishing_init(struct finishing *f, const struct network *n, uint32_t root)
{
    size_t stack = (size_t)n->n_edges + n->n_states + n->n_rules + 1;
    *f = (struct finishing){.n = n, .root = root};
    f->memory = ARRAYS_NEW(ARRAY(f->alias, n->n_states), ARRAY(f->height, n->n_states),
                           ARRAY(f->rule_of_start, n->n_states), ARRAY(f->next_start, n->n_rules),
                           ARRAY(f->is_end, n->n_states), ARRAY(f->nullable, n->n_states),
                           ARRAY(f->reached, n->n_states), ARRAY(f->edge_source, n->n_edges),
                           ARRAY(f->into_first, n->n_states), ARRAY(f->into_next, n->n_edges),
                           ARRAY(f->callers_first, n->n_rules), ARRAY(f->call_next, n->n_edges),
                           ARRAY(f->stack, stack), ARRAY(f->later, stack),
                           ARRAY(f->number, n->n_states), ARRAY(f->rank, n->n_rules),
                           ARRAY(f->left_from, n->n_rules + 1u), ARRAY(f->visited, n->n_rules));
    return f->memory != NULL;
}

enum { ALIAS_STEPS = 64 };

/* Follows chains of single empty edges, so far as ALIAS_STEPS go: each state of a chain stands for
 * the ones before it. */
static void find_aliases(struct finishing *f)
{
    const struct network *n = f->n;
    for (uint32_t r = 0; r < n->n_rules; r++)
        f->is_end[n->rules[r].end] = true;
    for (uint32_t s = 0; s < n->n_states; s++) {
        uint32_t edge = n->first[s];
        bool single = edge != NETWORK_NONE && n->edges[edge].next == NETWORK_NONE &&
                      n->edges[edge].kind == EDGE_EMPTY && !f->is_end[s];
        f->alias[s] = single ? n->edges[edge].target : s;
    }
    for (uint32_t s = 0; s < n->n_states; s++)
        for (unsigned i = 0; i < ALIAS_STEPS && f->alias[f->alias[s]] != f->alias[s]; i++)
            f->alias[s] = f->alias[f->alias[s]];
}

static void index_edges(struct finishing *f)
{
    const struct network *n = f->n;
    memset(f->into_first, 0xff, n->n_states * sizeof *f->into_first);
    memset(f->callers_first, 0xff, n->n_rules * sizeof *f->callers_first);
    memset(f->rule_of_start, 0xff, n->n_states * sizeof *f->rule_of_start);
    for (uint32_t r = 0; r < n->n_rules; r++) {
        f->next_start[r] = f->rule_of_start[n->rules[r].start];
        f->rule_of_start[n->rules[r].start] = r;
    }
    for (uint32_t s = 0; s < n->n_states; s++)
        for (uint32_t e = n->first[s]; e != NETWORK_NONE; e = n->edges[e].next) {
            uint32_t target = n->edges[e].target, rule = n->edges[e].rule;
            f->edge_source[e] = s;
            f->into_next[e] = f->into_first[target];
            f->into_first[target] = e;
            if (network_edge_needs_rule(&n->edges[e])) {
                f->call_next[e] = f->callers_first[rule];
                f->callers_first[rule] = e;
            }
        }
}

static uint32_t rule_height(const struct finishing *f, uint32_t rule)
{
    return f->height[f->n->rules[rule].start];
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Offers a height to the source of an edge whose target, and rule, have their final heights; it is
 * the present level or the next one. */
static void offer_height(struct finishing *f, uint32_t e, uint32_t level, uint32_t *n_stack,
                         uint32_t *n_later)
{
    const struct network_edge *edge = &f->n->edges[e];
    uint32_t height = f->height[edge->target];
    if (network_edge_needs_rule(edge)) {
        uint32_t callee = rule_height(f, edge->rule);
        if (callee > level)
            return; /* comes when the rule's start is handled */
        height = max_u32(height, callee + 1);
    }
    uint32_t s = f->edge_source[e];
    if (height >= f->height[s])
        return;
    f->height[s] = height;
    if (height == level)
        f->stack[(*n_stack)++] = s;
    else
        f->later[(*n_later)++] = s;
}

static void find_heights(struct finishing *f)
{
    const struct network *n = f->n;
    uint32_t n_stack = 0, n_later = 0;
    memset(f->height, 0xff, n->n_states * sizeof *f->height);
    for (uint32_t s = 0; s < n->n_states; s++)
        if (f->is_end[s]) {
            f->height[s] = 0;
            f->stack[n_stack++] = s;
        }
    for (uint32_t level = 0; n_stack > 0; level++) {
        while (n_stack > 0) {
            uint32_t s = f->stack[--n_stack];
            if (f->height[s] != level)
                continue; /* a lower level was found after it was put off */
            for (uint32_t e = f->into_first[s]; e != NETWORK_NONE; e = f->into_next[e])
                offer_height(f, e, level, &n_stack, &n_later);
            for (uint32_t r = f->rule_of_start[s]; r != NETWORK_NONE; r = f->next_start[r])
                for (uint32_t e = f->callers_first[r]; e != NETWORK_NONE; e = f->call_next[e])
                    if (f->height[n->edges[e].target] <= level)
                        offer_height(f, e, level, &n_stack, &n_later);
        }
        uint32_t *t = f->stack;
        f->stack = f->later;
        f->later = t;
        n_stack = n_later;
        n_later = 0;
    }
}

static bool edge_lives(const struct finishing *f, const struct network_edge *edge)
{
    return f->height[edge->target] != NO_HEIGHT &&
           (!network_edge_needs_rule(edge) || rule_height(f, edge->rule) != NO_HEIGHT);
}

static bool rule_nullable(const struct finishing *f, uint32_t rule)
{
    return f->nullable[f->n->rules[rule].start];
}

static bool edge_is_empty(const struct finishing *f, const struct network_edge *edge)
{
    return edge->kind != EDGE_BYTES &&
           (!network_edge_needs_rule(edge) || rule_nullable(f, edge->rule));
}

static void mark_nullable(struct finishing *f, uint32_t s, uint32_t *n_stack)
{
    if (f->nullable[s])
        return;
    f->nullable[s] = true;
    f->stack[(*n_stack)++] = s;
}

static void find_nullable(struct finishing *f)
{
    const struct network *n = f->n;
    uint32_t n_stack = 0;
    for (uint32_t s = 0; s < n->n_states; s++)
        if (f->is_end[s])
            mark_nullable(f, s, &n_stack);
    while (n_stack > 0) {
        uint32_t s = f->stack[--n_stack];
        for (uint32_t e = f->into_first[s]; e != NETWORK_NONE; e = f->into_next[e])
            if (edge_is_empty(f, &n->edges[e]))
                mark_nullable(f, f->edge_source[e], &n_stack);
        for (uint32_t r = f->rule_of_start[s]; r != NETWORK_NONE; r = f->next_start[r])
            for (uint32_t e = f->callers_first[r]; e != NETWORK_NONE; e = f->call_next[e])
                if (f->nullable[n->edges[e].target])
                    mark_nullable(f, f->edge_source[e], &n_stack);
    }
}

/* Numbers what the root can reach, its start first. */
static uint32_t find_reached(struct finishing *f)
{
    const struct network *n = f->n;
    uint32_t n_stack = 0, count = 0;
    uint32_t start = f->alias[n->rules[f->root].start];
    f->reached[start] = true;
    f->stack[n_stack++] = start;
    while (n_stack > 0) {
        uint32_t s = f->stack[--n_stack];
        f->number[s] = count++;
        for (uint32_t e = n->first[s]; e != NETWORK_NONE; e = n->edges[e].next) {
            const struct network_edge *edge = &n->edges[e];
            if (!edge_lives(f, edge))
                continue;
            uint32_t next[2] = {f->alias[edge->target], edge->kind == EDGE_CALL
                                                            ? f->alias[n->rules[edge->rule].start]
                                                            : f->alias[edge->target]};
            for (unsigned i = 0; i < 2; i++)
                if (!f->reached[next[i]]) {
                    f->reached[next[i]] = true;
                    f->stack[n_stack++] = next[i];
                }
        }
    }
    return count;
}

/* Collects in *list the rules that `rule` calls before any byte. States are marked in `seen` by the
 * number of the rule, from 1. */
static uint32_t left_calls(struct finishing *f, uint32_t rule, uint32_t *seen, uint32_t *list)
{
    const struct network *n = f->n;
    uint32_t n_stack = 0, count = 0;
    f->stack[n_stack++] = n->rules[rule].start;
    seen[n->rules[rule].start] = rule + 1;
    while (n_stack > 0) {
        uint32_t s = f->stack[--n_stack];
        for (uint32_t e = n->first[s]; e != NETWORK_NONE; e = n->edges[e].next) {
            const struct network_edge *edge = &n->edges[e];
            if (!edge_lives(f, edge))
                continue;
            if (edge->kind == EDGE_CALL)
                list[count++] = edge->rule;
            if (edge_is_empty(f, edge) && seen[edge->target] != rule + 1) {
                seen[edge->target] = rule + 1;
                f->stack[n_stack++] = edge->target;
            }
        }
    }
    return count;
}

/* Depth first over the calls at the left; a rule's rank is given when all that it calls have
 * theirs. visited: 0 new, 1 open, 2 done. Returns a rule of a circle; NETWORK_NONE. */
static uint32_t rank_rules(struct finishing *f, const uint32_t *calls)
{
    uint32_t rank = f->n->n_rules;
    for (uint32_t r = 0; r < f->n->n_rules; r++) {
        uint32_t n_stack = 0;
        if (f->visited[r])
            continue;
        f->stack[n_stack++] = r;
        while (n_stack > 0) {
            uint32_t at = f->stack[n_stack - 1];
            if (f->visited[at] == 0) {
                f->visited[at] = 1;
                f->later[at] = f->left_from[at];
            }
            if (f->later[at] == f->left_from[at + 1]) {
                n_stack--;
                f->visited[at] = 2;
                f->rank[at] = --rank;
                continue;
            }
            uint32_t callee = calls[f->later[at]++];
            if (f->visited[callee] == 1)
                return callee;
            if (f->visited[callee] == 0)
                f->stack[n_stack++] = callee;
        }
    }
    return NETWORK_NONE;
}

static enum error_code find_ranks(struct finishing *f, uint32_t *culprit, struct error *e)
{
    const struct network *n = f->n;
    uint32_t *seen, *calls, count = 0;
    void *memory = ARRAYS_NEW(ARRAY(seen, n->n_states), ARRAY(calls, n->n_edges + 1u));
    if (!memory)
        return error_set(e, ERROR_MEMORY, "out of memory for a grammar");
    for (uint32_t r = 0; r < n->n_rules; r++) {
        f->left_from[r] = count;
        if (rule_height(f, r) != NO_HEIGHT && f->reached[f->alias[n->rules[r].start]])
            count += left_calls(f, r, seen, calls + count);
    }
    f->left_from[n->n_rules] = count;
    *culprit = rank_rules(f, calls);
    free(memory);
    return *culprit == NETWORK_NONE
               ? ERROR_OK
               : error_set(e, ERROR_UNSUPPORTED, "a rule calls itself before any byte");
}

static void find_classes(const struct finishing *f, struct grammar *g)
{
    bool begins[257] = {true};
    for (uint32_t s = 0; s < f->n->n_states; s++)
        for (uint32_t e = f->reached[s] ? f->n->first[s] : NETWORK_NONE; e != NETWORK_NONE;
             e = f->n->edges[e].next) {
            const struct network_edge *edge = &f->n->edges[e];
            if (edge->kind != EDGE_BYTES || !edge_lives(f, edge))
                continue;
            begins[edge->low] = true;
            begins[edge->high + 1] = true;
        }
    for (unsigned b = 0; b < 256; b++) {
        if (begins[b])
            g->class_byte[g->n_classes++] = (uint8_t)b;
        g->class_of[b] = (uint8_t)(g->n_classes - 1);
    }
}

struct edge_counts {
    uint32_t bytes, calls, empties, afters, sets;
};

static bool is_set_edge(const struct network_edge *edge)
{
    return edge->kind == EDGE_UNUSED || edge->kind == EDGE_USE || edge->kind == EDGE_NEED;
}

static struct edge_counts count_edges(const struct finishing *f)
{
    struct edge_counts c = {0};
    for (uint32_t s = 0; s < f->n->n_states; s++)
        for (uint32_t e = f->reached[s] ? f->n->first[s] : NETWORK_NONE; e != NETWORK_NONE;
             e = f->n->edges[e].next) {
            const struct network_edge *edge = &f->n->edges[e];
            if (!edge_lives(f, edge))
                continue;
            c.bytes += edge->kind == EDGE_BYTES;
            c.calls += edge->kind == EDGE_CALL;
            c.empties += edge->kind == EDGE_EMPTY;
            c.afters += edge->kind == EDGE_AFTER;
            c.sets += is_set_edge(edge);
        }
    return c;
}

static void fill_state(const struct finishing *f, struct grammar *g, uint32_t s,
                       struct edge_counts *c)
{
    uint32_t number = f->number[s];
    g->height[number] = f->height[s];
    g->accepts[number] = f->is_end[s];
    g->exit_of[number] = NETWORK_NONE;
    for (uint32_t e = f->n->first[s]; e != NETWORK_NONE; e = f->n->edges[e].next) {
        const struct network_edge *edge = &f->n->edges[e];
        uint32_t target = f->number[f->alias[edge->target]];
        if (!edge_lives(f, edge))
            continue;
        if (edge->kind == EDGE_BYTES)
            g->byte_edges[c->bytes++] = (struct grammar_byte_edge){edge->low, edge->high, target};
        else if (edge->kind == EDGE_CALL)
            g->calls[c->calls++] = (struct grammar_call){edge->rule, target};
        else if (edge->kind == EDGE_EXIT)
            g->exit_of[number] = edge->rule;
        else if (edge->kind == EDGE_AFTER)
            g->afters[c->afters++] = (struct grammar_after){edge->rule, target};
        else if (is_set_edge(edge))
            g->set_edges[c->sets++] = (struct grammar_set_edge){edge->kind, edge->low, target};
        else
            g->empties[c->empties++] = target;
    }
    g->bytes_from[number + 1] = c->bytes;
    g->calls_from[number + 1] = c->calls;
    g->empties_from[number + 1] = c->empties;
    g->afters_from[number + 1] = c->afters;
    g->sets_from[number + 1] = c->sets;
}

static void fill(const struct finishing *f, struct grammar *g)
{
    const struct network *n = f->n;
    uint32_t *state_of = f->stack;
    struct edge_counts c = {0};
    for (uint32_t s = 0; s < n->n_states; s++)
        if (f->reached[s])
            state_of[f->number[s]] = s;
    for (uint32_t i = 0; i < g->n_states; i++)
        fill_state(f, g, state_of[i], &c);
    for (uint32_t r = 0; r < n->n_rules; r++)
        g->rules[r] = (struct grammar_rule){.start = f->number[f->alias[n->rules[r].start]],
                                            .rank = f->rank[r],
                                            .height = rule_height(f, r),
                                            .nullable = rule_nullable(f, r)};
    find_classes(f, g);
}

static enum error_code build(struct finishing *f, uint32_t depth, struct grammar **out,
                             uint32_t *culprit, struct error *e)
{
    find_aliases(f);
    index_edges(f);
    find_heights(f);
    if (rule_height(f, f->root) == NO_HEIGHT) {
        *culprit = f->root;
        return error_set(e, ERROR_USAGE, "no answer can satisfy the grammar");
    }
    if (rule_height(f, f->root) > depth)
        return error_set(e, ERROR_LIMIT, "every answer nests more than %u rules", depth);
    find_nullable(f);
    uint32_t n_states = find_reached(f);
    enum error_code error = find_ranks(f, culprit, e);
    if (error)
        return error;
    struct edge_counts c = count_edges(f);
    struct grammar *g,
        made = {.n_states = n_states, .n_rules = f->n->n_rules, .root = f->root, .depth = depth};
    made.memory = ARRAYS_NEW(
        ARRAY(g, 1), ARRAY(made.bytes_from, n_states + 1u), ARRAY(made.calls_from, n_states + 1u),
        ARRAY(made.empties_from, n_states + 1u), ARRAY(made.byte_edges, c.bytes),
        ARRAY(made.calls, c.calls), ARRAY(made.empties, c.empties), ARRAY(made.exit_of, n_states),
        ARRAY(made.afters_from, n_states + 1u), ARRAY(made.afters, c.afters),
        ARRAY(made.sets_from, n_states + 1u), ARRAY(made.set_edges, c.sets),
        ARRAY(made.height, n_states), ARRAY(made.accepts, n_states),
        ARRAY(made.rules, f->n->n_rules));
    if (!made.memory)
        return error_set(e, ERROR_MEMORY, "out of memory for a grammar");
    *g = made;
    fill(f, g);
    *out = g;
    return ERROR_OK;
}

enum error_code network_finish(const struct network *n, uint32_t root, uint32_t depth,
                               struct grammar **out, uint32_t *culprit, struct error *e)
{
    struct finishing f;
    *culprit = NETWORK_NONE;
    enum error_code error = network_error(n, e);
    if (error)
        return error;
    if (!finishing_init(&f, n, root))
        return error_set(e, ERROR_MEMORY, "out of memory for a grammar");
    error = build(&f, depth, out, culprit, e);
    free(f.memory);
    return error;
}

void grammar_free(struct grammar *g)
{
    if (!g)
        return;
    for (uint32_t i = 0; i < g->n_marks; i++)
        free(g->marks[i]);
    free(g->replaced_why);
    free(g->memory);
}

uint32_t grammar_states(const struct grammar *g)
{
    return g->n_states;
}
