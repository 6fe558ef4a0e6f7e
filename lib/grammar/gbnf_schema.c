/* Schemas in GBNF; see gbnf_schema.h. */
#include "grammar/gbnf_schema.h"

#include "grammar/compiled.h"
#include "grammar/schema_loosen.h"

#include <stdlib.h>
#include <string.h>

#define GEMMA_QUOTE "<|\"|>"
#define GEMMA_END   "<tool_call|>" /* the parser ends the call there, also in a string */

/* Of schemas with %else: a second at most, and three quarters of the states. A schema that exceeds
 * a limit costs STEPS_FAILED too, because not every step of it is counted. */
enum { STEPS_WITH_ELSE = SCHEMA_STEPS / 10, STEPS_FAILED = STEPS_WITH_ELSE / 16 };

const char *const schema_item_names[ITEM_FORMS] = {[ITEM_JSON] = "%json",
                                                   [ITEM_UNORDERED] = "%unordered",
                                                   [ITEM_VALUE] = "%value",
                                                   [ITEM_TEXT] = "%text",
                                                   [ITEM_GEMMA] = "%gemma"};

void gbnf_schemas_init(struct gbnf_schemas *s, const struct grammar_limits *limits,
                       struct network *n, const char *const *marks, uint32_t n_marks)
{
    uint8_t quote = 0;
    for (uint32_t i = 0; i < n_marks; i++)
        if (strcmp(marks[i], GEMMA_QUOTE) == 0)
            quote = (uint8_t)(GRAMMAR_MARK_FIRST + i);
    *s = (struct gbnf_schemas){.limits = limits,
                               .n = n,
                               .steps = {.most = SCHEMA_STEPS},
                               .steps_with_else = {.most = STEPS_WITH_ELSE}};
    json_rules_init(&s->rules.json);
    json_rules_init(&s->rules.unordered);
    json_rules_init(&s->rules.value);
    json_rules_init(&s->rules.gemma);
    for (size_t i = 0; i < sizeof s->rules.bare / sizeof s->rules.bare[0]; i++)
        json_rules_init(&s->rules.bare[i].rules);
    s->rules.unordered.unordered = s->rules.gemma.unordered = true;
    s->rules.gemma.quote = GEMMA_QUOTE;
    s->rules.gemma.without = GEMMA_END;
    s->rules.gemma.quote_byte = quote;
    strbuf_init(&s->why);
}

void gbnf_schemas_fini(struct gbnf_schemas *s)
{
    strbuf_fini(&s->why);
    free(s->known);
}

static bool same_text(const char *a, size_t a_len, const char *b, size_t b_len)
{
    return a_len == b_len && (a_len == 0 || memcmp(a, b, a_len) == 0);
}

static const struct known_schema *find_known(const struct gbnf_schemas *s,
                                             const struct schema_item *item)
{
    for (uint32_t i = 0; i < s->n_known; i++) {
        const struct known_schema *k = &s->known[i];
        if (k->form == item->form && same_text(k->schema, k->len, item->schema, item->len) &&
            same_text(k->options, k->options_len, item->options, item->options_len))
            return k;
    }
    return NULL;
}

/* Without memory, or space, the schema is built again where it comes again. */
static void add_known(struct gbnf_schemas *s, const struct schema_item *item, uint32_t rule)
{
    if (s->n_known == KNOWN_SCHEMAS)
        return;
    if (s->n_known == s->known_capacity) {
        uint32_t capacity = s->known_capacity ? s->known_capacity * 2 : 32;
        struct known_schema *larger = realloc(s->known, capacity * sizeof *larger);
        if (!larger)
            return;
        s->known = larger;
        s->known_capacity = capacity;
    }
    s->known[s->n_known++] = (struct known_schema){item->form, item->schema,      item->options,
                                                   item->len,  item->options_len, rule};
}

static bool is_mark(const char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == '"' || text[i] == '\\')
            return false;
    return n > 2 && n <= JSON_MARK_MAX && (unsigned char)text[0] < 0x80 &&
           !strchr(text + 1, text[0]);
}

