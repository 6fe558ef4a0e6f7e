/* Splits a template into tokens, by Jinja's rules of white space with trim_blocks and lstrip_blocks
 * on (as transformers sets them):
 *
 *   - the first newline after a block tag or a comment is dropped, unless the tag ends with "+%}";
 *   - spaces before a block tag or comment that is first on its line are dropped, unless it begins
 *     with "{%+";
 *   - "-" inside a tag's mark drops all white space on that side;
 *   - one newline at the end of the template is dropped; "\r\n" and "\r" count as "\n".
 */
#ifndef MOED_JINJA_LEXER_H
#define MOED_JINJA_LEXER_H

#include "jinja/text.h"

enum token_type {
    TOKEN_END, /* of the template */
    TOKEN_DATA,
    TOKEN_VARIABLE_BEGIN, /* {{ */
    TOKEN_VARIABLE_END,
    TOKEN_BLOCK_BEGIN, /* {% */
    TOKEN_BLOCK_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INTEGER,
    TOKEN_FLOAT,
    TOKEN_OPERATOR,
};

/* Operators of one character stand for themselves. */
enum token_operator {
    OPERATOR_EQUAL = 256, /* == */
    OPERATOR_NOT_EQUAL,
    OPERATOR_LESS_EQUAL,
    OPERATOR_GREATER_EQUAL,
    OPERATOR_FLOOR_DIVIDE, /* // */
    OPERATOR_POWER,        /* ** */
    OPERATOR_IN,           /* the rest: words, which the parser finds */
    OPERATOR_NOT_IN,
};

struct token {
    enum token_type type;
    int line;
    int operator;            /* of TOKEN_OPERATOR */
    const struct text *text; /* of data, names and strings (unescaped) */
    int64_t integer;
    double real;
};

/* The tokens, ending with TOKEN_END, in the run's arena. Borrows nothing of `source`, which is
 * well-formed UTF-8. */
const struct token *lexer_run(struct run *r, const char *source, size_t len);

#endif
