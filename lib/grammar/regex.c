/* Parses regular expressions by recursive descent, straight into a network; see regex.h. */
#include "grammar/regex.h"

#include "grammar/charset.h"

#include <stdlib.h>
#include <string.h>

enum { NESTING_MAX = 200 };

struct regex_parser {
    const char *text;
    size_t len, at;
    struct network *n;
    struct error *error;
    unsigned nesting;
    bool dot_all; /* (?s): a dot is any character */
};

static enum error_code refuse(struct regex_parser *p, enum error_code code, size_t at,
                              const char *why)
{
    return error_set(p->error, code, "column %zu of the expression: %s", at + 1, why);
}

static bool at_char(const struct regex_parser *p, char c)
{
    return p->at < p->len && p->text[p->at] == c;
}

static bool take(struct regex_parser *p, const char *word)
{
    size_t n = strlen(word);
    if (p->len - p->at < n || memcmp(p->text + p->at, word, n) != 0)
        return false;
    p->at += n;
    return true;
}

static bool take_hex(struct regex_parser *p, unsigned digits, uint32_t *out)
{
    uint32_t value = 0;
    if (p->len - p->at < digits)
        return false;
    for (unsigned i = 0; i < digits; i++) {
        char c = p->text[p->at + i];
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A' + 10)
                                                : 16;
        if (digit == 16)
            return false;
        value = value << 4 | digit;
    }
    p->at += digits;
    *out = value;
    return true;
}

/* \u{...}, \uXXXX, and two of those as a surrogate pair. */
static bool take_unicode(struct regex_parser *p, uint32_t *out)
{
    if (take(p, "{")) {
        for (unsigned digits = 6; digits > 0; digits--) {
            size_t start = p->at;
            if (take_hex(p, digits, out) && take(p, "}"))
                return *out <= CODE_POINT_MAX;
            p->at = start;
        }
        return false;
    }
    if (!take_hex(p, 4, out))
        return false;
    size_t after = p->at;
    uint32_t low = 0;
    if (*out >= 0xd800 && *out <= 0xdbff && take(p, "\\u") && take_hex(p, 4, &low) &&
        low >= 0xdc00 && low <= 0xdfff)
        *out = 0x10000 + ((*out - 0xd800) << 10) + (low - 0xdc00);
    else
        p->at = after;
    return *out < 0xd800 || *out > 0xdfff;
}

