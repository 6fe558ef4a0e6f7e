/* Configurations; see configurations.h.
 *
 * Invariants:
 * 1. The places of a set are sorted by state, then stack, and differ.
 * 2. The places of a stack refer to stacks with lower numbers: a stack is numbered after the ones
 *    that it returns to. So marking goes from high numbers to low ones, and moving from low to
 * high.
 * 3. Each place can be left: its stack's depth and its state's height together are within the
 *    depth limit.
 *
 * A closure handles first all places that are not starts of rules; they leave calls waiting. Then
 * it enters the rules in the order of their ranks, so all callers of a rule are known when the rule
 * is entered.
 *
 * Work: a place that is handled is one step, and so many that are only looked at, sorted or copied
 * as take its time. Each loop is counted before it runs, and a closure ends as soon as the steps
 * exceed work_max. So its time is bounded whatever the grammar. */
#include "grammar/configurations.h"

#include <stdlib.h>
#include <string.h>

enum {
    SETS_MAX = 8192,
    STEPS_MAX = 1 << 20, /* elements of `next` */
    PLACES_MAX = 1 << 17,
    CLOSURE_MAX = 1 << 14, /* places and calls of one closure */
    SEEN_SIZE = CLOSURE_MAX * 2,
    /* In the time of a step: */
    COPIED_PLACES = 16, /* or hashed, or compared with the byte */
    RETURNS = 4,        /* places that a rule returns to, or that are sorted */
    CLEARED = 256,      /* elements of `next` */
};
/* As the state of a place to return to: all places of its stack. No state has this number. */
#define ALL_PLACES UINT32_MAX

struct waiting_call {
    struct place back;
    uint32_t next;
};

/* Counts steps. False: they are too many, and the closure has failed. */
static bool spend(struct configurations *c, uint64_t steps)
{
    c->work_done += steps;
    if (c->work_done > c->work_max)
        c->fault = CONFIGURATIONS_WORK;
    return !c->fault;
}

static bool spend_copy(struct configurations *c, uint32_t places)
{
    return spend(c, places / COPIED_PLACES);
}

static bool spend_returns(struct configurations *c, uint32_t places)
{
    return spend(c, places / RETURNS);
}

static uint32_t mix(uint32_t hash, uint32_t value)
{
    return (hash ^ value) * 0x9e3779b1u ^ hash >> 15;
}

static uint32_t hash_places(const struct place *p, uint32_t n, uint32_t depth, uint64_t used)
{
    uint32_t hash = mix(mix(mix(depth, n), (uint32_t)used), (uint32_t)(used >> 32));
    for (uint32_t i = 0; i < n; i++)
        hash = mix(mix(hash, p[i].state), p[i].stack);
    return hash ^ hash >> 16;
}

static int compare_places(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->state != y->state)
        return x->state < y->state ? -1 : 1;
    return x->stack < y->stack ? -1 : x->stack > y->stack;
}

/* Sorts, and removes repetitions. */
static uint32_t sort_places(struct place *p, uint32_t n)
{
    uint32_t kept = 0;
    if (n > 16) {
        qsort(p, n, sizeof *p, compare_places);
    } else {
        for (uint32_t i = 1; i < n; i++)
            for (uint32_t k = i; k > 0 && compare_places(&p[k - 1], &p[k]) > 0; k--) {
                struct place t = p[k];
                p[k] = p[k - 1];
                p[k - 1] = t;
            }
    }
    for (uint32_t i = 0; i < n; i++)
        if (kept == 0 || compare_places(&p[kept - 1], &p[i]) != 0)
            p[kept++] = p[i];
    return kept;
}

static void enter_table(struct place_sets *s, uint32_t number)
{
    uint32_t at = s->sets[number].hash & s->table_mask;
    while (s->table[at])
        at = (at + 1) & s->table_mask;
    s->table[at] = number + 1;
}

/* The number of a set; UINT32_MAX: there is no space. */
static uint32_t intern(struct place_sets *s, const struct place *places, uint32_t n, uint32_t depth,
                       uint64_t used)
{
    uint32_t hash = hash_places(places, n, depth, used);
    for (uint32_t at = hash & s->table_mask; s->table[at]; at = (at + 1) & s->table_mask) {
        uint32_t number = s->table[at] - 1;
        const struct place_set *set = &s->sets[number];
        if (set->hash == hash && set->count == n && set->depth == depth && set->used == used &&
            (n == 0 || memcmp(s->places + set->from, places, n * sizeof *places) == 0))
            return number;
    }
    if (s->n_sets == s->sets_max || s->places_max - s->n_places < n)
        return UINT32_MAX;
    if (n > 0)
        memcpy(s->places + s->n_places, places, n * sizeof *places);
    s->sets[s->n_sets] = (struct place_set){s->n_places, n, hash, depth, used};
    s->n_places += n;
    enter_table(s, s->n_sets);
    return s->n_sets++;
}

