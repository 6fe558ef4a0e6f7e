/* Parts of a schema; see schema_part.h. The definitions are written once: many parts have them. */
#include "toolcall/schema_part.h"

#include "base/strbuf.h"
#include "toolcall/schema_strip.h"

#include <stdlib.h>
#include <string.h>

enum { TO_DEFINITIONS = 1, ELSEWHERE = 2 };

static const char *const holders[] = {"$defs", "definitions"};
enum { N_HOLDERS = sizeof holders / sizeof holders[0] };

void schema_parts_init(struct schema_parts *p, const json_t *root)
{
    *p = (struct schema_parts){.root = root};
}

void schema_parts_fini(struct schema_parts *p)
{
    free(p->definitions);
}

static unsigned target(const char *ref)
{
    for (size_t i = 0; i < N_HOLDERS; i++) {
        size_t n = strlen(holders[i]);
        if (strncmp(ref, "#/", 2) == 0 && strncmp(ref + 2, holders[i], n) == 0 && ref[n + 2] == '/')
            return TO_DEFINITIONS;
    }
    return ELSEWHERE;
}

/* To what the references in a value refer. */
static unsigned targets(const json_t *value)
{
    const char *key;
    json_t *element;
    size_t i;
    unsigned found = 0;
    json_array_foreach(value, i, element) found |= targets(element);
    json_object_foreach((json_t *)value, key, element)
    {
        bool ref = strcmp(key, "$ref") == 0 && json_is_string(element);
        found |= ref ? target(json_string_value(element)) : targets(element);
    }
    return found;
}

static char *dump(const json_t *value)
{
    return json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
}

/* False: no memory. */
static bool write_definitions(struct schema_parts *p)
{
    if (p->definitions)
        return true;
    json_t *all = json_object();
    for (size_t i = 0; i < N_HOLDERS; i++) {
        json_t *map = json_object_get(p->root, holders[i]);
        if (json_is_object(map))
            json_object_set(all, holders[i], map);
    }
    json_t *stripped = schema_strip(all);
    p->definitions_refer = targets(stripped);
    p->definitions = dump(stripped);
    json_decref(stripped);
    json_decref(all);
    return p->definitions;
}

bool schema_part_refers_elsewhere(struct schema_parts *p, const json_t *part)
{
    json_t *document = schema_strip(part);
    unsigned found = targets(document);
    json_decref(document);
    if (found && write_definitions(p))
        found |= p->definitions_refer;
    return found & ELSEWHERE;
}

/* Both are objects. */
static char *join(const char *document, const char *definitions)
{
    struct strbuf b;
    size_t n = strlen(document) - 1;
    strbuf_init(&b);
    strbuf_append(&b, document, n);
    strbuf_append(&b, ",", n > 1 && strlen(definitions) > 2 ? 1 : 0);
    strbuf_append(&b, definitions + 1, strlen(definitions) - 1);
    if (!b.failed)
        return b.data;
    strbuf_fini(&b);
    return NULL;
}

char *schema_part_text(struct schema_parts *p, const json_t *part)
{
    json_t *document = schema_strip(part);
    bool refers = targets(document);
    for (size_t i = 0; refers && i < N_HOLDERS; i++)
        if (json_is_object(json_object_get(p->root, holders[i])))
            json_object_del(document, holders[i]);
    char *own = dump(document), *text = own;
    json_decref(document);
    if (refers && own) {
        text = write_definitions(p) ? join(own, p->definitions) : NULL;
        free(own);
    }
    return text;
}
