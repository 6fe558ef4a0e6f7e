/* Generation, logits and logprobs: the program's options as messages, and the calls that wait for
 * the whole. */
#include "client/src/error.h"
#include "client/src/grammar.h"
#include "client/src/options.h"
#include "client/src/random.h"
#include "client/src/ranges.h"
#include "client/src/request.h"
#include "client/src/router.h"
#include "client/src/sampling.h"

#include <stdlib.h>
#include <string.h>

const char *moed_reason_name(enum moed_reason reason)
{
    static const char *const names[] = {"none", "end", "stop", "length", "context", "cancelled"};
    return (unsigned)reason < sizeof names / sizeof *names ? names[reason] : "unknown";
}

static ProtobufCBinaryData bytes_of(const char *data, size_t len)
{
    return (ProtobufCBinaryData){.len = len, .data = (uint8_t *)data}; /* packing only reads */
}

static uint64_t random_seed(void)
{
    uint64_t seed = random_number();
    return seed == MOED_RANDOM_SEED ? 0 : seed;
}

/* What a program's options, and the structs that they point to, become in this library's terms. */
struct options {
    struct moed_generate_options o; /* its pointers to the structs below say only what there is */
    struct moed_sampling sampling;
    struct moed_record_options record;
    struct moed_grammar grammar;
    struct moed_reasoning_limit reasoning;
};

static enum moed_code check_priority(enum moed_priority priority, struct moed_error *error)
{
    if (priority == MOED_PRIORITY_INTERACTIVE || priority == MOED_PRIORITY_BATCH)
        return MOED_OK;
    return error_report(error, MOED_ERROR_USAGE, false, "unknown priority %d", (int)priority);
}

static enum moed_code read_options(const struct moed_generate_options *from, struct options *out,
                                   struct moed_error *error)
{
    struct moed_generate_options *o = &out->o;
    enum moed_code code = OPTIONS_COPY(from, o, struct moed_generate_options, reasoning, error);
    out->sampling = (struct moed_sampling){0};
    if (!code && o->sampling)
        code = OPTIONS_COPY(o->sampling, &out->sampling, struct moed_sampling, bias_count, error);
    if (!code && o->record)
        code =
            OPTIONS_COPY(o->record, &out->record, struct moed_record_options, prompt_only, error);
    out->grammar = (struct moed_grammar){0};
    if (!code && o->grammar)
        code = OPTIONS_COPY(o->grammar, &out->grammar, struct moed_grammar, mark_count, error);
    if (!code && o->reasoning)
        code = OPTIONS_COPY(o->reasoning, &out->reasoning, struct moed_reasoning_limit,
                            forbidden_count, error);
    if (code)
        return code;
    if (o->prompt && o->token_count)
        return error_report(error, MOED_ERROR_USAGE, false,
                            "the options have a prompt as text and one as tokens");
    if (o->plain && !o->prompt)
        return error_report(error, MOED_ERROR_USAGE, false,
                            "the options have ranges of a prompt, but no prompt as text");
    if (o->prompt && !o->prompt_bytes)
        o->prompt_bytes = strlen(o->prompt);
    if (!o->prompt_bytes && !o->token_count)
        return error_report(error, MOED_ERROR_USAGE, false, "the prompt is empty");
    return check_priority(o->priority, error);
}

/* The messages of one generation; they borrow from the options. */
struct generation {
    Moed__V1__Generate message;
    Moed__V1__TokenizeRequest rendered;
    uint32_t *plain; /* of `rendered` */
    Moed__V1__Record record;
    struct grammar_message grammar;
    Moed__V1__ReasoningLimit reasoning;
    struct sampling_message sampling;
    ProtobufCBinaryData *stop, *ends;
};

static void generation_fini(struct generation *g)
{
    sampling_message_fini(&g->sampling);
    grammar_message_fini(&g->grammar);
    free(g->plain);
    free(g->stop);
    free(g->ends);
}

