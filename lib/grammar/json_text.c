/* JSON texts; see json_text.h. */
#include "grammar/json_text.h"

#include "base/strbuf.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void json_rules_init(struct json_rules *r)
{
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

static void character(struct network *n, uint32_t from, uint32_t to)
{
    network_range(n, from, 0x20, '"' - 1, to);
    network_range(n, from, '"' + 1, '\\' - 1, to);
    network_range(n, from, '\\' + 1, 0x10ffff, to);
    uint32_t escape = network_literal(n, from, "\\", 1);
    for (const char *c = "\"\\/bfnrt"; *c && !n->error; c++)
        network_byte(n, escape, (uint8_t)*c, (uint8_t)*c, to);
    unicode_escape(n, network_literal(n, escape, "u", 1), to);
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
    network_call(n, item, json_rule(r, n, JSON_RULE_STRING), colon);
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
        make_string(n, start, end);
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
    if (json_is_integer(value)) {
        snprintf(out, 32, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        return;
    }
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(out, 32, "%.*g", precision, json_real_value(value));
        if (strtod(out, NULL) == json_real_value(value))
            return;
    }
}

/* Quotes, backslashes and control characters in the shortest way: as dfa_emit writes them. */
uint32_t json_string_constant(struct network *n, uint32_t from, const char *text, size_t len)
{
    static const char special[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    from = network_trie(n, from, "\"", 1);
    for (size_t i = 0; i < len && !n->error; i++) {
        const char *found = text[i] ? strchr(special, text[i]) : NULL;
        char code[8] = {text[i]};
        size_t code_len = 1;
        if (found)
            code_len = (size_t)snprintf(code, sizeof code, "\\%c", letters[found - special]);
        else if ((unsigned char)text[i] < 0x20)
            code_len = (size_t)snprintf(code, sizeof code, "\\u%04x", (unsigned)text[i]);
        from = network_trie(n, from, code, code_len);
    }
    return network_trie(n, from, "\"", 1);
}

static uint32_t object_constant(struct network *n, uint32_t from, const json_t *value)
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
        from = json_string_constant(n, from, key, strlen(key));
        from = json_constant(n, json_mark(n, from, ':'), member);
    }
    return network_literal(n, from, "}", 1);
}

static uint32_t array_constant(struct network *n, uint32_t from, const json_t *value)
{
    from = network_literal(n, from, "[", 1);
    for (size_t i = 0; i < json_array_size(value); i++) {
        if (i > 0)
            from = json_mark(n, from, ',');
        from = json_constant(n, from, json_array_get(value, i));
    }
    return network_literal(n, from, "]", 1);
}

uint32_t json_constant(struct network *n, uint32_t from, const json_t *value)
{
    char text[32] = "null";
    if (n->error)
        return 0;
    if (json_is_object(value))
        return object_constant(n, from, value);
    if (json_is_array(value))
        return array_constant(n, from, value);
    if (json_is_string(value))
        return json_string_constant(n, from, json_string_value(value), json_string_length(value));
    if (json_is_number(value))
        json_number_text(value, text);
    else if (json_is_boolean(value))
        strcpy(text, json_is_true(value) ? "true" : "false");
    return network_trie(n, from, text, strlen(text));
}
