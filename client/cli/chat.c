/* Chat prompts; see chat.h. lib/chat makes the text and says which bytes are the request's; the
 * worker tokenises it whole, with special tokens only outside those bytes. */
#include "client/cli/chat.h"

#include "chat/chat_template.h"
#include "toolcall/formats.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct conversation {
    struct moed_session *session;
    const struct chat_options *options;
    struct moed_model *model;
    char *bos, *eos, *source; /* source: of the template's file */
    struct chat_template *template;
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

/* The text of a special token; "" where the model has none. */
static enum moed_code token_text(struct conversation *c, int64_t id, char **out)
{
    uint32_t token = (uint32_t)id;
    size_t len;
    if (id >= 0)
        return moed_detokenize(c->session, &token, 1, true, out, &len, c->error);
    *out = strdup("");
    return *out ? MOED_OK : no_memory(c);
}

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

static enum moed_code open_template(struct conversation *c)
{
    const char *path = c->options->template_file;
    struct error why;
    enum moed_code code = moed_model_get(c->session, &c->model, c->error);
    if (!code)
        code = token_text(c, c->model->bos, &c->bos);
    if (!code)
        code = token_text(c, c->model->eos, &c->eos);
    if (!code && path)
        code = read_file(c, path, &c->source);
    if (code)
        return code;
    struct chat_source source = {.text = path ? c->source : c->model->chat_template,
                                 .tools = path ? NULL : c->model->chat_template_tools,
                                 .bos = c->bos,
                                 .eos = c->eos};
    if (chat_template_new(&source, &c->template, &why))
        return refuse(c, (enum moed_code)why.code, "%s: give another one with --chat-template",
                      why.text);
    return MOED_OK;
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
    c->file = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    if (!c->file)
        return refuse(c, MOED_ERROR_USAGE, "%s, line %d: %s", path, why.line, why.text);
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

static enum chat_switch thinking(const struct conversation *c)
{
    const json_t *v = json_object_get(c->file, "enable_thinking");
    return json_is_true(v) ? CHAT_ON : json_is_false(v) ? CHAT_OFF : c->options->thinking;
}

static enum moed_code render(struct conversation *c, struct jinja_output *out)
{
    struct error why;
    struct chat_request q = {.messages = c->messages,
                             .tools = json_object_get(c->file, "tools"),
                             .kwargs = c->kwargs,
                             .reasoning_effort =
                                 json_string_value(json_object_get(c->file, "reasoning_effort")),
                             .thinking = thinking(c),
                             .now_s = -1};
    if (chat_template_render(c->template, &q, out, &why))
        return refuse(c, (enum moed_code)why.code, "%s", why.text);
    return MOED_OK;
}

/* How the answer to the prompt is written: its format, its marks of reasoning, and whether the
 * prompt leaves reasoning open. */
static void find_style(const struct conversation *c, const struct jinja_output *text,
                       struct chat_prompt *out)
{
    const char *source = c->source ? c->source : c->model->chat_template;
    size_t len = strlen(source);
    out->format = tool_format_detect(source, len);
    out->reasoning = reasoning_detect(source, len);
    if (out->reasoning && reasoning_left_open(out->reasoning, text->text, text->len))
        out->reasoning_end = out->reasoning->end;
}

/* ---- The tokens ---- */

static enum moed_code fail_memory(struct moed_error *error)
{
    *error = (struct moed_error){.code = MOED_ERROR_MEMORY};
    snprintf(error->message, sizeof error->message, "no memory for the conversation");
    return MOED_ERROR_MEMORY;
}

/* Puts the begin token in front, if the model's texts have one and the template did not write it.
 */
static enum moed_code add_begin(struct moed_session *session, int64_t bos, uint32_t **tokens,
                                size_t *count, struct moed_error *error)
{
    uint32_t *begin;
    size_t n;
    if (bos < 0 || (*count && (*tokens)[0] == (uint32_t)bos))
        return MOED_OK;
    enum moed_code code = moed_tokenize(session, "", 0, MOED_ADD_SPECIAL, &begin, &n, error);
    if (code)
        return code;
    bool adds = n > 0 && begin[0] == (uint32_t)bos;
    moed_free(begin);
    if (!adds)
        return MOED_OK;
    uint32_t *grown = realloc(*tokens, (*count + 1) * sizeof *grown);
    if (!grown)
        return fail_memory(error);
    memmove(grown + 1, grown, *count * sizeof *grown);
    grown[0] = (uint32_t)bos;
    *tokens = grown;
    ++*count;
    return MOED_OK;
}

enum moed_code chat_tokenise(struct moed_session *session, const struct moed_model *model,
                             const struct jinja_output *text, uint32_t **tokens,
                             size_t *token_count, struct moed_error *error)
{
    struct moed_range *plain = calloc(text->range_count + 1, sizeof *plain);
    uint32_t *ids = NULL;
    size_t count = 0;
    if (!plain)
        return fail_memory(error);
    for (size_t i = 0; i < text->range_count; i++)
        plain[i] = (struct moed_range){text->ranges[i].start, text->ranges[i].end};
    enum moed_code code = moed_tokenize_ranges(session, text->text, text->len, MOED_PARSE_SPECIAL,
                                               plain, text->range_count, &ids, &count, error);
    free(plain);
    if (!code)
        code = add_begin(session, model->bos, &ids, &count, error);
    if (code) {
        moed_free(ids);
        return code;
    }
    *tokens = ids;
    *token_count = count;
    return MOED_OK;
}

static void conversation_fini(struct conversation *c)
{
    chat_template_free(c->template);
    moed_model_free(c->model);
    moed_free(c->bos);
    moed_free(c->eos);
    free(c->source);
    json_decref(c->file);
    json_decref(c->messages);
    json_decref(c->kwargs);
}

enum moed_code chat_prompt(struct moed_session *session, const struct chat_options *options,
                           const char *text, size_t text_bytes, struct chat_prompt *out,
                           struct moed_error *error)
{
    struct conversation c = {.session = session, .options = options, .error = error};
    struct jinja_output rendered = {0};
    enum moed_code code = open_template(&c);
    if (!code)
        code = read_messages(&c);
    if (!code)
        code = parse_kwargs(&c);
    if (!code)
        code = add_messages(&c, text, text_bytes);
    if (!code)
        code = render(&c, &rendered);
    struct chat_prompt prompt = {.plain = c.template && chat_template_is_plain(c.template)};
    if (!code)
        find_style(&c, &rendered, &prompt);
    if (!code)
        code = chat_tokenise(session, c.model, &rendered, &prompt.tokens, &prompt.count, c.error);
    if (!code)
        *out = prompt;
    jinja_output_fini(&rendered);
    conversation_fini(&c);
    return code;
}

struct moed_grammar chat_prompt_bind(const struct chat_prompt *prompt,
                                     const struct moed_grammar *grammar)
{
    struct moed_grammar bound = *grammar;
    if (prompt->reasoning_end) {
        bound.trigger = prompt->reasoning_end;
        bound.trigger_bytes = strlen(prompt->reasoning_end);
        bound.trigger_required = true;
    }
    return bound;
}