/* Texts without a mark, which are keys, are many pairs that share nothing. */
static struct json_rules *bare_rules_of(const struct schema_item *item, struct gbnf_rules *r)
{
    struct bare_rules *b;
    for (uint32_t i = 1; i <= BARE_PAIRS; i++) {
        b = &r->bare[i];
        if (b->known && strcmp(b->without, item->without) == 0 &&
            strcmp(b->unlike, item->unlike) == 0)
            return &b->rules;
    }
    b = &r->bare[*item->without ? 1 + r->bare_pairs++ % BARE_PAIRS : 0];
    json_rules_init(&b->rules);
    b->known = *item->without && strlen(item->without) < sizeof b->without &&
               strlen(item->unlike) < sizeof b->unlike;
    if (b->known) {
        strcpy(b->without, item->without);
        strcpy(b->unlike, item->unlike);
    }
    return &b->rules;
}

static enum error_code find_rules(const struct schema_item *item, struct gbnf_schemas *s,
                                  struct json_rules **out, struct error *e)
{
    *out = item->form == ITEM_GEMMA       ? &s->rules.gemma
           : item->form == ITEM_UNORDERED ? &s->rules.unordered
           : item->form == ITEM_VALUE     ? &s->rules.value
           : item->form == ITEM_TEXT      ? bare_rules_of(item, &s->rules)
                                          : &s->rules.json;
    if (item->form != ITEM_VALUE)
        return ERROR_OK;
    if (!is_mark(item->without))
        return error_set(e, ERROR_UNSUPPORTED,
                         "%%value wants a mark of 3 to %d bytes that JSON does not escape; its "
                         "first character is ASCII and does not come again",
                         JSON_MARK_MAX);
    if (strcmp(s->rules.value_without, item->without) != 0) {
        json_rules_init(&s->rules.value);
        strcpy(s->rules.value_without, item->without);
        s->rules.value.without = s->rules.value_without;
        s->rules.value.unordered = true;
    }
    return ERROR_OK;
}

static enum error_code build(const struct schema_item *item, struct gbnf_schemas *s,
                             struct json_rules *rules, struct schema_steps *steps, uint32_t *rule,
                             struct error *e)
{
    struct schema_source source = {.text = item->schema,
                                   .len = item->len,
                                   .place = item->place,
                                   .bare = item->form == ITEM_TEXT,
                                   .without = item->without,
                                   .unlike = item->unlike};
    struct schema_context c = {s->limits, s->n, rules, steps};
    enum error_code error = schema_build(&source, &c, rule, e);
    return error ? error : network_error(s->n, e);
}

void gbnf_schemas_note(struct gbnf_schemas *s, const char *why)
{
    if (s->replaced++ < GRAMMAR_REPLACED_MAX)
        strbuf_printf(&s->why, "%s%s", s->why.len ? "\n" : "", why);
}

static enum error_code build_known(const struct schema_item *item, struct gbnf_schemas *s,
                                   struct schema_steps *steps, uint32_t *rule, struct error *e)
{
    const struct known_schema *known = find_known(s, item);
    struct json_rules *rules;
    if (known) {
        *rule = known->rule;
        return ERROR_OK;
    }
    enum error_code error = find_rules(item, s, &rules, e);
    return error ? error : build(item, s, rules, steps, rule, e);
}

/* Fails where no value satisfies any of the items. */
static enum error_code build_bounded(const struct schema_item *items, size_t count,
                                     struct gbnf_schemas *s, uint32_t *rules, struct error *e)
{
    struct network_extent before = network_extent(s->n);
    uint32_t states_max = s->n->states_max;
    enum error_code error = ERROR_OK;
    bool ends = false;
    s->n->states_max = states_max / 4 * 3;
    for (size_t i = 0; i < count && !error; i++) {
        error = build_known(&items[i], s, &s->steps_with_else, &rules[i], e);
        if (error && error != ERROR_MEMORY &&
            strncmp(e->text, items[i].place, strlen(items[i].place)) != 0)
            error_prefix(e, "%s\"", items[i].place);
    }
    s->n->states_max = states_max;
    if (!error && !network_drop_unending(s->n, rules, count, before))
        error = error_set(e, ERROR_MEMORY, "out of memory for a grammar");
    for (size_t i = 0; i < count && !error; i++)
        ends |= rules[i] != NETWORK_NONE;
    return error || ends
               ? error
               : error_set(e, ERROR_USAGE, "%s\": no value satisfies the schema", items[0].place);
}

