/* Contents; see content.h. */
#include "client/http/api/content.h"

#include "json/json_write.h"

#include <stdint.h>
#include <string.h>

enum content_of content_of_turn(const char *role, bool newest)
{
    if (strcmp(role, "assistant") == 0)
        return CONTENT_ANSWER;
    return strcmp(role, "user") == 0 && newest ? CONTENT_QUESTION : CONTENT_HISTORY;
}

size_t content_last_user_turn(const json_t *messages)
{
    for (size_t i = json_array_size(messages); i > 0; i--) {
        const json_t *message = json_array_get(messages, i - 1);
        const char *role = json_string_value(json_object_get(message, "role"));
        if (role && strcmp(role, "user") == 0)
            return i - 1;
    }
    return SIZE_MAX;
}

bool content_has_type(const json_t *object, const char *type)
{
    const char *own = json_string_value(json_object_get(object, "type"));
    return own && strcmp(own, type) == 0;
}

static void begin_part(struct strbuf *text, enum content_of of)
{
    if (text->len && of != CONTENT_ANSWER)
        strbuf_append(text, "\n", 1);
}

static void add_string(struct strbuf *text, const json_t *value, enum content_of of)
{
    begin_part(text, of);
    strbuf_append(text, json_string_value(value), json_string_length(value));
}

void content_add_note(struct strbuf *text, const char *type, enum content_of of)
{
    static const char *const nouns[] = {"image", "audio", "video", "document", "file"};
    for (size_t i = 0; i < sizeof nouns / sizeof *nouns; i++)
        if (strstr(type, nouns[i])) {
            type = nouns[i];
            break;
        }
    begin_part(text, of);
    strbuf_printf(text, "[%s omitted: this model reads text only]", type);
}

/* "input_text" and "output_text" are of Responses, "refusal" is of an earlier answer. */
static bool is_text(const char *type)
{
    const char *end = strrchr(type, '_');
    return strcmp(type, "refusal") == 0 || strcmp(end ? end + 1 : type, "text") == 0;
}

/* The content inside a search result, or a document that is text; NULL: there is none. */
static const json_t *inner_content(const json_t *part)
{
    const json_t *source = json_object_get(part, "source");
    if (content_has_type(part, "search_result"))
        return json_object_get(part, "content");
    if (!content_has_type(part, "document"))
        return NULL;
    if (content_has_type(source, "text"))
        return json_object_get(source, "data");
    return content_has_type(source, "content") ? json_object_get(source, "content") : NULL;
}

static bool add_content(struct strbuf *text, const json_t *content, enum content_of of,
                        const char *where, struct problem *p)
{
    if (!content || json_is_null(content))
        return true;
    if (json_is_string(content))
        add_string(text, content, of);
    else if (!json_is_array(content))
        return problem_set(p, 400, "%s: a string or an array of parts is expected", where);
    for (size_t i = 0; i < json_array_size(content); i++)
        if (!content_add_part(text, json_array_get(content, i), of, where, p))
            return false;
    return true;
}

/* With its title in front. */
static bool add_inner(struct strbuf *text, const json_t *part, enum content_of of,
                      const char *where, struct problem *p)
{
    const json_t *title = json_object_get(part, "title");
    if (json_string_length(title))
        add_string(text, title, of);
    return add_content(text, inner_content(part), of, where, p);
}

/* ---- Reasoning ---- */

static bool is_reasoning(const json_t *part)
{
    return content_has_type(part, "thinking") || content_has_type(part, "reasoning") ||
           content_has_type(part, "redacted_thinking");
}

/* A string, or a list of parts with texts (Mistral's). */
static void add_reasoning(struct strbuf *text, const json_t *value)
{
    strbuf_append(text, json_string_value(value), json_string_length(value));
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *inner = json_object_get(json_array_get(value, i), "text");
        strbuf_append(text, json_string_value(inner), json_string_length(inner));
    }
}

void content_add_reasoning(struct strbuf *text, const json_t *content)
{
    static const char *const members[] = {"thinking", "reasoning", "text"};
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i), *value = NULL;
        for (size_t k = 0; k < sizeof members / sizeof *members && !value; k++)
            value = json_object_get(part, members[k]);
        if (is_reasoning(part))
            add_reasoning(text, value);
    }
}

/* ---- Parts ---- */

bool content_add_part(struct strbuf *text, const json_t *part, enum content_of of,
                      const char *where, struct problem *p)
{
    if (of == CONTENT_ANSWER && is_reasoning(part))
        return true;
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *tool = json_object_get(part, "tool_name");
    const json_t *value =
        json_object_get(part, content_has_type(part, "refusal") ? "refusal" : "text");
    if (!type || (is_text(type) && !json_is_string(value)))
        return problem_set(p, 400, "%s: a part {\"type\": \"text\", \"text\": ...} is expected",
                           where);
    if (is_text(type)) {
        add_string(text, value, of);
    } else if (inner_content(part)) {
        return add_inner(text, part, of, where, p);
    } else if (content_has_type(part, "tool_reference") && json_is_string(tool)) {
        begin_part(text, of);
        strbuf_printf(text, "[tool %s]", json_string_value(tool));
    } else if (of == CONTENT_QUESTION) {
        return problem_set(p, 400, "%s: this model takes text only, not '%.40s'", where, type);
    } else {
        content_add_note(text, type, of);
    }
    return true;
}

json_t *content_text(const json_t *content, enum content_of of, const char *where,
                     struct problem *p)
{
    struct strbuf text;
    strbuf_init(&text);
    bool good = add_content(&text, content, of, where, p);
    json_t *joined = good ? json_string_of(&text) : NULL;
    if (good && !joined)
        problem_fill(p, 400, "%s: no memory for it, or it is not UTF-8", where);
    strbuf_fini(&text);
    return joined;
}
