/* JSON texts; see json_text.h. */
#include "grammar/json_text.h"

#include "base/quantity.h"
#include "base/strbuf.h"
#include "grammar/charset.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void json_rules_init(struct json_rules *r)
{
    *r = (struct json_rules){.quote = NULL};
    for (unsigned i = 0; i < JSON_RULE_COUNT; i++)
        r->rule[i] = NETWORK_NONE;
}

uint32_t json_mark(struct network *n, uint32_t from, char mark)
{
    uint32_t after = network_literal(n, from, &mark, 1);
    uint32_t to = network_literal(n, after, " ", 1);
    if (!n->error)
        network_empty(n, after, to);
    return to;
}

static const char *quote_text(const struct json_rules *r)
{
    return r->quote ? r->quote : "\"";
}

/* The control token leads past the quote. */
static uint32_t quote_token(const struct json_rules *r, struct network *n, uint32_t from,
                            uint32_t to)
{
    if (r->quote_byte && !n->error)
        network_byte(n, from, r->quote_byte, r->quote_byte, to);
    return to;
}

uint32_t json_quote(const struct json_rules *r, struct network *n, uint32_t from)
{
    const char *text = quote_text(r);
    return quote_token(r, n, from, network_literal(n, from, text, strlen(text)));
}

static uint32_t shared_quote(const struct json_rules *r, struct network *n, uint32_t from)
{
    const char *text = quote_text(r);
    return quote_token(r, n, from, network_trie(n, from, text, strlen(text)));
}

static void hex_digit(struct network *n, uint32_t from, unsigned low, unsigned high, uint32_t to)
{
    if (low <= 9)
        network_byte(n, from, '0' + low, '0' + (high < 9 ? high : 9), to);
    if (high >= 10) {
        unsigned first = low > 10 ? low - 10 : 0;
        network_byte(n, from, 'a' + first, 'a' + high - 10, to);
        network_byte(n, from, 'A' + first, 'A' + high - 10, to);
    }
}

/* Four hexadecimal digits after \u: a code point outside the surrogates, or a pair of them. */
static void unicode_escape(struct network *n, uint32_t from, uint32_t to)
{
    uint32_t two = network_state(n), one = network_state(n), d = network_state(n);
    uint32_t pair = network_state(n), pair_two = network_state(n), pair_one = network_state(n);
    uint32_t three = network_state(n), low_first = network_state(n), low_second = network_state(n);
    if (n->error)
        return;
    hex_digit(n, from, 0, 12, three);
    hex_digit(n, from, 14, 15, three);
    hex_digit(n, three, 0, 15, two);
    hex_digit(n, two, 0, 15, one);
    hex_digit(n, one, 0, 15, to);
    hex_digit(n, from, 13, 13, d);
    hex_digit(n, d, 0, 7, two);
    hex_digit(n, d, 8, 11, pair);
    hex_digit(n, pair, 0, 15, pair_two);
    hex_digit(n, pair_two, 0, 15, pair_one);
    uint32_t low = network_literal(n, pair_one, "\\u", 2);
    if (n->error)
        return;
    hex_digit(n, low, 13, 13, low_first);
    hex_digit(n, low_first, 12, 15, low_second);
    hex_digit(n, low_second, 0, 15, one);
}

/* What follows a backslash. */
static void escaped(struct network *n, uint32_t from, uint32_t to)
{
    for (const char *c = "\"\\/bfnrt"; *c && !n->error; c++)
        network_byte(n, from, (uint8_t)*c, (uint8_t)*c, to);
    unicode_escape(n, network_literal(n, from, "u", 1), to);
}

static void character(struct network *n, uint32_t from, uint32_t to)
{
    network_range(n, from, 0x20, '"' - 1, to);
    network_range(n, from, '"' + 1, '\\' - 1, to);
    network_range(n, from, '\\' + 1, CODE_POINT_MAX, to);
    escaped(n, network_literal(n, from, "\\", 1), to);
}

/* From least to most digits, at once. */
static uint32_t digits(struct network *n, uint32_t from, unsigned least, unsigned most)
{
    uint32_t end = network_state(n);
    for (unsigned i = 0; i < most && !n->error; i++) {
        if (i >= least)
            network_empty(n, from, end);
        uint32_t to = network_state(n);
        network_byte(n, from, '0', '9', to);
        from = to;
    }
    if (!n->error)
        network_empty(n, from, end);
    return end;
}

