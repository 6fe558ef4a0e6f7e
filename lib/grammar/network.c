/* Builds the automaton; see network.h. */
#include "grammar/network.h"

#include "base/arrays.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

void network_init(struct network *n, uint32_t states_max)
{
    *n = (struct network){.states_max = states_max};
}

void network_fini(struct network *n)
{
    free(n->first);
    free(n->edges);
    free(n->rules);
    *n = (struct network){0};
}

enum error_code network_error(const struct network *n, struct error *e)
{
    if (n->error == ERROR_LIMIT)
        return error_set(e, ERROR_LIMIT, "the grammar needs more than %u states", n->states_max);
    if (n->error)
        return error_set(e, ERROR_MEMORY, "out of memory for a grammar");
    return ERROR_OK;
}

/* Makes room for one more element. */
static bool grow(struct network *n, void **array, uint32_t count, uint32_t *capacity, size_t size)
{
    if (n->error)
        return false;
    if (count < *capacity)
        return true;
    uint32_t wanted = *capacity ? *capacity * 2 : 64;
    void *larger = realloc(*array, wanted * size);
    if (!larger) {
        n->error = ERROR_MEMORY;
        return false;
    }
    *array = larger;
    *capacity = wanted;
    return true;
}

uint32_t network_state(struct network *n)
{
    if (!n->error && n->n_states >= n->states_max)
        n->error = ERROR_LIMIT;
    if (!grow(n, (void **)&n->first, n->n_states, &n->states_capacity, sizeof *n->first))
        return 0;
    n->first[n->n_states] = NETWORK_NONE;
    return n->n_states++;
}

struct fragment network_fragment(struct network *n)
{
    uint32_t from = n->n_states, start = network_state(n), end = network_state(n);
    return (struct fragment){start, end, from, n->n_states};
}

uint32_t network_rule_of(struct network *n, uint32_t start, uint32_t end)
{
    if (!grow(n, (void **)&n->rules, n->n_rules, &n->rules_capacity, sizeof *n->rules))
        return 0;
    n->rules[n->n_rules] = (struct network_rule){start, end};
    return n->n_rules++;
}

uint32_t network_rule(struct network *n)
{
    uint32_t start = network_state(n);
    return network_rule_of(n, start, network_state(n));
}

static void add_edge(struct network *n, uint32_t from, struct network_edge edge)
{
    if (n->n_edges >= 32 * (uint64_t)n->states_max && !n->error)
        n->error = ERROR_LIMIT;
    if (!grow(n, (void **)&n->edges, n->n_edges, &n->edges_capacity, sizeof *n->edges))
        return;
    edge.next = n->first[from];
    n->first[from] = n->n_edges;
    n->edges[n->n_edges++] = edge;
}

void network_empty(struct network *n, uint32_t from, uint32_t to)
{
    add_edge(n, from, (struct network_edge){.kind = EDGE_EMPTY, .target = to});
}

void network_byte(struct network *n, uint32_t from, unsigned low, unsigned high, uint32_t to)
{
    add_edge(n, from,
             (struct network_edge){
                 .kind = EDGE_BYTES, .low = (uint8_t)low, .high = (uint8_t)high, .target = to});
}

void network_call(struct network *n, uint32_t from, uint32_t rule, uint32_t to)
{
    add_edge(n, from, (struct network_edge){.kind = EDGE_CALL, .rule = rule, .target = to});
}

void network_assert(struct network *n, uint32_t from, enum network_edge_kind kind, uint32_t to)
{
    add_edge(n, from, (struct network_edge){.kind = (uint8_t)kind, .target = to});
}

void network_exit(struct network *n, uint32_t from, uint32_t number, uint32_t end)
{
    add_edge(n, from, (struct network_edge){.kind = EDGE_EXIT, .rule = number, .target = end});
}

void network_after(struct network *n, uint32_t from, uint32_t number, uint32_t to)
{
    add_edge(n, from, (struct network_edge){.kind = EDGE_AFTER, .rule = number, .target = to});
}

static void add_set_edge(struct network *n, uint32_t from, enum network_edge_kind kind,
                         unsigned number, uint32_t to)
{
    add_edge(n, from,
             (struct network_edge){.kind = (uint8_t)kind, .low = (uint8_t)number, .target = to});
}

