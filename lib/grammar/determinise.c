/* The subset construction: a deterministic automaton from a network without calls; see dfa.h.
 *
 * A state of the result is the set of states of the network that the text so far can lead to. Only
 * states with byte edges are kept in a set; whether it accepts is found when it is made, with the
 * edges for $. The edges for ^ lead on in the first set only. */
#include "grammar/dfa.h"

#include "base/arrays.h"

#include <stdlib.h>
#include <string.h>

enum { WORK_MAX = 20000000 }; /* edges looked at: some tenths of a second */

struct subsets {
    const struct network *n;
    uint32_t end;
    struct dfa *d;
    uint32_t *members, n_members, capacity; /* of all sets, one after the other */
    uint32_t *from;                         /* [states_max + 1]: of a set, in members */
    uint32_t *table, mask;
    uint32_t *set, n_set;          /* the one that is being made */
    uint32_t *stack, *mark, stamp; /* [n_states] */
    uint64_t work;
    void *memory;
};

/* Adds what empty edges reach to the set; returns whether the text may end here. */
static bool close_set(struct subsets *u, uint32_t s, bool begin, bool end)
{
    uint32_t n_stack = 0;
    bool accepts = false;
    if (u->mark[s] == u->stamp)
        return false;
    u->mark[s] = u->stamp;
    u->stack[n_stack++] = s;
    while (n_stack > 0) {
        uint32_t at = u->stack[--n_stack];
        bool has_bytes = false;
        accepts = accepts || at == u->end;
        for (uint32_t e = u->n->first[at]; e != NETWORK_NONE; e = u->n->edges[e].next) {
            const struct network_edge *edge = &u->n->edges[e];
            u->work++;
            has_bytes = has_bytes || edge->kind == EDGE_BYTES;
            bool passes = edge->kind == EDGE_EMPTY || (edge->kind == EDGE_BEGIN && begin) ||
                          (edge->kind == EDGE_END && end);
            if (passes && u->mark[edge->target] != u->stamp) {
                u->mark[edge->target] = u->stamp;
                u->stack[n_stack++] = edge->target;
            }
        }
        if (has_bytes && !end)
            u->set[u->n_set++] = at;
    }
    return accepts;
}

