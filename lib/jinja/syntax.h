/* A template's tree: expressions and statements. It lives in the arena of the compilation and never
 * changes. */
#ifndef MOED_JINJA_SYNTAX_H
#define MOED_JINJA_SYNTAX_H

#include "jinja/lexer.h"
#include "jinja/value.h"

enum expression_kind {
    EXPRESSION_LITERAL,
    EXPRESSION_NAME,
    EXPRESSION_LIST,
    EXPRESSION_TUPLE,
    EXPRESSION_DICT,      /* items: key, value, key, value */
    EXPRESSION_NEGATE,    /* a */
    EXPRESSION_POSITIVE,  /* a */
    EXPRESSION_NOT,       /* a */
    EXPRESSION_AND,       /* a, b */
    EXPRESSION_OR,        /* a, b */
    EXPRESSION_BINARY,    /* a operator b */
    EXPRESSION_COMPARE,   /* a operators[0] items[0] operators[1] items[1] ... */
    EXPRESSION_CONCAT,    /* items, with ~ */
    EXPRESSION_CONDITION, /* b if a else c; c may be NULL */
    EXPRESSION_ATTRIBUTE, /* a.name */
    EXPRESSION_ITEM,      /* a[b] */
    EXPRESSION_SLICE,     /* a[items[0]:items[1]:items[2]], each may be NULL */
    EXPRESSION_CALL,      /* a(arguments) */
    EXPRESSION_FILTER,    /* a | name(arguments); a is NULL in a filter block */
    EXPRESSION_TEST,      /* a is name(arguments) */
};

struct expression;

struct call_argument {
    const struct text *name; /* NULL: by position */
    const struct expression *value;
};

struct expression {
    enum expression_kind kind;
    int line;
    int operator;
    struct value literal;
    const struct text *name;
    const struct expression *a, *b, *c;
    const struct expression **items;
    int *operators;
    size_t count; /* of items */
    struct call_argument *arguments;
    size_t argument_count;
};

enum statement_kind {
    STATEMENT_DATA,      /* text */
    STATEMENT_OUTPUT,    /* value */
    STATEMENT_IF,        /* value, body, otherwise */
    STATEMENT_FOR,       /* target in value if test: body, otherwise */
    STATEMENT_SET,       /* target = value */
    STATEMENT_SET_BLOCK, /* target = body, through the filters of value (may be NULL) */
    STATEMENT_MACRO,     /* macro */
    STATEMENT_CALL,      /* value (a call), with macro as `caller` */
    STATEMENT_FILTER,    /* body through the filters of value */
    STATEMENT_WITH,      /* assignments, body */
    STATEMENT_SCOPE,     /* body: generation, whose sets stay inside */
    STATEMENT_BREAK,
    STATEMENT_CONTINUE,
};

struct statement {
    enum statement_kind kind;
    int line;
    const struct statement *next;
    const struct text *text;
    const struct expression *target; /* a name, ns.name (an attribute) or a tuple of those */
    const struct expression *value, *test;
    const struct statement *body, *otherwise;
    const struct macro_syntax *macro;
    const struct expression **targets, **values; /* of `with` */
    size_t count;
};

struct macro_syntax {
    const struct text *name;
    const struct text **parameters;
    const struct expression **defaults; /* NULL: none */
    size_t count;
    bool takes_caller, takes_varargs, takes_kwargs; /* its body names them */
    const struct statement *body;
};

#endif
