/* Builds a template's tree from its tokens. */
#ifndef MOED_JINJA_PARSER_H
#define MOED_JINJA_PARSER_H

#include "jinja/syntax.h"

struct parser {
    struct run *run;
    const struct token *at;
    unsigned loops;             /* `break` is allowed */
    struct macro_syntax *macro; /* the innermost macro; NULL: outside */
};

/* Parses the tokens of lexer_run; NULL: an empty template. ERROR_FORMAT: a syntax error. */
const struct statement *parser_run(struct run *r, const struct token *tokens);

/* ---- parse_tokens.c ---- */

noreturn void parse_unexpected(struct parser *p, const char *expected);
bool parse_skip(struct parser *p, int operator); /* moves past it if it is there */
bool parse_skip_word(struct parser *p, const char *word);
bool parse_at(const struct parser *p, int operator);
bool parse_at_word(const struct parser *p, const char *word);
void parse_expect(struct parser *p, int operator, const char * text);
const struct text *parse_name(struct parser *p);

/* ---- expressions.c and primary.c ---- */

const struct expression *parse_expression(struct parser *p);
/* One expression, or a tuple without brackets. */
const struct expression *parse_tuple(struct parser *p);
/* Without "x if y". */
const struct expression *parse_or(struct parser *p);
/* What can be assigned to. namespaces: ns.name too. */
const struct expression *parse_target(struct parser *p, bool namespaces);
/* A chain of filters without the value in front: "upper | trim". */
const struct expression *parse_filters(struct parser *p);
/* "(" arguments ")" of e. */
void parse_arguments(struct parser *p, struct expression *e);
struct expression *parse_new(struct parser *p, enum expression_kind kind);

#endif
