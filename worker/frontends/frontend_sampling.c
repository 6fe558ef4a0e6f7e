/* The sampling parameters in a Generate, which are a peer's: all are checked here. See
 * docs/sampling.md. */
#include "frontends_internal.h"

#include "worker/serve/request.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BIASES      65536
#define MOST_STOP_TOKENS 256

/* ---- Parameters ---- */

void frontend_describe_sampling(const struct sampling *s, Moed__V1__Sampling *out)
{
#define DESCRIBE_FLOAT(name, low, high, neutral)                                                   \
    out->has_##name = true;                                                                        \
    out->name = s->name;
#define DESCRIBE_COUNT(name, high, neutral)                                                        \
    out->has_##name = true;                                                                        \
    out->name = s->name;
    SAMPLING_FLOATS(DESCRIBE_FLOAT)
    SAMPLING_COUNTS(DESCRIBE_COUNT)
    out->has_mirostat_mu = false;
    out->order = (char *)s->order;
}

/* Temperature 0 is exact: the model's penalties have no say in it. */
static struct sampling base_of(const struct frontends_model *model, const Moed__V1__Sampling *q)
{
    bool greedy = q->has_temperature && q->temperature == 0;
    return q->model_defaults && !greedy ? model->sampling : sampling_neutral();
}

