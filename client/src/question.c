/* Questions with one answer: the model's facts, text to tokens and back. */
#include "client/src/internal.h"

#include <stdlib.h>
#include <string.h>

/* Ask and wait for the session's timeout. *r holds the answer and is the caller's to free. */
static enum moed_code ask(struct moed_session *s, Moed__V1__ToWorker *body, struct moed_request **r,
                          const Moed__V1__FromWorker **answer, struct moed_error *error)
{
    struct moed_request *request;
    enum moed_code code = request_start(s, body, &request, error);
    if (code)
        return code;
    code = request_wait(request, s->timeout_ms, answer, error);
    if (code)
        moed_request_free(request);
    else
        *r = request;
    return code;
}

enum moed_code moed_tokenize(struct moed_session *session, const char *text, size_t text_bytes,
                             unsigned flags, uint32_t **tokens, size_t *token_count,
                             struct moed_error *error)
{
    Moed__V1__TokenizeRequest question = MOED__V1__TOKENIZE_REQUEST__INIT;
    question.text.data = (uint8_t *)text; /* packing only reads */
    question.text.len = text_bytes;
    question.add_special = flags & MOED_ADD_SPECIAL;
    question.parse_special = (flags & MOED_PARSE_SPECIAL) != 0;
    Moed__V1__ToWorker body = MOED__V1__TO_WORKER__INIT;
    body.body_case = MOED__V1__TO_WORKER__BODY_TOKENIZE;
    body.tokenize = &question;
    struct moed_request *r;
    const Moed__V1__FromWorker *answer;
    enum moed_code code = ask(session, &body, &r, &answer, error);
    if (code)
        return code;
    size_t n = answer->tokenize->n_tokens;
    uint32_t *copy = malloc((n + 1) * sizeof *copy);
    if (copy) {
        if (n)
            memcpy(copy, answer->tokenize->tokens, n * sizeof *copy);
        *tokens = copy;
        *token_count = n;
    } else {
        code = error_report(error, MOED_ERROR_MEMORY, false, "no memory for %zu tokens", n);
    }
    moed_request_free(r);
    return code;
}

enum moed_code moed_detokenize(struct moed_session *session, const uint32_t *tokens,
                               size_t token_count, bool special, char **text, size_t *text_bytes,
                               struct moed_error *error)
{
    Moed__V1__DetokenizeRequest question = MOED__V1__DETOKENIZE_REQUEST__INIT;
    question.tokens = (uint32_t *)tokens;
    question.n_tokens = token_count;
    question.special = special;
    Moed__V1__ToWorker body = MOED__V1__TO_WORKER__INIT;
    body.body_case = MOED__V1__TO_WORKER__BODY_DETOKENIZE;
    body.detokenize = &question;
    struct moed_request *r;
    const Moed__V1__FromWorker *answer;
    enum moed_code code = ask(session, &body, &r, &answer, error);
    if (code)
        return code;
    size_t n = answer->detokenize->text.len;
    char *copy = malloc(n + 1);
    if (copy) {
        if (n)
            memcpy(copy, answer->detokenize->text.data, n);
        copy[n] = '\0';
        *text = copy;
        *text_bytes = n;
    } else {
        code = error_report(error, MOED_ERROR_MEMORY, false, "no memory for %zu bytes of text", n);
    }
    moed_request_free(r);
    return code;
}

/* The public struct and the strings behind it, in one allocation's lifetime. */
struct model_box {
    struct moed_model facts; /* first: the program holds a pointer to it */
    char *strings[5];
};

static bool copy_strings(struct model_box *box, const Moed__V1__ModelReply *m)
{
    const char *const from[] = {m->name, m->architecture, m->path, m->device, m->chat_template};
    for (size_t i = 0; i < sizeof from / sizeof *from; i++)
        if (!(box->strings[i] = strdup(from[i])))
            return false;
    return true;
}

static struct model_box *model_copy(const Moed__V1__ModelReply *m)
{
    struct model_box *box = calloc(1, sizeof *box);
    if (!box)
        return NULL;
    if (!copy_strings(box, m)) {
        moed_model_free(&box->facts);
        return NULL;
    }
    box->facts = (struct moed_model){
        .name = box->strings[0],
        .architecture = box->strings[1],
        .path = box->strings[2],
        .parameters = m->parameters,
        .file_bytes = m->file_bytes,
        .layers = m->layers,
        .d_model = m->d_model,
        .experts = m->experts,
        .experts_used = m->experts_used,
        .vocab = m->vocab,
        .context = m->context,
        .context_trained = m->context_trained,
        .device = box->strings[3],
        .bos = m->bos,
        .eos = m->eos,
        .chat_template = box->strings[4],
        .dense_layers = m->dense_layers,
    };
    return box;
}

enum moed_code moed_model_get(struct moed_session *session, struct moed_model **out,
                              struct moed_error *error)
{
    Moed__V1__ModelRequest question = MOED__V1__MODEL_REQUEST__INIT;
    Moed__V1__ToWorker body = MOED__V1__TO_WORKER__INIT;
    body.body_case = MOED__V1__TO_WORKER__BODY_MODEL;
    body.model = &question;
    struct moed_request *r;
    const Moed__V1__FromWorker *answer;
    enum moed_code code = ask(session, &body, &r, &answer, error);
    if (code)
        return code;
    struct model_box *box = model_copy(answer->model);
    moed_request_free(r);
    if (!box)
        return error_report(error, MOED_ERROR_MEMORY, false, "no memory for the model's facts");
    *out = &box->facts;
    return MOED_OK;
}

void moed_model_free(struct moed_model *model)
{
    struct model_box *box = (struct model_box *)model;
    if (!box)
        return;
    for (size_t i = 0; i < sizeof box->strings / sizeof *box->strings; i++)
        free(box->strings[i]);
    free(box);
}
