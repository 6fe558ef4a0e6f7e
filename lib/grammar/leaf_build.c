/* Adds the values of a leaf to a network; see leaf_build.h. */
#include "grammar/leaf_build.h"

#include "grammar/leaf.h"
#include "grammar/lengths.h"

#include <stdlib.h>
#include <string.h>

static enum error_code build_number(const struct leaf *l, uint32_t from, uint32_t to)
{
    static const char *const keywords[] = {"multipleOf",       "minimum",          "maximum",
                                           "exclusiveMinimum", "exclusiveMaximum", NULL};
    struct schema *s = l->s;
    struct dfa d;
    if (!leaf_has_bounds(l)) {
        network_call(
            s->n, from,
            json_rule(s->rules, s->n, l->range.integer ? JSON_RULE_INTEGER : JSON_RULE_NUMBER), to);
        return ERROR_OK;
    }
    dfa_init(&d, s->limits->dfa_states);
    enum error_code error = number_range_dfa(&l->range, &d, s->error);
    enum error_code work = schema_work(s, d.work);
    error = error ? error : work;
    if (error)
        error = schema_locate_in(s, l->nodes, keywords);
    else
        dfa_emit(&d, s->n, from, to, false);
    dfa_fini(&d);
    return error;
}

/* Which texts of a leaf are written, and how. */
struct text_form {
    const char *without[2]; /* which they do not have; NULL or "": none */
    const char *unlike;     /* which they do not match; the same */
    bool json;
};

/* The texts of any length. */
static enum error_code form_of(const struct leaf *l, const struct text_form *f, struct dfa *out)
{
    enum error_code error = leaf_form(l, out);
    for (unsigned i = 0; i < 2 && !error; i++)
        if (f->without[i] && *f->without[i])
            error = text_without(l->s, f->without[i], out);
    if (!error && f->unlike && *f->unlike)
        error = text_restrict(l->s, f->unlike, DFA_WITHOUT, out);
    return error;
}

/* A few characters, or of a few states, are written out. */
enum { WRITTEN_OUT = 16, WRITTEN_OUT_STATES = 1024, FEW_STATES = 128 };

static bool are_counted(const struct leaf *l, struct count_bounds length, uint32_t n_states)
{
    return bounds_last(length) > WRITTEN_OUT &&
           (!l->has_text || bounds_last(length) * (uint64_t)n_states > WRITTEN_OUT_STATES);
}

/* The rules that texts of this form share; NULL: they share none. */
static struct counted *shared_rules(const struct leaf *l)
{
    struct json_counted *all = l->s->rules->counted;
    const char *format = leaf_sole_format(l);
    if (!l->has_text)
        return &all[0].counted;
    for (unsigned i = 1; format && i < JSON_COUNTED; i++)
        if (!all[i].counted.points || all[i].format == format) {
            all[i].format = format;
            return &all[i].counted;
        }
    return NULL;
}

/* *added false: these texts cannot be counted by rules. */
static enum error_code add_counted(const struct leaf *l, const struct text_form *f,
                                   const struct dfa *d, struct count_bounds length, uint32_t from,
                                   uint32_t to, bool *added)
{
    struct counted own, *shared = shared_rules(l);
    struct network *n = l->s->n;
    enum error_code error = ERROR_OK;
    *added = shared && counted_fits(shared, length);
    if (*added) {
        counted_add(shared, n, from, length, to);
        return network_error(n, l->s->error);
    }
    error = counted_init(&own, l->s, d, f->json, length, added);
    if (error)
        return leaf_locate_text(l);
    if (!*added)
        return ERROR_OK;
    counted_add(&own, n, from, length, to);
    if (shared && !shared->points && (l->has_text || own.any_count))
        *shared = own;
    return network_error(n, l->s->error);
}

/* The texts of some lengths. A large automaton needs many rules, so they come second. */
static enum error_code emit_lengths(const struct leaf *l, const struct text_form *f, struct dfa *d,
                                    struct count_bounds length, uint32_t from, uint32_t to)
{
    bool counted = are_counted(l, length, d->n_states), added = false;
    uint64_t work = d->work;
    enum error_code error = counted ? dfa_minimise(d, l->s->error) : ERROR_OK;
    if (!error)
        error = schema_work(l->s, d->work - work);
    if (error)
        return leaf_locate_text(l);
    bool first = counted && d->n_states <= FEW_STATES;
    if (first)
        error = add_counted(l, f, d, length, from, to, &added);
    if (error || added)
        return error;
    error = leaf_limit_length(l, d);
    if (!error)
        dfa_emit(d, l->s->n, from, to, f->json);
    if (error != ERROR_LIMIT || !counted || first)
        return error ? error : network_error(l->s->n, l->s->error);
    enum error_code other = add_counted(l, f, d, length, from, to, &added);
    return other || added ? other : error;
}

static enum error_code emit_form(const struct leaf *l, const struct text_form *f, struct dfa *d,
                                 uint32_t from, uint32_t to)
{
    struct count_bounds length = l->has_values ? bounds_any() : l->length;
    enum error_code error = ERROR_OK;
    if (l->has_text && bounds_bind(length))
        error = lengths_leave_out(l->s, d, &length);
    if (error)
        return leaf_locate_text(l);
    if (bounds_bind(length))
        return emit_lengths(l, f, d, length, from, to);
    dfa_emit(d, l->s->n, from, to, f->json);
    return network_error(l->s->n, l->s->error);
}

