/* Parts of a schema; see schema_part.h. The definitions are written once: many parts have them. */
#include "toolcall/schema_part.h"

#include "base/strbuf.h"

#include <stdlib.h>
#include <string.h>

enum { TO_DEFINITIONS = 1, ELSEWHERE = 2 };

/* Does this keyword of a document, a name of `len` bytes, have definitions? */
static bool has_definitions(const char *keyword, size_t len)
{
    static const char *const holders[] = {"$defs", "definitions"};
    for (size_t i = 0; i < sizeof holders / sizeof holders[0]; i++)
        if (len == strlen(holders[i]) && strncmp(keyword, holders[i], len) == 0)
            return true;
    return len > 2 && strncmp(keyword, "x-", 2) == 0;
}

static bool holds_definitions(const char *keyword, const json_t *value)
{
    return has_definitions(keyword, strlen(keyword)) &&
           (json_is_object(value) || (json_is_array(value) && *keyword == 'x'));
}

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
    if (strncmp(ref, "#/", 2) != 0)
        return ELSEWHERE;
    size_t n = strcspn(ref + 2, "/");
    return ref[2 + n] && has_definitions(ref + 2, n) ? TO_DEFINITIONS : ELSEWHERE;
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
    const char *keyword;
    json_t *value, *all = p->definitions ? NULL : json_object();
    if (p->definitions)
        return true;
    json_object_foreach((json_t *)p->root, keyword, value)
    {
        if (holds_definitions(keyword, value))
            json_object_set(all, keyword, value);
    }
    p->definitions_refer = targets(all);
    p->definitions = dump(all);
    json_decref(all);
    return p->definitions;
}

bool schema_part_refers_elsewhere(struct schema_parts *p, const json_t *part)
{
    unsigned found = targets(part);
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

/* The part without those of its members that the definitions have. */
static char *dump_without_definitions(const struct schema_parts *p, const json_t *part)
{
    const char *keyword;
    json_t *value, *document = json_copy((json_t *)part);
    json_object_foreach((json_t *)p->root, keyword, value)
    {
        if (holds_definitions(keyword, value))
            json_object_del(document, keyword);
    }
    char *text = dump(document);
    json_decref(document);
    return text;
}

char *schema_part_text(struct schema_parts *p, const json_t *part)
{
    if (!targets(part))
        return dump(part);
    char *own = dump_without_definitions(p, part), *text = NULL;
    if (own && write_definitions(p))
        text = join(own, p->definitions);
    free(own);
    return text;
}
