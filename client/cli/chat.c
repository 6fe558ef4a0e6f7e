/* Chat prompts; see chat.h. Each part is tokenised on its own: only the marks may become special
 * tokens. "user", the newline and the text are one part, because a tokenizer may join them. */
#include "client/cli/chat.h"

#include "base/strbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TURN_BEGIN "<|im_start|>"
#define TURN_END   "<|im_end|>"

struct chat {
    struct moed_session *session;
    uint32_t *ids; /* the prompt so far */
    size_t count;
    uint32_t begin, end; /* the marks */
    struct moed_error *error;
};

static enum moed_code refuse(struct chat *c, enum moed_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static enum moed_code refuse(struct chat *c, enum moed_code code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    *c->error = (struct moed_error){.code = code};
    vsnprintf(c->error->message, sizeof c->error->message, format, args);
    va_end(args);
    return code;
}

static enum moed_code add_ids(struct chat *c, const uint32_t *ids, size_t n)
{
    uint32_t *grown = realloc(c->ids, (c->count + n + 1) * sizeof *grown);
    if (!grown)
        return refuse(c, MOED_ERROR_MEMORY, "no memory for the prompt");
    c->ids = grown;
    for (size_t i = 0; i < n; i++)
        c->ids[c->count++] = ids[i];
    return MOED_OK;
}

/* Text in which a mark's text is nothing special. */
static enum moed_code add_text(struct chat *c, const char *text, size_t len)
{
    uint32_t *ids;
    size_t n;
    enum moed_code code = moed_tokenize(c->session, text, len, 0, &ids, &n, c->error);
    if (code)
        return code;
    for (size_t i = 0; i < n && !code; i++)
        if (ids[i] == c->begin || ids[i] == c->end)
            code = refuse(c, MOED_ERROR_UNSUPPORTED,
                          "this model takes " TURN_BEGIN " and " TURN_END
                          " in a text for the marks of a turn: leave them out of the prompt");
    if (!code)
        code = add_ids(c, ids, n);
    moed_free(ids);
    return code;
}

/* The one token of a mark. Also adds the begin token where the model's texts have one and `first`. */
static enum moed_code find_mark(struct chat *c, const char *mark, bool first, uint32_t *id)
{
    uint32_t *plain = NULL, *whole = NULL;
    size_t n_plain = 0, n_whole = 0, len = strlen(mark);
    enum moed_code code =
        moed_tokenize(c->session, mark, len, MOED_PARSE_SPECIAL, &plain, &n_plain, c->error);
    if (!code && n_plain != 1)
        code = refuse(c, MOED_ERROR_UNSUPPORTED,
                      "the model's vocabulary has no token %s, with which its chat template marks "
                      "turns: ask it without --chat",
                      mark);
    if (!code && first)
        code = moed_tokenize(c->session, mark, len, MOED_PARSE_SPECIAL | MOED_ADD_SPECIAL, &whole,
                             &n_whole, c->error);
    if (!code)
        *id = plain[0];
    if (!code && n_whole > 1 && whole[1] == plain[0])
        code = add_ids(c, whole, 1);
    moed_free(plain);
    moed_free(whole);
    return code;
}

static enum moed_code check_template(struct chat *c)
{
    struct moed_model *model;
    enum moed_code code = moed_model_get(c->session, &model, c->error);
    if (code)
        return code;
    const char *template = model->chat_template;
    if (!*template)
        code = refuse(c, MOED_ERROR_UNSUPPORTED,
                      "the model has no chat template: ask it without --chat");
    else if (!strstr(template, TURN_BEGIN) || !strstr(template, TURN_END))
        code = refuse(c, MOED_ERROR_UNSUPPORTED,
                      "the model's chat template is not of the kind that --chat knows "
                      "(" TURN_BEGIN " ... " TURN_END "): write its turns into the prompt and use "
                      "--special");
    moed_model_free(model);
    return code;
}

static enum moed_code add_user_turn(struct chat *c, const char *text, size_t len)
{
    struct strbuf turn;
    strbuf_init(&turn);
    strbuf_printf(&turn, "user\n");
    strbuf_append(&turn, text, len);
    enum moed_code code = turn.failed ? refuse(c, MOED_ERROR_MEMORY, "no memory for the prompt")
                                      : add_text(c, turn.data, turn.len);
    strbuf_fini(&turn);
    return code;
}

static enum moed_code build(struct chat *c, const char *text, size_t len)
{
    enum moed_code code = check_template(c);
    if (!code)
        code = find_mark(c, TURN_BEGIN, true, &c->begin);
    if (!code)
        code = find_mark(c, TURN_END, false, &c->end);
    if (!code)
        code = add_ids(c, &c->begin, 1);
    if (!code)
        code = add_user_turn(c, text, len);
    if (!code)
        code = add_ids(c, &c->end, 1);
    if (!code)
        code = add_text(c, "\n", 1);
    if (!code)
        code = add_ids(c, &c->begin, 1);
    return code ? code : add_text(c, "assistant\n", strlen("assistant\n"));
}

enum moed_code chat_prompt(struct moed_session *session, const char *text, size_t text_bytes,
                           uint32_t **tokens, size_t *token_count, struct moed_error *error)
{
    struct chat c = {.session = session, .error = error};
    enum moed_code code = build(&c, text, text_bytes);
    if (code) {
        free(c.ids);
        return code;
    }
    *tokens = c.ids;
    *token_count = c.count;
    return MOED_OK;
}