/* calloc, and each array by itself: the kernel gives large arrays page by page as they are used,
 * and most answers use little of them. */
static bool allocate(struct configurations *c, uint32_t known)
{
    const struct {
        void *pointer;
        size_t count, size;
    } arrays[] = {
        {&c->stacks.sets, SETS_MAX, sizeof *c->stacks.sets},
        {&c->stacks.places, PLACES_MAX, sizeof *c->stacks.places},
        {&c->stacks.table, 2 * SETS_MAX, sizeof *c->stacks.table},
        {&c->stacks.remap, SETS_MAX, sizeof *c->stacks.remap},
        {&c->known.sets, known, sizeof *c->known.sets},
        {&c->known.places, PLACES_MAX, sizeof *c->known.places},
        {&c->known.table, 2 * SETS_MAX, sizeof *c->known.table},
        {&c->known.remap, SETS_MAX, sizeof *c->known.remap},
        {&c->next, (size_t)known * c->g->n_classes, sizeof *c->next},
        {&c->work, CLOSURE_MAX, sizeof *c->work},
        {&c->core, CLOSURE_MAX, sizeof *c->core},
        {&c->seen, SEEN_SIZE, sizeof *c->seen},
        {&c->seen_places, SEEN_SIZE, sizeof *c->seen_places},
        {&c->waiting, CLOSURE_MAX, sizeof *c->waiting},
        {&c->waiting_first, c->g->n_rules, sizeof *c->waiting_first},
        {&c->waiting_rules, c->g->n_rules, sizeof *c->waiting_rules},
    };
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        void *memory = calloc(arrays[i].count, arrays[i].size);
        if (!memory)
            return false;
        memcpy(arrays[i].pointer, &memory, sizeof memory);
    }
    return true;
}

bool configurations_init(struct configurations *c, const struct grammar *g)
{
    uint32_t known = STEPS_MAX / g->n_classes < SETS_MAX ? STEPS_MAX / g->n_classes : SETS_MAX;
    *c = (struct configurations){.g = g, .work_max = UINT64_MAX};
    c->stacks = (struct place_sets){
        .sets_max = SETS_MAX, .places_max = PLACES_MAX, .table_mask = 2 * SETS_MAX - 1};
    c->known = (struct place_sets){
        .sets_max = known, .places_max = PLACES_MAX, .table_mask = 2 * SETS_MAX - 1};
    if (!allocate(c, known)) {
        configurations_fini(c);
        return false;
    }
    memset(c->waiting_first, 0xff, g->n_rules * sizeof *c->waiting_first);
    intern(&c->stacks, NULL, 0, 0, 0);
    /* Numbers 0 and 1 mean UNKNOWN and DEAD; no look-up finds these sets. */
    c->known.n_sets = CONFIGURATION_FIRST;
    return true;
}

void configurations_fini(struct configurations *c)
{
    void *arrays[] = {c->stacks.sets, c->stacks.places, c->stacks.table,  c->stacks.remap,
                      c->known.sets,  c->known.places,  c->known.table,   c->known.remap,
                      c->next,        c->work,          c->core,          c->seen,
                      c->seen_places, c->waiting,       c->waiting_first, c->waiting_rules};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        free(arrays[i]);
    *c = (struct configurations){0};
}

static uint32_t stack_depth(const struct configurations *c, uint32_t stack)
{
    return c->stacks.sets[stack].depth;
}

/* Has this closure this place already? Notes it. */
static bool seen_before(struct configurations *c, struct place p)
{
    uint32_t at = hash_places(&p, 1, 0, 0) & (SEEN_SIZE - 1);
    while (c->seen[at] == c->seen_stamp) {
        if (c->seen_places[at].state == p.state && c->seen_places[at].stack == p.stack)
            return true;
        at = (at + 1) & (SEEN_SIZE - 1);
    }
    if (++c->n_seen >= CLOSURE_MAX) {
        c->fault = CONFIGURATIONS_WORK;
        return true;
    }
    c->seen[at] = c->seen_stamp;
    c->seen_places[at] = p;
    return false;
}

