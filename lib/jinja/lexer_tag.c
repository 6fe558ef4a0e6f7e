/* The inside of a tag: names, strings, numbers, operators; see lexer.h. */
#include "jinja/lexer_internal.h"

#include "base/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEEPEST_BRACKETS 200

/* ---- Strings ---- */

static int digit_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : 99;
}

/* Reads a character's number of `least` to `most` digits of a base at *p. */
static bool read_code(const char **p, const char *end, int base, int least, int most,
                      uint32_t *code)
{
    int n = 0;
    *code = 0;
    while (n < most && *p < end && digit_value(**p) < base) {
        *code = *code * (uint32_t)base + (uint32_t)digit_value(*(*p)++);
        n++;
    }
    return n >= least && *code <= 0x10ffff && (*code < 0xd800 || *code > 0xdfff);
}

/* An escape behind its backslash; Python keeps an unknown one as it stands. */
static void read_escape(struct lexer *l, struct text_builder *b, const char **p, const char *end)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = *(*p)++;
    const char *simple = c ? strchr(from, c) : NULL;
    if (simple) {
        builder_add(b, &to[simple - from], 1, false);
        return;
    }
    if (c == '\n')
        return;
    uint32_t code;
    bool ok = true;
    if (c == 'x' || c == 'u' || c == 'U') {
        int digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        ok = read_code(p, end, 16, digits, digits, &code);
    } else if (c >= '0' && c <= '7') {
        --*p;
        ok = read_code(p, end, 8, 1, 3, &code);
    } else if (c == 'N') {
        ok = false; /* names of characters are not known here */
    } else {
        --*p;
        builder_add_literal(b, "\\");
        return;
    }
    if (!ok)
        run_fail(l->run, ERROR_FORMAT, "a string has a malformed escape \\%c", c);
    char bytes[4];
    builder_add(b, bytes, utf8_encode(code, bytes), false);
}

static void read_string(struct lexer *l)
{
    char quote = *l->at;
    const char *p = l->at + 1;
    while (p < l->end && *p != quote)
        p += *p == '\\' && p + 1 < l->end ? 2 : 1;
    if (p >= l->end)
        run_fail(l->run, ERROR_FORMAT, "a string has no end: %c is missing", quote);
    struct text_builder b;
    builder_init(&b, l->run);
    for (const char *from = l->at + 1; from < p;) {
        if (*from == '\\') {
            from++;
            read_escape(l, &b, &from, p);
        } else {
            const char *next = from;
            text_next(&next);
            builder_add(&b, from, (size_t)(next - from), false);
            from = next;
        }
    }
    lexer_add(l, (struct token){.type = TOKEN_STRING, .text = builder_text(&b)});
    lexer_move(l, p + 1);
}

/* ---- Numbers ---- */

/* Copies digits of a base, with single underscores between them; returns what is behind. */
static const char *read_digits(const struct lexer *l, const char *p, int base, char *out, size_t *n)
{
    while (p < l->end) {
        bool joined = *p == '_' && *n > 0 && p + 1 < l->end && digit_value(p[1]) < base;
        if (joined)
            p++;
        if (digit_value(*p) >= base)
            break;
        if (*n >= 400)
            run_fail(l->run, ERROR_FORMAT, "a number has too many digits");
        out[(*n)++] = *p++;
    }
    return p;
}

static const char *read_fraction(const struct lexer *l, const char *p, char *out, size_t *n)
{
    const char *start = p;
    if (p + 1 < l->end && *p == '.' && isdigit((unsigned char)p[1])) {
        out[(*n)++] = '.';
        p = read_digits(l, p + 1, 10, out, n);
    }
    const char *e = p;
    if (e < l->end && (*e == 'e' || *e == 'E')) {
        e++;
        char sign = e < l->end && (*e == '-' || *e == '+') ? *e++ : '+';
        if (e < l->end && isdigit((unsigned char)*e)) {
            out[(*n)++] = 'e';
            out[(*n)++] = sign;
            p = read_digits(l, e, 10, out, n);
        }
    }
    return p == start ? NULL : p;
}

