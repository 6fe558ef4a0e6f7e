/* Parses GBNF by recursive descent, straight into a network; see gbnf.h. */
#include "grammar/gbnf.h"

#include "base/arrays.h"
#include "base/utf8.h"
#include "grammar/charset.h"
#include "grammar/compiled.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { NESTING_MAX = 200 };

static void place(const struct gbnf *g, size_t at, size_t *line, size_t *column)
{
    *line = *column = 1;
    for (size_t i = 0; i < at && i < g->len; i++) {
        *column += 1;
        if (g->text[i] == '\n') {
            *line += 1;
            *column = 1;
        }
    }
}

static enum error_code refuse(struct gbnf *g, enum error_code code, size_t at, const char *why)
{
    size_t line, column;
    place(g, at, &line, &column);
    return error_set(g->error, code, "line %zu, column %zu of the grammar: %s", line, column, why);
}

enum error_code gbnf_locate(const struct gbnf *g, uint32_t rule)
{
    size_t line, column;
    for (uint32_t i = 0; i < g->n_rules; i++)
        if (g->rules[i].rule == rule) {
            place(g, g->rules[i].at, &line, &column);
            return error_prefix(g->error, "line %zu, column %zu of the grammar: rule \"%.*s\"",
                                line, column, (int)(g->rules[i].len < 60 ? g->rules[i].len : 60),
                                g->rules[i].name);
        }
    return error_prefix(g->error, "a repetition of the grammar");
}

static bool at_char(const struct gbnf *g, char c)
{
    return g->at < g->len && g->text[g->at] == c;
}

static bool take(struct gbnf *g, const char *word)
{
    size_t n = strlen(word);
    if (g->len - g->at < n || memcmp(g->text + g->at, word, n) != 0)
        return false;
    g->at += n;
    return true;
}

static void skip_space(struct gbnf *g, bool lines)
{
    for (; g->at < g->len; g->at++) {
        char c = g->text[g->at];
        if (c == '#')
            while (g->at + 1 < g->len && g->text[g->at + 1] != '\n')
                g->at++;
        else if (c != ' ' && c != '\t' && !(lines && (c == '\n' || c == '\r')))
            return;
    }
}

static bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static size_t name_length(const struct gbnf *g, size_t at)
{
    size_t n = 0;
    while (at + n < g->len && name_char(g->text[at + n]))
        n++;
    return n;
}

/* Does `name ::=` begin here? */
static bool at_rule(const struct gbnf *g)
{
    struct gbnf ahead = *g;
    size_t n = name_length(g, g->at);
    ahead.at += n;
    skip_space(&ahead, false);
    return n > 0 && take(&ahead, "::=");
}

/* The entry of the rule that is named here, new or not; moves behind the name. */
static enum error_code find_rule(struct gbnf *g, struct gbnf_rule **out)
{
    size_t len = name_length(g, g->at);
    const char *name = g->text + g->at;
    for (uint32_t i = 0; i < g->n_rules; i++)
        if (g->rules[i].len == len && memcmp(g->rules[i].name, name, len) == 0) {
            *out = &g->rules[i];
            g->at += len;
            return ERROR_OK;
        }
    if (g->n_rules == g->capacity) {
        uint32_t capacity = g->capacity ? g->capacity * 2 : 16;
        struct gbnf_rule *larger = realloc(g->rules, capacity * sizeof *larger);
        if (!larger)
            return error_set(g->error, ERROR_MEMORY, "out of memory for a grammar");
        g->rules = larger;
        g->capacity = capacity;
    }
    *out = &g->rules[g->n_rules++];
    **out = (struct gbnf_rule){.name = name, .len = len, .at = g->at, .rule = network_rule(g->n)};
    g->at += len;
    return network_error(g->n, g->error);
}

static bool take_hex(struct gbnf *g, unsigned digits, uint32_t *out)
{
    char text[9] = {0}, *end;
    if (g->len - g->at < digits || !memcpy(text, g->text + g->at, digits))
        return false;
    for (unsigned i = 0; i < digits; i++)
        if (!strchr("0123456789abcdefABCDEF", text[i]) || !text[i])
            return false;
    *out = (uint32_t)strtoul(text, &end, 16);
    g->at += digits;
    return *out <= CODE_POINT_MAX && (*out < 0xd800 || *out > 0xdfff);
}