/* The character of an escape, after the backslash; classes are handled before. */
static enum error_code escaped_char(struct regex_parser *p, uint32_t *out)
{
    static const char from[] = "tnvfr", to[] = "\t\n\v\f\r";
    size_t at = p->at - 1;
    if (p->at >= p->len)
        return refuse(p, ERROR_USAGE, at, "a backslash at the end");
    char c = p->text[p->at];
    const char *control = strchr(from, c);
    if (control && c) {
        p->at++;
        *out = (uint32_t)to[control - from];
    } else if (c == '0' &&
               !(p->at + 1 < p->len && p->text[p->at + 1] >= '0' && p->text[p->at + 1] <= '9')) {
        p->at++;
        *out = 0;
    } else if (c == 'x' || c == 'u') {
        p->at++;
        if (c == 'x' ? !take_hex(p, 2, out) : !take_unicode(p, out))
            return refuse(p, ERROR_USAGE, at, "an escape with wrong digits");
    } else if (c == 'c') {
        p->at++;
        char letter = p->at < p->len ? p->text[p->at++] : 0;
        if (!((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z')))
            return refuse(p, ERROR_USAGE, at, "\\c needs a letter");
        *out = (uint32_t)letter & 0x1f;
    } else if ((c >= '0' && c <= '9') || c == 'k') {
        return refuse(p, ERROR_UNSUPPORTED, at, "references to groups are not supported");
    } else if (c == 'b' || c == 'B' || c == 'p' || c == 'P') {
        return refuse(p, ERROR_UNSUPPORTED, at, "\\b, \\B and \\p are not supported");
    } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
        return refuse(p, ERROR_USAGE, at, "an unknown escape");
    } else if (!code_point_next(p->text, p->len, &p->at, out)) {
        return refuse(p, ERROR_USAGE, p->at, "not UTF-8");
    }
    return ERROR_OK;
}

/* [:alpha:] in a class: ECMA-262 would read a set of these characters. */
static bool at_posix_class(const struct regex_parser *p)
{
    static const char *const names[] = {"alnum", "alpha", "ascii", "blank", "cntrl",
                                        "digit", "graph", "lower", "print", "punct",
                                        "space", "upper", "word",  "xdigit"};
    const char *at = p->text + p->at;
    size_t left = p->len - p->at, negated = left > 2 && at[2] == '^';
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t n = strlen(names[i]);
        if (left >= n + negated + 4 && memcmp(at, "[:", 2) == 0 &&
            memcmp(at + 2 + negated, names[i], n) == 0 &&
            memcmp(at + 2 + negated + n, ":]", 2) == 0)
            return true;
    }
    return false;
}

/* One member of a class: a character, or a set that is added, where *is_set is true. */
static enum error_code class_member(struct regex_parser *p, struct charset *set, uint32_t *out,
                                    bool *is_set)
{
    *is_set = false;
    if (at_posix_class(p))
        return refuse(p, ERROR_UNSUPPORTED, p->at,
                      "POSIX classes such as [:alpha:] are not supported; write ranges: [A-Za-z]");
    if (!take(p, "\\"))
        return code_point_next(p->text, p->len, &p->at, out)
                   ? ERROR_OK
                   : refuse(p, ERROR_USAGE, p->at, "not UTF-8, or a class without its end");
    if (p->at < p->len && p->text[p->at] && strchr("dDsSwW", p->text[p->at])) {
        charset_add_class(set, p->text[p->at++]);
        *is_set = true;
        return ERROR_OK;
    }
    if (take(p, "b")) {
        *out = '\b';
        return ERROR_OK;
    }
    return escaped_char(p, out);
}

static enum error_code class_members(struct regex_parser *p, struct charset *set)
{
    while (!take(p, "]")) {
        uint32_t low = 0, high = 0;
        bool is_set = false, is_high_set = false;
        size_t at = p->at;
        enum error_code error = class_member(p, set, &low, &is_set);
        if (error)
            return error;
        high = low;
        bool range = at_char(p, '-') && p->at + 1 < p->len && p->text[p->at + 1] != ']';
        if (range && !is_set) {
            p->at++;
            error = class_member(p, set, &high, &is_high_set);
            if (error)
                return error;
            if (is_high_set || high < low)
                return refuse(p, ERROR_USAGE, at, "a range of a class is out of order");
        }
        if (!is_set)
            charset_add(set, low, high);
    }
    return ERROR_OK;
}

static enum error_code emit_set(struct regex_parser *p, struct charset *set, struct fragment *out)
{
    *out = network_fragment(p->n);
    if (!p->n->error)
        charset_emit(set, p->n, out->start, out->end);
    out->to = p->n->n_states;
    charset_fini(set);
    return network_error(p->n, p->error);
}

static enum error_code parse_class(struct regex_parser *p, struct fragment *out)
{
    struct charset set = {0};
    bool negated = take(p, "^");
    enum error_code error = class_members(p, &set);
    if (error) {
        charset_fini(&set);
        return error;
    }
    if (negated)
        charset_negate(&set);
    return emit_set(p, &set, out);
}

static enum error_code parse_alternatives(struct regex_parser *p, struct fragment *out);

/* What follows `(?` up to the group's content. */
static enum error_code parse_group_kind(struct regex_parser *p, size_t at)
{
    if (take(p, ":"))
        return ERROR_OK;
    if (at_char(p, '=') || at_char(p, '!') || take(p, "<=") || take(p, "<!"))
        return refuse(p, ERROR_UNSUPPORTED, at, "look-around is not supported");
    if (take(p, "P=") || take(p, "P>"))
        return refuse(p, ERROR_UNSUPPORTED, at, "references to groups are not supported");
    if (!take(p, "<") && !take(p, "P<"))
        return refuse(p, ERROR_UNSUPPORTED, at,
                      "inline flags and other extensions of groups are not supported, but for (?s) "
                      "at the start; write [Aa] instead of (?i)");
    while (p->at < p->len && !at_char(p, '>'))
        p->at++;
    return take(p, ">") ? ERROR_OK : refuse(p, ERROR_USAGE, at, "a group's name without its end");
}

static enum error_code parse_group(struct regex_parser *p, struct fragment *out)
{
    size_t at = p->at - 1;
    enum error_code error = take(p, "?") ? parse_group_kind(p, at) : ERROR_OK;
    if (error)
        return error;
    if (++p->nesting > NESTING_MAX)
        return refuse(p, ERROR_LIMIT, at, "groups are nested too deeply");
    error = parse_alternatives(p, out);
    p->nesting--;
    if (!error && !take(p, ")"))
        return refuse(p, ERROR_USAGE, at, "a group without its end");
    return error;
}

static enum error_code parse_escape(struct regex_parser *p, struct fragment *out)
{
    struct charset set = {0};
    if (p->at < p->len && p->text[p->at] && strchr("dDsSwW", p->text[p->at])) {
        charset_add_class(&set, p->text[p->at++]);
    } else {
        uint32_t c = 0;
        enum error_code error = escaped_char(p, &c);
        if (error)
            return error;
        charset_add(&set, c, c);
    }
    return emit_set(p, &set, out);
}

static enum error_code parse_atom(struct regex_parser *p, struct fragment *out)
{
    struct charset set = {0};
    uint32_t c = 0;
    size_t at = p->at;
    if (take(p, "("))
        return parse_group(p, out);
    if (take(p, "["))
        return parse_class(p, out);
    if (take(p, "\\"))
        return parse_escape(p, out);
    if (take(p, ".")) {
        if (!p->dot_all) {
            charset_add(&set, '\n', '\n');
            charset_add(&set, '\r', '\r');
            charset_add(&set, 0x2028, 0x2029);
        }
        charset_negate(&set);
        return emit_set(p, &set, out);
    }
    if (at_char(p, '*') || at_char(p, '+') || at_char(p, '?') || at_char(p, '{'))
        return refuse(p, ERROR_USAGE, at, "nothing to repeat");
    if (!code_point_next(p->text, p->len, &p->at, &c))
        return refuse(p, ERROR_USAGE, at, "not UTF-8");
    charset_add(&set, c, c);
    return emit_set(p, &set, out);
}

static bool take_number(struct regex_parser *p, uint32_t *out)
{
    uint32_t value = 0;
    size_t start = p->at;
    for (; p->at < p->len && p->text[p->at] >= '0' && p->text[p->at] <= '9'; p->at++)
        value = value < REPEAT_MAX ? value * 10 + (uint32_t)(p->text[p->at] - '0') : value;
    *out = value;
    return p->at > start;
}

/* False: no quantifier follows. */
static bool take_quantifier(struct regex_parser *p, struct count_bounds *times)
{
    size_t start = p->at;
    *times = bounds_any();
    if (take(p, "*"))
        return true;
    if (take(p, "+")) {
        times->min = 1;
        return true;
    }
    if (take(p, "?")) {
        times->max = 1;
        return true;
    }
    if (take(p, "{") && take_number(p, &times->min)) {
        times->max = times->min;
        if (take(p, ",") && !take_number(p, &times->max))
            times->max = BOUNDS_OPEN;
        if (take(p, "}"))
            return true;
    }
    p->at = start;
    return false;
}

static enum error_code parse_term(struct regex_parser *p, struct fragment *out)
{
    size_t at = p->at;
    struct count_bounds times;
    bool begin = take(p, "^") || take(p, "\\A");
    if (begin || take(p, "$") || take(p, "\\Z") || take(p, "\\z")) {
        *out = network_fragment(p->n);
        if (!p->n->error)
            network_assert(p->n, out->start, begin ? EDGE_BEGIN : EDGE_END, out->end);
        if (take_quantifier(p, &times))
            return refuse(p, ERROR_USAGE, at, "nothing to repeat");
        return network_error(p->n, p->error);
    }
    enum error_code error = parse_atom(p, out);
    if (error || !take_quantifier(p, &times))
        return error;
    (void)take(p, "?"); /* lazy */
    if (!bounds_can_repeat(times))
        return refuse(p, ERROR_USAGE, at,
                      "the bounds of a repetition are out of order or too large");
    *out = network_repeat(p->n, *out, times);
    return network_error(p->n, p->error);
}

static enum error_code parse_sequence(struct regex_parser *p, struct fragment *out)
{
    struct fragment all = network_fragment(p->n);
    uint32_t end = all.start;
    while (p->at < p->len && !at_char(p, '|') && !at_char(p, ')')) {
        struct fragment term = {0};
        enum error_code error = parse_term(p, &term);
        if (error)
            return error;
        network_empty(p->n, end, term.start);
        end = term.end;
    }
    if (!p->n->error)
        network_empty(p->n, end, all.end);
    all.to = p->n->n_states;
    *out = all;
    return network_error(p->n, p->error);
}

static enum error_code parse_alternatives(struct regex_parser *p, struct fragment *out)
{
    struct fragment all = network_fragment(p->n);
    do {
        struct fragment part = {0};
        enum error_code error = parse_sequence(p, &part);
        if (error)
            return error;
        network_empty(p->n, all.start, part.start);
        network_empty(p->n, part.end, all.end);
    } while (take(p, "|"));
    all.to = p->n->n_states;
    *out = all;
    return network_error(p->n, p->error);
}

enum error_code regex_parse(const char *text, size_t len, struct network *n, struct fragment *out,
                            struct error *e)
{
    struct regex_parser p = {.text = text, .len = len, .n = n, .error = e};
    p.dot_all = take(&p, "(?s)");
    enum error_code error = parse_alternatives(&p, out);
    if (!error && p.at < len)
        return refuse(&p, ERROR_USAGE, p.at, "a closing parenthesis without its group");
    return error;
}

/* Where there are assertions each state becomes four: at the beginning of the text, behind its
 * first byte, at its end behind a $, and behind a $ at the end of the empty text. */
enum { AT_BEGIN, AT_MIDDLE, AT_END, AT_BOTH, AT_COUNT };

static bool edge_applies(const struct network_edge *edge, unsigned where, unsigned *after)
{
    bool begin = where == AT_BEGIN || where == AT_BOTH;
    bool end = where == AT_END || where == AT_BOTH;
    *after = where;
    if (edge->kind == EDGE_BYTES) {
        *after = AT_MIDDLE;
        return !end;
    }
    if (edge->kind == EDGE_BEGIN)
        return begin;
    if (edge->kind == EDGE_END)
        *after = begin ? AT_BOTH : AT_END;
    return true;
}

static void copy_edges(const struct network *from, struct network *to, const uint32_t *copies,
                       unsigned ways)
{
    for (uint32_t s = 0; s < from->n_states; s++)
        for (uint32_t e = from->first[s]; e != NETWORK_NONE; e = from->edges[e].next)
            for (unsigned where = 0; where < ways && !to->error; where++) {
                const struct network_edge *edge = &from->edges[e];
                unsigned after;
                if (!edge_applies(edge, where, &after))
                    continue;
                uint32_t source = copies[s * AT_COUNT + where];
                uint32_t target = copies[edge->target * AT_COUNT + after];
                if (edge->kind == EDGE_BYTES)
                    network_byte(to, source, edge->low, edge->high, target);
                else
                    network_empty(to, source, target);
            }
}

static bool has_assertions(const struct network *n)
{
    for (uint32_t e = 0; e < n->n_edges; e++)
        if (n->edges[e].kind == EDGE_BEGIN || n->edges[e].kind == EDGE_END)
            return true;
    return false;
}

uint32_t regex_rule(const struct network *from, struct fragment part, struct network *to)
{
    uint32_t rule = network_rule(to);
    uint32_t *copies = malloc(((size_t)from->n_states + 1) * AT_COUNT * sizeof *copies);
    if (!copies && !to->error)
        to->error = ERROR_MEMORY;
    unsigned ways = has_assertions(from) ? AT_COUNT : 1;
    for (uint32_t s = 0; copies && s < from->n_states; s++)
        for (unsigned where = 0; where < AT_COUNT; where++)
            copies[s * AT_COUNT + where] = where < ways ? network_state(to) : copies[s * AT_COUNT];
    if (copies && !to->error) {
        copy_edges(from, to, copies, ways);
        network_empty(to, to->rules[rule].start, copies[part.start * AT_COUNT + AT_BEGIN]);
        for (unsigned where = 0; where < ways && !to->error; where++)
            network_empty(to, copies[part.end * AT_COUNT + where], to->rules[rule].end);
    }
    free(copies);
    return rule;
}
