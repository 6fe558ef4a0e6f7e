/* From a conversation to a prompt by a model's chat template. libmoed, moed and moed-http share it;
 * it uses only public functions of libmoed.
 *
 * Where the template does not show tools, or writes calls in a form that moed does not know, the
 * tools, calls and results stand in messages as plain text (lib/chat/tool_messages.h). */
#ifndef MOED_CLIENT_CHAT_MODEL_H
#define MOED_CLIENT_CHAT_MODEL_H

#include "client/chat/chat_style.h"
#include "client/include/moed.h"

#include "chat/chat_template.h"

struct chat_rendered {
    /* Of chat_model_render; the caller frees them with moed_free. */
    uint32_t *tokens;
    size_t token_count;
    /* Of chat_model_write, for moed_generate_options; the caller frees both with free. */
    char *text;
    size_t text_bytes;
    struct moed_range *plain; /* never NULL */
    size_t plain_count;
    struct chat_style style;
    enum chat_inside inside;
    bool reasoning_open;   /* the prompt ends inside reasoning */
    bool reasoning_closed; /* it ends behind reasoning: the model is not to reason */
};

/* A model's facts and its template. It never changes, so any thread may render. */
struct chat_model;

/* Asks the session's worker. template_text: NULL: the model's template. Errors of the template are
 * those of jinja_compile. */
enum moed_code chat_model_new(struct moed_session *session, const char *template_text,
                              struct chat_model **out, struct moed_error *error);
void chat_model_free(struct chat_model *m); /* takes NULL */

/* The template is a plain one, because there is none: turns are written as "User: ...". */
bool chat_model_is_plain(const struct chat_model *m);

uint32_t chat_model_context(const struct chat_model *m); /* tokens */

/* The token that begins texts, where the model's file asks for one: bos, the model's, or -1. Asks
 * the session's worker unless bos is below 0. */
enum moed_code chat_begin_token(struct moed_session *session, int64_t bos, int64_t *out,
                                struct moed_error *error);

/* The prompt of a conversation as text, which the worker tokenizes (moed_generate_options.plain):
 * asks no worker. Errors are those of chat_template_render. */
enum moed_code chat_model_write(const struct chat_model *m, const struct chat_request *request,
                                struct chat_rendered *out, struct moed_error *error);

/* The same prompt as tokens: special ones only outside the request's text, and the begin token in
 * front where the model's texts have one. The session is of the same model; its worker is asked.
 * Errors are those of chat_model_write and of moed_tokenize, and MOED_ERROR_CONTEXT where the text
 * is too long for a message and for the context. */
enum moed_code chat_model_render(const struct chat_model *m, struct moed_session *session,
                                 const struct chat_request *request, struct chat_rendered *out,
                                 struct moed_error *error);

#endif
