/* Conversations; see chat_render.h. */
#include "client/http/model/chat_render.h"

enum moed_code chat_render(struct attachment *a, const struct chat_request *request,
                           struct chat_rendered *out, struct moed_error *error)
{
    /* A session's worker may be replaced, but never by one of another model. */
    enum moed_code code = MOED_OK;
    if (!a->chat)
        code = chat_model_new(a->session, deployment_template(a->of), &a->chat, error);
    return code ? code : chat_model_render(a->chat, a->session, request, out, error);
}
