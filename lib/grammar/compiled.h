/* A compiled grammar: the states that an answer can reach and leave, in arrays.
 *
 * State s has the byte edges byte_edges[bytes_from[s]..bytes_from[s + 1]), and so on. */
#ifndef MOED_GRAMMAR_COMPILED_H
#define MOED_GRAMMAR_COMPILED_H

#include "grammar/grammar.h"
#include "grammar/network.h"

#include <stdbool.h>
#include <stdint.h>

struct grammar_byte_edge {
    uint8_t low, high;
    uint32_t target;
};

struct grammar_call {
    uint32_t rule, target;
};

/* Where a call goes on if the called rule was left at this exit. */
struct grammar_after {
    uint32_t exit, target;
};

/* EDGE_UNUSED, EDGE_USE or EDGE_NEED (network.h). */
struct grammar_set_edge {
    uint8_t kind, number;
    uint32_t target;
};

struct grammar_rule {
    uint32_t start;
    uint32_t rank; /* a rule that another one calls before any byte has the higher rank */
    uint32_t height;
    bool nullable;
};

/* A control token that a literal may be spelt with is one byte of the automaton, which UTF-8 never
 * has: GRAMMAR_MARK_FIRST + its number in `marks`. */
enum { GRAMMAR_MARK_FIRST = 0xf5 };
_Static_assert(GRAMMAR_MARK_FIRST + GRAMMAR_MARKS_MAX == 0x100, "a byte for each mark");

struct grammar {
    uint32_t n_states, n_rules, root;
    uint32_t depth;                                   /* the limit */
    uint32_t *bytes_from, *calls_from, *empties_from; /* [n_states + 1] */
    struct grammar_byte_edge *byte_edges;
    struct grammar_call *calls;
    uint32_t *empties;
    uint32_t *exit_of;     /* [n_states]: at which it leaves its rule; NETWORK_NONE */
    uint32_t *afters_from; /* [n_states + 1] */
    struct grammar_after *afters;
    uint32_t *sets_from; /* [n_states + 1] */
    struct grammar_set_edge *set_edges;
    uint32_t *height; /* [n_states]: nested calls that the shortest way to the end needs */
    bool *accepts;    /* [n_states]: the end of its rule */
    struct grammar_rule *rules;
    uint32_t n_classes; /* bytes that no edge tells apart are one class */
    uint8_t class_of[256];
    uint8_t class_byte[256];        /* one byte of each class */
    char *marks[GRAMMAR_MARKS_MAX]; /* owned */
    uint32_t n_marks;
    uint32_t replaced;  /* schemas */
    char *replaced_why; /* owned; NULL: none */
    void *memory;
};

/* Leaves out what cannot be reached or cannot end. The network stays the caller's.
 * ERROR_USAGE, *culprit = root: no text satisfies the grammar. ERROR_UNSUPPORTED, *culprit a rule:
 * the rule calls itself before any byte (left recursion). ERROR_LIMIT, ERROR_MEMORY. */
enum error_code network_finish(const struct network *n, uint32_t root, uint32_t depth,
                               struct grammar **out, uint32_t *culprit, struct error *e);

#endif