/* A character of a literal or class, maybe escaped. */
static enum error_code take_char(struct gbnf *g, uint32_t *out)
{
    size_t at = g->at;
    static const char from[] = "nrt\\\"[]", to[] = "\n\r\t\\\"[]";
    if (!take(g, "\\"))
        return code_point_next(g->text, g->len, &g->at, out)
                   ? ERROR_OK
                   : refuse(g, ERROR_USAGE, at, "not UTF-8, or an unexpected end");
    char c = g->at < g->len ? g->text[g->at++] : 0;
    const char *simple = c ? strchr(from, c) : NULL;
    unsigned digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (simple)
        *out = (uint32_t)to[simple - from];
    else if (!digits || !take_hex(g, digits, out))
        return refuse(g, ERROR_USAGE, at, "an unknown or incomplete escape");
    return ERROR_OK;
}

/* A literal's text as UTF-8, and its states: states[i] is before byte i, where a character begins
 * there, or at the end. */
struct literal {
    char *text;
    uint32_t *states;
    size_t len;
};

/* The bytes up to the quote that ends the literal: no fewer than those of its text as UTF-8. */
static size_t literal_bytes(const struct gbnf *g)
{
    size_t at = g->at;
    while (at < g->len && g->text[at] != '"')
        at += g->text[at] == '\\' ? 2 : 1;
    return (at < g->len ? at : g->len) - g->at;
}

static enum error_code literal_chars(struct gbnf *g, struct literal *l)
{
    size_t at = g->at - 1;
    while (!take(g, "\"")) {
        uint32_t c = 0;
        if (g->at >= g->len)
            return refuse(g, ERROR_USAGE, at, "a literal without its end");
        enum error_code error = take_char(g, &c);
        if (error)
            return error;
        uint32_t last = l->states[l->len], to = network_state(g->n);
        network_range(g->n, last, c, c, to);
        l->len += utf8_encode(c, l->text + l->len);
        l->states[l->len] = to;
    }
    return network_error(g->n, g->error);
}

/* Where the text of a mark stands, an edge with the mark's byte leads past it. */
static void add_marks(struct gbnf *g, const struct literal *l)
{
    for (uint32_t i = 0; i < g->n_marks; i++) {
        size_t n = strlen(g->marks[i]);
        uint8_t byte = (uint8_t)(GRAMMAR_MARK_FIRST + i);
        for (size_t from = 0; from + n <= l->len; from++)
            if (memcmp(l->text + from, g->marks[i], n) == 0)
                network_byte(g->n, l->states[from], byte, byte, l->states[from + n]);
    }
}

static enum error_code parse_literal(struct gbnf *g, struct fragment *out)
{
    size_t most = literal_bytes(g) + 4;
    struct literal l;
    void *memory = ARRAYS_NEW(ARRAY(l.text, most), ARRAY(l.states, most + 1));
    if (!memory)
        return error_set(g->error, ERROR_MEMORY, "out of memory for a grammar");
    *out = network_fragment(g->n);
    l.states[0] = out->start;
    l.len = 0;
    enum error_code error = literal_chars(g, &l);
    if (!error) {
        add_marks(g, &l);
        network_empty(g->n, l.states[l.len], out->end);
        error = network_error(g->n, g->error);
    }
    free(memory);
    return error;
}

static enum error_code class_members(struct gbnf *g, struct charset *set)
{
    size_t at = g->at - 1;
    while (!take(g, "]")) {
        uint32_t low = 0, high = 0;
        if (g->at >= g->len)
            return refuse(g, ERROR_USAGE, at, "a class without its end");
        enum error_code error = take_char(g, &low);
        high = low;
        if (!error && at_char(g, '-') && g->at + 1 < g->len && g->text[g->at + 1] != ']') {
            g->at++;
            error = take_char(g, &high);
        }
        if (error)
            return error;
        if (high < low)
            return refuse(g, ERROR_USAGE, at, "a range of a class is out of order");
        charset_add(set, low, high);
    }
    return ERROR_OK;
}

static enum error_code parse_class(struct gbnf *g, bool any, struct fragment *out)
{
    struct charset set = {0};
    bool negated = any || take(g, "^");
    enum error_code error = any ? ERROR_OK : class_members(g, &set);
    if (!error) {
        if (negated)
            charset_negate(&set);
        *out = network_fragment(g->n);
        if (!g->n->error)
            charset_emit(&set, g->n, out->start, out->end);
        error = network_error(g->n, g->error);
    }
    charset_fini(&set);
    return error;
}