static void add_place(struct configurations *c, uint32_t state, uint32_t stack)
{
    struct place p = {state, stack};
    if (c->fault || stack_depth(c, stack) + c->g->height[state] > c->g->depth || seen_before(c, p))
        return;
    c->work[c->n_work++] = p;
}

static void add_rule(struct configurations *c, uint32_t rule)
{
    uint32_t at = c->n_waiting_rules++;
    (void)spend_copy(c, at);
    for (; at > 0 && c->g->rules[c->waiting_rules[at - 1]].rank < c->g->rules[rule].rank; at--)
        c->waiting_rules[at] = c->waiting_rules[at - 1];
    c->waiting_rules[at] = rule;
}

/* Whether a rule can be entered and left again from a stack of this depth. */
static bool rule_fits(const struct configurations *c, uint32_t rule, uint32_t depth)
{
    return depth + c->g->rules[rule].height <= c->g->depth;
}

static void add_waiting(struct configurations *c, uint32_t rule, struct place back)
{
    if (c->n_waiting == CLOSURE_MAX) {
        c->fault = CONFIGURATIONS_WORK;
        return;
    }
    if (c->waiting_first[rule] == UINT32_MAX)
        add_rule(c, rule);
    c->waiting[c->n_waiting] = (struct waiting_call){back, c->waiting_first[rule]};
    c->waiting_first[rule] = c->n_waiting++;
}

/* The end of its rule and nothing else: a call that leads here needs no place on the stack. */
static bool only_returns(const struct grammar *g, uint32_t s)
{
    return g->accepts[s] && g->bytes_from[s] == g->bytes_from[s + 1] &&
           g->calls_from[s] == g->calls_from[s + 1] &&
           g->empties_from[s] == g->empties_from[s + 1] && g->sets_from[s] == g->sets_from[s + 1];
}

/* There is no place to return to. */
static bool is_of_root(const struct configurations *c, uint32_t stack)
{
    return c->stacks.sets[stack].count == 0;
}

static void handle_call(struct configurations *c, const struct grammar_call *call, uint32_t stack)
{
    const struct grammar *g = c->g;
    if (g->rules[call->rule].nullable)
        add_place(c, call->target, stack);
    if (stack_depth(c, stack) + g->height[call->target] > g->depth)
        return;
    if (!is_of_root(c, stack) && only_returns(g, call->target))
        add_waiting(c, call->rule, (struct place){ALL_PLACES, stack});
    else if (rule_fits(c, call->rule, stack_depth(c, stack) + 1))
        add_waiting(c, call->rule, (struct place){call->target, stack});
}

/* Returns to the callers at an exit of the rule. */
static void leave(struct configurations *c, uint32_t exit, uint32_t stack)
{
    const struct grammar *g = c->g;
    const struct place_set *returns = &c->stacks.sets[stack];
    if (!spend_returns(c, returns->count))
        return;
    for (uint32_t i = 0; i < returns->count; i++) {
        struct place back = c->stacks.places[returns->from + i];
        uint32_t first = g->afters_from[back.state], end = g->afters_from[back.state + 1];
        if (!spend_copy(c, end - first))
            return;
        for (uint32_t k = first; k < end; k++)
            if (g->afters[k].exit == exit)
                add_place(c, g->afters[k].target, back.stack);
    }
}

static void handle_set_edge(struct configurations *c, const struct grammar_set_edge *edge,
                            uint32_t stack)
{
    struct place_set set = c->stacks.sets[stack];
    uint64_t number = (uint64_t)1 << edge->number;
    if (((set.used & number) != 0) != (edge->kind == EDGE_NEED))
        return;
    if (edge->kind == EDGE_USE && !spend_copy(c, set.count))
        return;
    if (edge->kind == EDGE_USE)
        stack = intern(&c->stacks, c->stacks.places + set.from, set.count, set.depth,
                       set.used | number);
    if (stack == UINT32_MAX)
        c->fault = CONFIGURATIONS_FULL;
    else
        add_place(c, edge->target, stack);
}

/* Returns to all callers at the end of the rule. */
static void return_to_callers(struct configurations *c, uint32_t stack)
{
    const struct place_set *returns = &c->stacks.sets[stack];
    if (is_of_root(c, stack))
        c->complete = true;
    if (!spend_returns(c, returns->count))
        return;
    for (uint32_t i = 0; i < returns->count; i++) {
        struct place back = c->stacks.places[returns->from + i];
        add_place(c, back.state, back.stack);
    }
}