static void read_number(struct lexer *l)
{
    char digits[420];
    size_t n = 0;
    const char *p = l->at;
    char mark = p + 1 < l->end && *p == '0' ? (char)(p[1] | 0x20) : 0;
    int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
    p = read_digits(l, base == 10 ? p : p + 2, base, digits, &n);
    bool behind_dot = l->count && l->tokens[l->count - 1].type == TOKEN_OPERATOR &&
                      l->tokens[l->count - 1].operator== '.'; /* "x.0.1": no fraction */
    const char *fraction = base == 10 && !behind_dot ? read_fraction(l, p, digits, &n) : NULL;
    digits[n] = '\0';
    if (fraction) {
        lexer_add(l, (struct token){.type = TOKEN_FLOAT, .real = strtod(digits, NULL)});
        lexer_move(l, fraction);
        return;
    }
    errno = 0;
    int64_t integer = strtoll(digits, NULL, base);
    if (errno || n == 0)
        run_fail(l->run, ERROR_FORMAT, "a number is malformed or too large");
    lexer_add(l, (struct token){.type = TOKEN_INTEGER, .integer = integer});
    lexer_move(l, p);
}

/* ---- Names and operators ---- */

static bool is_name_byte(char c, bool first)
{
    unsigned char u = (unsigned char)c;
    return isalpha(u) || u == '_' || u >= 0x80 || (!first && isdigit(u));
}

static void read_name(struct lexer *l)
{
    const char *p = l->at;
    while (p < l->end && is_name_byte(*p, p == l->at))
        p++;
    lexer_add(l, (struct token){.type = TOKEN_NAME,
                                .text = text_new(l->run, l->at, (size_t)(p - l->at), false)});
    lexer_move(l, p);
}

static void read_operator(struct lexer *l)
{
    static const struct {
        const char *text;
        int operator;
    } pairs[] = {{"==", OPERATOR_EQUAL},        {"!=", OPERATOR_NOT_EQUAL},
                 {"<=", OPERATOR_LESS_EQUAL},   {">=", OPERATOR_GREATER_EQUAL},
                 {"//", OPERATOR_FLOOR_DIVIDE}, {"**", OPERATOR_POWER}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (lexer_at(l, l->at, pairs[i].text)) {
            lexer_add(l, (struct token){.type = TOKEN_OPERATOR, .operator= pairs[i].operator});
            lexer_move(l, l->at + 2);
            return;
        }
    if (!*l->at || !strchr("+-/*%~[](){}<>=.:|,;", *l->at))
        run_fail(l->run, ERROR_FORMAT, "unexpected character '%c'", *l->at);
    lexer_add(l, (struct token){.type = TOKEN_OPERATOR, .operator= *l->at});
    lexer_move(l, l->at + 1);
}

/* ---- Tags ---- */

struct brackets {
    char open[DEEPEST_BRACKETS];
    size_t count;
};

static void match_brackets(struct lexer *l, struct brackets *b)
{
    static const char opening[] = "([{", closing[] = ")]}";
    char c = *l->at;
    if (c && strchr(opening, c)) {
        if (b->count == DEEPEST_BRACKETS)
            run_fail(l->run, ERROR_LIMIT, "brackets are nested too deeply");
        b->open[b->count++] = closing[strchr(opening, c) - opening];
    } else if (c && strchr(closing, c)) {
        if (b->count == 0)
            run_fail(l->run, ERROR_FORMAT, "unexpected '%c'", c);
        if (b->open[--b->count] != c)
            run_fail(l->run, ERROR_FORMAT, "unexpected '%c', expected '%c'", c, b->open[b->count]);
    }
}

static const char *tag_end(const struct lexer *l, bool variable)
{
    if (!variable)
        return lexer_block_end(l, l->at);
    if (lexer_at(l, l->at, "-}}"))
        return lexer_skip_space(l, l->at + 3);
    return lexer_at(l, l->at, "}}") ? l->at + 2 : NULL;
}

void lexer_read_tag(struct lexer *l, bool variable)
{
    struct brackets open = {.count = 0};
    int line = l->run->line;
    lexer_add(l, (struct token){.type = variable ? TOKEN_VARIABLE_BEGIN : TOKEN_BLOCK_BEGIN});
    for (;;) {
        const char *p = lexer_skip_space(l, l->at);
        /* The end's "-" may follow spaces; a tag's end inside brackets is none. */
        lexer_move(l, p);
        if (l->at == l->end) {
            l->run->line = line;
            run_fail(l->run, ERROR_FORMAT, "a tag has no end: \"%s\" is missing",
                     variable ? "}}" : "%}");
        }
        const char *end = open.count ? NULL : tag_end(l, variable);
        if (end) {
            lexer_add(l, (struct token){.type = variable ? TOKEN_VARIABLE_END : TOKEN_BLOCK_END});
            lexer_move(l, end);
            return;
        }
        char c = *l->at;
        if (isdigit((unsigned char)c)) {
            read_number(l);
        } else if (c == '"' || c == '\'') {
            read_string(l);
        } else if (is_name_byte(c, true)) {
            read_name(l);
        } else {
            match_brackets(l, &open);
            read_operator(l);
        }
    }
}