static int compare_u32(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Makes the set of `targets`, and says whether it accepts. */
static bool make_set(struct subsets *u, const uint32_t *targets, uint32_t n, bool begin)
{
    bool accepts = false;
    u->n_set = 0;
    u->stamp++;
    for (uint32_t i = 0; i < n; i++)
        close_set(u, targets[i], begin, false);
    u->stamp++;
    for (uint32_t i = 0; i < n; i++)
        accepts |= close_set(u, targets[i], begin, true);
    qsort(u->set, u->n_set, sizeof *u->set, compare_u32);
    return accepts;
}

static bool store_set(struct subsets *u, uint32_t state)
{
    if (u->capacity - u->n_members < u->n_set) {
        uint64_t capacity = u->capacity * (uint64_t)2 + u->n_set + 256;
        void *larger =
            capacity < UINT32_MAX / 4 ? realloc(u->members, capacity * sizeof *u->members) : NULL;
        if (!larger)
            return false;
        u->members = larger;
        u->capacity = (uint32_t)capacity;
    }
    if (u->n_set)
        memcpy(u->members + u->n_members, u->set, u->n_set * sizeof *u->set);
    u->n_members += u->n_set;
    u->from[state] = u->n_members - u->n_set;
    u->from[state + 1] = u->n_members;
    return true;
}

/* The state of the set just made; DFA_NONE: no space. */
static uint32_t set_state(struct subsets *u, bool accepts)
{
    uint32_t hash = accepts;
    for (uint32_t i = 0; i < u->n_set; i++)
        hash = (hash ^ u->set[i]) * 0x9e3779b1u ^ hash >> 15;
    uint32_t at = (hash ^ hash >> 16) & u->mask;
    for (; u->table[at]; at = (at + 1) & u->mask) {
        uint32_t s = u->table[at] - 1;
        if (u->d->accepts[s] == accepts && u->from[s + 1] - u->from[s] == u->n_set &&
            (u->n_set == 0 ||
             memcmp(u->members + u->from[s], u->set, u->n_set * sizeof *u->set) == 0))
            return s;
    }
    uint32_t state = dfa_state(u->d);
    if (state == DFA_NONE || !store_set(u, state))
        return DFA_NONE;
    u->d->accepts[state] = accepts;
    u->table[at] = state + 1;
    return state;
}

/* Where the byte edges of a set begin and end: between two such bytes all bytes lead alike. */
static void find_bounds(const struct subsets *u, uint32_t state, bool bounds[257])
{
    memset(bounds, 0, 257);
    bounds[0] = true;
    for (uint32_t i = u->from[state]; i < u->from[state + 1]; i++)
        for (uint32_t e = u->n->first[u->members[i]]; e != NETWORK_NONE; e = u->n->edges[e].next)
            if (u->n->edges[e].kind == EDGE_BYTES) {
                bounds[u->n->edges[e].low] = true;
                bounds[u->n->edges[e].high + 1] = true;
            }
}

static uint32_t collect_targets(struct subsets *u, uint32_t state, unsigned byte, uint32_t *targets)
{
    uint32_t n = 0;
    u->stamp++;
    for (uint32_t i = u->from[state]; i < u->from[state + 1]; i++)
        for (uint32_t e = u->n->first[u->members[i]]; e != NETWORK_NONE; e = u->n->edges[e].next) {
            const struct network_edge *edge = &u->n->edges[e];
            u->work++;
            if (edge->kind == EDGE_BYTES && edge->low <= byte && byte <= edge->high &&
                u->mark[edge->target] != u->stamp) {
                u->mark[edge->target] = u->stamp;
                targets[n++] = edge->target;
            }
        }
    return n;
}

static bool expand(struct subsets *u, uint32_t state, uint32_t *targets)
{
    bool bounds[257];
    uint32_t to = DFA_NONE;
    find_bounds(u, state, bounds);
    for (unsigned byte = 0; byte < 256; byte++) {
        if (bounds[byte]) {
            uint32_t n = collect_targets(u, state, byte, targets);
            to = DFA_NONE;
            if (n > 0) {
                bool accepts = make_set(u, targets, n, false);
                to = set_state(u, accepts);
                if (to == DFA_NONE || u->work > WORK_MAX)
                    return false;
            }
        }
        u->d->next[state][byte] = to;
    }
    return true;
}

static bool construct(struct subsets *u, struct fragment part, uint32_t *targets)
{
    /* The first set is made apart: only there ^ holds. It is not in the table. */
    bool accepts = make_set(u, &part.start, 1, true);
    uint32_t first = dfa_state(u->d);
    if (first == DFA_NONE || !store_set(u, first))
        return false;
    u->d->accepts[first] = accepts;
    for (uint32_t s = 0; s < u->d->n_states; s++)
        if (!expand(u, s, targets))
            return false;
    return true;
}

enum error_code dfa_from_network(const struct network *n, struct fragment part, struct dfa *out,
                                 struct error *e)
{
    struct subsets u = {.n = n, .end = part.end, .d = out};
    uint32_t size = 64, *targets;
    while (size < out->states_max * (uint64_t)2)
        size *= 2;
    u.mask = size - 1;
    u.memory = ARRAYS_NEW(ARRAY(u.from, out->states_max + (size_t)2), ARRAY(u.table, size),
                          ARRAY(u.set, n->n_states), ARRAY(u.stack, n->n_states),
                          ARRAY(u.mark, n->n_states), ARRAY(targets, n->n_states));
    if (!u.memory)
        return error_set(e, ERROR_MEMORY, "out of memory for a grammar");
    bool done = construct(&u, part, targets);
    bool limit = out->n_states == out->states_max || u.work > WORK_MAX;
    out->work += u.work + out->n_states * (uint64_t)256;
    free(u.members);
    free(u.memory);
    if (!done)
        return limit ? error_set(e, ERROR_LIMIT,
                                 "needs a deterministic automaton of more than %u states, or too "
                                 "much work to find it",
                                 out->states_max)
                     : error_set(e, ERROR_MEMORY, "out of memory for a grammar");
    return dfa_trim(out, e);
}
