/* The rendering of a request. See chat_template.h. */
#include "chat/internal.h"
#include "chat/message.h"

#include "base/json_space.h"

#include <stdlib.h>
#include <string.h>

/* Roles are no text of a user: templates make tokens of them, such as <|user|>. */
static const char *const roles[] = {"system",   "developer", "user",    "assistant",
                                    "tool",     "function",  "ipython", "observation",
                                    "document", "model",     NULL};

/* ---- The variables of a render ---- */

static bool is_last_assistant(const json_t *messages)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    return role && strcmp(role, "assistant") == 0 && !json_object_get(last, "tool_calls");
}

static bool has_text(const json_t *message)
{
    json_t *text = message_text(json_object_get(message, "content"));
    bool has = json_string_length(text) > 0;
    json_decref(text);
    return has;
}

/* The last message is an answer that was cut inside its reasoning. */
static bool is_last_reasoning(const json_t *messages)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    return is_last_assistant(messages) && !has_text(last) &&
           json_string_length(message_reasoning(last)) > 0;
}

/* An assistant's message without text is nothing to continue: the answer begins in its place. */
static void drop_empty_last(json_t *messages)
{
    size_t last = json_array_size(messages) - 1;
    if (last > 0 && is_last_assistant(messages) && !has_text(json_array_get(messages, last)))
        json_array_remove(messages, last);
}

static bool set_switches(json_t *values, const struct chat_request *q)
{
    bool ok = true;
    if (q->thinking != CHAT_UNSET) { /* DeepSeek's templates call it `thinking` */
        ok = !json_object_set_new(values, "enable_thinking", json_boolean(q->thinking == CHAT_ON));
        ok &= !json_object_set_new(values, "thinking", json_boolean(q->thinking == CHAT_ON));
    }
    if (q->reasoning_effort)
        ok &= !json_object_set_new(values, "reasoning_effort", json_string(q->reasoning_effort));
    return ok;
}

/* NULL: no memory, or text that is not UTF-8. */
static json_t *variables(const struct chat_variant *v, const struct chat_request *q,
                         json_t *messages, bool answer)
{
    json_t *values = json_object();
    bool ok = values && (!q->defaults || !json_object_update(values, (json_t *)q->defaults));
    ok = ok && set_switches(values, q);
    if (ok && q->kwargs)
        ok = !json_object_update(values, (json_t *)q->kwargs);
    ok = ok && !json_object_set(values, "messages", messages);
    ok = ok && !json_object_set_new(values, "add_generation_prompt", json_boolean(answer));
    if (ok && json_array_size(q->tools))
        ok = !json_object_set_new(values, "tools", chat_tools_fit(q->tools));
    else if (ok && v->abilities.tools_needed)
        ok = !json_object_set_new(values, "tools", json_array());
    if (ok)
        return values;
    json_decref(values);
    return NULL;
}

/* ---- Continuing the last message ---- */

static void cut(struct jinja_output *out, size_t len)
{
    out->len = len;
    out->text[len] = '\0';
    while (out->range_count && out->ranges[out->range_count - 1].start >= len)
        out->range_count--;
    if (out->range_count && out->ranges[out->range_count - 1].end > len)
        out->ranges[out->range_count - 1].end = len;
}

/* The table of Knuth, Morris and Pratt for a search from the end: [i] is the length of the longest
 * text, shorter than i, that both begins and ends the last i bytes of the part. NULL: no memory. */
static uint32_t *repeats_at_end(const char *part, size_t n)
{
    uint32_t *behind = calloc(n + 1, sizeof *behind);
    for (size_t i = 2, k = 0; behind && i <= n; i++) {
        while (k > 0 && part[n - i] != part[n - 1 - k])
            k = behind[k];
        k += part[n - i] == part[n - 1 - k];
        behind[i] = (uint32_t)k;
    }
    return behind;
}

/* The number of ranges that begin at or before this place; `count` do so at a later place. */
static size_t ranges_to(const struct jinja_output *out, size_t count, size_t at)
{
    while (count > 0 && out->ranges[count - 1].start > at)
        count--;
    return count;
}

