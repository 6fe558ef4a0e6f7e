/* See schema_nodes.h. */
#include "grammar/schema_nodes.h"

#include "base/strbuf.h"
#include "grammar/schema_reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ADDRESS_BYTES = 32, SEARCHES_MAX = 256 };

static void address_of(const json_t *json, char out[ADDRESS_BYTES])
{
    snprintf(out, ADDRESS_BYTES, "%p", (const void *)json);
}

static bool has_steps(const struct schema_nodes *s)
{
    return s->steps->done <= s->steps->most;
}

/* ---- Finding ---- */

static struct schema_reached *append(struct schema_nodes *s, json_t *schema)
{
    char address[ADDRESS_BYTES];
    address_of(schema, address);
    if (json_object_get(s->seen, address) || json_object_set_new(s->seen, address, json_true()))
        return NULL;
    if (s->n == s->capacity) {
        size_t capacity = s->capacity ? s->capacity * 2 : 64;
        struct schema_reached *larger = realloc(s->list, capacity * sizeof *larger);
        if (!larger)
            return NULL;
        s->list = larger;
        s->capacity = capacity;
    }
    s->list[s->n] = (struct schema_reached){.schema = json_incref(schema)};
    return &s->list[s->n++];
}

static void find_target(struct schema_nodes *s, struct schema_reached *r)
{
    const char *ref = json_string_value(json_object_get(r->schema, "$ref"));
    uint64_t looks = ref ? strlen(ref) : 0;
    if (!ref)
        return;
    json_t *target = schema_reference(s->document, ref, &looks);
    s->steps->done += COMPARISON_STEPS * looks;
    if (json_is_object(target) || json_is_boolean(target))
        r->target = json_incref(target);
    else
        r->dangling = true;
}

static void find(struct schema_nodes *s, json_t *schema);

static void find_in_members(struct schema_nodes *s, json_t *schemas)
{
    const char *key;
    json_t *value;
    json_object_foreach(schemas, key, value)
    {
        find(s, value);
    }
}

static void find_in_elements(struct schema_nodes *s, json_t *schemas)
{
    size_t i;
    json_t *value;
    json_array_foreach(schemas, i, value)
    {
        find(s, value);
    }
}

/* First the schema, then those in it. */
static void find(struct schema_nodes *s, json_t *schema)
{
    static const char *const of_members[] = {"properties", "patternProperties", "$defs",
                                             "definitions"};
    static const char *const of_elements[] = {"anyOf", "allOf", "oneOf", "prefixItems", "items"};
    static const char *const single[] = {"items", "additionalItems", "additionalProperties",
                                         "propertyNames"};
    if (!json_is_object(schema) || !has_steps(s))
        return;
    struct schema_reached *r = append(s, schema);
    if (!r)
        return;
    find_target(s, r);
    for (size_t i = 0; i < sizeof of_members / sizeof *of_members; i++)
        find_in_members(s, json_object_get(schema, of_members[i]));
    for (size_t i = 0; i < sizeof of_elements / sizeof *of_elements; i++)
        find_in_elements(s, json_object_get(schema, of_elements[i]));
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        find(s, json_object_get(schema, single[i]));
}

void schema_nodes_init(struct schema_nodes *s, json_t *document, struct schema_steps *steps)
{
    *s = (struct schema_nodes){.document = document, .steps = steps, .seen = json_object()};
    find(s, document);
    for (size_t i = 0; i < s->n; i++) /* the list grows */
        find(s, s->list[i].target);
}

void schema_nodes_fini(struct schema_nodes *s)
{
    for (size_t i = 0; i < s->n; i++) {
        json_decref(s->list[i].schema);
        json_decref(s->list[i].target);
    }
    free(s->list);
    json_decref(s->seen);
}

/* ---- References ---- */

/* A JSON pointer as a reference; owned, NULL: no memory. */
static char *reference_to(const struct strbuf *pointer)
{
    struct strbuf b;
    strbuf_init(&b);
    strbuf_append(&b, "#", 1);
    for (size_t i = 0; i < pointer->len; i++) {
        if (pointer->data[i] == '%')
            strbuf_append(&b, "%25", 3);
        else
            strbuf_append(&b, &pointer->data[i], 1);
    }
    if (!b.failed)
        return b.data;
    strbuf_fini(&b);
    return NULL;
}

/* Adds a schema to the document's $defs; appends its pointer. */
static void define(struct schema_nodes *s, json_t *schema, struct strbuf *pointer)
{
    char name[ADDRESS_BYTES];
    json_t *definitions = json_object_get(s->document, "$defs");
    if (!json_is_object(definitions)) {
        json_object_set_new(s->document, "$defs", json_object());
        definitions = json_object_get(s->document, "$defs");
    }
    do
        snprintf(name, sizeof name, "definition-%u", ++s->defined);
    while (json_object_get(definitions, name));
    if (json_object_set(definitions, name, schema) == 0)
        strbuf_printf(pointer, "/$defs/%s", name);
}

static json_t *new_reference(struct schema_nodes *s, json_t *target, bool search)
{
    struct strbuf pointer;
    strbuf_init(&pointer);
    if (!search || !json_is_object(target) || !schema_pointer(s->document, target, &pointer))
        define(s, target, &pointer);
    char *text = pointer.failed ? NULL : reference_to(&pointer);
    json_t *reference = text ? json_string(text) : NULL;
    free(text);
    strbuf_fini(&pointer);
    return reference;
}

void schema_nodes_mend(struct schema_nodes *s)
{
    json_t *found = json_object(); /* the new references of targets, by address */
    for (size_t i = 0; i < s->n; i++) {
        const struct schema_reached *r = &s->list[i];
        const char *ref = json_string_value(json_object_get(r->schema, "$ref"));
        char address[ADDRESS_BYTES];
        uint64_t looks = ref ? strlen(ref) : 0;
        if (!ref || !r->target)
            continue;
        bool same = schema_reference(s->document, ref, &looks) == r->target;
        s->steps->done += COMPARISON_STEPS * looks;
        if (same)
            continue;
        address_of(r->target, address);
        json_t *known = json_object_get(found, address);
        if (!known)
            json_object_set_new(
                found, address,
                new_reference(s, r->target, json_object_size(found) < SEARCHES_MAX));
        if ((known = json_object_get(found, address)))
            json_object_set(r->schema, "$ref", known);
    }
    json_decref(found);
}
