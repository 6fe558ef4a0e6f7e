/* Structured output: a JSON schema, a regular expression, a GBNF grammar or a list of choices,
 * compiled to one automaton over bytes.
 *
 * A compiled grammar never changes: requests and threads share it, and each request has its own
 * struct grammar_matcher (matcher.h). The automaton accepts a text only if the text satisfies the
 * whole definition. A keyword or construct that it cannot express exactly is refused; nothing is
 * skipped. docs/structured-output.md lists both.
 *
 * Definitions come from strangers: every loop is bounded by struct grammar_limits. */
#ifndef MOED_GRAMMAR_GRAMMAR_H
#define MOED_GRAMMAR_GRAMMAR_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

enum grammar_kind {
    GRAMMAR_JSON,        /* any JSON object; the text is ignored */
    GRAMMAR_JSON_SCHEMA, /* JSON Schema 2020-12 */
    GRAMMAR_REGEX,       /* an ECMA-262 regular expression that matches the whole answer */
    GRAMMAR_GBNF,        /* rules in llama.cpp's notation; the start is `root` */
    GRAMMAR_CHOICE,      /* a JSON array of strings */
};

struct grammar_limits {
    uint32_t text_bytes;   /* of the definition */
    uint32_t states;       /* of the automaton */
    uint32_t dfa_states;   /* of the deterministic automaton of one pattern, format or number */
    uint32_t alternatives; /* of one schema after its anyOf and oneOf are multiplied out */
    uint32_t depth;        /* of nested rules in an answer */
};

/* 256 KiB, 10^5, 8192, 256, 256. */
extern const struct grammar_limits grammar_limits_default;

struct grammar;

/* limits: NULL for the default. The text need not end with a NUL. Errors, with the place (a JSON
 * pointer for a schema, line and column for others):
 * ERROR_USAGE: the text is malformed, or no answer can satisfy it.
 * ERROR_UNSUPPORTED: well formed, but not supported exactly.
 * ERROR_LIMIT: a limit is exceeded. ERROR_MEMORY. */
enum error_code grammar_compile(enum grammar_kind kind, const char *text, size_t len,
                                const struct grammar_limits *limits, struct grammar **out,
                                struct error *e);

/* A GBNF grammar whose literals may also be spelt with control tokens: where a literal has one of
 * these texts, the vocabulary's control tokens with exactly this text can stand for it. Nowhere
 * else, so not in a string that happens to have the text. marks [n_marks], copied. ERROR_LIMIT:
 * more than GRAMMAR_MARKS_MAX, or a longer one than GRAMMAR_MARK_BYTES. Empty ones are ignored. */
enum { GRAMMAR_MARKS_MAX = 11, GRAMMAR_MARK_BYTES = 255 };
enum error_code grammar_compile_marked(const char *text, size_t len, const char *const *marks,
                                       uint32_t n_marks, const struct grammar_limits *limits,
                                       struct grammar **out, struct error *e);
void grammar_free(struct grammar *g); /* takes NULL */

/* How many schemas of a GBNF grammar are followed without some keywords, or another rule stands for
 * them (gbnf_schema.h). *why: the reasons, a
 * line each, of the first GRAMMAR_REPLACED_MAX; they live as long as g. */
enum { GRAMMAR_REPLACED_MAX = 8 };
uint32_t grammar_replaced(const struct grammar *g, const char **why);

uint32_t grammar_states(const struct grammar *g);

#endif
