/* What the files of the lexer share: lexer.c (data, comments and tags), lexer_tag.c (the inside of
 * a tag), lexer_cursor.c (the place in the text). Each uses only those named after it. */
#ifndef MOED_JINJA_LEXER_INTERNAL_H
#define MOED_JINJA_LEXER_INTERNAL_H

#include "jinja/lexer.h"

struct lexer {
    struct run *run; /* its line is the lexer's */
    const char *at, *end;
    bool line_starts; /* `at` is the first of its line, as far as stripping goes */
    struct token *tokens;
    size_t count, capacity;
};

/* ---- lexer_cursor.c ---- */

void lexer_add(struct lexer *l, struct token token);
void lexer_move(struct lexer *l, const char *to);
bool lexer_at(const struct lexer *l, const char *p, const char *literal);
const char *lexer_skip_space(const struct lexer *l, const char *p);
const char *lexer_block_end(const struct lexer *l, const char *p);

/* ---- lexer_tag.c ---- */

/* Reads the inside of a tag and its end. variable: of {{ }}, else of {% %}. */
void lexer_read_tag(struct lexer *l, bool variable);

#endif