static void fill_generate(Moed__V1__Generate *m, const struct moed_generate_options *o)
{
    if (!o->plain)
        m->prompt = bytes_of(o->prompt, o->prompt_bytes);
    m->n_tokens = o->token_count;
    m->tokens = (uint32_t *)o->tokens;
    m->parse_special = o->parse_special;
    m->ignore_end = o->ignore_end;
    m->max_tokens = o->max_tokens;
    m->min_tokens = o->min_tokens;
    m->n_stop_tokens = o->stop_token_count;
    m->stop_tokens = (uint32_t *)o->stop_tokens;
    m->special_text = o->special_text;
    m->logprobs = o->logprobs;
    m->top_logprobs = o->top_logprobs;
    m->progress = o->progress;
    m->priority = (Moed__V1__Generate__Priority)o->priority; /* the same values */
    m->deadline_ms = o->deadline_ms;
    m->cache_salt = o->cache_salt;
    m->client = o->client;
    m->max_drafts = o->max_drafts;
    m->no_drafts = o->no_drafts;
    m->n_prediction = o->prediction_count;
    m->prediction = (uint32_t *)o->prediction;
}

static void fill_record(Moed__V1__Record *m, const struct moed_record_options *record)
{
    m->gate = record->gate;
    m->hidden_every = record->hidden_every;
    m->hidden_phase = record->hidden_phase;
    m->stepwise = record->stepwise;
    m->prompt_only = record->prompt_only;
}

/* What a worker that does not know `rendered` refuses: packing only reads it. */
static uint32_t no_token = UINT32_MAX;

/* After fill_generate. False: no memory. */
static bool fill_rendered(struct generation *g, const struct moed_generate_options *o)
{
    Moed__V1__TokenizeRequest *m = &g->rendered;
    g->plain = ranges_pack(o->plain, o->plain_count);
    m->text = bytes_of(o->prompt, o->prompt_bytes);
    m->parse_special = o->parse_special;
    m->add_begin = true;
    m->plain = g->plain;
    m->n_plain = 2 * o->plain_count;
    g->message.rendered = m;
    g->message.n_tokens = 1;
    g->message.tokens = &no_token;
    return g->plain != NULL;
}

/* False: no memory. */
static bool fill_stop(struct generation *g, const struct moed_generate_options *o)
{
    g->stop = calloc(o->stop_count + 1, sizeof *g->stop);
    for (size_t i = 0; g->stop && i < o->stop_count; i++)
        g->stop[i] = bytes_of(o->stop[i].data, o->stop[i].len);
    g->message.stop = g->stop;
    g->message.n_stop = o->stop_count;
    return g->stop != NULL;
}

/* False: no memory. */
static bool fill_reasoning(struct generation *g, const struct moed_reasoning_limit *l)
{
    Moed__V1__ReasoningLimit *m = &g->reasoning;
    g->ends = calloc(l->end_count + 1, sizeof *g->ends);
    for (size_t i = 0; g->ends && i < l->end_count; i++)
        g->ends[i] = bytes_of(l->ends[i], strlen(l->ends[i]));
    m->tokens = l->tokens;
    m->begin = l->begin ? bytes_of(l->begin, strlen(l->begin)) : bytes_of(NULL, 0);
    m->ends = g->ends;
    m->n_ends = l->end_count;
    m->forced = (uint32_t *)l->forced;
    m->n_forced = l->forced_count;
    m->forbidden = (uint32_t *)l->forbidden;
    m->n_forbidden = l->forbidden_count;
    g->message.reasoning = m;
    return g->ends != NULL;
}

static enum moed_code generation_init(struct generation *g, const struct options *options,
                                      struct moed_error *error)
{
    *g = (struct generation){.message = MOED__V1__GENERATE__INIT,
                             .rendered = MOED__V1__TOKENIZE_REQUEST__INIT,
                             .record = MOED__V1__RECORD__INIT,
                             .reasoning = MOED__V1__REASONING_LIMIT__INIT};
    enum moed_code code =
        grammar_message_init(&g->grammar, &options->grammar, &g->message.grammar, error);
    if (code)
        return code;
    fill_generate(&g->message, &options->o);
    if ((options->o.plain && !fill_rendered(g, &options->o)) || !fill_stop(g, &options->o) ||
        (options->o.reasoning && !fill_reasoning(g, &options->reasoning)) ||
        !sampling_message_init(&g->sampling, &options->sampling, random_seed())) {
        generation_fini(g);
        return error_report(error, MOED_ERROR_MEMORY, false, "no memory for the request");
    }
    g->message.sampling = &g->sampling.message;
    if (options->o.record) {
        fill_record(&g->record, &options->record);
        g->message.record = &g->record;
    }
    return MOED_OK;
}