static enum error_code parse_alternatives(struct gbnf *g, bool nested, struct fragment *out);

static enum error_code parse_group(struct gbnf *g, struct fragment *out)
{
    size_t at = g->at - 1;
    if (++g->nesting > NESTING_MAX)
        return refuse(g, ERROR_LIMIT, at, "groups are nested too deeply");
    enum error_code error = parse_alternatives(g, true, out);
    g->nesting--;
    if (!error && !take(g, ")"))
        return refuse(g, ERROR_USAGE, g->at, "a group without its end");
    return error;
}

/* How many bytes the JSON value at g->at has; 0: none. */
static size_t json_bytes(const struct gbnf *g, json_error_t *where)
{
    json_t *value = json_loadb(g->text + g->at, g->len - g->at,
                               JSON_DISABLE_EOF_CHECK | JSON_DECODE_ANY | JSON_ALLOW_NUL, where);
    size_t n = value ? (size_t)where->position : 0;
    json_decref(value);
    return n;
}

/* A literal before a schema, as text. */
static enum error_code take_text(struct gbnf *g, char out[GBNF_TEXT_BYTES])
{
    size_t n = 0, at = g->at;
    while (!take(g, "\"")) {
        uint32_t c = 0;
        enum error_code error = take_char(g, &c);
        if (error)
            return error;
        if (c == 0 || n + 5 > GBNF_TEXT_BYTES)
            return refuse(g, ERROR_LIMIT, at, "the text before a schema is too long");
        n += utf8_encode(c, out + n);
    }
    out[n] = 0;
    skip_space(g, false);
    return ERROR_OK;
}

/* The literals before the schema: of %value one, of %text two, then maybe the place. */
static enum error_code take_texts(struct gbnf *g, struct schema_item *item)
{
    enum error_code error = ERROR_OK;
    skip_space(g, false);
    char *const wanted[] = {item->without, item->unlike};
    size_t n = item->form == ITEM_TEXT ? 2 : item->form == ITEM_VALUE ? 1 : 0;
    item->options = g->text + g->at;
    for (size_t i = 0; i < n && !error; i++)
        error = take(g, "\"") ? take_text(g, wanted[i])
                              : refuse(g, ERROR_USAGE, g->at,
                                       "%value wants one literal before the schema, %text two");
    item->options_len = (size_t)(g->text + g->at - item->options);
    strcpy(item->place, SCHEMA_PLACE);
    if (!error && take(g, "\""))
        error = take_text(g, item->place);
    return error;
}

/* `%else NAME`, if it is there; else NETWORK_NONE. */
static enum error_code take_else(struct gbnf *g, uint32_t *rule)
{
    struct gbnf ahead = *g;
    *rule = NETWORK_NONE;
    skip_space(&ahead, false);
    if (!take(&ahead, "%else"))
        return ERROR_OK;
    g->at = ahead.at;
    skip_space(g, false);
    if (name_length(g, g->at) == 0)
        return refuse(g, ERROR_USAGE, g->at, "%else wants the name of a rule");
    struct gbnf_rule *entry;
    enum error_code error = find_rule(g, &entry);
    if (!error)
        *rule = entry->rule;
    return error;
}

/* False: there is no item here. */
static bool take_form(struct gbnf *g, enum schema_item_form *form)
{
    for (*form = 0; *form < ITEM_FORMS; ++*form)
        if (take(g, schema_item_names[*form]))
            return true;
    return false;
}

/* Behind the name of the form. *item is zeroed. */
static enum error_code take_item(struct gbnf *g, enum schema_item_form form,
                                 struct schema_item *item)
{
    struct error own;
    json_error_t where;
    item->form = form;
    enum error_code error = take_texts(g, item);
    if (error)
        return error;
    item->schema = g->text + g->at;
    item->len = json_bytes(g, &where);
    if (item->len == 0) {
        error_set(&own, ERROR_USAGE, "%s wants a schema, but this is not JSON: %s",
                  schema_item_names[form], where.text);
        return refuse(g, own.code, g->at, own.text);
    }
    g->at += item->len;
    return ERROR_OK;
}

/* Alternatives: items [count], a text before each. */
struct schema_choice {
    struct schema_item *items;
    char (*before)[GBNF_TEXT_BYTES];
    size_t count;
};

