/* Finds out what a template takes by rendering small conversations: what it does not show, or
 * refuses, it does not take. */
#include "chat/internal.h"

#include <string.h>

/* Marks that no template contains. */
#define USER      "probe-user-text"
#define SYSTEM    "probe-system-text"
#define AGAIN     "probe-second-text"
#define ANSWER    "probe-answer-text"
#define REASONING "probe-reasoning-text"
#define TOOL      "probe_tool_name"
#define ARGUMENT  "probe_argument"
#define VALUE     "probe-value"
#define RESULT    "probe-result-text"

static const struct jinja_limits limits = {
    .steps = 1000000, .output_bytes = 1 << 20, .memory_bytes = 32 << 20, .depth = 300};

struct probe {
    const struct chat_variant *variant;
    const json_t *trusted;
    bool text, tools_needed; /* forms that every further conversation has */
    bool no_memory;
};

/* Renders and frees the messages and the tools (may be NULL). False: it failed. */
static bool render(struct probe *p, json_t *messages, json_t *tools, struct jinja_output *out)
{
    json_t *request = json_pack("{s:o, s:b}", "messages", messages, "add_generation_prompt", 1);
    if (tools)
        json_object_set_new(request, "tools", tools);
    else if (p->tools_needed)
        json_object_set_new(request, "tools", json_array());
    p->no_memory |= !request;
    struct jinja_input input = {
        .request = request, .trusted = p->trusted, .now_s = 0, .limits = &limits};
    bool ok = request && !jinja_render(p->variant->jinja, &input, out, NULL);
    json_decref(request);
    return ok;
}

/* Whether the output has `shown` and not `hidden` (may be NULL). */
static bool shows(struct probe *p, json_t *messages, json_t *tools, const char *shown,
                  const char *hidden)
{
    struct jinja_output out;
    if (!render(p, messages, tools, &out))
        return false;
    bool ok = strstr(out.text, shown) && !(hidden && strstr(out.text, hidden));
    jinja_output_fini(&out);
    return ok;
}

/* Whether the output has `first` and, behind it, `second`. */
static bool shows_in_order(struct probe *p, json_t *messages, const char *first, const char *second)
{
    struct jinja_output out;
    if (!render(p, messages, NULL, &out))
        return false;
    const char *at = strstr(out.text, first);
    bool ok = at && strstr(at, second);
    jinja_output_fini(&out);
    return ok;
}

static json_t *content(const struct probe *p, const char *text)
{
    return p->text ? json_string(text) : json_pack("[{s:s, s:s}]", "type", "text", "text", text);
}

static json_t *message(const struct probe *p, const char *role, const char *text)
{
    return json_pack("{s:s, s:o}", "role", role, "content", content(p, text));
}

static json_t *user(const struct probe *p)
{
    return message(p, "user", USER);
}

static json_t *tool(void)
{
    return json_pack("{s:s, s:{s:s, s:s, s:{s:s, s:{s:{s:s, s:s}}, s:[s]}}}", "type", "function",
                     "function", "name", TOOL, "description", "d", "parameters", "type", "object",
                     "properties", ARGUMENT, "type", "string", "description", "d", "required",
                     ARGUMENT);
}

static json_t *arguments(bool object, const char *value)
{
    return object ? json_pack("{s:s}", ARGUMENT, value)
                  : json_sprintf("{\"" ARGUMENT "\": \"%s\"}", value);
}

/* A question, a call with these arguments, and its result. */
static json_t *call(const struct probe *p, json_t *given)
{
    json_t *assistant = message(p, "assistant", "");
    json_object_set_new(assistant, "tool_calls",
                        json_pack("[{s:s, s:s, s:{s:s, s:o}}]", "id", "call00001", "type",
                                  "function", "function", "name", TOOL, "arguments", given));
    json_t *result = message(p, "tool", RESULT);
    json_object_set_new(result, "tool_call_id", json_string("call00001"));
    json_object_set_new(result, "name", json_string(TOOL));
    return json_pack("[o, o, o]", user(p), assistant, result);
}

