/* Conversations; see chat_render.h. */
#include "client/http/model/chat_render.h"

#include "client/cli/chat.h"
#include "client/http/model/tool_messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct chat_model {
    struct moed_model *facts;
    char *bos, *eos;
    struct chat_template *template;
    struct chat_style style[2]; /* without tools, with tools */
};

static enum moed_code report(struct moed_error *out, const struct error *e)
{
    *out = (struct moed_error){.code = (enum moed_code)e->code};
    snprintf(out->message, sizeof out->message, "%s", e->text);
    return out->code;
}

void chat_model_free(struct chat_model *m)
{
    if (!m)
        return;
    chat_template_free(m->template);
    moed_model_free(m->facts);
    moed_free(m->bos);
    moed_free(m->eos);
    free(m);
}

struct chat_style chat_style_of(const struct moed_model *model, bool tools)
{
    const char *text =
        tools && *model->chat_template_tools ? model->chat_template_tools : model->chat_template;
    size_t len = strlen(text);
    return (struct chat_style){tool_format_detect(text, len), reasoning_detect(text, len)};
}

/* The text of a special token; NULL where the model has none. */
static enum moed_code token_text(struct moed_session *session, int64_t id, char **out,
                                 struct moed_error *error)
{
    uint32_t token = (uint32_t)id;
    size_t len;
    return id < 0 ? MOED_OK : moed_detokenize(session, &token, 1, true, out, &len, error);
}

static enum moed_code model_init(struct chat_model *m, struct moed_session *session,
                                 struct moed_error *error)
{
    struct error why;
    enum moed_code code = moed_model_get(session, &m->facts, error);
    if (!code)
        code = token_text(session, m->facts->bos, &m->bos, error);
    if (!code)
        code = token_text(session, m->facts->eos, &m->eos, error);
    if (code)
        return code;
    struct chat_source source = {.text = m->facts->chat_template,
                                 .tools = m->facts->chat_template_tools,
                                 .bos = m->bos,
                                 .eos = m->eos};
    if (chat_template_new(&source, &m->template, &why))
        return report(error, &why);
    m->style[0] = chat_style_of(m->facts, false);
    m->style[1] = chat_style_of(m->facts, true);
    return MOED_OK;
}

/* Sets d->chat. A session's worker may be replaced, but never by one of another model. */
static enum moed_code know_model(struct deployment *d, struct moed_error *error)
{
    if (d->chat)
        return MOED_OK;
    struct chat_model *m = calloc(1, sizeof *m);
    if (!m) {
        *error = (struct moed_error){.code = MOED_ERROR_MEMORY};
        snprintf(error->message, sizeof error->message, "no memory for the chat template");
        return MOED_ERROR_MEMORY;
    }
    enum moed_code code = model_init(m, d->session, error);
    if (code)
        chat_model_free(m);
    else
        d->chat = m;
    return code;
}

/* Whether the text of the answer that is continued began with reasoning that has no end. */
static bool continues_reasoning(const struct chat_request *q, const struct reasoning_marks *marks)
{
    const json_t *last = json_array_get(q->messages, json_array_size(q->messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    const char *text = json_string_value(json_object_get(last, "content"));
    if (!marks || !role || !text || strcmp(role, "assistant") != 0 || q->end == CHAT_END_ANSWER)
        return false;
    return strncmp(text, marks->begin, strlen(marks->begin)) == 0 && !strstr(text, marks->end);
}

static enum moed_code render(struct chat_model *m, struct moed_session *session,
                             const struct chat_request *q, struct chat_rendered *out,
                             struct moed_error *error)
{
    struct jinja_output text = {0};
    struct error why;
    if (chat_template_render(m->template, q, &text, &why))
        return report(error, &why);
    enum moed_code code =
        chat_tokenise(session, m->facts, &text, &out->tokens, &out->token_count, error);
    out->reasoning_open = reasoning_left_open(out->style.reasoning, text.text, text.len) ||
                          continues_reasoning(q, out->style.reasoning);
    jinja_output_fini(&text);
    return code;
}

enum moed_code chat_render(struct deployment *d, const struct chat_request *request,
                           struct chat_rendered *out, struct moed_error *error)
{
    struct chat_request q = *request;
    enum moed_code code = know_model(d, error);
    if (code)
        return code;
    bool tools = json_array_size(q.tools) > 0;
    const struct chat_abilities *can = chat_template_abilities(d->chat->template, tools);
    struct chat_rendered r = {.style = d->chat->style[tools]};
    bool describe = tools && (!can->tools || strcmp(r.style.format->name, "generic") == 0);
    if (describe)
        r.style.format = tool_format_find("generic");
    json_t *plain = NULL;
    if (describe || (!can->tool_calls && tool_messages_have_calls(q.messages))) {
        plain = tool_messages_plain(q.messages, describe ? q.tools : NULL);
        q.messages = plain;
        q.tools = NULL;
    }
    if (!q.messages) {
        *error = (struct moed_error){.code = MOED_ERROR_MEMORY};
        snprintf(error->message, sizeof error->message, "no memory for the conversation");
        return MOED_ERROR_MEMORY;
    }
    code = render(d->chat, d->session, &q, &r, error);
    json_decref(plain);
    if (!code)
        *out = r;
    return code;
}