static enum error_code take_parameters(struct frontend *f, struct request *r,
                                       const Moed__V1__Sampling *q, struct error *e)
{
    struct sampling s = base_of(&f->frontends->model, q);
#define TAKE_FLOAT(name, low, high, neutral)                                                       \
    if (q->has_##name)                                                                             \
        s.name = q->name;
#define TAKE_COUNT(name, high, neutral)                                                            \
    if (q->has_##name)                                                                             \
        s.name = q->name;
    SAMPLING_FLOATS(TAKE_FLOAT)
    SAMPLING_COUNTS(TAKE_COUNT)
    s.seed = q->has_seed ? q->seed : 0;
    if (q->order) {
        enum error_code code = sampling_set_order(&s, q->order, strlen(q->order), e);
        if (code)
            return code;
    }
    r->sampling = s;
    r->mirostat_mu = q->has_mirostat_mu ? s.mirostat_mu : 2 * s.mirostat_tau;
    return sampling_check(&s, e);
}

/* ---- DRY's breakers ---- */

static enum error_code take_breakers(struct request *r, const Moed__V1__Sampling *q,
                                     struct error *e)
{
    if (q->n_dry_breakers == 0)
        breakers_add_usual(&r->breakers);
    for (size_t i = 0; i < q->n_dry_breakers; i++) {
        const ProtobufCBinaryData *text = &q->dry_breakers[i];
        if (text->len == 0 && q->n_dry_breakers == 1)
            break;
        if (!breakers_add(&r->breakers, (const char *)text->data, text->len))
            return error_set(e, ERROR_USAGE,
                             "dry_breakers: expected at most %d texts of 1 to %d bytes",
                             BREAKERS_MOST, BREAKER_BYTES);
    }
    return ERROR_OK;
}

/* ---- Biases ---- */

static enum error_code add_bias(struct frontend *f, struct request *r, uint32_t token, float bias,
                                struct error *e)
{
    uint32_t vocab = f->frontends->model.map->params.vocab;
    if (token >= vocab)
        return error_set(e, ERROR_USAGE,
                         "logit bias: token %" PRIu32 " is not in the vocabulary of %" PRIu32,
                         token, vocab);
    if (r->n_biases == MOST_BIASES)
        return error_set(e, ERROR_LIMIT, "logit bias: more than %d tokens", MOST_BIASES);
    if ((r->n_biases & (r->n_biases - 1)) == 0) { /* it was full: its capacity is a power of two */
        size_t capacity = r->n_biases ? 2 * (size_t)r->n_biases : 1;
        struct sampler_bias *more = realloc(r->biases, capacity * sizeof *more);
        if (!more)
            return error_set(e, ERROR_MEMORY, "no memory for the logit biases");
        r->biases = more;
    }
    r->biases[r->n_biases++] = (struct sampler_bias){token, bias};
    return ERROR_OK;
}

static enum error_code take_bias(struct frontend *f, struct request *r,
                                 const Moed__V1__LogitBias *q, struct error *e)
{
    struct token_list list = {0};
    enum error_code code = ERROR_OK;
    if (!(q->bias <= 1e6f)) /* NaN, too */
        return error_set(e, ERROR_USAGE, "logit bias is %g: expected a number up to 1e6, or -inf",
                         (double)q->bias);
    if (q->text.len == 0)
        return add_bias(f, r, q->token, q->bias, e);
    code = tokenizer_encode(f->frontends->model.tokenizer, (const char *)q->text.data, q->text.len,
                            TOKENIZE_PARSE_SPECIAL, &list, e);
    for (size_t i = 0; i < list.count && !code; i++)
        code = add_bias(f, r, list.ids[i], q->bias, e);
    token_list_fini(&list);
    return code;
}

/* ---- What ends the answer ---- */

static enum error_code take_stop_tokens(struct frontend *f, struct request *r,
                                        const Moed__V1__Generate *q, struct error *e)
{
    uint32_t vocab = f->frontends->model.map->params.vocab;
    if (q->n_stop_tokens > MOST_STOP_TOKENS)
        return error_set(e, ERROR_LIMIT, "%zu stop tokens: give at most %d", q->n_stop_tokens,
                         MOST_STOP_TOKENS);
    for (size_t i = 0; i < q->n_stop_tokens; i++) {
        if (q->stop_tokens[i] >= vocab)
            return error_set(e, ERROR_USAGE,
                             "stop token %" PRIu32 " is not in the vocabulary of %" PRIu32,
                             q->stop_tokens[i], vocab);
        if (!token_list_push(&r->stop_tokens, q->stop_tokens[i]))
            return error_set(e, ERROR_MEMORY, "no memory for the stop tokens");
    }
    return ERROR_OK;
}

/* min_tokens: the tokens that may not come before. */
static enum error_code take_min_tokens(struct frontend *f, struct request *r, uint32_t min_tokens,
                                       struct error *e)
{
    const struct token_list *model = f->frontends->model.end_tokens;
    if (min_tokens == 0)
        return ERROR_OK;
    if (r->max_tokens && min_tokens > r->max_tokens)
        return error_set(e, ERROR_USAGE,
                         "min_tokens is %" PRIu32 ": expected at most max_tokens, %" PRIu32,
                         min_tokens, r->max_tokens);
    size_t n = r->ignore_end ? 0 : model->count;
    r->ends = malloc((n + r->stop_tokens.count + 1) * sizeof *r->ends);
    if (!r->ends)
        return error_set(e, ERROR_MEMORY, "no memory for the end tokens");
    if (n)
        memcpy(r->ends, model->ids, n * sizeof *r->ends);
    if (r->stop_tokens.count)
        memcpy(r->ends + n, r->stop_tokens.ids, r->stop_tokens.count * sizeof *r->ends);
    r->n_ends = (uint32_t)(n + r->stop_tokens.count);
    r->min_tokens = min_tokens;
    return ERROR_OK;
}

/* ---- All of it ---- */

enum error_code frontend_check_top(const struct frontends_model *model, uint32_t top,
                                   struct error *e)
{
    uint32_t vocab = model->map->params.vocab, most = REQUEST_MAX_TOP;
    most = vocab < most ? vocab : most;
    if (top <= most)
        return ERROR_OK;
    return error_set(e, ERROR_USAGE, "top_logprobs is %" PRIu32 ": expected 0 to %" PRIu32, top,
                     most);
}

enum error_code frontend_take_sampling(struct frontend *f, struct request *r,
                                       const Moed__V1__Generate *q, struct error *e)
{
    const Moed__V1__Sampling none = MOED__V1__SAMPLING__INIT,
                             *s = q->sampling ? q->sampling : &none;
    enum error_code code = take_parameters(f, r, s, e);
    if (!code)
        code = take_breakers(r, s, e);
    for (size_t i = 0; i < s->n_bias && !code; i++)
        code = take_bias(f, r, s->bias[i], e);
    if (!code)
        code = take_stop_tokens(f, r, q, e);
    if (!code)
        code = take_min_tokens(f, r, q->min_tokens, e);
    if (!code && q->top_logprobs && !q->logprobs)
        code = error_set(e, ERROR_USAGE, "top_logprobs without logprobs: ask for both");
    r->logprobs = q->logprobs;
    r->n_top = q->top_logprobs;
    return code ? code : frontend_check_top(&f->frontends->model, q->top_logprobs, e);
}