/* The tool, its call with these arguments and the result, rendered. False: it failed. */
static bool render_call(struct probe *p, json_t *given, struct jinja_output *out)
{
    *out = (struct jinja_output){0};
    return render(p, call(p, given), json_pack("[o]", tool()), out);
}

/* Content as a string, else as parts; a list of tools where it fails without. */
static void probe_content(struct probe *p, struct chat_abilities *a)
{
    for (int tools = 0; tools < 2; tools++) {
        p->tools_needed = tools;
        p->text = true;
        a->text = shows(p, json_pack("[o]", user(p)), NULL, USER, NULL);
        p->text = false;
        a->parts = shows(p, json_pack("[o]", user(p)), NULL, USER, "'text'");
        a->tools_needed = tools;
        if (a->text || a->parts)
            break;
    }
    /* A template that shows neither gets strings, and says itself what is wrong. */
    p->text = a->text || !a->parts;
    a->text = p->text;
}

/* What the template writes between two parts, if that is white space; else a newline. */
static void probe_part_gap(struct probe *p, struct chat_abilities *a)
{
    json_t *parts = json_pack("[{s:s, s:s}, {s:s, s:s}]", "type", "text", "text", USER, "type",
                              "text", "text", AGAIN);
    struct jinja_output out;
    strcpy(a->part_gap, "\n");
    if (!a->parts) {
        json_decref(parts);
        return;
    }
    if (!render(p, json_pack("[{s:s, s:o}]", "role", "user", "content", parts), NULL, &out))
        return;
    const char *from = strstr(out.text, USER), *to = from ? strstr(from, AGAIN) : NULL;
    size_t len = to ? (size_t)(to - from) - strlen(USER) : sizeof a->part_gap;
    if (len < sizeof a->part_gap && strspn(to - len, " \n") >= len) {
        memcpy(a->part_gap, to - len, len);
        a->part_gap[len] = '\0';
    }
    jinja_output_fini(&out);
}

static void probe_calls(struct probe *p, struct chat_abilities *a)
{
    struct jinja_output object, string;
    /* A template for strings shows an object as Python does. */
    a->object_arguments = render_call(p, arguments(true, VALUE), &object) &&
                          strstr(object.text, VALUE) && !strstr(object.text, "{'" ARGUMENT "': '");
    /* One for objects shows a string in quotes, "{\"probe..., or in further braces: its own form is
     * the object's. */
    a->string_arguments = render_call(p, arguments(false, VALUE), &string) &&
                          strstr(string.text, "\"" ARGUMENT "\": \"" VALUE "\"") &&
                          (!a->object_arguments || strcmp(object.text, string.text) == 0);
    a->tool_calls = a->object_arguments || a->string_arguments;
    jinja_output_fini(&object);
    jinja_output_fini(&string);
}

/* Two calls of one message, with their results. */
static bool shows_both(struct probe *p, const struct chat_abilities *a)
{
    json_t *messages = call(p, arguments(a->object_arguments, VALUE));
    json_t *more = call(p, arguments(a->object_arguments, AGAIN));
    json_t *second = json_array_get(json_object_get(json_array_get(more, 1), "tool_calls"), 0);
    json_t *result = json_array_get(more, 2);
    json_object_set_new(second, "id", json_string("call00002"));
    json_object_set_new(result, "tool_call_id", json_string("call00002"));
    json_array_append(json_object_get(json_array_get(messages, 1), "tool_calls"), second);
    json_array_append(messages, result);
    json_decref(more);
    return shows(p, messages, json_pack("[o]", tool()), AGAIN, NULL);
}

static bool takes_no_ids(struct probe *p, const struct chat_abilities *a)
{
    json_t *messages = call(p, arguments(a->object_arguments, VALUE));
    const json_t *calls = json_object_get(json_array_get(messages, 1), "tool_calls");
    json_object_del(json_array_get(calls, 0), "id");
    json_object_del(json_array_get(messages, 2), "tool_call_id");
    return shows(p, messages, json_pack("[o]", tool()), VALUE, NULL);
}

