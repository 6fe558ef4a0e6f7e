/* Deterministic automata over bytes, for languages that must be intersected or subtracted: the
 * contents of JSON strings under patterns, formats and lengths, and numbers under bounds. */
#ifndef MOED_GRAMMAR_DFA_H
#define MOED_GRAMMAR_DFA_H

#include "base/error.h"
#include "grammar/network.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DFA_NONE UINT32_MAX

struct dfa {
    uint32_t (*next)[256]; /* [n_states]; DFA_NONE: refused. State 0 is the start */
    bool *accepts;
    uint32_t n_states, capacity, states_max;
    uint64_t work; /* steps that its making took */
};

void dfa_init(struct dfa *d, uint32_t states_max);
void dfa_fini(struct dfa *d);
/* A state without edges. DFA_NONE: states_max, or no memory. */
uint32_t dfa_state(struct dfa *d);

/* The texts of `part`, with its assertions; calls of rules are not followed. Fills an initialised,
 * empty *out. ERROR_LIMIT, ERROR_MEMORY. */
enum error_code dfa_from_network(const struct network *n, struct fragment part, struct dfa *out,
                                 struct error *e);

enum dfa_product {
    DFA_BOTH,    /* texts of a and of b */
    DFA_WITHOUT, /* texts of a that are not texts of b */
};

/* Replaces *a by the product; what cannot reach an accepting state is left out. */
enum error_code dfa_combine(struct dfa *a, const struct dfa *b, enum dfa_product kind,
                            struct error *e);
/* Restricts *a, over UTF-8, to texts of so many code points. */
enum error_code dfa_limit_length(struct dfa *a, struct count_bounds length, struct error *e);

/* Leaves out states that cannot reach an accepting state. */
enum error_code dfa_trim(struct dfa *d, struct error *e);
/* Merges states from which the same texts are accepted, if this takes few steps. */
enum error_code dfa_minimise(struct dfa *d, struct error *e);
bool dfa_is_empty(const struct dfa *d); /* of a trimmed one */
/* Calls take(context, text) for each text of a trimmed automaton, in the order of their bytes. It
 * stops, and returns false, at the first text that is longer than DFA_WORD_BYTES or has a NUL, and
 * where take returns false. */
enum { DFA_WORD_BYTES = 128 };
typedef bool dfa_take_word(void *context, const char *text);
bool dfa_each_word(const struct dfa *d, dfa_take_word *take, void *context);
bool dfa_matches(const struct dfa *d, const void *text, size_t len);

/* Adds the automaton to a network, from a state to a state. json: as the content of a JSON string,
 * where quotes, backslashes and control characters are escaped in the shortest way. */
void dfa_emit(const struct dfa *d, struct network *n, uint32_t from, uint32_t to, bool json);
/* The same without a state to come from; states [n_states] becomes the network's states. */
void dfa_emit_states(const struct dfa *d, struct network *n, uint32_t *states, uint32_t to,
                     bool json);
bool dfa_is_escaped(unsigned byte);
/* Adds only the edges: those of state s leave from source[s] and lead to target[next]. */
void dfa_emit_edges(const struct dfa *d, struct network *n, const uint32_t *source,
                    const uint32_t *target, bool json);

#endif