static enum error_code take_choice(struct gbnf *g, struct schema_choice *c)
{
    enum error_code error = ERROR_OK;
    size_t at = g->at;
    skip_space(g, true);
    bool more = take(g, "(");
    while (more && !error) {
        enum schema_item_form form;
        skip_space(g, true);
        if (c->count == SCHEMA_ITEMS_MAX)
            return refuse(g, ERROR_LIMIT, at, "%any has too many items");
        if (take(g, "\""))
            error = take_text(g, c->before[c->count]);
        if (!error && !take_form(g, &form))
            return refuse(g, ERROR_USAGE, g->at, "%any wants items that stand for schemas");
        if (!error)
            error = take_item(g, form, &c->items[c->count++]);
        skip_space(g, true);
        more = !error && take(g, "|");
    }
    if (!error && !take(g, ")"))
        return refuse(g, ERROR_USAGE, at, "%any wants a group");
    return error;
}

static enum error_code build_choice(struct gbnf *g, const struct schema_choice *c, size_t at,
                                    struct fragment *out)
{
    struct error own;
    bool replaced;
    uint32_t rules[SCHEMA_ITEMS_MAX] = {0}, other;
    enum error_code error = take_else(g, &other);
    if (error)
        return error;
    error = schema_items_build(c->items, c->count, other, g->schemas, rules, &replaced, &own);
    if (error)
        return refuse(g, error, at, own.text);
    *out = network_fragment(g->n);
    for (size_t i = 0; i < (replaced ? 1 : c->count) && !g->n->error; i++) {
        const char *before = replaced ? "" : c->before[i];
        if (!replaced && rules[i] == NETWORK_NONE)
            continue;
        uint32_t from = network_literal(g->n, out->start, before, strlen(before));
        if (!g->n->error)
            network_call(g->n, from, replaced ? other : rules[i], out->end);
    }
    return network_error(g->n, g->error);
}

/* any: behind %any; else behind the name of the form. */
static enum error_code parse_schemas(struct gbnf *g, bool any, enum schema_item_form form,
                                     struct fragment *out)
{
    struct schema_choice c = {.count = 0};
    size_t at = g->at;
    size_t most = any ? SCHEMA_ITEMS_MAX : 1;
    void *memory = ARRAYS_NEW(ARRAY(c.items, most), ARRAY(c.before, most));
    if (!memory)
        return error_set(g->error, ERROR_MEMORY, "out of memory for a grammar");
    enum error_code error = any ? take_choice(g, &c) : take_item(g, form, c.items);
    c.count = any ? c.count : 1;
    if (!any && !error)
        at = (size_t)(c.items[0].schema - g->text);
    if (!error)
        error = build_choice(g, &c, at, out);
    free(memory);
    return error;
}

static enum error_code parse_note(struct gbnf *g, struct fragment *out)
{
    char text[GBNF_TEXT_BYTES];
    skip_space(g, false);
    if (!take(g, "\""))
        return refuse(g, ERROR_USAGE, g->at, "%note wants a literal");
    enum error_code error = take_text(g, text);
    if (error)
        return error;
    for (char *c = text; *c; c++) /* it is one line */
        *c = (unsigned char)*c < ' ' ? '?' : *c;
    gbnf_schemas_note(g->schemas, text);
    *out = network_fragment(g->n);
    if (!g->n->error)
        network_empty(g->n, out->start, out->end);
    return network_error(g->n, g->error);
}

static enum error_code parse_sequence(struct gbnf *g, bool nested, struct fragment *out);

/* What %all has read so far. */
struct all_parts {
    uint32_t loop, end; /* end: where each part that must be there is in the set (network.h) */
    uint32_t repeats;   /* follows the last `end`; before parts that can repeat */
    unsigned count;     /* of the other parts */
};

