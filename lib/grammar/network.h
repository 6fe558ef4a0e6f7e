/* The automaton while it is built: rules, each a nondeterministic automaton over bytes that may
 * call rules. network_finish (compiled.h) turns it into a struct grammar.
 *
 * A rule has one start and one end state. It may have several exits: then the way behind a call
 * depends on the exit at which the called rule was left. A state has one EDGE_EXIT at most, and a
 * state behind such a call has only edges EDGE_AFTER.
 *
 * Each time that a rule is entered it has a set of numbers below NETWORK_SET, empty at first. Edges
 * add a number, or can be taken only with or without one. So a rule reads parts in any order, each
 * once at most, and has a few states for each part. Its element is the rule of such a part:
 *
 *     loop --UNUSED i--> before --CALL element i--> after --USE i--> loop
 *     loop --NEED i, element i--> ... --> end          for each part that must be there
 *
 * Functions that add states or edges return a state; after a failure (`error`) they do nothing and
 * return 0, so a builder checks once, at the end. */
#ifndef MOED_GRAMMAR_NETWORK_H
#define MOED_GRAMMAR_NETWORK_H

#include "base/error.h"
#include "grammar/bounds.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NETWORK_NONE UINT32_MAX
enum { NETWORK_SET = 64 };

enum network_edge_kind {
    EDGE_BYTES, /* a byte from low to high */
    EDGE_EMPTY,
    EDGE_CALL,   /* whatever `rule` accepts */
    EDGE_BEGIN,  /* empty, at the beginning of the text only: ^ */
    EDGE_END,    /* empty, at the end of the text only: $ */
    EDGE_EXIT,   /* to the end of the rule, at its exit number `rule` */
    EDGE_AFTER,  /* behind a call: empty, if the called rule was left at its exit `rule` */
    EDGE_UNUSED, /* empty, if the set has not the number `low` */
    EDGE_USE,    /* empty; adds `low` to the set, which has not got it */
    EDGE_NEED,   /* empty, if the set has `low`, which each way adds behind a call of `rule` */
};

struct network_edge {
    uint8_t kind, low, high;
    uint32_t rule;
    uint32_t target;
    uint32_t next; /* of the same state; NETWORK_NONE */
};

struct network_rule {
    uint32_t start, end;
};

struct network {
    uint32_t *first; /* [n_states]: the first edge; NETWORK_NONE */
    uint32_t n_states, states_capacity, states_max;
    struct network_edge *edges;
    uint32_t n_edges, edges_capacity;
    struct network_rule *rules;
    uint32_t n_rules, rules_capacity;
    enum error_code error; /* ERROR_LIMIT: states_max; ERROR_MEMORY */
};

/* A part with one way in and one way out. Its states are numbered from `from` up to `to`,
 * exclusive, and no edge inside leads out. */
struct fragment {
    uint32_t start, end, from, to;
};

/* How much a network has: what is added later can be withdrawn, if nothing before it got edges. */
struct network_extent {
    uint32_t n_states, n_edges, n_rules;
};

void network_init(struct network *n, uint32_t states_max);
void network_fini(struct network *n);

uint32_t network_state(struct network *n);
struct fragment network_fragment(struct network *n); /* a start and an end, without an edge */
uint32_t network_rule(struct network *n);            /* its number; with a start and an end */
uint32_t network_rule_of(struct network *n, uint32_t start, uint32_t end);

void network_empty(struct network *n, uint32_t from, uint32_t to);
void network_byte(struct network *n, uint32_t from, unsigned low, unsigned high, uint32_t to);
void network_call(struct network *n, uint32_t from, uint32_t rule, uint32_t to);
void network_assert(struct network *n, uint32_t from, enum network_edge_kind kind, uint32_t to);
void network_exit(struct network *n, uint32_t from, uint32_t number, uint32_t end);
void network_after(struct network *n, uint32_t from, uint32_t number, uint32_t to);
void network_unused(struct network *n, uint32_t from, unsigned number, uint32_t to);
void network_use(struct network *n, uint32_t from, unsigned number, uint32_t to);
void network_need(struct network *n, uint32_t from, unsigned number, uint32_t rule, uint32_t to);
/* A call, or EDGE_NEED: no way leads over it if no text satisfies its rule. */
bool network_edge_needs_rule(const struct network_edge *edge);
/* A code point from low to high as UTF-8; surrogates are left out. */
void network_range(struct network *n, uint32_t from, uint32_t low, uint32_t high, uint32_t to);
/* Returns the state after the bytes. */
uint32_t network_literal(struct network *n, uint32_t from, const void *bytes, size_t len);
/* As network_literal, but shares edges of one byte that leave `from` already: a trie. */
uint32_t network_trie(struct network *n, uint32_t from, const void *bytes, size_t len);

/* So many times what a fragment or rule accepts. network_repeat takes the fragment, which ends at
 * the current state count, and copies it. The rule needs only some log(max) states. */
struct fragment network_repeat(struct network *n, struct fragment f, struct count_bounds times);
uint32_t network_repeat_rule(struct network *n, uint32_t from, uint32_t rule,
                             struct count_bounds times);

struct network_extent network_extent(const struct network *n);
/* Withdraws what was added since, and the error of a limit. */
void network_withdraw(struct network *n, struct network_extent since);
/* Sets those of the rules, all added since, to NETWORK_NONE that no text satisfies. Each state from
 * before is taken to lead to the end of its rule. False: no memory. */
bool network_drop_unending(const struct network *n, uint32_t *rules, size_t n_rules,
                           struct network_extent since);

/* Sets *e to the sticky error, with the limit; returns it. */
enum error_code network_error(const struct network *n, struct error *e);

#endif