/* The last place of part[0..n) whose first byte is the request's, in linear time: templates put
 * their own text inside a message's, too. *range: that byte's. False: none. */
static bool find_last(const struct jinja_output *out, const char *part, size_t n,
                      const uint32_t *behind, size_t *at, size_t *range)
{
    size_t k = 0, count = out->range_count;
    for (size_t i = out->len; i-- > 0;) {
        count = ranges_to(out, count, i);
        while (k > 0 && out->text[i] != part[n - 1 - k])
            k = behind[k];
        k += out->text[i] == part[n - 1 - k];
        if (k < n)
            continue;
        if (count > 0 && i < out->ranges[count - 1].end) {
            *at = i;
            *range = count - 1;
            return true;
        }
        k = behind[n];
    }
    return false;
}

/* Whether this byte is the request's. *range: of an earlier byte; it moves on. */
static bool is_request(const struct jinja_output *out, size_t at, size_t *range)
{
    while (*range < out->range_count && out->ranges[*range].end <= at)
        ++*range;
    return *range < out->range_count && at >= out->ranges[*range].start;
}

/* Ends the output behind the last message's text, or its reasoning: templates may trim it. */
static enum error_code end_inside(struct jinja_output *out, const json_t *content, struct error *e)
{
    const char *text = json_string_value(content);
    size_t len = json_string_length(content), at, range;
    if (json_is_array(content)) { /* of a template that takes parts only: its last part */
        content = json_object_get(json_array_get(content, json_array_size(content) - 1), "text");
        text = json_string_value(content);
        len = json_string_length(content);
    }
    size_t n = len;
    const char *shown = json_space_trim(text, &n);
    bool found = false;
    if (n > 0 && n <= out->len && n < UINT32_MAX) {
        uint32_t *behind = repeats_at_end(shown, n);
        if (!behind)
            return error_set(e, ERROR_MEMORY, "no memory for a conversation");
        found = find_last(out, shown, n, behind, &at, &range);
        free(behind);
    }
    if (found) {
        const char *rest = shown + n;
        size_t end = at + n;
        while (rest < text + len && end < out->len && out->text[end] == *rest &&
               is_request(out, end, &range))
            rest++, end++;
        cut(out, end);
        return ERROR_OK;
    }
    return error_set(e, ERROR_USAGE,
                     "the last message is the assistant's, but the model's chat template does not "
                     "show its text or reasoning: it cannot be continued");
}

/* ---- Rendering ---- */

#define STEPS_A_PAIR UINT64_C(50)
#define STEPS_MAX    UINT64_C(100000000) /* 2 to 3 s, in which the model's other requests wait */

struct jinja_limits chat_limits(size_t messages)
{
    struct jinja_limits limits = jinja_default_limits;
    uint64_t pairs, more;
    bool many = __builtin_mul_overflow((uint64_t)messages, messages, &pairs) ||
                __builtin_mul_overflow(pairs, STEPS_A_PAIR, &more) ||
                more > STEPS_MAX - limits.steps;
    limits.steps = many ? STEPS_MAX : limits.steps + more;
    return limits;
}

/* The text that the prompt ends in; borrowed. */
static const json_t *continued(const json_t *messages, enum chat_inside inside)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    return inside == CHAT_IN_REASONING ? message_reasoning(last) : json_object_get(last, "content");
}

static enum error_code render_messages(const struct chat_template *t, const struct chat_variant *v,
                                       const struct chat_request *q, json_t *messages,
                                       enum chat_inside inside, struct jinja_output *out,
                                       struct error *e)
{
    json_t *values = variables(v, q, messages, !inside && q->end != CHAT_END_CLOSED);
    if (!values)
        return error_set(e, ERROR_MEMORY, "no memory for a conversation");
    const struct jinja_limits limits = chat_limits(json_array_size(messages));
    struct jinja_input input = {.request = values,
                                .trusted = t->trusted,
                                .words = roles,
                                .now_s = q->now_s,
                                .limits = q->limits ? q->limits : &limits};
    enum error_code code = jinja_render(v->jinja, &input, out, e);
    if (code)
        error_prefix(e, "the chat template refuses the conversation");
    json_decref(values);
    return code;
}