void network_unused(struct network *n, uint32_t from, unsigned number, uint32_t to)
{
    add_set_edge(n, from, EDGE_UNUSED, number, to);
}

void network_use(struct network *n, uint32_t from, unsigned number, uint32_t to)
{
    add_set_edge(n, from, EDGE_USE, number, to);
}

void network_need(struct network *n, uint32_t from, unsigned number, uint32_t rule, uint32_t to)
{
    add_edge(n, from,
             (struct network_edge){
                 .kind = EDGE_NEED, .low = (uint8_t)number, .rule = rule, .target = to});
}

bool network_edge_needs_rule(const struct network_edge *edge)
{
    return edge->kind == EDGE_CALL || edge->kind == EDGE_NEED;
}

uint32_t network_literal(struct network *n, uint32_t from, const void *bytes, size_t len)
{
    const uint8_t *b = bytes;
    for (size_t i = 0; i < len && !n->error; i++) {
        uint32_t to = network_state(n);
        network_byte(n, from, b[i], b[i], to);
        from = to;
    }
    return from;
}

uint32_t network_trie(struct network *n, uint32_t from, const void *bytes, size_t len)
{
    const uint8_t *b = bytes;
    for (size_t i = 0; i < len && !n->error; i++) {
        uint32_t edge = n->first[from];
        while (edge != NETWORK_NONE && !(n->edges[edge].kind == EDGE_BYTES &&
                                         n->edges[edge].low == b[i] && n->edges[edge].high == b[i]))
            edge = n->edges[edge].next;
        if (edge == NETWORK_NONE)
            return network_literal(n, from, b + i, len - i);
        from = n->edges[edge].target;
    }
    return from;
}

/* Code points whose encodings have the same length and whose last bytes can vary freely. */
static void add_sequence(struct network *n, uint32_t from, uint32_t low, uint32_t high, uint32_t to)
{
    char a[4], b[4];
    size_t len = utf8_encode(low, a);
    (void)utf8_encode(high, b);
    for (size_t i = 0; i < len; i++) {
        uint32_t next = i + 1 == len ? to : network_state(n);
        network_byte(n, from, (uint8_t)a[i], (uint8_t)b[i], next);
        from = next;
    }
}

/* Cuts the range where an encoding gets longer, at the surrogates, and into parts whose bytes are
 * independent ranges. */
void network_range(struct network *n, uint32_t from, uint32_t low, uint32_t high, uint32_t to)
{
    static const uint32_t cuts[] = {0x80, 0x800, 0xd800, 0xe000, 0x10000, 0x110000};
    if (low > high || low >= 0x110000 || n->error)
        return;
    for (unsigned i = 0; i < sizeof cuts / sizeof cuts[0]; i++)
        if (low < cuts[i] && high >= cuts[i]) {
            network_range(n, from, low, cuts[i] - 1, to);
            network_range(n, from, cuts[i], high, to);
            return;
        }
    if (low >= 0xd800 && low <= 0xdfff)
        return;
    for (unsigned bits = 6; low >= 0x80 && bits <= 18; bits += 6) {
        uint32_t mask = (1u << bits) - 1;
        if ((low & ~mask) == (high & ~mask) || (!(low & mask) && (high & mask) == mask))
            continue;
        uint32_t cut = low & mask ? (low | mask) : (high & ~mask) - 1;
        network_range(n, from, low, cut, to);
        network_range(n, from, cut + 1, high, to);
        return;
    }
    add_sequence(n, from, low, high, to);
}

static void copy_states(struct network *n, uint32_t from, uint32_t to)
{
    uint32_t offset = n->n_states - from;
    for (uint32_t s = from; s < to && !n->error; s++)
        network_state(n);
    for (uint32_t s = from; s < to; s++)
        for (uint32_t e = n->error ? NETWORK_NONE : n->first[s]; e != NETWORK_NONE && !n->error;
             e = n->edges[e].next) {
            struct network_edge edge = n->edges[e];
            if (edge.target < from || edge.target >= to)
                continue; /* from the end of the first copy */
            edge.target += offset;
            add_edge(n, s + offset, edge);
        }
}

