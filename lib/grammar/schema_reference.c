/* References and pointers; see schema_reference.h. */
#include "grammar/schema_reference.h"

#include <stdlib.h>
#include <string.h>

/* ---- Pointers ---- */

void schema_pointer_token(struct strbuf *b, const char *text)
{
    strbuf_append(b, "/", 1);
    for (; *text; text++) {
        if (*text == '~')
            strbuf_append(b, "~0", 2);
        else if (*text == '/')
            strbuf_append(b, "~1", 2);
        else
            strbuf_append(b, text, 1);
    }
}

bool schema_pointer(json_t *at, const json_t *json, struct strbuf *b)
{
    const char *key;
    json_t *value;
    size_t i, before = b->len;
    if (at == json)
        return true;
    json_object_foreach(at, key, value)
    {
        schema_pointer_token(b, key);
        if (schema_pointer(value, json, b))
            return true;
        b->len = before;
    }
    json_array_foreach(at, i, value)
    {
        strbuf_printf(b, "/%zu", i);
        if (schema_pointer(value, json, b))
            return true;
        b->len = before;
    }
    return false;
}

/* ---- References ---- */

/* One token of a JSON pointer, with ~0, ~1 and %XX decoded, in malloc'ed memory. */
static char *decode_token(const char *from, size_t len)
{
    char *out = malloc(len + 1);
    size_t n = 0;
    if (!out)
        return NULL;
    for (size_t i = 0; i < len; i++) {
        char c = from[i];
        if (c == '%' && i + 2 < len) {
            char hex[3] = {from[i + 1], from[i + 2]};
            c = (char)strtoul(hex, NULL, 16);
            i += 2;
        }
        out[n++] = c;
    }
    out[n] = 0;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        char c = out[i];
        if (c == '~' && (out[i + 1] == '0' || out[i + 1] == '1'))
            c = out[++i] == '0' ? '~' : '/';
        out[kept++] = c;
    }
    out[kept] = 0;
    return out;
}

static json_t *child(json_t *at, const char *token)
{
    char *end;
    if (json_is_object(at))
        return json_object_get(at, token);
    size_t index = strtoul(token, &end, 10);
    return json_is_array(at) && end != token && !*end ? json_array_get(at, index) : NULL;
}

static json_t *follow_pointer(json_t *at, const char *ref)
{
    for (const char *p = ref + 1; at && *p == '/';) {
        size_t len = strcspn(p + 1, "/");
        char *token = decode_token(p + 1, len);
        at = token ? child(at, token) : NULL;
        free(token);
        p += 1 + len;
    }
    return at;
}

/* The subschema with this $anchor, by a search through the whole document; *looks: at nodes. */
static json_t *find_anchor(json_t *at, const char *name, uint64_t *looks)
{
    json_t *value, *found = NULL;
    const char *key;
    size_t i;
    ++*looks;
    if (json_is_object(at)) {
        const char *anchor = json_string_value(json_object_get(at, "$anchor"));
        const char *dynamic = json_string_value(json_object_get(at, "$dynamicAnchor"));
        if ((anchor && strcmp(anchor, name) == 0) || (dynamic && strcmp(dynamic, name) == 0))
            return at;
        json_object_foreach(at, key, value)
        {
            if (strcmp(key, "const") != 0 && strcmp(key, "enum") != 0 && !found)
                found = find_anchor(value, name, looks);
        }
    }
    json_array_foreach(at, i, value)
    {
        if (!found)
            found = find_anchor(value, name, looks);
    }
    return found;
}

json_t *schema_reference(json_t *document, const char *ref, uint64_t *looks)
{
    if (ref[0] != '#')
        return NULL;
    return ref[1] == '/' || !ref[1] ? follow_pointer(document, ref)
                                    : find_anchor(document, ref + 1, looks);
}
