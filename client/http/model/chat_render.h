/* From a conversation to a prompt: the only place of the frontend that knows chat templates.
 *
 * Where the template does not show tools, or writes calls in a form that moed does not know, the
 * tools, calls and results stand in messages as plain text (tool_messages.c). */
#ifndef MOED_HTTP_CHAT_RENDER_H
#define MOED_HTTP_CHAT_RENDER_H

#include "client/http/model/deployments.h"
#include "client/include/moed.h"

#include "chat/chat_template.h"
#include "toolcall/formats.h"

/* How the model writes calls and reasoning. */
struct chat_style {
    const struct tool_format *format;
    const struct reasoning_marks *reasoning; /* NULL: none, or the format's own */
};

struct chat_rendered {
    uint32_t *tokens; /* the caller frees them with moed_free */
    size_t token_count;
    struct chat_style style;
    bool reasoning_open; /* the prompt ends inside reasoning */
};

/* On the deployment's thread, attached. Errors are those of chat_template_render. */
enum moed_code chat_render(struct deployment *d, const struct chat_request *request,
                           struct chat_rendered *out, struct moed_error *error);

/* The style of a model. tools: of its template for conversations with tools. */
struct chat_style chat_style_of(const struct moed_model *model, bool tools);

/* What a deployment's thread keeps of its model between renders; takes NULL. */
struct chat_model;
void chat_model_free(struct chat_model *m);

#endif
