/* The prompts of conversations with a deployment's model. */
#ifndef MOED_HTTP_CHAT_RENDER_H
#define MOED_HTTP_CHAT_RENDER_H

#include "client/chat/chat_model.h"
#include "client/http/model/deployments.h"

/* chat_model_render, with what the attachment's thread keeps of its model. On that thread,
 * attached. */
enum moed_code chat_render(struct attachment *a, const struct chat_request *request,
                           struct chat_rendered *out, struct moed_error *error);

#endif
