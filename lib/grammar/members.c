/* What a leaf says of the members of an object; see leaf.h.
 *
 * additionalProperties speaks of the keys that `properties` and `patternProperties` of the same
 * subschema do not match. So each key is looked up in each subschema, and the results are joined.
 */
#include "grammar/leaf.h"
#include "grammar/schema_expand.h"

#include <stdlib.h>
#include <string.h>

static enum error_code add_key(struct members *m, const char *key)
{
    enum error_code error = schema_work(m->leaf->s, m->n_keys);
    if (error)
        return error;
    for (size_t i = 0; i < m->n_keys; i++)
        if (strcmp(m->keys[i], key) == 0)
            return ERROR_OK;
    if (m->n_keys == m->keys_capacity) {
        size_t capacity = m->keys_capacity ? m->keys_capacity * 2 : 16;
        const char **larger = realloc(m->keys, capacity * sizeof *larger);
        if (!larger)
            return schema_out_of_memory(m->leaf->s);
        m->keys = larger;
        m->keys_capacity = capacity;
    }
    m->keys[m->n_keys++] = key;
    return ERROR_OK;
}

static enum error_code add_pattern(struct members *m, uint32_t node, const char *expression,
                                   json_t *schema)
{
    struct schema *s = m->leaf->s;
    struct member_pattern *larger = realloc(m->patterns, (m->n_patterns + 1) * sizeof *m->patterns),
                          p = {.owner = node};
    if (!larger)
        return schema_out_of_memory(s);
    m->patterns = larger;
    enum error_code error = schema_node(s, schema, &p.schema);
    if (error)
        return error;
    dfa_init(&p.text, s->limits->dfa_states);
    error = text_matching(s, expression, &p.text);
    m->patterns[m->n_patterns++] = p;
    return error ? schema_locate(s, node, "patternProperties") : ERROR_OK;
}

static enum error_code add_required(struct members *m, uint32_t node, json_t *required)
{
    size_t i;
    json_t *key;
    enum error_code error = ERROR_OK;
    if (required && !json_is_array(required))
        return schema_refuse(m->leaf->s, ERROR_USAGE, node, "required", "must be a list of names");
    error = schema_work(m->leaf->s, json_array_size(required) * (m->n_keys + 1));
    json_array_foreach(required, i, key)
    {
        if (!json_is_string(key))
            return schema_refuse(m->leaf->s, ERROR_USAGE, node, "required",
                                 "must be a list of names");
        if (!error)
            error = add_key(m, json_string_value(key));
    }
    return error;
}

static enum error_code add_properties(struct members *m, uint32_t node)
{
    json_t *json = m->leaf->s->nodes[node], *value;
    json_t *properties = json_object_get(json, "properties");
    json_t *patterns = json_object_get(json, "patternProperties");
    const char *key;
    enum error_code error = ERROR_OK;
    if ((properties && !json_is_object(properties)) || (patterns && !json_is_object(patterns)))
        return schema_refuse(m->leaf->s, ERROR_USAGE, node,
                             properties && !json_is_object(properties) ? "properties"
                                                                       : "patternProperties",
                             "must be an object");
    json_object_foreach(properties, key, value)
    {
        if (!error)
            error = add_key(m, key);
    }
    json_object_foreach(patterns, key, value)
    {
        if (!error)
            error = add_pattern(m, node, key, value);
    }
    return error;
}

/* ---- Short lists of keys ---- */

enum { WORDS_MAX = 64 }; /* of a pattern */

/* Keys that are listed are named members: each is there once at most, and can be counted. */
static bool can_name(const struct members *m, size_t n)
{
    uint64_t columns = bounds_bind(m->leaf->members) ? bounds_last(m->leaf->members) : 1;
    return (columns + 1) * (m->n_keys + n + 1) <= MEMBER_CELLS_MAX;
}

static enum error_code add_listed(struct members *m, const struct leaf *names)
{
    enum error_code error = ERROR_OK;
    for (size_t i = 0; i < names->n_values && can_name(m, names->n_values) && !error; i++)
        if (json_is_string(names->values[i]))
            error = add_key(m, json_string_value(names->values[i]));
    return error;
}

struct word_list {
    struct member_word *first, *last;
    size_t n;
    bool failed; /* no memory */
};

static bool take_word(void *context, const char *text)
{
    struct word_list *list = context;
    size_t size = strlen(text) + 1;
    struct member_word *word = list->n < WORDS_MAX ? malloc(sizeof *word + size) : NULL;
    list->failed = !word && list->n < WORDS_MAX;
    if (!word)
        return false;
    word->next = NULL;
    memcpy(word->text, text, size);
    *(list->last ? &list->last->next : &list->first) = word;
    list->last = word;
    list->n++;
    return true;
}

static void free_words(struct member_word *word)
{
    while (word) {
        struct member_word *next = word->next;
        free(word);
        word = next;
    }
}

