/* Chosen members of an answer; see response_fields.h. The values are copied as they are written, so
 * numbers keep their digits. */
#include "client/http/api/response_fields.h"

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

/* ---- The names ---- */

static struct moed_bytes name_at(const json_t *fields, size_t i)
{
    const json_t *name = json_array_get(fields, i);
    return (struct moed_bytes){json_string_value(name), json_string_length(name)};
}

static bool is_same(struct moed_bytes a, struct moed_bytes b)
{
    return a.len == b.len && memcmp(a.data, b.data, a.len) == 0;
}

/* The name of the object's own member: all before the first slash. */
static struct moed_bytes first_of(struct moed_bytes path)
{
    const char *slash = memchr(path.data, '/', path.len);
    return (struct moed_bytes){path.data, slash ? (size_t)(slash - path.data) : path.len};
}

bool response_fields_want(const struct ask *ask, const char *member)
{
    struct moed_bytes wanted = {member, strlen(member)};
    for (size_t i = 0; i < json_array_size(ask->response_fields); i++)
        if (is_same(first_of(name_at(ask->response_fields, i)), wanted))
            return true;
    return !ask->response_fields;
}

static bool is_repeated(const json_t *fields, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (is_same(name_at(fields, k), name_at(fields, i)))
            return true;
    return false;
}

/* ---- The values: JSON without blanks ---- */

/* at: the string's first quote. Returns its last one. */
static const char *end_of_string(const char *at, const char *end)
{
    for (at++; at < end && *at != '"'; at++)
        at += *at == '\\';
    return at;
}

/* Where the value at `at` ends: at a comma, a brace or the end. */
static const char *end_of_value(const char *at, const char *end)
{
    for (unsigned depth = 0; at < end; at++) {
        if (*at == '"')
            at = end_of_string(at, end);
        else if (*at == '{' || *at == '[')
            depth++;
        else if (depth == 0 && (*at == ',' || *at == '}' || *at == ']'))
            break;
        else if (*at == '}' || *at == ']')
            depth--;
    }
    return at < end ? at : end;
}

/* Replaces *value, an object, with its member. False: it is no object, or has none. */
static bool enter(struct moed_bytes *value, struct moed_bytes member)
{
    const char *at = value->data, *end = at + value->len;
    if (value->len == 0 || *at++ != '{')
        return false;
    while (at < end && *at == '"') {
        const char *name_end = end_of_string(at, end), *begin = name_end + 2; /* behind ": */
        struct moed_bytes name = {at + 1, (size_t)(name_end - at - 1)};
        if (begin > end)
            return false;
        at = end_of_value(begin, end);
        if (is_same(name, member)) {
            *value = (struct moed_bytes){begin, (size_t)(at - begin)};
            return true;
        }
        at += at < end && *at == ',';
    }
    return false;
}

static bool find_path(struct moed_bytes *value, struct moed_bytes path)
{
    for (;;) {
        struct moed_bytes first = first_of(path);
        if (!enter(value, first))
            return false;
        if (first.len == path.len)
            return true;
        path = (struct moed_bytes){path.data + first.len + 1, path.len - first.len - 1};
    }
}

void response_fields_json(const struct ask *ask, const struct strbuf *json, struct strbuf *out)
{
    const json_t *fields = ask->response_fields;
    const char *comma = "";
    out->failed = out->failed || json->failed;
    strbuf_printf(out, "{");
    for (size_t i = 0; i < json_array_size(fields) && !json->failed; i++) {
        struct moed_bytes name = name_at(fields, i), value = {json->data, json->len};
        if (is_repeated(fields, i) || !find_path(&value, name))
            continue;
        strbuf_printf(out, "%s", comma);
        strbuf_json_string(out, name.data, name.len);
        strbuf_append(out, ":", 1);
        strbuf_append(out, value.data, value.len);
        comma = ",";
    }
    strbuf_printf(out, "}");
}
