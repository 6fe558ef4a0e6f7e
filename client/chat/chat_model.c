/* Conversations to prompts; see chat_model.h. */
#include "client/chat/chat_model.h"

#include "client/chat/prompt_length.h"

#include "chat/message.h"
#include "chat/tool_messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct chat_model {
    struct moed_model *facts;
    char *bos, *eos;
    struct chat_template *template;
    json_t *defaults;           /* the deployment's chat_template_kwargs; NULL: none */
    struct chat_style style[2]; /* without tools, with tools */
};

static enum moed_code report(struct moed_error *out, const struct error *e)
{
    if (out) {
        *out = (struct moed_error){.code = (enum moed_code)e->code};
        snprintf(out->message, sizeof out->message, "%s", e->text);
    }
    return (enum moed_code)e->code;
}

static enum moed_code no_memory(struct moed_error *out)
{
    const struct error e = {.code = ERROR_MEMORY, .text = "no memory for the conversation"};
    return report(out, &e);
}

/* ---- The model ---- */

void chat_model_free(struct chat_model *m)
{
    if (!m)
        return;
    chat_template_free(m->template);
    json_decref(m->defaults);
    moed_model_free(m->facts);
    moed_free(m->bos);
    moed_free(m->eos);
    free(m);
}

/* The text of a special token; NULL where the model has none. */
static enum moed_code token_text(struct moed_session *session, int64_t id, char **out,
                                 struct moed_error *error)
{
    uint32_t token = (uint32_t)id;
    size_t len;
    return id < 0 ? MOED_OK : moed_detokenize(session, &token, 1, true, out, &len, error);
}

/* The deployment's variables of the template. */
static enum moed_code read_defaults(struct chat_model *m, struct moed_error *error)
{
    struct error why;
    const char *text = m->facts->chat_template_kwargs;
    if (!*text)
        return MOED_OK;
    m->defaults = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(m->defaults))
        return MOED_OK;
    error_set(&why, ERROR_USAGE, "--chat-template-kwargs: %.100s is no JSON object", text);
    return report(error, &why);
}

static enum moed_code model_init(struct chat_model *m, struct moed_session *session,
                                 const char *text, struct moed_error *error)
{
    struct error why;
    enum moed_code code = moed_model_get(session, &m->facts, error);
    if (!code)
        code = token_text(session, m->facts->bos, &m->bos, error);
    if (!code)
        code = token_text(session, m->facts->eos, &m->eos, error);
    if (!code)
        code = read_defaults(m, error);
    if (code)
        return code;
    m->style[0] = text ? chat_style_of_text(text) : chat_style_of(m->facts, false);
    m->style[1] = text ? m->style[0] : chat_style_of(m->facts, true);
    struct chat_source source = {.text = text ? text : m->facts->chat_template,
                                 .tools = text ? NULL : m->facts->chat_template_tools,
                                 .calls = chat_style_calls(&m->style[1]),
                                 .bos = m->bos,
                                 .eos = m->eos};
    if (chat_template_new(&source, &m->template, &why))
        return report(error, &why);
    return MOED_OK;
}

enum moed_code chat_model_new(struct moed_session *session, const char *template_text,
                              struct chat_model **out, struct moed_error *error)
{
    struct chat_model *m = calloc(1, sizeof *m);
    if (!m)
        return no_memory(error);
    enum moed_code code = model_init(m, session, template_text, error);
    if (code)
        chat_model_free(m);
    else
        *out = m;
    return code;
}

bool chat_model_is_plain(const struct chat_model *m)
{
    return chat_template_is_plain(m->template);
}

uint32_t chat_model_context(const struct chat_model *m)
{
    return m->facts->context;
}

/* ---- The tokens ---- */

enum moed_code chat_begin_token(struct moed_session *session, int64_t bos, int64_t *out,
                                struct moed_error *error)
{
    uint32_t *ids = NULL;
    size_t n = 0;
    enum moed_code code =
        bos < 0 ? MOED_OK : moed_tokenize(session, "", 0, MOED_ADD_SPECIAL, &ids, &n, error);
    if (!code)
        *out = n && ids[0] == bos ? bos : -1;
    moed_free(ids);
    return code;
}

/* Puts the begin token in front, if the model's texts have one and the template did not write it.
 */
static enum moed_code add_begin(struct moed_session *session, int64_t bos, uint32_t **tokens,
                                size_t *count, struct moed_error *error)
{
    int64_t begin = -1;
    if (*count && (*tokens)[0] == bos)
        return MOED_OK;
    enum moed_code code = chat_begin_token(session, bos, &begin, error);
    if (code || begin < 0)
        return code;
    uint32_t *grown = realloc(*tokens, (*count + 1) * sizeof *grown);
    if (!grown)
        return no_memory(error);
    memmove(grown + 1, grown, *count * sizeof *grown);
    grown[0] = (uint32_t)begin;
    *tokens = grown;
    ++*count;
    return MOED_OK;
}