/* 0|-?[1-9][0-9]{0,17}, or with a negative zero, for -0.5: -?(0|[1-9][0-9]{0,17}) */
static uint32_t whole(struct network *n, uint32_t from, bool negative_zero)
{
    uint32_t positive = network_literal(n, from, "-", 1);
    uint32_t first = network_state(n);
    if (n->error)
        return 0;
    network_empty(n, from, positive);
    network_byte(n, positive, '1', '9', first);
    uint32_t end = digits(n, first, 0, 17);
    if (!n->error)
        network_byte(n, negative_zero ? positive : from, '0', '0', end);
    return end;
}

static void number(struct network *n, uint32_t from, uint32_t to)
{
    uint32_t integer = whole(n, from, true);
    uint32_t fraction = digits(n, network_literal(n, integer, ".", 1), 1, 15);
    uint32_t sign = network_state(n), unsigned_exponent = network_state(n);
    if (n->error)
        return;
    network_empty(n, integer, fraction);
    network_empty(n, fraction, to);
    network_byte(n, fraction, 'e', 'e', sign);
    network_byte(n, fraction, 'E', 'E', sign);
    network_empty(n, sign, unsigned_exponent);
    network_byte(n, sign, '+', '+', unsigned_exponent);
    network_byte(n, sign, '-', '-', unsigned_exponent);
    network_empty(n, digits(n, unsigned_exponent, 1, 2), to);
}

/* open (element (, element)*)? close, where element leads from `item` to `item_end`. */
static void sequence(struct network *n, uint32_t rule, const char *brackets, uint32_t item,
                     uint32_t item_end)
{
    if (n->error)
        return;
    uint32_t open = network_literal(n, n->rules[rule].start, &brackets[0], 1);
    network_empty(n, open, item);
    network_empty(n, json_mark(n, item_end, ','), item);
    uint32_t last = network_literal(n, item_end, &brackets[1], 1);
    uint32_t empty = network_literal(n, open, &brackets[1], 1);
    network_empty(n, last, n->rules[rule].end);
    network_empty(n, empty, n->rules[rule].end);
}

static void make_array(struct json_rules *r, struct network *n, uint32_t rule)
{
    uint32_t item = network_state(n), end = network_state(n);
    if (!n->error)
        network_call(n, item, json_rule(r, n, JSON_RULE_VALUE), end);
    sequence(n, rule, "[]", item, end);
}

static void make_object(struct json_rules *r, struct network *n, uint32_t rule)
{
    uint32_t item = network_state(n), colon = network_state(n), end = network_state(n);
    if (n->error)
        return;
    network_call(n, item, json_rule(r, n, JSON_RULE_KEY), colon);
    network_call(n, json_mark(n, colon, ':'), json_rule(r, n, JSON_RULE_VALUE), end);
    sequence(n, rule, "{}", item, end);
}

static void make_string(struct network *n, uint32_t start, uint32_t end)
{
    uint32_t inside = network_literal(n, start, "\"", 1);
    character(n, inside, inside);
    uint32_t after = network_literal(n, inside, "\"", 1);
    if (!n->error)
        network_empty(n, after, end);
}

/* -- Texts and marks -- */

/* Edges for the characters from `least` on but those apart [n_apart], which are changed. */
static void other_characters(struct network *n, uint32_t from, uint32_t least, uint32_t *apart,
                             unsigned n_apart, uint32_t to)
{
    for (unsigned i = 1; i < n_apart; i++)
        for (unsigned k = i; k > 0 && apart[k] < apart[k - 1]; k--) {
            uint32_t t = apart[k];
            apart[k] = apart[k - 1];
            apart[k - 1] = t;
        }
    for (unsigned i = 0; i < n_apart; i++) {
        if (apart[i] > least)
            network_range(n, from, least, apart[i] - 1, to);
        least = apart[i] >= least ? apart[i] + 1 : least;
    }
    network_range(n, from, least, CODE_POINT_MAX, to);
}

/* Texts that stop at a mark: states[k] has read its first k characters. */
struct mark_states {
    uint32_t c[JSON_MARK_MAX], states[JSON_MARK_MAX];
    unsigned count;
};

/* second: the state behind the first character, if another mark has made it; else NETWORK_NONE. */
static void mark_init(struct mark_states *m, struct network *n, const char *mark, uint32_t start,
                      uint32_t second)
{
    m->count = 0;
    for (size_t at = 0, len = strlen(mark); at < len && m->count < JSON_MARK_MAX; m->count++) {
        if (!code_point_next(mark, len, &at, &m->c[m->count]))
            break;
        m->states[m->count] = m->count == 0                             ? start
                              : m->count == 1 && second != NETWORK_NONE ? second
                                                                        : network_state(n);
    }
}