static bool shows_ordinal_ids(struct probe *p, const struct chat_abilities *a)
{
    struct jinja_output out;
    if (!render_call(p, arguments(a->object_arguments, VALUE), &out))
        return false;
    const char *id = strstr(out.text, "functions." TOOL ":0");
    bool ok = id && strstr(id, "call00001");
    jinja_output_fini(&out);
    return ok;
}

/* Whether a message with a call, its result behind it, can have a text, and reasoning where `field`
 * is its name: the text is shown, and what stands behind the result is the same as without. */
static bool takes_call_text(struct probe *p, const struct chat_abilities *a, const char *field)
{
    struct jinja_output without, with;
    json_t *messages = call(p, arguments(a->object_arguments, VALUE));
    json_t *assistant = json_array_get(messages, 1);
    json_object_set_new(assistant, "content", content(p, ANSWER));
    if (field)
        json_object_set_new(assistant, field, json_string(REASONING));
    bool tried = render_call(p, arguments(a->object_arguments, VALUE), &without);
    const char *end = tried ? strstr(without.text, RESULT) : NULL;
    bool took = render(p, messages, json_pack("[o]", tool()), &with);
    const char *other = took ? strstr(with.text, RESULT) : NULL;
    bool same = !end || (other && strcmp(end, other) == 0 && strstr(with.text, ANSWER));
    jinja_output_fini(&without);
    if (took)
        jinja_output_fini(&with);
    return same;
}

/* Whether the text of a message with a call, or its reasoning where `field` is its name, is shown
 * but no longer when a message of this role follows the result. */
static bool loses_call_text(struct probe *p, const struct chat_abilities *a, const char *field,
                            const char *role)
{
    const char *mark = field ? REASONING : ANSWER;
    json_t *messages = call(p, arguments(a->object_arguments, VALUE));
    json_object_set_new(json_array_get(messages, 1), field ? field : "content",
                        field ? json_string(mark) : content(p, mark));
    json_t *more = json_deep_copy(messages);
    json_array_append_new(more, message(p, role, AGAIN));
    bool shown = shows(p, messages, json_pack("[o]", tool()), mark, NULL);
    struct jinja_output out;
    bool rendered = render(p, more, json_pack("[o]", tool()), &out);
    bool lost = shown && rendered && !strstr(out.text, mark);
    if (rendered)
        jinja_output_fini(&out);
    return lost;
}

/* After the abilities above it: they say where the text goes. */
static bool keeps_call_text(struct probe *p, const struct chat_abilities *a, const char *field,
                            const char *role)
{
    bool to_content = a->call_text || !field;
    bool to_reasoning = field && !(a->call_text && a->call_reasoning);
    return !a->tool_calls || (!(to_content && loses_call_text(p, a, NULL, role)) &&
                              !(to_reasoning && loses_call_text(p, a, field, role)));
}

static bool takes_text_then_call(struct probe *p, const struct chat_abilities *a)
{
    json_t *messages = call(p, arguments(a->object_arguments, VALUE));
    json_array_insert_new(messages, 1, message(p, "assistant", ANSWER));
    struct jinja_output out;
    if (!render(p, messages, json_pack("[o]", tool()), &out))
        return false;
    const char *text = strstr(out.text, ANSWER), *value = text ? strstr(text, VALUE) : NULL;
    bool ok = value && strstr(value, RESULT);
    jinja_output_fini(&out);
    return ok;
}

/* After probe_reasoning. */
static void probe_call_text(struct probe *p, struct chat_abilities *a)
{
    const char *field = a->reasoning;
    a->call_text = !a->tool_calls || takes_call_text(p, a, NULL);
    a->call_reasoning = !a->tool_calls || !field || takes_call_text(p, a, field);
    a->text_then_call = !a->call_text && takes_text_then_call(p, a);
    a->call_text_asked = keeps_call_text(p, a, field, "user");
    a->call_text_answered = keeps_call_text(p, a, field, "assistant");
}