/* One part, and the mark before it. */
static enum error_code take_part(struct gbnf *g, struct all_parts *a)
{
    struct fragment part = {0};
    size_t at = g->at;
    skip_space(g, true);
    bool repeats = take(g, "*"), optional = !repeats && take(g, "?");
    enum error_code error = parse_sequence(g, true, &part);
    if (error)
        return error;
    if (repeats) {
        network_empty(g->n, a->repeats, part.start);
        network_empty(g->n, part.end, a->loop);
        return network_error(g->n, g->error);
    }
    if (a->count == NETWORK_SET)
        return refuse(g, ERROR_LIMIT, at, "%all has too many parts");
    unsigned number = a->count++;
    uint32_t rule = network_rule_of(g->n, part.start, part.end);
    uint32_t before = network_state(g->n), after = network_state(g->n), end = a->end;
    if (!optional)
        a->end = network_state(g->n);
    error = network_error(g->n, g->error);
    if (error)
        return error;
    network_unused(g->n, a->loop, number, before);
    network_call(g->n, before, rule, after);
    network_use(g->n, after, number, a->loop);
    if (!optional)
        network_need(g->n, end, number, rule, a->end);
    return network_error(g->n, g->error);
}

/* Behind %all. Its parts have the set of a rule of their own. */
static enum error_code parse_all(struct gbnf *g, struct fragment *out)
{
    size_t at = g->at;
    skip_space(g, true);
    if (!take(g, "("))
        return refuse(g, ERROR_USAGE, at, "%all wants a group");
    if (++g->nesting > NESTING_MAX)
        return refuse(g, ERROR_LIMIT, at, "groups are nested too deeply");
    *out = network_fragment(g->n);
    uint32_t rule = network_rule(g->n);
    struct all_parts a = {.loop = network_state(g->n), .repeats = network_state(g->n)};
    a.end = a.loop;
    enum error_code error = network_error(g->n, g->error);
    if (error)
        return error;
    network_empty(g->n, g->n->rules[rule].start, a.loop);
    do {
        error = take_part(g, &a);
        if (error)
            return error;
    } while (take(g, "|"));
    g->nesting--;
    if (!take(g, ")"))
        return refuse(g, ERROR_USAGE, g->at, "a group without its end");
    network_empty(g->n, a.end, a.repeats);
    network_empty(g->n, a.end, g->n->rules[rule].end);
    network_call(g->n, out->start, rule, out->end);
    return network_error(g->n, g->error);
}

static enum error_code parse_item(struct gbnf *g, struct fragment *out)
{
    if (take(g, "%all"))
        return parse_all(g, out);
    if (take(g, "%note"))
        return parse_note(g, out);
    enum schema_item_form form = ITEM_JSON;
    if (take(g, "%any"))
        return parse_schemas(g, true, form, out);
    if (take_form(g, &form))
        return parse_schemas(g, false, form, out);
    if (take(g, "\""))
        return parse_literal(g, out);
    if (take(g, "["))
        return parse_class(g, false, out);
    if (take(g, "."))
        return parse_class(g, true, out);
    if (take(g, "("))
        return parse_group(g, out);
    if (at_char(g, '<') || at_char(g, '!'))
        return refuse(g, ERROR_UNSUPPORTED, g->at,
                      "references to tokens are not supported; write their text");
    if (name_length(g, g->at) == 0)
        return refuse(g, ERROR_USAGE, g->at, "expected a literal, a class, a group or a rule");
    struct gbnf_rule *rule;
    enum error_code error = find_rule(g, &rule);
    if (error)
        return error;
    uint32_t called = rule->rule;
    *out = network_fragment(g->n);
    if (!g->n->error)
        network_call(g->n, out->start, called, out->end);
    return network_error(g->n, g->error);
}

static bool take_number(struct gbnf *g, uint32_t *out)
{
    size_t start = g->at;
    uint32_t value = 0;
    for (; g->at < g->len && g->text[g->at] >= '0' && g->text[g->at] <= '9'; g->at++)
        value = value < REPEAT_MAX ? value * 10 + (uint32_t)(g->text[g->at] - '0') : value;
    *out = value;
    return g->at > start;
}

/* 1: a repetition; 0: none; -1: a malformed one. */
static int take_repetition(struct gbnf *g, struct count_bounds *times)
{
    *times = bounds_any();
    if (take(g, "*"))
        return 1;
    if (take(g, "+")) {
        times->min = 1;
        return 1;
    }
    if (take(g, "?")) {
        times->max = 1;
        return 1;
    }
    if (!take(g, "{"))
        return 0;
    skip_space(g, false);
    if (!take_number(g, &times->min))
        return -1;
    times->max = times->min;
    skip_space(g, false);
    if (take(g, ",")) {
        skip_space(g, false);
        if (!take_number(g, &times->max))
            times->max = BOUNDS_OPEN;
        skip_space(g, false);
    }
    return take(g, "}") && bounds_can_repeat(*times) ? 1 : -1;
}