struct fragment network_repeat(struct network *n, struct fragment f, struct count_bounds times)
{
    uint32_t from = f.from, original_to = n->n_states;
    bool open = times.max == BOUNDS_OPEN;
    uint32_t copies = open && !times.min ? 1 : bounds_last(times);
    uint32_t start = network_state(n), end = network_state(n), at = start;
    for (uint32_t i = 0; i < copies && !n->error; i++) {
        uint32_t offset = 0;
        if (i > 0) {
            offset = n->n_states - from;
            copy_states(n, from, original_to);
        }
        if (i >= times.min)
            network_empty(n, at, end);
        network_empty(n, at, f.start + offset);
        at = network_state(n);
        network_empty(n, f.end + offset, at);
        if (open && i + 1 == copies)
            network_empty(n, at, f.start + offset);
    }
    network_empty(n, at, end);
    return (struct fragment){start, end, from, n->n_states};
}

enum { CHAIN = 16 }; /* a repetition of so many is written out */

/* What repetitions call: exact[i] accepts 2^i times the repeated rule, less[i] from 0 to 2^i - 1
 * times. */
struct powers {
    uint32_t exact[32], less[32];
};

static uint32_t call_after(struct network *n, uint32_t from, uint32_t rule)
{
    uint32_t to = network_state(n);
    if (!n->error)
        network_call(n, from, rule, to);
    return to;
}

static void powers_init(struct network *n, struct powers *p, uint32_t rule, unsigned count)
{
    p->exact[0] = rule;
    p->less[0] = network_rule(n);
    if (!n->error)
        network_empty(n, n->rules[p->less[0]].start, n->rules[p->less[0]].end);
    for (unsigned i = 1; i < count && !n->error; i++) {
        uint32_t exact = p->exact[i] = network_rule(n), less = p->less[i] = network_rule(n);
        uint32_t middle = network_state(n), after = network_state(n);
        if (n->error)
            return;
        network_call(n, n->rules[exact].start, p->exact[i - 1], middle);
        network_call(n, middle, p->exact[i - 1], n->rules[exact].end);
        network_call(n, n->rules[less].start, p->exact[i - 1], after);
        network_empty(n, n->rules[less].start, after);
        network_call(n, after, p->less[i - 1], n->rules[less].end);
    }
}

static uint32_t exactly(struct network *n, uint32_t from, const struct powers *p, uint32_t count)
{
    if (count <= CHAIN) {
        for (uint32_t i = 0; i < count; i++)
            from = call_after(n, from, p->exact[0]);
        return from;
    }
    for (unsigned bit = 32; bit-- > 0;)
        if (count >> bit & 1)
            from = call_after(n, from, p->exact[bit]);
    return from;
}

/* Up to `count` times. With the highest power 2^k of count: fewer than 2^k times, or 2^k times and
 * then up to count - 2^k. So few ways lead to each number. */
static uint32_t at_most(struct network *n, uint32_t from, const struct powers *p, uint32_t count)
{
    uint32_t end = network_state(n);
    while (count > CHAIN && !n->error) {
        unsigned bit = 31 - (unsigned)__builtin_clz(count);
        network_call(n, from, p->less[bit], end);
        from = call_after(n, from, p->exact[bit]);
        count -= 1u << bit;
    }
    for (; count > 0 && !n->error; count--) {
        network_empty(n, from, end);
        from = call_after(n, from, p->exact[0]);
    }
    network_empty(n, from, end);
    return end;
}

uint32_t network_repeat_rule(struct network *n, uint32_t from, uint32_t rule,
                             struct count_bounds times)
{
    struct powers p = {.exact = {rule}};
    uint32_t most = bounds_last(times);
    if (most > CHAIN)
        powers_init(n, &p, rule, 32 - (unsigned)__builtin_clz(most));
    from = exactly(n, from, &p, times.min);
    if (times.max != BOUNDS_OPEN)
        return at_most(n, from, &p, times.max - times.min);
    uint32_t loop = network_state(n), end = network_state(n);
    if (n->error)
        return 0;
    network_empty(n, from, loop);
    network_call(n, loop, rule, loop);
    network_empty(n, loop, end);
    return end;
}

/* -- Withdrawing -- */

struct network_extent network_extent(const struct network *n)
{
    return (struct network_extent){n->n_states, n->n_edges, n->n_rules};
}

void network_withdraw(struct network *n, struct network_extent since)
{
    n->n_states = since.n_states;
    n->n_edges = since.n_edges;
    n->n_rules = since.n_rules;
    if (n->error == ERROR_LIMIT)
        n->error = ERROR_OK;
}

/* Which of the states from `from` on lead to the end of their rule; arrays without them and their
 * edges' numbers. */
