/* Questions with one answer: the model's facts, text to tokens and back. */
#include "client/src/error.h"
#include "client/src/ranges.h"
#include "client/src/request.h"
#include "client/src/sampling.h"

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
    return moed_tokenize_ranges(session, text, text_bytes, flags, NULL, 0, tokens, token_count,
                                error);
}

enum moed_code moed_tokenize_ranges(struct moed_session *session, const char *text,
                                    size_t text_bytes, unsigned flags,
                                    const struct moed_range *plain, size_t plain_count,
                                    uint32_t **tokens, size_t *token_count,
                                    struct moed_error *error)
{
    uint32_t *pairs = ranges_pack(plain, plain_count);
    if (!pairs)
        return error_report(error, MOED_ERROR_MEMORY, false, "no memory for %zu ranges",
                            plain_count);
    Moed__V1__TokenizeRequest question = MOED__V1__TOKENIZE_REQUEST__INIT;
    question.text.data = (uint8_t *)text; /* packing only reads */
    question.text.len = text_bytes;
    question.add_special = flags & MOED_ADD_SPECIAL;
    question.parse_special = (flags & MOED_PARSE_SPECIAL) != 0;
    question.plain = pairs;
    question.n_plain = 2 * plain_count;
    Moed__V1__ToWorker body = MOED__V1__TO_WORKER__INIT;
    body.body_case = MOED__V1__TO_WORKER__BODY_TOKENIZE;
    body.tokenize = &question;
    struct moed_request *r;
    const Moed__V1__FromWorker *answer;
    enum moed_code code = ask(session, &body, &r, &answer, error);
    free(pairs);
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

/* each: the text of each token by itself. The answer lives as long as *r, which the caller frees.
 */
static enum moed_code ask_texts(struct moed_session *session, const uint32_t *tokens, size_t n,
                                bool special, bool each, struct moed_request **r,
                                const Moed__V1__FromWorker **answer, struct moed_error *error)
{
    Moed__V1__DetokenizeRequest question = MOED__V1__DETOKENIZE_REQUEST__INIT;
    question.tokens = (uint32_t *)tokens;
    question.n_tokens = n;
    question.special = special;
    question.each = each;
    Moed__V1__ToWorker body = MOED__V1__TO_WORKER__INIT;
    body.body_case = MOED__V1__TO_WORKER__BODY_DETOKENIZE;
    body.detokenize = &question;
    return ask(session, &body, r, answer, error);
}

enum moed_code moed_detokenize(struct moed_session *session, const uint32_t *tokens,
                               size_t token_count, bool special, char **text, size_t *text_bytes,
                               struct moed_error *error)
{
    struct moed_request *r;
    const Moed__V1__FromWorker *answer;
    enum moed_code code =
        ask_texts(session, tokens, token_count, special, false, &r, &answer, error);
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

/* Copies a reply's text and ends, once it is known that they agree with the question. */
static enum moed_code copy_texts(const Moed__V1__DetokenizeReply *reply, size_t token_count,
                                 char **text, size_t **ends, struct moed_error *error)
{
    size_t at = 0;
    bool good = reply->n_ends == token_count;
    for (size_t i = 0; i < token_count && good; i++) {
        good = reply->ends[i] >= at && reply->ends[i] <= reply->text.len;
        at = reply->ends[i];
    }
    if (!good)
        return error_report(error, MOED_ERROR_PROTOCOL, false,
                            "the worker's texts of %zu tokens do not agree", token_count);
    char *bytes = malloc(reply->text.len + 1);
    size_t *copy = malloc((token_count + 1) * sizeof *copy);
    if (!bytes || !copy) {
        free(bytes);
        free(copy);
        return error_report(error, MOED_ERROR_MEMORY, false, "no memory for the texts of tokens");
    }
    if (reply->text.len)
        memcpy(bytes, reply->text.data, reply->text.len);
    bytes[reply->text.len] = '\0';
    for (size_t i = 0; i < token_count; i++)
        copy[i] = reply->ends[i];
    *text = bytes;
    *ends = copy;
    return MOED_OK;
}

#define TEXTS_MAX 65536 /* so that question and reply fit in a frame */

enum moed_code moed_token_texts(struct moed_session *session, const uint32_t *tokens,
                                size_t token_count, char **text, size_t **ends,
                                struct moed_error *error)
{
    if (token_count > TEXTS_MAX)
        return error_report(error, MOED_ERROR_LIMIT, false,
                            "the texts of %zu tokens: at most %d in one call", token_count,
                            TEXTS_MAX);
    struct moed_request *r;
    const Moed__V1__FromWorker *answer;
    enum moed_code code = ask_texts(session, tokens, token_count, true, true, &r, &answer, error);
    if (code)
        return code;
    code = copy_texts(answer->detokenize, token_count, text, ends, error);
    moed_request_free(r);
    return code;
}

/* The public struct and the strings behind it, in one allocation's lifetime. */
struct model_box {
    struct moed_model facts; /* first: the program holds a pointer to it */
    struct moed_sampling sampling;
    char *strings[10];
    uint32_t *end_tokens;
};

static bool copy_strings(struct model_box *box, const Moed__V1__ModelReply *m)
{
    const char *const from[] = {m->name,
                                m->architecture,
                                m->path,
                                m->device,
                                m->chat_template,
                                m->chat_template_tools,
                                m->sampling && m->sampling->order ? m->sampling->order : "",
                                m->quantization,
                                m->chat_template_kwargs,
                                m->kv_type};
    for (size_t i = 0; i < sizeof from / sizeof *from; i++)
        if (!(box->strings[i] = strdup(from[i])))
            return false;
    box->end_tokens = calloc(m->n_end_tokens + 1, sizeof *box->end_tokens);
    if (box->end_tokens && m->n_end_tokens)
        memcpy(box->end_tokens, m->end_tokens, m->n_end_tokens * sizeof *box->end_tokens);
    return box->end_tokens != NULL;
}

/* A worker of an older moed names none. */
static struct moed_fim fim_of(const Moed__V1__ModelReply *m)
{
    int64_t ids[6];
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        ids[i] = i < m->n_fim ? m->fim[i] : -1;
    return (struct moed_fim){ids[0], ids[1], ids[2], ids[3], ids[4], ids[5]};
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
    bool has_order = m->sampling && m->sampling->order;
    box->sampling = sampling_from_message(m->sampling, has_order ? box->strings[6] : NULL);
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
        .chat_template_tools = box->strings[5],
        .dense_layers = m->dense_layers,
        .sampling = &box->sampling,
        .end_tokens = box->end_tokens,
        .end_token_count = m->n_end_tokens,
        .fim = fim_of(m),
        .quantization = box->strings[7],
        .chat_template_kwargs = box->strings[8],
        .reasoning_budget = m->reasoning_budget,
        .kv_type = box->strings[9],
        .identity = m->identity,
        .reproducible = m->reproducible,
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
    free(box->end_tokens);
    free(box);
}
