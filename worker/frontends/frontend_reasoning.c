/* The limit of reasoning in a Generate, which is a peer's: all of it is checked here. */
#include "frontends_internal.h"

#include "worker/serve/request.h"

#include <inttypes.h>
#include <stdlib.h>

static enum error_code check(const Moed__V1__ReasoningLimit *q, struct error *e)
{
    if (!q->tokens || !q->n_forced)
        return error_set(e, ERROR_USAGE,
                         "reasoning limit: expected at least one token of reasoning, and at least "
                         "one that ends it");
    if (q->n_forced > REASONING_TOKENS_MAX || q->n_forbidden > REASONING_TOKENS_MAX)
        return error_set(
            e, ERROR_LIMIT,
            "reasoning limit: %zu tokens are forced and %zu forbidden: give at most %d",
            q->n_forced, q->n_forbidden, REASONING_TOKENS_MAX);
    if (q->n_ends > REASONING_ENDS_MAX)
        return error_set(e, ERROR_LIMIT, "reasoning limit: %zu ends: give at most %d", q->n_ends,
                         REASONING_ENDS_MAX);
    return ERROR_OK;
}

static enum error_code take_mark(struct strbuf *mark, const ProtobufCBinaryData *text, bool wanted,
                                 struct error *e)
{
    if (text->len > REASONING_MARK_BYTES || (wanted && !text->len))
        return error_set(e, ERROR_USAGE, "reasoning limit: a mark has %zu bytes: expected %d to %d",
                         text->len, wanted ? 1 : 0, REASONING_MARK_BYTES);
    strbuf_append(mark, text->data, text->len);
    return mark->failed ? error_set(e, ERROR_MEMORY, "no memory for a reasoning limit") : ERROR_OK;
}

static enum error_code take_tokens(struct frontend *f, struct token_list *list,
                                   const uint32_t *tokens, size_t n, struct error *e)
{
    uint32_t vocab = f->frontends->model.map->params.vocab;
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] >= vocab)
            return error_set(e, ERROR_USAGE,
                             "reasoning limit: token %" PRIu32
                             " is not in the vocabulary of %" PRIu32,
                             tokens[i], vocab);
        if (!token_list_push(list, tokens[i]))
            return error_set(e, ERROR_MEMORY, "no memory for a reasoning limit");
    }
    return ERROR_OK;
}

/* Space for the biases of the forbidden tokens. */
static enum error_code reserve_biases(struct request *r, struct error *e)
{
    size_t n = r->n_biases + r->reasoning->forbidden.count;
    struct sampler_bias *more = n ? realloc(r->biases, n * sizeof *more) : NULL;
    if (n && !more)
        return error_set(e, ERROR_MEMORY, "no memory for the logit biases");
    r->biases = n ? more : r->biases;
    return ERROR_OK;
}

enum error_code frontend_take_reasoning(struct frontend *f, struct request *r,
                                        const Moed__V1__ReasoningLimit *q, struct error *e)
{
    if (!q)
        return ERROR_OK;
    enum error_code code = check(q, e);
    if (code)
        return code;
    struct reasoning_limit *l = r->reasoning = reasoning_limit_new(f->frontends->model.tokenizer);
    if (!l)
        return error_set(e, ERROR_MEMORY, "no memory for a reasoning limit");
    l->tokens = q->tokens;
    code = take_mark(&l->begin, &q->begin, false, e);
    while (!code && l->n_ends < q->n_ends) {
        l->n_ends++;
        code = take_mark(&l->ends[l->n_ends - 1], &q->ends[l->n_ends - 1], true, e);
    }
    if (!code)
        code = take_tokens(f, &l->forced, q->forced, q->n_forced, e);
    if (!code)
        code = take_tokens(f, &l->forbidden, q->forbidden, q->n_forbidden, e);
    return code ? code : reserve_biases(r, e);
}