/* Renders the messages, and ends the prompt there. */
static enum error_code render_to(const struct chat_template *t, const struct chat_variant *v,
                                 const struct chat_request *q, json_t *messages,
                                 enum chat_inside inside, struct jinja_output *out, struct error *e)
{
    enum error_code code = render_messages(t, v, q, messages, inside, out, e);
    if (code || !inside)
        return code;
    code = end_inside(out, continued(messages, inside), e);
    if (code)
        jinja_output_fini(out);
    return code;
}

/* A copy of the last message with a mark as its reasoning, wherever that stands. NULL: no memory.
 */
static json_t *with_mark(const json_t *last, const char *mark)
{
    static const char *const names[] = {"reasoning_content", "reasoning", "thinking"};
    json_t *copy = json_deep_copy(last);
    json_t *part = json_array_get(json_object_get(copy, "content"), 0);
    int failed = !copy;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (json_object_get(copy, names[i]))
            failed |= json_object_set_new(copy, names[i], json_string(mark));
    if (json_object_get(part, "thinking"))
        failed |= json_object_set_new(part, "thinking", json_string(mark));
    if (!failed)
        return copy;
    json_decref(copy);
    return NULL;
}

/* Whether the template shows the last message's reasoning: its text may also stand elsewhere. */
static bool shows_last_reasoning(const struct chat_template *t, const struct chat_variant *v,
                                 const struct chat_request *q, const json_t *messages)
{
    static const char mark[] = "mark-of-the-last-reasoning";
    size_t last = json_array_size(messages) - 1;
    struct jinja_output out;
    json_t *marked = json_copy((json_t *)messages);
    bool shown =
        marked &&
        json_array_set_new(marked, last, with_mark(json_array_get(messages, last), mark)) == 0 &&
        render_messages(t, v, q, marked, CHAT_IN_REASONING, &out, NULL) == ERROR_OK;
    if (shown) {
        shown = strstr(out.text, mark) != NULL;
        jinja_output_fini(&out);
    }
    json_decref(marked);
    return shown;
}

static enum error_code render(const struct chat_template *t, const struct chat_variant *v,
                              const struct chat_request *q, json_t *messages,
                              struct jinja_output *out, enum chat_inside *where, struct error *e)
{
    bool automatic = q->end == CHAT_END_AUTO, forced = q->end == CHAT_END_CONTINUE;
    enum chat_inside inside = CHAT_IN_REASONING;
    if (!q->in_reasoning || !(automatic || forced) || !is_last_reasoning(messages) ||
        !shows_last_reasoning(t, v, q, messages)) {
        if (automatic)
            drop_empty_last(messages);
        bool assistant = is_last_assistant(messages);
        inside = forced || (automatic && assistant) ? CHAT_IN_TEXT : CHAT_OUTSIDE;
        if (inside && !assistant)
            return error_set(e, ERROR_USAGE,
                             "only a last message of the assistant can be continued");
    }
    enum error_code code = render_to(t, v, q, messages, inside, out, e);
    if (!code && where)
        *where = inside;
    return code;
}

enum error_code chat_template_render(const struct chat_template *t, const struct chat_request *q,
                                     struct jinja_output *out, enum chat_inside *inside,
                                     struct error *e)
{
    bool tools = json_array_size(q->tools) > 0;
    const struct chat_variant *v = chat_choose_variant(t, tools);
    json_t *messages;
    if (tools && !v->abilities.tools)
        return error_set(e, ERROR_UNSUPPORTED, "the model's chat template does not show tools");
    if (q->kwargs && !json_is_object(q->kwargs))
        return error_set(e, ERROR_USAGE, "chat_template_kwargs is no object");
    if (json_object_size(q->kwargs) > CHAT_KWARGS_MAX)
        return error_set(e, ERROR_USAGE, "chat_template_kwargs has %zu keys: at most %d are taken",
                         json_object_size(q->kwargs), CHAT_KWARGS_MAX);
    enum error_code code = chat_messages_fit(&v->abilities, q->messages, &messages, e);
    if (code)
        return code;
    code = render(t, v, q, messages, out, inside, e);
    json_decref(messages);
    return code;
}
