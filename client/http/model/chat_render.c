/* Conversations; see chat_render.h. */
#include "client/http/model/chat_render.h"

enum moed_code chat_render(struct deployment *d, const struct chat_request *request,
                           struct chat_rendered *out, struct moed_error *error)
{
    /* A session's worker may be replaced, but never by one of another model. */
    enum moed_code code = MOED_OK;
    if (!d->chat)
        code = chat_model_new(d->session, deployment_template(d), &d->chat, error);
    return code ? code : chat_model_render(d->chat, d->session, request, out, error);
}
