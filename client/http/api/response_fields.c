/* Chosen members of an answer; see response_fields.h. */
#include "client/http/api/response_fields.h"

#include <stdlib.h>
#include <string.h>

#define FIELDS_MAX 64

bool take_response_fields(struct ask *ask, json_t *value, struct problem *p)
{
    size_t n = json_array_size(value);
    if (!json_is_array(value) || n > FIELDS_MAX)
        return problem_set(p, 400, "an array of at most %d names is expected", FIELDS_MAX);
    for (size_t i = 0; i < n; i++)
        if (!json_is_string(json_array_get(value, i)))
            return problem_set(p, 400, "item %zu is not a name", i);
    ask->response_fields = n ? value : NULL;
    return true;
}

static json_t *find_path(json_t *object, const char *path)
{
    const char *end;
    while (object && (end = strchr(path, '/'))) {
        object = json_object_getn(object, path, (size_t)(end - path));
        path = end + 1;
    }
    return json_object_get(object, path);
}

static json_t *pick(const json_t *fields, json_t *from)
{
    json_t *picked = json_object();
    for (size_t i = 0; picked && i < json_array_size(fields); i++) {
        const char *name = json_string_value(json_array_get(fields, i));
        json_t *found = find_path(from, name);
        if (found && json_object_set(picked, name, found)) {
            json_decref(picked);
            picked = NULL;
        }
    }
    return picked;
}

void response_fields_json(const struct ask *ask, const struct strbuf *json, struct strbuf *out)
{
    json_t *from = json->failed ? NULL : json_loadb(json->data, json->len, JSON_ALLOW_NUL, NULL);
    json_t *picked = from ? pick(ask->response_fields, from) : NULL;
    char *text = picked ? json_dumps(picked, JSON_COMPACT) : NULL;
    if (text)
        strbuf_append(out, text, strlen(text));
    else
        out->failed = true;
    free(text);
    json_decref(picked);
    json_decref(from);
}
