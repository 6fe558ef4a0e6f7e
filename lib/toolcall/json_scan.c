/* The scanner of JSON values. */
#include "toolcall/json_scan.h"

#include "base/json_space.h"

#include <string.h>

enum {
    VALUE,       /* expected */
    FIRST_VALUE, /* or ] */
    FIRST_KEY,   /* or } */
    KEY,
    COLON,
    AFTER, /* a value inside of an object or array: a comma or its end */
    STRING,
    ESCAPE,
    HEX,
    WORD,
    MINUS,
    ZERO,
    WHOLE,
    POINT,
    FRACTION,
    E,
    E_SIGN,
    EXPONENT,
};

void json_scan_init(struct json_scan *s)
{
    memset(s, 0, sizeof *s);
}

static bool in_object(const struct json_scan *s)
{
    unsigned level = s->depth - 1u;
    return s->objects[level / 32] >> level % 32 & 1;
}

static enum json_scan_result push(struct json_scan *s, bool object)
{
    if (s->depth == JSON_SCAN_DEPTH_MAX)
        return JSON_SCAN_BAD;
    uint32_t bit = 1u << s->depth % 32, *word = &s->objects[s->depth / 32];
    *word = object ? *word | bit : *word & ~bit;
    s->depth++;
    s->state = object ? FIRST_KEY : FIRST_VALUE;
    return JSON_SCAN_MORE;
}

static enum json_scan_result value_end(struct json_scan *s)
{
    s->state = AFTER;
    return s->depth == 0 ? JSON_SCAN_END : JSON_SCAN_MORE;
}

static enum json_scan_result go(struct json_scan *s, uint8_t state)
{
    s->state = state;
    return JSON_SCAN_MORE;
}

static enum json_scan_result word(struct json_scan *s, const char *rest)
{
    s->word = rest;
    return go(s, WORD);
}

static enum json_scan_result value_begin(struct json_scan *s, unsigned char c)
{
    switch (c) {
    case '{':
        return push(s, true);
    case '[':
        return push(s, false);
    case '"':
        s->key = false;
        return go(s, STRING);
    case 't':
        return word(s, "rue");
    case 'f':
        return word(s, "alse");
    case 'n':
        return word(s, "ull");
    case '-':
        return go(s, MINUS);
    case '0':
        return go(s, ZERO);
    default:
        return c >= '1' && c <= '9' ? go(s, WHOLE) : JSON_SCAN_BAD;
    }
}

static enum json_scan_result between(struct json_scan *s, unsigned char c)
{
    if (json_space((char)c))
        return JSON_SCAN_MORE;
    switch (s->state) {
    case FIRST_KEY:
    case FIRST_VALUE:
        if (c == (s->state == FIRST_KEY ? '}' : ']')) {
            s->depth--;
            return value_end(s);
        }
        if (s->state == FIRST_VALUE)
            return value_begin(s, c);
        /* fall through */
    case KEY:
        s->key = true;
        return c == '"' ? go(s, STRING) : JSON_SCAN_BAD;
    case COLON:
        return c == ':' ? go(s, VALUE) : JSON_SCAN_BAD;
    case AFTER:
        if (c == ',')
            return go(s, in_object(s) ? KEY : VALUE);
        if (c != (in_object(s) ? '}' : ']'))
            return JSON_SCAN_BAD;
        s->depth--;
        return value_end(s);
    default:
        return value_begin(s, c);
    }
}

static enum json_scan_result in_string(struct json_scan *s, unsigned char c)
{
    if (s->state == HEX) {
        if (!((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'f')))
            return JSON_SCAN_BAD;
        return --s->hex ? JSON_SCAN_MORE : go(s, STRING);
    }
    if (s->state == ESCAPE) {
        if (c == 'u') {
            s->hex = 4;
            return go(s, HEX);
        }
        return c && strchr("\"\\/bfnrt", c) ? go(s, STRING) : JSON_SCAN_BAD;
    }
    if (c < 32)
        return JSON_SCAN_CONTROL;
    if (c == '\\')
        return go(s, ESCAPE);
    if (c != '"')
        return JSON_SCAN_MORE;
    return s->key ? go(s, COLON) : value_end(s);
}

/* The number ended before c. */
static enum json_scan_result number_end(struct json_scan *s, unsigned char c)
{
    return value_end(s) == JSON_SCAN_END ? JSON_SCAN_BEFORE : between(s, c);
}

static enum json_scan_result in_number(struct json_scan *s, unsigned char c)
{
    bool digit = c >= '0' && c <= '9';
    switch (s->state) {
    case MINUS:
        return !digit ? JSON_SCAN_BAD : go(s, c == '0' ? ZERO : WHOLE);
    case POINT:
        return digit ? go(s, FRACTION) : JSON_SCAN_BAD;
    case E:
        if (c == '+' || c == '-')
            return go(s, E_SIGN);
        /* fall through */
    case E_SIGN:
        return digit ? go(s, EXPONENT) : JSON_SCAN_BAD;
    default:
        break;
    }
    if (digit && s->state != ZERO)
        return JSON_SCAN_MORE;
    if (c == '.' && (s->state == ZERO || s->state == WHOLE))
        return go(s, POINT);
    if ((c | 32) == 'e' && s->state != EXPONENT)
        return go(s, E);
    return number_end(s, c);
}

enum json_scan_result json_scan_byte(struct json_scan *s, unsigned char c)
{
    switch (s->state) {
    case STRING:
    case ESCAPE:
    case HEX:
        return in_string(s, c);
    case WORD:
        if (c != (unsigned char)*s->word)
            return JSON_SCAN_BAD;
        return *++s->word ? JSON_SCAN_MORE : value_end(s);
    case MINUS:
    case ZERO:
    case WHOLE:
    case POINT:
    case FRACTION:
    case E:
    case E_SIGN:
    case EXPONENT:
        return in_number(s, c);
    default:
        return between(s, c);
    }
}

bool json_scan_whole(const char *text, size_t len)
{
    struct json_scan s;
    json_scan_init(&s);
    if (len == 0 || json_space(text[0]))
        return false;
    for (size_t i = 0; i < len; i++) {
        enum json_scan_result r = json_scan_byte(&s, (unsigned char)text[i]);
        if (r == JSON_SCAN_END)
            return i + 1 == len;
        if (r != JSON_SCAN_MORE)
            return false;
    }
    return json_scan_byte(&s, ' ') == JSON_SCAN_BEFORE; /* a number has no end of its own */
}