static enum moed_code tokenise(struct moed_session *session, const struct moed_model *model,
                               struct chat_rendered *r, struct moed_error *error)
{
    uint32_t *ids = NULL;
    size_t count = 0;
    enum moed_code code = moed_tokenize_ranges(session, r->text, r->text_bytes, MOED_PARSE_SPECIAL,
                                               r->plain, r->plain_count, &ids, &count, error);
    if (!code)
        code = add_begin(session, model->bos, &ids, &count, error);
    if (code) {
        moed_free(ids);
        return code;
    }
    r->tokens = ids;
    r->token_count = count;
    return MOED_OK;
}

/* ---- The prompt ---- */

static bool is_open_reasoning(const char *text, const struct reasoning_marks *marks)
{
    return strncmp(text, marks->begin, strlen(marks->begin)) == 0 && !strstr(text, marks->end);
}

/* Whether the text of the answer that is continued began with reasoning that has no end. The
 * template has taken the messages: parts have texts. */
static bool continues_reasoning(const struct chat_request *q, const struct reasoning_marks *marks)
{
    const json_t *last = json_array_get(q->messages, json_array_size(q->messages) - 1);
    json_t *content = json_object_get(last, "content");
    const char *role = json_string_value(json_object_get(last, "role"));
    if (!marks || !role || strcmp(role, "assistant") != 0 || q->end == CHAT_END_ANSWER)
        return false;
    json_t *text = message_text(content);
    bool open = text && is_open_reasoning(json_string_value(text), marks);
    json_decref(text);
    return open;
}

/* Moves the text. False: no memory. */
static bool take_text(struct jinja_output *text, struct chat_rendered *out)
{
    out->plain = calloc(text->range_count + 1, sizeof *out->plain);
    if (!out->plain)
        return false;
    for (size_t i = 0; i < text->range_count; i++)
        out->plain[i] = (struct moed_range){text->ranges[i].start, text->ranges[i].end};
    out->plain_count = text->range_count;
    out->text = text->text;
    out->text_bytes = text->len;
    text->text = NULL;
    return true;
}

static enum moed_code write_text(const struct chat_model *m, const struct chat_request *q,
                                 struct chat_rendered *out, struct moed_error *error)
{
    struct jinja_output text = {0};
    struct error why;
    const struct reasoning_marks *marks = out->style.reasoning;
    struct chat_request own = *q;
    own.in_reasoning = marks != NULL; /* of Harmony an answer begins with a header */
    if (chat_template_render(m->template, &own, &text, &out->inside, &why))
        return report(error, &why);
    out->reasoning_open = reasoning_left_open(marks, text.text, text.len) ||
                          out->inside == CHAT_IN_REASONING || continues_reasoning(q, marks);
    out->reasoning_closed = reasoning_left_closed(marks, text.text, text.len);
    bool taken = take_text(&text, out);
    jinja_output_fini(&text);
    return taken ? MOED_OK : no_memory(error);
}

static bool ends_with_calls(const json_t *messages)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    return json_array_size(json_object_get(last, "tool_calls")) > 0;
}

/* The messages without calls and results, in *out, owned by the caller. */
static enum moed_code make_plain(const json_t *messages, const json_t *tools, json_t **out,
                                 struct moed_error *error)
{
    struct error why;
    json_t *joined;
    if (messages_join_parts(messages, &joined, &why))
        return report(error, &why);
    *out = tool_messages_plain(joined, tools);
    json_decref(joined);
    return *out ? MOED_OK : no_memory(error);
}

enum moed_code chat_model_write(const struct chat_model *m, const struct chat_request *request,
                                struct chat_rendered *out, struct moed_error *error)
{
    struct chat_request q = *request;
    q.defaults = m->defaults;
    bool tools = json_array_size(q.tools) > 0;
    const struct chat_abilities *can = chat_template_abilities(m->template, tools);
    struct chat_rendered r = {.style = m->style[tools]};
    bool describe = tools && (!can->tools || strcmp(r.style.format->name, "generic") == 0);
    if (describe)
        r.style.format = tool_format_find("generic");
    json_t *plain = NULL;
    if (q.end == CHAT_END_AUTO && ends_with_calls(q.messages))
        q.end = CHAT_END_ANSWER; /* also where the calls become text */
    if (describe || (!can->tool_calls && tool_messages_have_calls(q.messages))) {
        enum moed_code code = make_plain(q.messages, describe ? q.tools : NULL, &plain, error);
        if (code)
            return code;
        q.messages = plain;
    }
    if (describe)
        q.tools = NULL;
    enum moed_code code = write_text(m, &q, &r, error);
    json_decref(plain);
    if (!code)
        *out = r;
    return code;
}

enum moed_code chat_model_render(const struct chat_model *m, struct moed_session *session,
                                 const struct chat_request *request, struct chat_rendered *out,
                                 struct moed_error *error)
{
    struct chat_rendered r;
    enum moed_code code = chat_model_write(m, request, &r, error);
    if (code)
        return code;
    struct moed_error own;
    error = error ? error : &own;
    code = tokenise(session, m->facts, &r, error);
    if (code)
        code = prompt_length_explain(session, r.text, r.text_bytes, error);
    free(r.text);
    free(r.plain);
    r.text = NULL;
    r.plain = NULL;
    r.text_bytes = r.plain_count = 0;
    if (!code)
        *out = r;
    return code;
}
