/* See prompt_length.h. */
#include "client/chat/prompt_length.h"

#include "base/utf8.h"

#include <stdio.h>

#define SLICE_BYTES (1u << 20) /* its tokens are a reply of at most 4 MiB, too */
#define CUT_TOKENS  64         /* about as many a cut may add, at most */

/* Counts until there are certainly more than the context has. False: there are not, or it is not
 * known. */
static bool exceeds(struct moed_session *session, const char *text, size_t bytes, uint32_t context,
                    size_t *count)
{
    *count = 0;
    for (size_t at = 0; at < bytes && *count <= context;) {
        size_t n = bytes - at < SLICE_BYTES ? bytes - at : SLICE_BYTES, tokens;
        uint32_t *ids;
        n -= utf8_incomplete_tail(text + at, n);
        if (!n || moed_tokenize(session, text + at, n, MOED_PARSE_SPECIAL, &ids, &tokens, NULL))
            return false;
        moed_free(ids);
        *count += tokens > CUT_TOKENS ? tokens - CUT_TOKENS : 0;
        at += n;
    }
    return *count > context;
}

enum moed_code prompt_length_explain(struct moed_session *session, const char *text, size_t bytes,
                                     struct moed_error *error)
{
    struct moed_model *model;
    size_t count;
    if (error->code != MOED_ERROR_LIMIT || bytes <= SLICE_BYTES ||
        moed_model_get(session, &model, NULL))
        return error->code;
    if (exceeds(session, text, bytes, model->context, &count)) {
        *error = (struct moed_error){.code = MOED_ERROR_CONTEXT};
        snprintf(error->message, sizeof error->message,
                 "this model's maximum context length is %u tokens, but the prompt is too long: "
                 "more than %zu tokens > %u maximum: shorten it, or start the deployment with a "
                 "larger --ctx",
                 model->context, count, model->context);
    }
    moed_model_free(model);
    return error->code;
}