struct ends {
    const struct network *n;
    struct network_extent since;
    bool *ends;      /* [states] */
    uint32_t *stack; /* [states] that end, to be followed backwards */
    uint32_t n_stack;
    uint32_t *into_first;  /* [states] the first edge that leads here, NETWORK_NONE: none */
    uint32_t *calls_first; /* [states] the first call of a rule that starts here */
    uint32_t *source;      /* [edges] */
    uint32_t *into_next, *calls_next; /* [edges] */
    void *memory;
};

static bool state_ends(const struct ends *x, uint32_t state)
{
    return state < x->since.n_states || x->ends[state - x->since.n_states];
}

static bool edge_ends(const struct ends *x, const struct network_edge *edge)
{
    return state_ends(x, edge->target) &&
           (!network_edge_needs_rule(edge) || state_ends(x, x->n->rules[edge->rule].start));
}

static void mark_end(struct ends *x, uint32_t state)
{
    if (state_ends(x, state))
        return;
    x->ends[state - x->since.n_states] = true;
    x->stack[x->n_stack++] = state;
}

static void push_edge(const struct ends *x, uint32_t *first, uint32_t *next, uint32_t state,
                      uint32_t edge)
{
    if (state < x->since.n_states)
        return;
    next[edge - x->since.n_edges] = first[state - x->since.n_states];
    first[state - x->since.n_states] = edge;
}

static bool ends_init(struct ends *x)
{
    size_t n_states = x->n->n_states - x->since.n_states,
           n_edges = x->n->n_edges - x->since.n_edges;
    x->memory = ARRAYS_NEW(ARRAY(x->ends, n_states), ARRAY(x->stack, n_states),
                           ARRAY(x->into_first, n_states), ARRAY(x->calls_first, n_states),
                           ARRAY(x->source, n_edges), ARRAY(x->into_next, n_edges),
                           ARRAY(x->calls_next, n_edges));
    if (!x->memory)
        return false;
    memset(x->into_first, 0xff, n_states * sizeof *x->into_first);
    memset(x->calls_first, 0xff, n_states * sizeof *x->calls_first);
    for (uint32_t s = x->since.n_states; s < x->n->n_states; s++)
        for (uint32_t e = x->n->first[s]; e != NETWORK_NONE; e = x->n->edges[e].next) {
            const struct network_edge *edge = &x->n->edges[e];
            x->source[e - x->since.n_edges] = s;
            push_edge(x, x->into_first, x->into_next, edge->target, e);
            if (network_edge_needs_rule(edge))
                push_edge(x, x->calls_first, x->calls_next, x->n->rules[edge->rule].start, e);
        }
    return true;
}

/* Marks the states that each edge of a list leaves, where the edge leads to an end now. */
static void follow_back(struct ends *x, uint32_t edge, const uint32_t *next)
{
    for (; edge != NETWORK_NONE; edge = next[edge - x->since.n_edges])
        if (edge_ends(x, &x->n->edges[edge]))
            mark_end(x, x->source[edge - x->since.n_edges]);
}

/* Each edge is looked at twice at most: when its target is known to end, and its rule's start. */
static void find_ends(struct ends *x)
{
    const struct network *n = x->n;
    for (uint32_t r = x->since.n_rules; r < n->n_rules; r++)
        mark_end(x, n->rules[r].end); /* rules that count share an end (counted.h) */
    for (uint32_t s = x->since.n_states; s < n->n_states; s++)
        for (uint32_t e = n->first[s]; e != NETWORK_NONE; e = n->edges[e].next)
            if (edge_ends(x, &n->edges[e]))
                mark_end(x, s);
    while (x->n_stack > 0) {
        uint32_t i = x->stack[--x->n_stack] - x->since.n_states;
        follow_back(x, x->into_first[i], x->into_next);
        follow_back(x, x->calls_first[i], x->calls_next);
    }
}

bool network_drop_unending(const struct network *n, uint32_t *rules, size_t n_rules,
                           struct network_extent since)
{
    struct ends x = {.n = n, .since = since};
    if (!ends_init(&x))
        return false;
    find_ends(&x);
    for (size_t i = 0; i < n_rules; i++)
        if (!state_ends(&x, n->rules[rules[i]].start))
            rules[i] = NETWORK_NONE;
    free(x.memory);
    return true;
}
