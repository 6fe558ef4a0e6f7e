/* Compiles definitions of all kinds; see grammar.h. */
#include "grammar/grammar.h"

#include "grammar/charset.h"
#include "grammar/compiled.h"
#include "grammar/gbnf.h"
#include "grammar/regex.h"
#include "grammar/schema.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

const struct grammar_limits grammar_limits_default = {.text_bytes = 256 * 1024,
                                                      .states = 100000,
                                                      .dfa_states = 8192,
                                                      .alternatives = 256,
                                                      .depth = 256};

static enum error_code build_regex(const char *text, size_t len, struct network *n, uint32_t *root,
                                   struct error *e)
{
    struct network parsed;
    struct fragment part;
    network_init(&parsed, n->states_max);
    enum error_code error = regex_parse(text, len, &parsed, &part, e);
    if (!error)
        *root = regex_rule(&parsed, part, n);
    network_fini(&parsed);
    return error;
}

static enum error_code build_choice(const char *text, size_t len, struct network *n, uint32_t *root,
                                    struct error *e)
{
    json_error_t where;
    json_t *list = json_loadb(text, len, JSON_ALLOW_NUL, &where), *choice;
    size_t i;
    if (!list)
        return error_set(e, ERROR_USAGE, "the choices are not JSON: line %d, column %d: %s",
                         where.line, where.column, where.text);
    enum error_code error = ERROR_OK;
    if (!json_is_array(list) || json_array_size(list) == 0)
        error = error_set(e, ERROR_USAGE, "the choices must be a non-empty list of strings");
    *root = network_rule(n);
    json_array_foreach(list, i, choice)
    {
        if (!json_is_string(choice) || json_string_length(choice) == 0)
            error = error_set(e, ERROR_USAGE, "choice %zu must be a non-empty string", i);
        if (error || n->error)
            break;
        uint32_t last = network_trie(n, n->rules[*root].start, json_string_value(choice),
                                     json_string_length(choice));
        if (!n->error)
            network_empty(n, last, n->rules[*root].end);
    }
    json_decref(list);
    return error;
}

static enum error_code finish(struct network *n, uint32_t root, const struct grammar_limits *limits,
                              const struct gbnf *gbnf, struct grammar **out, struct error *e)
{
    uint32_t culprit;
    enum error_code error = network_finish(n, root, limits->depth, out, &culprit, e);
    if (error && gbnf && culprit != NETWORK_NONE && e)
        return gbnf_locate(gbnf, culprit);
    return error;
}

static void take_replaced(struct grammar *g, struct gbnf_schemas *s)
{
    g->replaced = s->replaced;
    g->replaced_why = s->why.data;
    strbuf_init(&s->why);
}

struct definition {
    enum grammar_kind kind;
    const char *text;
    size_t len;
    const struct grammar_limits *limits;
    const char *const *marks; /* GRAMMAR_GBNF */
    uint32_t n_marks;
};

static enum error_code compile(const struct definition *d, struct network *n, struct grammar **out,
                               struct error *e)
{
    struct gbnf_schemas schemas;
    struct gbnf gbnf = {.text = d->text,
                        .len = d->len,
                        .limits = d->limits,
                        .marks = d->marks,
                        .n_marks = d->n_marks,
                        .schemas = &schemas,
                        .n = n,
                        .error = e};
    struct schema_source schema = {.text = d->text, .len = d->len, .place = SCHEMA_PLACE};
    struct schema_context context = {d->limits, n, &schemas.rules.json, &schemas.steps};
    uint32_t root = 0;
    enum error_code error = ERROR_OK;
    gbnf_schemas_init(&schemas, d->limits, n, d->marks, d->n_marks);
    switch (d->kind) {
    case GRAMMAR_JSON:
        root = json_rule(&schemas.rules.json, n, JSON_RULE_OBJECT);
        break;
    case GRAMMAR_JSON_SCHEMA:
        error = schema_build(&schema, &context, &root, e);
        break;
    case GRAMMAR_REGEX:
        error = build_regex(d->text, d->len, n, &root, e);
        break;
    case GRAMMAR_GBNF:
        error = gbnf_parse(&gbnf, &root);
        break;
    case GRAMMAR_CHOICE:
        error = build_choice(d->text, d->len, n, &root, e);
        break;
    default:
        error = error_set(e, ERROR_USAGE, "unknown kind of grammar %d", (int)d->kind);
    }
    if (!error)
        error = finish(n, root, d->limits, d->kind == GRAMMAR_GBNF ? &gbnf : NULL, out, e);
    if (!error)
        take_replaced(*out, &schemas);
    gbnf_schemas_fini(&schemas);
    free(gbnf.rules);
    return error;
}

static enum error_code compile_definition(struct definition d, struct grammar **out,
                                          struct error *e)
{
    struct network n;
    if (!d.limits)
        d.limits = &grammar_limits_default;
    if (d.len > d.limits->text_bytes)
        return error_set(e, ERROR_LIMIT, "the grammar has %zu bytes, at most %u", d.len,
                         d.limits->text_bytes);
    network_init(&n, d.limits->states);
    enum error_code error = compile(&d, &n, out, e);
    network_fini(&n);
    return error;
}

enum error_code grammar_compile(enum grammar_kind kind, const char *text, size_t len,
                                const struct grammar_limits *limits, struct grammar **out,
                                struct error *e)
{
    return compile_definition(
        (struct definition){.kind = kind, .text = text, .len = len, .limits = limits}, out, e);
}

/* -- Marks -- */

static bool is_utf8(const char *text)
{
    size_t at = 0, len = strlen(text);
    uint32_t c;
    while (at < len)
        if (!code_point_next(text, len, &at, &c))
            return false;
    return true;
}

static enum error_code copy_marks(const char *const *marks, uint32_t n_marks, struct grammar *g,
                                  struct error *e)
{
    for (uint32_t i = 0; i < n_marks; i++) {
        g->marks[i] = strdup(marks[i]);
        if (!g->marks[i])
            return error_set(e, ERROR_MEMORY, "out of memory for a grammar");
        g->n_marks++;
    }
    return ERROR_OK;
}

enum error_code grammar_compile_marked(const char *text, size_t len, const char *const *marks,
                                       uint32_t n_marks, const struct grammar_limits *limits,
                                       struct grammar **out, struct error *e)
{
    const char *kept[GRAMMAR_MARKS_MAX];
    struct definition d = {
        .kind = GRAMMAR_GBNF, .text = text, .len = len, .limits = limits, .marks = kept};
    for (uint32_t i = 0; i < n_marks; i++) {
        if (!is_utf8(marks[i]))
            return error_set(e, ERROR_USAGE, "mark %u of the grammar is not UTF-8", i);
        if (strlen(marks[i]) > GRAMMAR_MARK_BYTES)
            return error_set(e, ERROR_LIMIT, "mark %u of the grammar has more than %d bytes", i,
                             GRAMMAR_MARK_BYTES);
        if (d.n_marks == GRAMMAR_MARKS_MAX)
            return error_set(e, ERROR_LIMIT, "a grammar has at most %d marks", GRAMMAR_MARKS_MAX);
        if (marks[i][0])
            kept[d.n_marks++] = marks[i];
    }
    struct grammar *g;
    enum error_code error = compile_definition(d, &g, e);
    if (!error) {
        error = copy_marks(kept, d.n_marks, g, e);
        if (error)
            grammar_free(g);
        else
            *out = g;
    }
    return error;
}

uint32_t grammar_replaced(const struct grammar *g, const char **why)
{
    *why = g->replaced_why ? g->replaced_why : "";
    return g->replaced;
}