/* An item's schema without the keywords that cannot be followed. Owned. NULL: it is the same
 * without them. */
static char *loosened_text(const struct schema_item *item, struct gbnf_schemas *s)
{
    char keyword[SCHEMA_KEYWORD_BYTES], *text = NULL;
    json_t *schema =
        json_loadb(item->schema, item->len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
    json_t *loosened = json_deep_copy(schema);
    (void)schema_loosen(loosened, s->limits, &s->steps_with_else, keyword);
    if (loosened && !json_equal(schema, loosened))
        text = json_dumps(loosened, JSON_COMPACT | JSON_ENCODE_ANY);
    json_decref(loosened);
    json_decref(schema);
    return text;
}

/* ERROR_UNSUPPORTED: they are the same without these keywords. */
static enum error_code build_loosened(const struct schema_item *items, size_t count,
                                      struct gbnf_schemas *s, uint32_t *rules)
{
    char *texts[SCHEMA_ITEMS_MAX] = {NULL};
    struct error e;
    enum error_code error = ERROR_UNSUPPORTED;
    struct schema_item *loosened = malloc(count * sizeof *loosened);
    if (!loosened)
        return ERROR_MEMORY;
    for (size_t i = 0; i < count; i++) {
        loosened[i] = items[i];
        texts[i] = loosened_text(&items[i], s);
        if (!texts[i])
            continue;
        loosened[i].schema = texts[i];
        loosened[i].len = strlen(texts[i]);
        error = ERROR_OK;
    }
    if (!error)
        error = build_bounded(loosened, count, s, rules, &e);
    for (size_t i = 0; i < count; i++)
        free(texts[i]);
    free(loosened);
    return error;
}

static void withdraw(struct gbnf_schemas *s, struct network_extent extent,
                     const struct gbnf_rules *rules)
{
    network_withdraw(s->n, extent);
    s->rules = *rules;
}

/* Items that cannot be followed are built without the keywords to blame, or not at all: then
 * withdraws what they have added. */
static enum error_code build_or_replace(const struct schema_item *items, size_t count,
                                        struct gbnf_schemas *s, uint32_t *rules, bool *replaced,
                                        struct error *e)
{
    struct network_extent before = network_extent(s->n);
    struct gbnf_rules rules_before = s->rules;
    enum error_code error = build_bounded(items, count, s, rules, e);
    if (!error || error == ERROR_MEMORY)
        return error;
    withdraw(s, before, &rules_before);
    if (error == ERROR_LIMIT)
        s->steps_with_else.done += STEPS_FAILED;
    gbnf_schemas_note(s, e->text);
    error = build_loosened(items, count, s, rules);
    *replaced = error;
    if (error)
        withdraw(s, before, &rules_before);
    return error == ERROR_MEMORY ? error_set(e, error, "out of memory for a grammar") : ERROR_OK;
}

enum error_code schema_items_build(const struct schema_item *items, size_t n, uint32_t other,
                                   struct gbnf_schemas *s, uint32_t *rules, bool *replaced,
                                   struct error *e)
{
    enum error_code error = ERROR_OK;
    *replaced = false;
    if (other != NETWORK_NONE)
        error = build_or_replace(items, n, s, rules, replaced, e);
    for (size_t i = 0; i < n && other == NETWORK_NONE && !error; i++)
        error = build_known(&items[i], s, &s->steps, &rules[i], e);
    for (size_t i = 0; i < n && !error && !*replaced; i++)
        if (rules[i] != NETWORK_NONE && !find_known(s, &items[i]))
            add_known(s, &items[i], rules[i]);
    return error;
}
