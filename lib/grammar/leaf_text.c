/* The contents of strings: patterns, formats, lengths, lists; see leaf.h. */
#include "grammar/leaf.h"
#include "grammar/lengths.h"
#include "grammar/regex.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Loops over all of UTF-8 at a state. */
static void any_text(struct network *n, uint32_t state)
{
    network_range(n, state, 0, 0x10ffff, state);
}

enum error_code text_matching(struct schema *s, const char *expression, struct dfa *out)
{
    struct network n;
    network_init(&n, s->limits->states);
    uint32_t start = network_state(&n), end = network_state(&n);
    any_text(&n, start);
    struct fragment all = {start, expression ? end : start, start, 0}, part;
    enum error_code error = ERROR_OK;
    if (expression) {
        any_text(&n, end);
        error = regex_parse(expression, strlen(expression), &n, &part, s->error);
        if (!error) {
            network_empty(&n, start, part.start);
            network_empty(&n, part.end, end);
        }
    }
    if (!error)
        error = network_error(&n, s->error);
    if (!error)
        error = dfa_from_network(&n, all, out, s->error);
    if (!error)
        error = schema_work(s, out->work + n.n_edges);
    network_fini(&n);
    return error;
}

enum error_code text_restrict(struct schema *s, const char *expression, enum dfa_product kind,
                              struct dfa *all)
{
    struct dfa d;
    dfa_init(&d, s->limits->dfa_states);
    enum error_code error = text_matching(s, expression, &d);
    if (!error)
        error = dfa_combine(all, &d, kind, s->error);
    if (!error)
        error = schema_work(s, all->work);
    dfa_fini(&d);
    return error;
}

enum error_code text_without(struct schema *s, const char *part, struct dfa *all)
{
    struct network n;
    struct dfa d;
    network_init(&n, s->limits->states);
    dfa_init(&d, s->limits->dfa_states);
    uint32_t start = network_state(&n), end = network_state(&n);
    any_text(&n, start);
    any_text(&n, end);
    uint32_t last = network_literal(&n, start, part, strlen(part));
    if (!n.error)
        network_empty(&n, last, end);
    enum error_code error = network_error(&n, s->error);
    if (!error)
        error = dfa_from_network(&n, (struct fragment){start, end, start, 0}, &d, s->error);
    if (!error)
        error = dfa_combine(all, &d, DFA_WITHOUT, s->error);
    if (!error)
        error = schema_work(s, d.work + all->work);
    dfa_fini(&d);
    network_fini(&n);
    return error;
}

enum error_code text_list(struct schema *s, const char *const *texts, size_t count, struct dfa *out)
{
    struct network n;
    network_init(&n, s->limits->states);
    uint32_t start = network_state(&n), end = network_state(&n);
    for (size_t i = 0; i < count && !n.error; i++) {
        uint32_t last = network_trie(&n, start, texts[i], strlen(texts[i]));
        if (!n.error)
            network_empty(&n, last, end);
    }
    enum error_code error = network_error(&n, s->error);
    if (!error)
        error = dfa_from_network(&n, (struct fragment){start, end, start, 0}, out, s->error);
    network_fini(&n);
    return error;
}

/* Keeps in *all what also matches an expression; the first one fills it. */
static enum error_code restrict_to(const struct leaf *l, uint32_t node, const char *keyword,
                                   const char *expression, bool first, struct dfa *all)
{
    enum error_code error = first ? text_matching(l->s, expression, all)
                                  : text_restrict(l->s, expression, DFA_BOTH, all);
    return error ? schema_locate(l->s, node, keyword) : ERROR_OK;
}

static enum error_code restrict_by_node(const struct leaf *l, uint32_t node, bool *first,
                                        struct dfa *all)
{
    json_t *json = l->s->nodes[node], *pattern = json_object_get(json, "pattern");
    json_t *format = json_object_get(json, "format");
    enum error_code error = ERROR_OK;
    if (pattern && !json_is_string(pattern))
        return schema_refuse(l->s, ERROR_USAGE, node, "pattern", "must be a string");
    if (format && !json_is_string(format))
        return schema_refuse(l->s, ERROR_USAGE, node, "format", "must be a string");
    if (pattern) {
        error = restrict_to(l, node, "pattern", json_string_value(pattern), *first, all);
        *first = false;
    }
    if (format && !error) {
        const char *expression = format_expression(json_string_value(format));
        if (!expression)
            return schema_refuse(l->s, ERROR_UNSUPPORTED, node, "format",
                                 "the format \"%.60s\" is not supported",
                                 json_string_value(format));
        error = restrict_to(l, node, "format", expression, *first, all);
        *first = false;
    }
    return error;
}

static enum error_code listed_text(const struct leaf *l, struct dfa *out)
{
    const char **texts = malloc((l->n_values + 1) * sizeof *texts);
    size_t n = 0;
    if (!texts)
        return schema_out_of_memory(l->s);
    for (size_t i = 0; i < l->n_values; i++)
        if (json_is_string(l->values[i]))
            texts[n++] = json_string_value(l->values[i]);
    enum error_code error = text_list(l->s, texts, n, out);
    free(texts);
    return error;
}

enum error_code leaf_form(const struct leaf *l, struct dfa *out)
{
    bool first = true;
    enum error_code error = ERROR_OK;
    if (!(l->types & TYPE_STRING))
        return ERROR_OK;
    if (l->has_values)
        return listed_text(l, out);
    for (uint32_t i = 0; i < l->nodes->n && !error; i++)
        error = restrict_by_node(l, l->nodes->ids[i], &first, out);
    return !error && first ? text_matching(l->s, NULL, out) : error;
}

const char *leaf_sole_format(const struct leaf *l)
{
    const char *expression = NULL;
    for (uint32_t i = 0; i < l->nodes->n; i++) {
        const json_t *node = l->s->nodes[l->nodes->ids[i]];
        const char *format = json_string_value(json_object_get(node, "format"));
        if (json_object_get(node, "pattern") || (format && expression))
            return NULL;
        if (format)
            expression = format_expression(format);
    }
    return expression;
}

enum error_code leaf_locate_text(const struct leaf *l)
{
    static const char *const keywords[] = {"maxLength", "minLength", "pattern", "format", NULL};
    return schema_locate_in(l->s, l->nodes, keywords);
}

enum error_code leaf_limit_length(const struct leaf *l, struct dfa *all)
{
    struct count_bounds length = l->length;
    enum error_code error = lengths_leave_out(l->s, all, &length);
    if (!error && bounds_bind(length))
        error = dfa_limit_length(all, length, l->s->error);
    if (!error)
        error = schema_work(l->s, all->work);
    return error ? leaf_locate_text(l) : ERROR_OK;
}

enum error_code leaf_text(const struct leaf *l, struct dfa *out)
{
    enum error_code error = leaf_form(l, out);
    if (!error && l->types & TYPE_STRING && !l->has_values && bounds_bind(l->length))
        error = leaf_limit_length(l, out);
    return error;
}