static uint32_t edges_of(const struct grammar *g, uint32_t state)
{
    return g->empties_from[state + 1] - g->empties_from[state] + g->sets_from[state + 1] -
           g->sets_from[state] + g->calls_from[state + 1] - g->calls_from[state];
}

static void handle_place(struct configurations *c, struct place p)
{
    const struct grammar *g = c->g;
    if (!spend(c, 1 + edges_of(g, p.state) / COPIED_PLACES))
        return;
    if (g->bytes_from[p.state] < g->bytes_from[p.state + 1])
        c->core[c->n_core++] = p;
    for (uint32_t i = g->empties_from[p.state]; i < g->empties_from[p.state + 1]; i++)
        add_place(c, g->empties[i], p.stack);
    for (uint32_t i = g->sets_from[p.state]; i < g->sets_from[p.state + 1]; i++)
        handle_set_edge(c, &g->set_edges[i], p.stack);
    for (uint32_t i = g->calls_from[p.state]; i < g->calls_from[p.state + 1]; i++)
        handle_call(c, &g->calls[i], p.stack);
    if (g->exit_of[p.state] != NETWORK_NONE)
        leave(c, g->exit_of[p.state], p.stack);
    if (g->accepts[p.state])
        return_to_callers(c, p.stack);
}

/* Adds the places of a stack from which the rule can be entered. */
static void add_returns(struct configurations *c, uint32_t rule, uint32_t stack, uint32_t *n)
{
    const struct place_set *returns = &c->stacks.sets[stack];
    if (!spend_copy(c, returns->count))
        return;
    for (uint32_t i = 0; i < returns->count; i++) {
        struct place back = c->stacks.places[returns->from + i];
        if (!rule_fits(c, rule, stack_depth(c, back.stack) + 1))
            continue;
        if (*n == CLOSURE_MAX) {
            c->fault = CONFIGURATIONS_WORK;
            return;
        }
        c->work[(*n)++] = back; /* empty now */
    }
}

/* The stack of all callers of a rule, from its first waiting call. UINT32_MAX: there is none from
 * which the rule can be entered, or a fault. */
static uint32_t stack_of_callers(struct configurations *c, uint32_t rule, uint32_t first)
{
    uint32_t n = 0, depth = 0;
    for (uint32_t i = first; i != UINT32_MAX && !c->fault; i = c->waiting[i].next) {
        struct place back = c->waiting[i].back;
        if (back.state == ALL_PLACES)
            add_returns(c, rule, back.stack, &n);
        else if (n == CLOSURE_MAX)
            c->fault = CONFIGURATIONS_WORK;
        else
            c->work[n++] = back;
    }
    if (n == 0 || c->fault || !spend_returns(c, n))
        return UINT32_MAX;
    for (uint32_t i = 0; i < n; i++)
        if (stack_depth(c, c->work[i].stack) >= depth)
            depth = stack_depth(c, c->work[i].stack) + 1;
    n = sort_places(c->work, n);
    uint32_t stack = intern(&c->stacks, c->work, n, depth, 0);
    if (stack == UINT32_MAX)
        c->fault = CONFIGURATIONS_FULL;
    return stack;
}

/* Whether the callers that wait are those of one stack: the call is the last part of a rule. */
static bool is_last_part(const struct configurations *c, uint32_t rule,
                         const struct waiting_call *w)
{
    const struct place_set *stack = &c->stacks.sets[w->back.stack];
    return w->back.state == ALL_PLACES && w->next == UINT32_MAX && stack->used == 0 &&
           rule_fits(c, rule, stack->depth);
}

/* Enters the waiting rule of the lowest rank, with one stack for its callers. */
static void enter_rule(struct configurations *c)
{
    uint32_t rule = c->waiting_rules[--c->n_waiting_rules], first = c->waiting_first[rule];
    c->waiting_first[rule] = UINT32_MAX;
    uint32_t stack = is_last_part(c, rule, &c->waiting[first]) ? c->waiting[first].back.stack
                                                               : stack_of_callers(c, rule, first);
    if (!c->fault && stack != UINT32_MAX)
        add_place(c, c->g->rules[rule].start, stack);
}

static void begin_closure(struct configurations *c)
{
    c->n_work = c->n_core = c->n_waiting = c->n_seen = 0;
    c->complete = false;
    c->fault = CONFIGURATIONS_OK;
    c->seen_stamp++;
}