static enum moed_code route(struct moed_session *session, const struct moed_generate_options *o,
                            struct moed_session **out, struct moed_error *error)
{
    struct choice_prompt prompt = {o->prompt, o->prompt_bytes, o->cache_salt};
    if (!o->prompt_bytes) {
        prompt.data = o->tokens;
        prompt.bytes = o->token_count * sizeof *o->tokens;
    }
    return router_route(session, &prompt, out, error);
}

/* Starts it in this session, whichever worker it is attached to. */
static enum moed_code start(struct moed_session *session, const struct options *o,
                            struct moed_request **out, struct moed_error *error)
{
    struct generation g;
    enum moed_code code = generation_init(&g, o, error);
    if (code)
        return code;
    Moed__V1__ToWorker body = MOED__V1__TO_WORKER__INIT;
    body.body_case = MOED__V1__TO_WORKER__BODY_GENERATE;
    body.generate = &g.message;
    code = request_start(session, &body, out, error);
    generation_fini(&g);
    return code;
}

enum moed_code moed_generate_start(struct moed_session *session,
                                   const struct moed_generate_options *options,
                                   struct moed_request **out, struct moed_error *error)
{
    struct options o;
    struct moed_session *to;
    enum moed_code code = read_options(options, &o, error);
    if (!code)
        code = route(session, &o.o, &to, error);
    if (code)
        return code;
    code = start(to, &o, out, error);
    session_unref(to);
    return code;
}

enum moed_code moed_generate_answers_start(struct moed_session *session,
                                           const struct moed_generate_options *options,
                                           size_t count, struct moed_request **requests,
                                           struct moed_error *error)
{
    struct options o;
    struct moed_session *to;
    enum moed_code code = read_options(options, &o, error);
    if (!code)
        code = route(session, &o.o, &to, error); /* one worker: it computes the prompt once */
    if (code)
        return code;
    if (o.sampling.seed == MOED_RANDOM_SEED)
        o.sampling.seed = random_seed();
    for (size_t i = 0; i < count && !code; i++, o.sampling.seed++) {
        if (o.sampling.seed == MOED_RANDOM_SEED) /* the name of no seed */
            o.sampling.seed = 0;
        code = start(to, &o, &requests[i], error);
        for (size_t k = 0; code && k < i; k++) {
            moed_request_free(requests[k]);
            requests[k] = NULL;
        }
    }
    session_unref(to);
    return code;
}

static enum moed_code start_routed(struct moed_session *session, const uint32_t *tokens, size_t n,
                                   uint64_t cache_salt, Moed__V1__ToWorker *body,
                                   struct moed_request **out, struct moed_error *error)
{
    struct moed_session *to;
    const struct choice_prompt prompt = {tokens, n * sizeof *tokens, cache_salt};
    enum moed_code code = router_route(session, &prompt, &to, error);
    if (code)
        return code;
    code = request_start(to, body, out, error);
    session_unref(to);
    return code;
}

enum moed_code moed_logits_start(struct moed_session *session, const uint32_t *tokens,
                                 size_t token_count, bool stepwise, struct moed_request **out,
                                 struct moed_error *error)
{
    if (!token_count)
        return error_report(error, MOED_ERROR_USAGE, false, "no tokens to compute logits of");
    Moed__V1__LogitsRequest logits = MOED__V1__LOGITS_REQUEST__INIT;
    logits.n_tokens = token_count;
    logits.tokens = (uint32_t *)tokens;
    logits.stepwise = stepwise;
    Moed__V1__ToWorker body = MOED__V1__TO_WORKER__INIT;
    body.body_case = MOED__V1__TO_WORKER__BODY_LOGITS;
    body.logits = &logits;
    return start_routed(session, tokens, token_count, 0, &body, out, error);
}

