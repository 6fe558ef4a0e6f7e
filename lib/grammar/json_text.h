/* JSON texts as rules of a network. The form, everywhere: no white space but at most one blank
 * after `:` and `,`; so an answer cannot get lost in white space.
 *
 * With a mark for quotes the texts are those of Gemma 4's calls: JSON, but a string stands between
 * two marks, as it is, and a key that is a word stands alone. */
#ifndef MOED_GRAMMAR_JSON_TEXT_H
#define MOED_GRAMMAR_JSON_TEXT_H

#include "grammar/counted.h"
#include "grammar/network.h"

#include <jansson.h>

/* Rules that are made at their first use. */
enum json_rule {
    JSON_RULE_VALUE,
    JSON_RULE_OBJECT,
    JSON_RULE_ARRAY,
    JSON_RULE_STRING,
    JSON_RULE_KEY,
    JSON_RULE_CHARACTER, /* of a string, plain or escaped in any way */
    JSON_RULE_NUMBER,    /* 18 digits, a fraction of 15, an exponent of 2, at most */
    JSON_RULE_INTEGER,   /* 18 digits at most */
    JSON_RULE_COUNT,
};

/* The content of strings of a format; NULL: of all strings. Made at its first use. */
struct json_counted {
    const char *format; /* the expression's address */
    struct counted counted;
};
enum { JSON_COUNTED = 3 };

struct json_rules {
    uint32_t rule[JSON_RULE_COUNT]; /* NETWORK_NONE: not made yet */
    const char *quote;              /* a mark; NULL: JSON */
    uint8_t quote_byte;  /* of the control token with the quote's text (compiled.h); 0: none */
    const char *without; /* a mark that no string has; NULL: none. With a quote it is needed */
    bool unordered;      /* members of objects stand in any order */
    struct json_counted counted[JSON_COUNTED]; /* the first one: of all strings */
};

/* A mark has 3 to JSON_MARK_MAX bytes, and its first character, which is ASCII, once. In JSON no
 * character of it is escaped. A quote and `without` have the same first character and another
 * second one. */
enum { JSON_MARK_MAX = 64 };

void json_rules_init(struct json_rules *r); /* of JSON */
uint32_t json_rule(struct json_rules *r, struct network *n, enum json_rule which);

/* Returns the state after `mark`, a comma or colon, and its blank. */
uint32_t json_mark(struct network *n, uint32_t from, char mark);
/* Has the value a text? With a mark for quotes there is none for a string or key that has a mark.
 */
bool json_has_text(const struct json_rules *r, const json_t *value);
bool json_key_has_text(const struct json_rules *r, const char *key);
/* Returns the state after the text of a value, which has one. Texts of scalars share edges with
 * others that leave `from`. */
uint32_t json_constant(const struct json_rules *r, struct network *n, uint32_t from,
                       const json_t *value);
/* Returns the state after the key of a member. */
uint32_t json_key_constant(const struct json_rules *r, struct network *n, uint32_t from,
                           const char *key);
/* Returns the state after the quote with which a string begins or ends. */
uint32_t json_quote(const struct json_rules *r, struct network *n, uint32_t from);

/* The shortest decimal text that reads back as the number. */
void json_number_text(const json_t *number, char out[32]);

#endif