/* The keys of an expression such as ^(a|b)$ that has few. */
static enum error_code add_words(struct members *m, struct dfa *d)
{
    struct word_list list = {0};
    enum error_code error = dfa_trim(d, m->leaf->s->error);
    if (error)
        return error;
    bool few = dfa_each_word(d, take_word, &list) && can_name(m, list.n);
    if (!few) {
        free_words(list.first);
        return list.failed ? schema_out_of_memory(m->leaf->s) : ERROR_OK;
    }
    if (list.last) {
        list.last->next = m->words;
        m->words = list.first;
    }
    for (const struct member_word *w = list.first; list.n-- > 0 && !error; w = w->next)
        error = add_key(m, w->text);
    return error;
}

struct names_context {
    struct members *members;
    unsigned leaves;
};

static enum error_code take_names(struct schema *s, const struct id_list *leaf, void *context)
{
    static const char *const keywords[] = {"anyOf", "oneOf", NULL};
    struct names_context *c = context;
    struct leaf l;
    if (c->leaves++)
        return schema_refuse_in(s, ERROR_UNSUPPORTED, leaf, keywords,
                                "anyOf and oneOf within propertyNames are not supported");
    enum error_code error = leaf_init(s, leaf, &l);
    if (error)
        return error;
    error = leaf_text(&l, &c->members->names);
    if (!error)
        error =
            l.has_values ? add_listed(c->members, &l) : add_words(c->members, &c->members->names);
    leaf_fini(&l);
    return error;
}

/* All propertyNames together, as one leaf. */
static enum error_code add_names(struct members *m)
{
    struct schema *s = m->leaf->s;
    struct id_list goal = {0};
    enum error_code error = ERROR_OK;
    for (uint32_t i = 0; i < m->leaf->nodes->n && !error; i++) {
        uint32_t node;
        json_t *names = json_object_get(s->nodes[m->leaf->nodes->ids[i]], "propertyNames");
        if (!names)
            continue;
        error = schema_node(s, names, &node);
        if (!error && !id_list_add(&goal, node))
            error = schema_out_of_memory(s);
    }
    if (!error && goal.n > 0) {
        struct names_context c = {m, 0};
        m->has_names = true;
        error = schema_expand(s, &goal, true, take_names, &c);
    }
    id_list_fini(&goal);
    return error;
}

enum error_code members_init(const struct leaf *l, struct members *out)
{
    enum error_code error = ERROR_OK;
    *out = (struct members){.leaf = l};
    dfa_init(&out->names, l->s->limits->dfa_states);
    for (uint32_t i = 0; i < l->nodes->n && !error; i++)
        error = add_properties(out, l->nodes->ids[i]);
    for (uint32_t i = 0; i < l->nodes->n && !error; i++) {
        uint32_t node = l->nodes->ids[i];
        error = add_required(out, node, json_object_get(l->s->nodes[node], "required"));
    }
    if (!error)
        error = add_names(out);
    for (size_t i = 0; i < out->n_patterns && !error; i++)
        error = add_words(out, &out->patterns[i].text);
    if (error)
        members_fini(out);
    return error;
}

void members_fini(struct members *m)
{
    for (size_t i = 0; i < m->n_patterns; i++)
        dfa_fini(&m->patterns[i].text);
    free(m->patterns);
    free(m->keys);
    free_words(m->words);
    dfa_fini(&m->names);
    *m = (struct members){0};
}

bool members_required(const struct members *m, const char *key)
{
    const struct leaf *l = m->leaf;
    for (uint32_t i = 0; i < l->nodes->n; i++) {
        size_t k;
        json_t *name;
        json_array_foreach(json_object_get(l->s->nodes[l->nodes->ids[i]], "required"), k, name)
        {
            if (strcmp(json_string_value(name), key) == 0)
                return true;
        }
    }
    return false;
}

static enum error_code add_schema(struct schema *s, json_t *schema, struct id_list *out,
                                  bool *forbidden)
{
    uint32_t node = 0;
    *forbidden = *forbidden || json_is_false(schema);
    enum error_code error = schema_node(s, schema, &node);
    if (!error && !id_list_add(out, node))
        error = schema_out_of_memory(s);
    return error;
}

enum error_code members_goal(const struct members *m, const char *key, struct id_list *out,
                             bool *forbidden)
{
    struct schema *s = m->leaf->s;
    *forbidden = m->has_names && !dfa_matches(&m->names, key, strlen(key));
    enum error_code error = ERROR_OK;
    for (uint32_t i = 0; i < m->leaf->nodes->n && !error; i++) {
        uint32_t node = m->leaf->nodes->ids[i];
        json_t *own = json_object_get(json_object_get(s->nodes[node], "properties"), key);
        json_t *others = json_object_get(s->nodes[node], "additionalProperties");
        bool matched = own != NULL;
        if (own)
            error = add_schema(s, own, out, forbidden);
        for (size_t p = 0; p < m->n_patterns && !error; p++)
            if (m->patterns[p].owner == node &&
                dfa_matches(&m->patterns[p].text, key, strlen(key))) {
                matched = true;
                error = add_schema(s, s->nodes[m->patterns[p].schema], out, forbidden);
            }
        if (!matched && others && !error)
            error = add_schema(s, others, out, forbidden);
    }
    return error;
}