static enum error_code emit_text(const struct leaf *l, const struct text_form *f, uint32_t from,
                                 uint32_t to)
{
    struct counted *shared = &l->s->rules->counted[0].counted;
    struct dfa d;
    if (!(l->types & TYPE_STRING) || bounds_are_empty(l->length))
        return ERROR_OK;
    if (!l->has_text && !l->has_values && bounds_last(l->length) > WRITTEN_OUT &&
        counted_fits(shared, l->length)) {
        counted_add(shared, l->s->n, from, l->length, to);
        return network_error(l->s->n, l->s->error);
    }
    dfa_init(&d, l->s->limits->dfa_states);
    enum error_code error = form_of(l, f, &d);
    if (!error)
        error = emit_form(l, f, &d, from, to);
    dfa_fini(&d);
    return error;
}

static enum error_code build_string(const struct leaf *l, uint32_t from, uint32_t to)
{
    struct schema *s = l->s;
    struct network *n = s->n;
    if (bounds_are_empty(l->length))
        return ERROR_OK;
    if (!l->has_text && !bounds_bind(l->length)) {
        network_call(n, from, json_rule(s->rules, n, JSON_RULE_STRING), to);
        return ERROR_OK;
    }
    uint32_t inside = json_quote(s->rules, n, from), end = network_state(n);
    uint32_t last = json_quote(s->rules, n, end);
    if (n->error)
        return network_error(n, s->error);
    network_empty(n, last, to);
    const char *quote = s->rules->quote, *without = s->rules->without;
    if (!l->has_text && !without) {
        uint32_t character = json_rule(s->rules, n, JSON_RULE_CHARACTER);
        uint32_t after = network_repeat_rule(n, inside, character, l->length);
        if (!n->error)
            network_empty(n, after, end);
        return network_error(n, s->error);
    }
    const struct text_form form = {.without = {quote, without}, .json = !quote};
    return emit_text(l, &form, inside, end);
}

/* Refuses the keyword that lists a value without a text. */
static enum error_code refuse_value(const struct leaf *l, const json_t *value)
{
    for (uint32_t i = 0; i < l->nodes->n; i++) {
        uint32_t node = l->nodes->ids[i];
        size_t k;
        json_t *listed, *list = json_object_get(l->s->nodes[node], "enum");
        if (json_object_get(l->s->nodes[node], "const") == value)
            return schema_refuse_marks(l->s, node, "const");
        json_array_foreach(list, k, listed)
        {
            if (listed == value)
                return schema_refuse_marks(l->s, node, "enum");
        }
    }
    return schema_refuse_marks(l->s, l->nodes->ids[0], NULL);
}

static enum error_code build_values(const struct leaf *l, uint32_t from, uint32_t to)
{
    struct schema *s = l->s;
    struct network *n = s->n;
    uint32_t start = network_state(n);
    if (!n->error)
        network_empty(n, from, start);
    for (size_t i = 0; i < l->n_values && !n->error; i++) {
        if (!json_has_text(s->rules, l->values[i]))
            return refuse_value(l, l->values[i]);
        uint32_t end = json_constant(s->rules, n, start, l->values[i]);
        if (!n->error)
            network_empty(n, end, to);
    }
    return network_error(n, s->error);
}

static enum error_code build_types(const struct leaf *l, uint32_t from, uint32_t to)
{
    struct network *n = l->s->n;
    static const char *const words[] = {"null", "true", "false"};
    enum error_code error = ERROR_OK;
    for (unsigned i = 0; i < 3 && !n->error; i++)
        if (l->types & (i == 0 ? TYPE_NULL : TYPE_BOOLEAN))
            network_empty(n, network_literal(n, from, words[i], strlen(words[i])), to);
    if (l->types & TYPE_NUMBER)
        error = build_number(l, from, to);
    if (!error && l->types & TYPE_STRING)
        error = build_string(l, from, to);
    if (!error && l->types & TYPE_ARRAY)
        error = leaf_build_array(l, from, to);
    if (!error && l->types & TYPE_OBJECT)
        error = leaf_build_object(l, from, to);
    return error ? error : network_error(n, l->s->error);
}

enum error_code leaf_build_bare(struct schema *s, const struct id_list *nodes, const char *without,
                                const char *unlike, uint32_t from, uint32_t to)
{
    const struct text_form form = {.without = {without}, .unlike = unlike};
    struct leaf l;
    enum error_code error = leaf_init(s, nodes, &l);
    if (error)
        return error;
    error = emit_text(&l, &form, from, to);
    leaf_fini(&l);
    return error ? error : network_error(s->n, s->error);
}

enum error_code leaf_build(struct schema *s, const struct id_list *nodes, uint32_t from,
                           uint32_t to)
{
    struct leaf l;
    enum error_code error = leaf_init(s, nodes, &l);
    if (error)
        return error;
    error = l.has_values ? build_values(&l, from, to) : build_types(&l, from, to);
    leaf_fini(&l);
    return error;
}
