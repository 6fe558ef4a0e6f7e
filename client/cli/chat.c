/* Chat prompts out of the command line's options; see chat.h. */
#include "client/cli/chat.h"

#include "chat/effort.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct conversation {
    struct moed_session *session;
    const struct chat_options *options;
    struct chat_model *model;
    char *source;                     /* of the template's file; NULL: the model's template */
    json_t *file, *messages, *kwargs; /* file: of --messages, or NULL */
    struct moed_error *error;
};

static enum moed_code refuse(struct conversation *c, enum moed_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static enum moed_code refuse(struct conversation *c, enum moed_code code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    *c->error = (struct moed_error){.code = code};
    vsnprintf(c->error->message, sizeof c->error->message, format, args);
    va_end(args);
    return code;
}

static enum moed_code no_memory(struct conversation *c)
{
    return refuse(c, MOED_ERROR_MEMORY, "no memory for the conversation");
}

/* ---- The template ---- */

static enum moed_code read_file(struct conversation *c, const char *path, char **out)
{
    FILE *f = fopen(path, "r");
    char *text = NULL, block[4096];
    size_t len = 0;
    if (!f)
        return refuse(c, MOED_ERROR_NOT_FOUND, "cannot read %s: %m", path);
    FILE *copy = open_memstream(&text, &len);
    for (size_t n; copy && (n = fread(block, 1, sizeof block, f)) > 0;)
        fwrite(block, 1, n, copy);
    bool ok = !ferror(f) && copy && fclose(copy) == 0;
    fclose(f);
    if (ok && strlen(text) == len) {
        *out = text;
        return MOED_OK;
    }
    free(text);
    return refuse(c, MOED_ERROR_IO, "cannot read %s: it is no text file", path);
}

static enum moed_code open_model(struct conversation *c)
{
    const char *path = c->options->template_file;
    if (c->model)
        return MOED_OK;
    enum moed_code code = path ? read_file(c, path, &c->source) : MOED_OK;
    if (!code)
        code = chat_model_new(c->session, c->source, &c->model, c->error);
    bool template = code == MOED_ERROR_FORMAT || code == MOED_ERROR_UNSUPPORTED;
    if (template) {
        struct moed_error why = *c->error;
        refuse(c, code, "%.400s: give another one with --chat-template", why.message);
    }
    return code;
}

/* ---- The messages ---- */

static enum moed_code parse_kwargs(struct conversation *c)
{
    json_error_t why;
    const json_t *own = json_object_get(c->file, "chat_template_kwargs");
    const char *text = c->options->kwargs;
    c->kwargs = json_is_object(own) ? json_deep_copy(own) : json_object();
    if (!c->kwargs)
        return no_memory(c);
    if (!text)
        return MOED_OK;
    json_t *given = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    int failed = json_is_object(given) ? json_object_update(c->kwargs, given) : -1;
    json_decref(given);
    if (failed)
        return refuse(c, MOED_ERROR_USAGE, "--chat-template-kwargs: %s is no JSON object", text);
    return MOED_OK;
}

static enum moed_code read_messages(struct conversation *c)
{
    const char *path = c->options->messages_file;
    json_error_t why;
    if (!path) {
        c->messages = c->options->messages ? json_deep_copy(c->options->messages) : json_array();
        return c->messages ? MOED_OK : no_memory(c);
    }
    errno = 0;
    c->file = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    if (!c->file && why.line > 0)
        return refuse(c, MOED_ERROR_USAGE, "%s, line %d: %s", path, why.line, why.text);
    if (!c->file) /* jansson's text has the path, but not all causes */
        return refuse(c, MOED_ERROR_USAGE, "cannot read %s: %s", path,
                      errno ? strerror(errno) : why.text);
    json_t *list = json_is_array(c->file) ? c->file : json_object_get(c->file, "messages");
    if (!json_is_array(list))
        return refuse(c, MOED_ERROR_USAGE, "%s: it has no list of messages", path);
    c->messages = json_deep_copy(list);
    return c->messages ? MOED_OK : no_memory(c);
}

static enum moed_code add_messages(struct conversation *c, const char *text, size_t len)
{
    const char *system = c->options->system;
    json_t *first = system ? json_pack("{s:s, s:s}", "role", "system", "content", system) : NULL;
    if (system && (!first || json_array_insert_new(c->messages, 0, first)))
        return refuse(c, MOED_ERROR_USAGE, "the system message is not UTF-8");
    json_t *turn = len ? json_pack("{s:s, s:s%}", "role", "user", "content", text, len) : NULL;
    if (len && (!turn || json_array_append_new(c->messages, turn)))
        return refuse(c, MOED_ERROR_USAGE, "the prompt is not UTF-8, which a chat template takes");
    if (json_array_size(c->messages) == 0)
        return refuse(c, MOED_ERROR_USAGE, "the prompt is empty");
    return MOED_OK;
}

static enum chat_switch own_switch(const struct conversation *c)
{
    const json_t *v = json_object_get(c->file, "enable_thinking");
    return json_is_true(v) ? CHAT_ON : json_is_false(v) ? CHAT_OFF : c->options->thinking;
}

static enum moed_code render(struct conversation *c, struct chat_rendered *out)
{
    const char *effort = json_string_value(json_object_get(c->file, "reasoning_effort"));
    enum chat_switch of_effort = chat_effort_switch(effort);
    struct chat_request q = {.messages = c->messages,
                             .tools = json_object_get(c->file, "tools"),
                             .kwargs = c->kwargs,
                             .reasoning_effort = of_effort == CHAT_OFF ? NULL : effort,
                             .thinking = chat_thinking(own_switch(c), of_effort, c->kwargs),
                             .now_s = -1};
    return chat_model_write(c->model, &q, out, c->error);
}

static void conversation_fini(struct conversation *c)
{
    free(c->source);
    json_decref(c->file);
    json_decref(c->messages);
    json_decref(c->kwargs);
}

enum moed_code chat_prompt(struct moed_session *session, const struct chat_options *options,
                           const char *text, size_t text_bytes, struct chat_model **model,
                           struct chat_prompt *out, struct moed_error *error)
{
    struct conversation c = {
        .session = session, .options = options, .model = *model, .error = error};
    struct chat_rendered r;
    enum moed_code code = open_model(&c);
    if (!code)
        code = read_messages(&c);
    if (!code)
        code = parse_kwargs(&c);
    if (!code)
        code = add_messages(&c, text, text_bytes);
    if (!code)
        code = render(&c, &r);
    if (!code)
        *out = (struct chat_prompt){
            .text = r.text,
            .bytes = r.text_bytes,
            .ranges = r.plain,
            .range_count = r.plain_count,
            .plain = chat_model_is_plain(c.model),
            .style = r.style,
            .reasoning_end = r.reasoning_open ? r.style.reasoning->end : NULL,
        };
    *model = c.model;
    conversation_fini(&c);
    return code;
}

void chat_prompt_fini(struct chat_prompt *prompt)
{
    free(prompt->text);
    free(prompt->ranges);
}

void chat_prompt_apply(const struct chat_prompt *prompt, struct moed_generate_options *options)
{
    options->prompt = prompt->text;
    options->prompt_bytes = prompt->bytes;
    options->plain = prompt->ranges;
    options->plain_count = prompt->range_count;
    options->parse_special = true;
}

struct moed_grammar chat_prompt_bind(const struct chat_prompt *prompt,
                                     const struct moed_grammar *grammar)
{
    struct moed_grammar bound = *grammar;
    if (prompt->reasoning_end) {
        bound.trigger = prompt->reasoning_end;
        bound.trigger_required = true;
    }
    return bound;
}