static uint32_t end_closure(struct configurations *c)
{
    while (!c->fault && (c->n_work > 0 || c->n_waiting_rules > 0)) {
        if (c->n_work > 0)
            handle_place(c, c->work[--c->n_work]);
        else
            enter_rule(c);
    }
    while (c->n_waiting_rules > 0)
        c->waiting_first[c->waiting_rules[--c->n_waiting_rules]] = UINT32_MAX;
    if (c->fault || (c->n_core == 0 && !c->complete))
        return CONFIGURATION_DEAD;
    if (!spend_returns(c, c->n_core))
        return CONFIGURATION_DEAD;
    uint32_t n = sort_places(c->core, c->n_core);
    uint32_t number = intern(&c->known, c->core, n, c->complete, 0);
    if (number == UINT32_MAX) {
        c->fault = CONFIGURATIONS_FULL;
        return CONFIGURATION_DEAD;
    }
    return number;
}

uint32_t configurations_start(struct configurations *c)
{
    begin_closure(c);
    if (c->g->rules[c->g->root].height <= c->g->depth)
        add_place(c, c->g->rules[c->g->root].start, 0);
    return end_closure(c);
}

uint32_t configurations_compute(struct configurations *c, uint32_t from, uint8_t byte)
{
    const struct grammar *g = c->g;
    const struct place_set set = c->known.sets[from];
    uint8_t class = g->class_of[byte];
    begin_closure(c);
    if (!spend_copy(c, set.count))
        return CONFIGURATION_DEAD;
    for (uint32_t i = 0; i < set.count; i++) {
        struct place p = c->known.places[set.from + i];
        uint32_t first = g->bytes_from[p.state], end = g->bytes_from[p.state + 1];
        if (!spend_copy(c, end - first))
            break;
        for (uint32_t e = first; e < end; e++)
            if (g->byte_edges[e].low <= byte && byte <= g->byte_edges[e].high)
                add_place(c, g->byte_edges[e].target, p.stack);
    }
    uint32_t next = end_closure(c);
    if (!c->fault)
        c->next[(uint64_t)from * g->n_classes + class] = next;
    return next;
}

/* Moves the sets that remap marks to the front, and numbers them anew; `stacks` renumbers what
 * their places refer to. */
static void compact(struct place_sets *s, const uint32_t *stacks, uint32_t first)
{
    uint32_t n_sets = first, n_places = 0;
    memset(s->table, 0, (s->table_mask + (size_t)1) * sizeof *s->table);
    for (uint32_t i = first; i < s->n_sets; i++) {
        if (!s->remap[i])
            continue;
        struct place_set set = s->sets[i];
        for (uint32_t k = 0; k < set.count; k++) {
            struct place p = s->places[set.from + k];
            s->places[n_places + k] = (struct place){p.state, stacks[p.stack]};
        }
        set.from = n_places;
        set.hash = hash_places(s->places + n_places, set.count, set.depth, set.used);
        n_places += set.count;
        s->remap[i] = n_sets;
        s->sets[n_sets] = set;
        enter_table(s, n_sets++);
    }
    s->n_sets = n_sets;
    s->n_places = n_places;
}

static void mark_stacks(struct configurations *c, const struct place_set *set,
                        const struct place *places)
{
    for (uint32_t k = 0; k < set->count; k++)
        c->stacks.remap[places[set->from + k].stack] = 1;
}

void configurations_forget(struct configurations *c, uint32_t *const *roots, uint32_t n)
{
    uint32_t before = c->known.n_sets;
    memset(c->known.remap, 0, before * sizeof *c->known.remap);
    memset(c->stacks.remap, 0, c->stacks.n_sets * sizeof *c->stacks.remap);
    for (uint32_t i = 0; i < n; i++)
        c->known.remap[*roots[i]] = 1;
    for (uint32_t i = CONFIGURATION_FIRST; i < before; i++)
        if (c->known.remap[i])
            mark_stacks(c, &c->known.sets[i], c->known.places);
    c->stacks.remap[0] = 1;
    for (uint32_t i = c->stacks.n_sets; i-- > 0;)
        if (c->stacks.remap[i])
            mark_stacks(c, &c->stacks.sets[i], c->stacks.places);
    compact(&c->stacks, c->stacks.remap, 0);
    compact(&c->known, c->stacks.remap, CONFIGURATION_FIRST);
    c->work_done += (c->stacks.n_places + c->known.n_places) / COPIED_PLACES +
                    (uint64_t)before * c->g->n_classes / CLEARED;
    for (uint32_t i = 0; i < n; i++)
        if (*roots[i] >= CONFIGURATION_FIRST)
            *roots[i] = c->known.remap[*roots[i]];
    memset(c->next, 0, (uint64_t)before * c->g->n_classes * sizeof *c->next);
}