/* The edges from state k but those of the characters apart [n_apart], of which there is space for
 * two more. behind: the mark; NETWORK_NONE: it is not read. */
static void mark_edges(const struct mark_states *m, struct network *n, unsigned k, uint32_t least,
                       uint32_t *apart, unsigned n_apart, uint32_t behind)
{
    uint32_t next = k + 1 < m->count ? m->states[k + 1] : behind;
    apart[n_apart++] = m->c[0];
    apart[n_apart++] = m->c[k];
    other_characters(n, m->states[k], least, apart, n_apart, m->states[0]);
    if (next != NETWORK_NONE)
        network_range(n, m->states[k], m->c[k], m->c[k], next);
    if (k > 0) /* the mark begins again; its first character is in it once */
        network_range(n, m->states[k], m->c[0], m->c[0], m->states[1]);
}

/* Any text between two quotes without the mark `without`, which begins as the quote does. */
static void make_marked_string(const struct json_rules *r, struct network *n, uint32_t start,
                               uint32_t end)
{
    struct mark_states quote, other;
    mark_init(&quote, n, r->quote, json_quote(r, n, start), NETWORK_NONE);
    mark_init(&other, n, r->without, quote.states[0], quote.states[1]);
    for (unsigned k = 0; k < quote.count && !n->error; k++) {
        uint32_t apart[3] = {other.c[1]};
        mark_edges(&quote, n, k, 0, apart, k == 1, end);
        if (r->quote_byte)
            network_byte(n, quote.states[k], r->quote_byte, r->quote_byte, end);
    }
    network_range(n, quote.states[1], other.c[1], other.c[1], other.states[2]);
    for (unsigned k = 2; k < other.count && !n->error; k++) {
        uint32_t apart[2];
        mark_edges(&other, n, k, 0, apart, 0, NETWORK_NONE);
        if (r->quote_byte)
            network_byte(n, other.states[k], r->quote_byte, r->quote_byte, end);
    }
}

static void make_string_without(const struct json_rules *r, struct network *n, uint32_t start,
                                uint32_t end)
{
    struct mark_states m;
    uint32_t inside = network_literal(n, start, "\"", 1), escape = network_state(n);
    mark_init(&m, n, r->without, inside, NETWORK_NONE);
    for (unsigned k = 0; k < m.count && !n->error; k++) {
        uint32_t apart[4] = {'"', '\\'};
        mark_edges(&m, n, k, 0x20, apart, 2, NETWORK_NONE);
        network_byte(n, m.states[k], '\\', '\\', escape);
        network_byte(n, m.states[k], '"', '"', end);
    }
    escaped(n, escape, inside);
}

/* Letters, digits, _ and -: of a key that stands alone. */
static uint32_t make_word(struct network *n, uint32_t from)
{
    uint32_t to = network_state(n);
    for (unsigned i = 0; i < 2 && !n->error; i++, from = to) {
        network_byte(n, from, '0', '9', to);
        network_byte(n, from, 'a', 'z', to);
        network_byte(n, from, 'A', 'Z', to);
        network_byte(n, from, '_', '_', to);
        network_byte(n, from, '-', '-', to);
    }
    return to;
}

static void make_key(struct json_rules *r, struct network *n, uint32_t start, uint32_t end)
{
    network_call(n, start, json_rule(r, n, JSON_RULE_STRING), end);
    uint32_t word = r->quote ? make_word(n, start) : 0;
    if (r->quote && !n->error)
        network_empty(n, word, end);
}

static void make_value(struct json_rules *r, struct network *n, uint32_t start, uint32_t end)
{
    static const char *const words[] = {"null", "true", "false"};
    static const enum json_rule kinds[] = {JSON_RULE_OBJECT, JSON_RULE_ARRAY, JSON_RULE_STRING,
                                           JSON_RULE_NUMBER};
    for (unsigned i = 0; i < 3 && !n->error; i++)
        network_empty(n, network_literal(n, start, words[i], strlen(words[i])), end);
    for (unsigned i = 0; i < 4 && !n->error; i++)
        network_call(n, start, json_rule(r, n, kinds[i]), end);
}

