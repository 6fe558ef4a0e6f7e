/* Regular expressions of ECMA-262 (with the flag u) as automata over UTF-8.
 *
 * Supported: literals, `.`, classes, \d \D \s \S \w \W, escapes of characters, groups of all three
 * kinds, alternatives, greedy and lazy quantifiers (the language is the same), ^ and $. Of Python's
 * spellings (?P<name>...), \A, \Z (and \z), and (?s) at the start.
 * ERROR_UNSUPPORTED: look-around, back references, \b, \B, \p, other modifiers, [[:alpha:]]. */
#ifndef MOED_GRAMMAR_REGEX_H
#define MOED_GRAMMAR_REGEX_H

#include "base/error.h"
#include "grammar/network.h"

/* Adds the expression to a network, with edges for ^ and $. *out is a part of it. Errors name the
 * column, from 1. */
enum error_code regex_parse(const char *text, size_t len, struct network *n, struct fragment *out,
                            struct error *e);

/* Copies `part` from one network to another one as a rule without assertions. The rule accepts the
 * texts that the whole of `part` matches. */
uint32_t regex_rule(const struct network *from, struct fragment part, struct network *to);

#endif
