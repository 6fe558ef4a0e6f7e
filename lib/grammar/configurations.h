/* The configurations of an automaton that calls rules: a deterministic automaton that is computed
 * as far as an answer needs it.
 *
 * A configuration is a set of places (state, stack). A stack is a set of places to return to: all
 * callers of a rule at one position of the text share one stack (a graph-structured stack), so
 * their number does not grow with the number of ways to read the text. Stacks and configurations
 * are numbered; equal ones have the same number, and a step from a known configuration by a known
 * class of bytes is one look-up.
 *
 * Rules that call themselves as their last part need no stack. */
#ifndef MOED_GRAMMAR_CONFIGURATIONS_H
#define MOED_GRAMMAR_CONFIGURATIONS_H

#include "grammar/compiled.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    CONFIGURATION_UNKNOWN = 0,
    CONFIGURATION_DEAD = 1, /* nothing is accepted from here */
    CONFIGURATION_FIRST = 2,
};

struct place {
    uint32_t state, stack;
};

/* places[from..from + count), sorted. */
struct place_set {
    uint32_t from, count, hash;
    uint32_t depth; /* of a stack; of a configuration: 1 if the text may end here */
    uint64_t used;  /* of a stack: the set of the rule that returns to it (network.h), as bits */
};

/* Numbered sets of one kind. */
struct place_sets {
    struct place_set *sets;
    struct place *places;
    uint32_t *table; /* by hash; 0: empty, else number + 1 */
    uint32_t *remap;
    uint32_t n_sets, n_places, sets_max, places_max, table_mask;
};

struct configurations {
    const struct grammar *g;
    struct place_sets stacks, known; /* stack 0 is the first one of the root */
    uint32_t *next;                  /* [known.sets_max][n_classes]: CONFIGURATION_* or a number */
    /* one closure */
    struct place *work, *core;
    uint32_t *seen; /* [by hash of a place]: the stamp of the closure that has it */
    struct place *seen_places;
    uint32_t seen_stamp, n_seen, n_work, n_core;
    struct waiting_call *waiting; /* calls, by rule */
    uint32_t *waiting_first;      /* [n_rules] */
    uint32_t *waiting_rules;      /* sorted by rank, the last one first */
    uint32_t n_waiting, n_waiting_rules;
    bool complete;
    enum configurations_fault {
        CONFIGURATIONS_OK,
        CONFIGURATIONS_FULL, /* forget some */
        CONFIGURATIONS_WORK, /* the closure is too large, or work_max is exceeded */
    } fault;
    /* Steps since the owner set work_done to 0. A closure that exceeds work_max, at first without
     * limit, ends with CONFIGURATIONS_WORK. */
    uint64_t work_done, work_max;
};

bool configurations_init(struct configurations *c, const struct grammar *g);
void configurations_fini(struct configurations *c);

/* The configuration before any byte; DEAD if there is a fault. */
uint32_t configurations_start(struct configurations *c);
/* After one more byte; DEAD also if there is a fault. */
uint32_t configurations_compute(struct configurations *c, uint32_t from, uint8_t byte);

static inline uint32_t configurations_step(struct configurations *c, uint32_t from, uint8_t byte)
{
    uint32_t next = c->next[(uint64_t)from * c->g->n_classes + c->g->class_of[byte]];
    return next != CONFIGURATION_UNKNOWN ? next : configurations_compute(c, from, byte);
}

static inline bool configurations_complete(const struct configurations *c, uint32_t number)
{
    return c->known.sets[number].depth > 0;
}

/* Nothing can follow. */
static inline bool configurations_final(const struct configurations *c, uint32_t number)
{
    return c->known.sets[number].count == 0;
}

/* Forgets every configuration but those at roots[0..n), whose numbers are changed in place. */
void configurations_forget(struct configurations *c, uint32_t *const *roots, uint32_t n);

#endif