uint32_t json_rule(struct json_rules *r, struct network *n, enum json_rule which)
{
    if (r->rule[which] != NETWORK_NONE)
        return r->rule[which];
    uint32_t rule = r->rule[which] = network_rule(n);
    if (n->error)
        return 0;
    uint32_t start = n->rules[rule].start, end = n->rules[rule].end;
    switch (which) {
    case JSON_RULE_VALUE:
        make_value(r, n, start, end);
        break;
    case JSON_RULE_OBJECT:
        make_object(r, n, rule);
        break;
    case JSON_RULE_ARRAY:
        make_array(r, n, rule);
        break;
    case JSON_RULE_STRING:
        if (r->quote)
            make_marked_string(r, n, start, end);
        else if (r->without)
            make_string_without(r, n, start, end);
        else
            make_string(n, start, end);
        break;
    case JSON_RULE_KEY:
        make_key(r, n, start, end);
        break;
    case JSON_RULE_CHARACTER:
        character(n, start, end);
        break;
    case JSON_RULE_NUMBER:
        number(n, start, end);
        break;
    case JSON_RULE_INTEGER:
        network_empty(n, whole(n, start, false), end);
        break;
    case JSON_RULE_COUNT:
        break;
    }
    return rule;
}

void json_number_text(const json_t *value, char out[32])
{
    if (json_is_integer(value))
        snprintf(out, 32, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else
        quantity_format_number(json_real_value(value), out);
}

bool json_key_has_text(const struct json_rules *r, const char *key)
{
    return !r->quote || !(strstr(key, r->quote) || strstr(key, r->without));
}

bool json_has_text(const struct json_rules *r, const json_t *value)
{
    const char *key;
    json_t *element;
    size_t i;
    bool has = !json_is_string(value) || json_key_has_text(r, json_string_value(value));
    json_array_foreach(value, i, element) has = has && json_has_text(r, element);
    json_object_foreach((json_t *)value, key, element) has =
        has && json_key_has_text(r, key) && json_has_text(r, element);
    return has;
}

/* Quotes, backslashes and control characters in the shortest way: as dfa_emit writes them. */
static uint32_t string_constant(const struct json_rules *r, struct network *n, uint32_t from,
                                const char *text, size_t len)
{
    static const char special[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    from = shared_quote(r, n, from);
    if (r->quote)
        return shared_quote(r, n, network_trie(n, from, text, len));
    bool apart = r->without && strstr(text, r->without);
    for (size_t i = 0; i < len && !n->error; i++) {
        const char *found = text[i] ? strchr(special, text[i]) : NULL;
        char code[8] = {text[i]};
        size_t code_len = 1;
        if (found)
            code_len = (size_t)snprintf(code, sizeof code, "\\%c", letters[found - special]);
        else if ((unsigned char)text[i] < 0x20 || (apart && text[i] == r->without[0]))
            code_len = (size_t)snprintf(code, sizeof code, "\\u%04x", (unsigned)text[i]);
        from = network_trie(n, from, code, code_len);
    }
    return shared_quote(r, n, from);
}

static bool is_word(const char *text)
{
    size_t n = strlen(text);
    return n > 0 &&
           strspn(text, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-") == n;
}

uint32_t json_key_constant(const struct json_rules *r, struct network *n, uint32_t from,
                           const char *key)
{
    if (r->quote && is_word(key))
        return network_trie(n, from, key, strlen(key));
    return string_constant(r, n, from, key, strlen(key));
}

static uint32_t object_constant(const struct json_rules *r, struct network *n, uint32_t from,
                                const json_t *value)
{
    const char *key;
    json_t *member;
    bool first = true;
    from = network_literal(n, from, "{", 1);
    json_object_foreach((json_t *)value, key, member)
    {
        if (!first)
            from = json_mark(n, from, ',');
        first = false;
        from = json_key_constant(r, n, from, key);
        from = json_constant(r, n, json_mark(n, from, ':'), member);
    }
    return network_literal(n, from, "}", 1);
}

static uint32_t array_constant(const struct json_rules *r, struct network *n, uint32_t from,
                               const json_t *value)
{
    from = network_literal(n, from, "[", 1);
    for (size_t i = 0; i < json_array_size(value); i++) {
        if (i > 0)
            from = json_mark(n, from, ',');
        from = json_constant(r, n, from, json_array_get(value, i));
    }
    return network_literal(n, from, "]", 1);
}

uint32_t json_constant(const struct json_rules *r, struct network *n, uint32_t from,
                       const json_t *value)
{
    char text[32] = "null";
    if (n->error)
        return 0;
    if (json_is_object(value))
        return object_constant(r, n, from, value);
    if (json_is_array(value))
        return array_constant(r, n, from, value);
    if (json_is_string(value))
        return string_constant(r, n, from, json_string_value(value), json_string_length(value));
    if (json_is_number(value))
        json_number_text(value, text);
    else if (json_is_boolean(value))
        strcpy(text, json_is_true(value) ? "true" : "false");
    return network_trie(n, from, text, strlen(text));
}