enum moed_code moed_logprobs_start(struct moed_session *session,
                                   const struct moed_logprobs_options *options,
                                   struct moed_request **out, struct moed_error *error)
{
    struct moed_logprobs_options o;
    enum moed_code code = OPTIONS_COPY(options, &o, struct moed_logprobs_options, client, error);
    if (code)
        return code;
    size_t first = o.first ? o.first : 1;
    if (first >= o.token_count || first > UINT32_MAX)
        return error_report(error, MOED_ERROR_USAGE, false,
                            "probabilities from token %zu on, of %zu: give at least one with "
                            "another before it",
                            first, o.token_count);
    code = check_priority(o.priority, error);
    if (code)
        return code;
    Moed__V1__LogprobsRequest logprobs = MOED__V1__LOGPROBS_REQUEST__INIT;
    logprobs.n_tokens = o.token_count;
    logprobs.tokens = (uint32_t *)o.tokens;
    logprobs.first = (uint32_t)first;
    logprobs.top = o.top;
    logprobs.cache_salt = o.cache_salt;
    logprobs.client = o.client;
    logprobs.priority = (Moed__V1__Generate__Priority)o.priority; /* the same values */
    Moed__V1__ToWorker body = MOED__V1__TO_WORKER__INIT;
    body.body_case = MOED__V1__TO_WORKER__BODY_LOGPROBS;
    body.logprobs = &logprobs;
    return start_routed(session, o.tokens, o.token_count, o.cache_salt, &body, out, error);
}

/* Events to the callback until the end; frees the request. */
static enum moed_code drain(struct moed_request *r, moed_callback *callback, void *arg,
                            bool *stopped, struct moed_result *result, struct moed_error *error)
{
    const struct moed_event *event;
    enum moed_code code;
    *stopped = false;
    while (!(code = moed_request_next(r, -1, &event, error)) && event->kind != MOED_EVENT_DONE) {
        if (*stopped || !callback || !callback(arg, event))
            continue;
        *stopped = true;
        moed_request_cancel(r);
    }
    if (!code && result)
        result_copy_out(event->result, result);
    moed_request_free(r);
    return code;
}

enum moed_code moed_generate(struct moed_session *session,
                             const struct moed_generate_options *options, moed_callback *callback,
                             void *arg, struct moed_result *result, struct moed_error *error)
{
    struct moed_request *r;
    bool stopped;
    enum moed_code code = result ? result_check(result, error) : MOED_OK;
    if (!code)
        code = moed_generate_start(session, options, &r, error);
    return code ? code : drain(r, callback, arg, &stopped, result, error);
}

/* The end of a request whose events are of no use when some are missing. */
static enum moed_code drain_all(struct moed_request *r, moed_callback *callback, void *arg,
                                struct moed_error *error)
{
    bool stopped;
    enum moed_code code = drain(r, callback, arg, &stopped, NULL, error);
    if (!code && stopped)
        code =
            error_report(error, MOED_ERROR_CANCELLED, false, "the program cancelled the request");
    return code;
}

enum moed_code moed_logits(struct moed_session *session, const uint32_t *tokens, size_t token_count,
                           bool stepwise, moed_callback *callback, void *arg,
                           struct moed_error *error)
{
    struct moed_request *r;
    enum moed_code code = moed_logits_start(session, tokens, token_count, stepwise, &r, error);
    return code ? code : drain_all(r, callback, arg, error);
}

enum moed_code moed_logprobs(struct moed_session *session,
                             const struct moed_logprobs_options *options, moed_callback *callback,
                             void *arg, struct moed_error *error)
{
    struct moed_request *r;
    enum moed_code code = moed_logprobs_start(session, options, &r, error);
    return code ? code : drain_all(r, callback, arg, error);
}