static bool shows_reasoning(struct probe *p, const struct chat_abilities *a, const char *field)
{
    json_t *assistant = message(p, "assistant", "");
    json_object_set_new(assistant, field, json_string(REASONING));
    json_object_set_new(assistant, "tool_calls",
                        json_pack("[{s:s, s:s, s:{s:s, s:{s:s}}}]", "id", "call00001", "type",
                                  "function", "function", "name", TOOL, "arguments", ARGUMENT,
                                  VALUE));
    if (!a->object_arguments) /* the calls keep the turn open: only some templates show old thoughts
                               */
        json_object_del(assistant, "tool_calls");
    return shows(p, json_pack("[o, o]", user(p), assistant), NULL, REASONING, NULL);
}

/* As a part of the content, and not as a string of the list. */
static bool shows_reasoning_part(struct probe *p)
{
    json_t *assistant =
        json_pack("{s:s, s:[{s:s, s:s}, {s:s, s:s}]}", "role", "assistant", "content", "type",
                  "thinking", "thinking", REASONING, "type", "text", "text", ANSWER);
    struct jinja_output out;
    if (!render(p, json_pack("[o, o]", user(p), assistant), NULL, &out))
        return false;
    const char *shown = strstr(out.text, REASONING);
    bool quoted = shown && shown > out.text && strchr("'\"", shown[-1]);
    bool ok = shown && !quoted && strstr(shown, ANSWER);
    jinja_output_fini(&out);
    return ok;
}

static void probe_reasoning(struct probe *p, struct chat_abilities *a)
{
    static const char *const fields[] = {"reasoning_content", "thinking", "reasoning"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields && !a->reasoning; i++)
        if (shows_reasoning(p, a, fields[i]))
            a->reasoning = fields[i];
    a->reasoning_part = !a->reasoning && shows_reasoning_part(p);
}

static void probe_system(struct probe *p, struct chat_abilities *a)
{
    a->system =
        shows(p, json_pack("[o, o]", message(p, "system", SYSTEM), user(p)), NULL, SYSTEM, NULL);
    a->system_again = shows_in_order(
        p,
        json_pack("[o, o, o]", message(p, "system", SYSTEM), message(p, "system", AGAIN), user(p)),
        SYSTEM, AGAIN);
    a->system_later = shows_in_order(p,
                                     json_pack("[o, o, o, o, o]", message(p, "system", SYSTEM),
                                               user(p), message(p, "assistant", ANSWER),
                                               message(p, "system", AGAIN), user(p)),
                                     ANSWER, AGAIN);
    a->developer =
        strstr(p->variant->source, "developer") &&
        shows(p, json_pack("[o, o]", message(p, "developer", SYSTEM), user(p)), NULL, SYSTEM, NULL);
}

/* After probe_calls: without calls there are no results. */
static void probe_user(struct probe *p, struct chat_abilities *a)
{
    a->user_again =
        shows_in_order(p, json_pack("[o, o]", user(p), message(p, "user", AGAIN)), USER, AGAIN);
    json_t *messages = call(p, arguments(a->object_arguments, VALUE));
    json_array_append_new(messages, message(p, "user", AGAIN));
    a->user_after_result =
        shows(p, messages, json_pack("[o]", tool()), AGAIN, NULL) || !a->tool_calls;
}

bool chat_probe(struct chat_variant *v, const json_t *trusted)
{
    struct probe p = {.variant = v, .trusted = trusted};
    struct chat_abilities *a = &v->abilities;
    probe_content(&p, a);
    probe_part_gap(&p, a);
    probe_system(&p, a);
    a->tools = shows(&p, json_pack("[o]", user(&p)), json_pack("[o]", tool()), TOOL, NULL);
    probe_calls(&p, a);
    a->several_calls = !a->tool_calls || shows_both(&p, a);
    a->ids_needed = a->tool_calls && !takes_no_ids(&p, a);
    a->ordinal_ids = a->tool_calls && shows_ordinal_ids(&p, a);
    probe_user(&p, a);
    probe_reasoning(&p, a);
    probe_call_text(&p, a);
    return !p.no_memory;
}