/* The item becomes a rule, so that it is not copied. */
static enum error_code repeat(struct gbnf *g, struct count_bounds times, struct fragment *item)
{
    uint32_t rule = network_rule_of(g->n, item->start, item->end), start = network_state(g->n);
    enum error_code error = network_error(g->n, g->error);
    if (error)
        return error;
    uint32_t end = network_repeat_rule(g->n, start, rule, times);
    *item = (struct fragment){start, end, start, g->n->n_states};
    return network_error(g->n, g->error);
}

static enum error_code parse_sequence(struct gbnf *g, bool nested, struct fragment *out)
{
    struct fragment all = network_fragment(g->n);
    uint32_t last = all.start;
    struct count_bounds times;
    skip_space(g, nested);
    while (g->at < g->len && !strchr("|)\n\r", g->text[g->at]) && !(nested && at_rule(g))) {
        struct fragment item = {0};
        enum error_code error = parse_item(g, &item);
        for (int found = 1; !error && found;) {
            skip_space(g, nested);
            found = take_repetition(g, &times);
            if (found < 0)
                return refuse(
                    g, ERROR_USAGE, g->at,
                    "the bounds of a repetition are malformed, out of order or too large");
            if (found)
                error = repeat(g, times, &item);
        }
        if (error)
            return error;
        network_empty(g->n, last, item.start);
        last = item.end;
    }
    if (!g->n->error)
        network_empty(g->n, last, all.end);
    *out = all;
    return network_error(g->n, g->error);
}

/* A bar, maybe at the beginning of the next line. */
static bool take_bar(struct gbnf *g)
{
    struct gbnf ahead = *g;
    skip_space(&ahead, true);
    if (!take(&ahead, "|"))
        return false;
    g->at = ahead.at;
    skip_space(g, true);
    return true;
}

static enum error_code parse_alternatives(struct gbnf *g, bool nested, struct fragment *out)
{
    struct fragment all = network_fragment(g->n);
    do {
        struct fragment part = {0};
        enum error_code error = parse_sequence(g, nested, &part);
        if (error)
            return error;
        network_empty(g->n, all.start, part.start);
        network_empty(g->n, part.end, all.end);
    } while (take_bar(g));
    *out = all;
    return network_error(g->n, g->error);
}

static enum error_code parse_rule(struct gbnf *g)
{
    size_t at = g->at;
    struct gbnf_rule *entry;
    struct fragment body;
    if (!at_rule(g))
        return refuse(g, ERROR_USAGE, at, "expected a rule: name ::= ...");
    enum error_code error = find_rule(g, &entry);
    if (error)
        return error;
    if (entry->defined)
        return refuse(g, ERROR_USAGE, at, "the rule is defined twice");
    entry->defined = true;
    uint32_t rule = entry->rule;
    skip_space(g, false);
    (void)take(g, "::=");
    skip_space(g, true);
    error = parse_alternatives(g, false, &body);
    if (error)
        return error;
    network_empty(g->n, g->n->rules[rule].start, body.start);
    network_empty(g->n, body.end, g->n->rules[rule].end);
    skip_space(g, false);
    if (g->at < g->len && !at_char(g, '\n') && !at_char(g, '\r'))
        return refuse(g, ERROR_USAGE, g->at, "expected the end of the line");
    return network_error(g->n, g->error);
}

static enum error_code check_names(struct gbnf *g, uint32_t *root)
{
    *root = NETWORK_NONE;
    for (uint32_t i = 0; i < g->n_rules; i++) {
        if (!g->rules[i].defined)
            return refuse(g, ERROR_USAGE, g->rules[i].at, "the rule is not defined");
        if (g->rules[i].len == 4 && memcmp(g->rules[i].name, "root", 4) == 0)
            *root = g->rules[i].rule;
    }
    return *root == NETWORK_NONE ? error_set(g->error, ERROR_USAGE, "the grammar has no rule root")
                                 : ERROR_OK;
}

enum error_code gbnf_parse(struct gbnf *g, uint32_t *root)
{
    skip_space(g, true);
    while (g->at < g->len) {
        enum error_code error = parse_rule(g);
        if (error)
            return error;
        skip_space(g, true);
    }
    return check_names(g, root);
}
