/* GBNF, the notation of llama.cpp for grammars, into a network.
 *
 * Supported: rules `name ::= alternatives`, literals with escapes, classes, `.`, groups,
 * references, the repetitions * + ? {m} {m,} {m,n}, comments; and, not of llama.cpp, items that
 * stand for the values of a JSON schema (gbnf_schema.h), and
 *
 *     %all ( PART | ? PART | * PART ... )
 *
 * which reads parts, which are sequences, in any order: each of the first kind once, of the second
 * at most once, of the third, behind all of the first kind, any number of times. The first two
 * kinds are NETWORK_SET parts at most. ERROR_UNSUPPORTED: left recursion, and references to tokens
 * of the vocabulary (<...>). */
#ifndef MOED_GRAMMAR_GBNF_H
#define MOED_GRAMMAR_GBNF_H

#include "base/error.h"
#include "grammar/gbnf_schema.h"
#include "grammar/grammar.h"
#include "grammar/network.h"

#include <stddef.h>

struct gbnf_rule {
    const char *name; /* borrowed from the text */
    size_t len, at;   /* where it is first named */
    uint32_t rule;
    bool defined;
};

struct gbnf {
    const char *text;
    size_t len, at;
    const struct grammar_limits *limits;
    const char *const *marks; /* [n_marks]; see compiled.h */
    uint32_t n_marks;
    struct gbnf_schemas *schemas;
    struct network *n;
    struct gbnf_rule *rules;
    uint32_t n_rules, capacity;
    unsigned nesting;
    struct error *error;
};

/* Parses g->text [g->len] into g->n, with g->limits, g->marks and g->schemas; the caller has set
 * these and g->error. Adds all rules; *root is the rule `root`. Errors name line and column. The
 * caller frees g->rules, which name the rules for errors that are found later. */
enum error_code gbnf_parse(struct gbnf *g, uint32_t *root);
/* Puts the place and the name of a rule before the text of the error. */
enum error_code gbnf_locate(const struct gbnf *g, uint32_t rule);

#endif
