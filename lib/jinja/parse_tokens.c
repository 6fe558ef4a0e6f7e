/* The tokens in front of the parser, and what it expects of them; see parser.h. */
#include "jinja/parser.h"

#include <stdio.h>

static const char *token_name(const struct parser *p, char buffer[64])
{
    const struct token *t = p->at;
    switch (t->type) {
    case TOKEN_END:
        return "the end of the template";
    case TOKEN_DATA:
        return "text";
    case TOKEN_VARIABLE_BEGIN:
        return "'{{'";
    case TOKEN_VARIABLE_END:
        return "'}}'";
    case TOKEN_BLOCK_BEGIN:
        return "'{%'";
    case TOKEN_BLOCK_END:
        return "'%}'";
    case TOKEN_STRING:
        return "a string";
    case TOKEN_INTEGER:
    case TOKEN_FLOAT:
        return "a number";
    case TOKEN_NAME:
        snprintf(buffer, 64, "'%.*s'", t->text->len < 60 ? (int)t->text->len : 60, t->text->data);
        return buffer;
    case TOKEN_OPERATOR:
        break;
    }
    static const char *const words[] = {"==", "!=", "<=", ">=", "//", "**"};
    if (t->operator>= OPERATOR_EQUAL)
        snprintf(buffer, 64, "'%s'", words[t->operator- OPERATOR_EQUAL]);
    else
        snprintf(buffer, 64, "'%c'", t->operator);
    return buffer;
}

noreturn void parse_unexpected(struct parser *p, const char *expected)
{
    char buffer[64];
    p->run->line = p->at->line;
    run_fail(p->run, ERROR_FORMAT, "expected %s, but found %s", expected, token_name(p, buffer));
}

bool parse_at(const struct parser *p, int operator)
{
    return p->at->type == TOKEN_OPERATOR && p->at->operator== operator;
}

bool parse_skip(struct parser *p, int operator)
{
    bool there = parse_at(p, operator);
    p->at += there;
    return there;
}

bool parse_at_word(const struct parser *p, const char *word)
{
    return p->at->type == TOKEN_NAME && text_is(p->at->text, word);
}

bool parse_skip_word(struct parser *p, const char *word)
{
    bool there = parse_at_word(p, word);
    p->at += there;
    return there;
}

void parse_expect(struct parser *p, int operator, const char * text)
{
    char expected[8];
    snprintf(expected, sizeof expected, "'%s'", text);
    if (!parse_skip(p, operator))
        parse_unexpected(p, expected);
}

const struct text *parse_name(struct parser *p)
{
    if (p->at->type != TOKEN_NAME)
        parse_unexpected(p, "a name");
    return (p->at++)->text;
}
