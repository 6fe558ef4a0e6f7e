/* Generation, logits and logprobs: the program's options as messages, and the calls that wait for
 * the whole. */
#include "client/src/error.h"
#include "client/src/grammar.h"
#include "client/src/request.h"
#include "client/src/router.h"
#include "client/src/sampling.h"

#include "base/clock.h"

#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

const char *moed_reason_name(enum moed_reason reason)
{
    static const char *const names[] = {"none", "end", "stop", "length", "context", "cancelled"};
    return (unsigned)reason < sizeof names / sizeof *names ? names[reason] : "unknown";
}

static ProtobufCBinaryData bytes_of(const char *data, size_t len)
{
    return (ProtobufCBinaryData){.len = len, .data = (uint8_t *)data}; /* packing only reads */
}

/* Bits that no other request has. */
static uint64_t random_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != sizeof seed)
        seed = clock_ns() ^ (uint64_t)getpid() << 40;
    return seed == MOED_RANDOM_SEED ? 0 : seed;
}

static struct moed_session *route(struct moed_session *session,
                                  const struct moed_generate_options *o)
{
    return o->prompt_bytes ? router_route(session, o->prompt, o->prompt_bytes)
                           : router_route(session, o->tokens, o->token_count * sizeof *o->tokens);
}

/* Starts it in this session, without a choice of another one. */
static enum moed_code generate_start(struct moed_session *session,
                                     const struct moed_generate_options *options,
                                     struct moed_request **out, struct moed_error *error)
{
    if (!options->prompt_bytes && !options->token_count)
        return error_report(error, MOED_ERROR_USAGE, false, "the prompt is empty");
    ProtobufCBinaryData *stop = calloc(options->stop_count + 1, sizeof *stop);
    if (!stop)
        return error_report(error, MOED_ERROR_MEMORY, false, "no memory for the stop strings");
    for (size_t i = 0; i < options->stop_count; i++)
        stop[i] = bytes_of(options->stop[i].data, options->stop[i].len);

    Moed__V1__Generate generate = MOED__V1__GENERATE__INIT;
    struct grammar_message grammar;
    enum moed_code code =
        grammar_message_init(&grammar, options->grammar, &generate.grammar, error);
    if (code) {
        free(stop);
        return code;
    }
    struct sampling_message sampling;
    if (!sampling_message_init(&sampling, &options->sampling, random_seed())) {
        grammar_message_fini(&grammar);
        free(stop);
        return error_report(error, MOED_ERROR_MEMORY, false, "no memory for the request");
    }
    generate.prompt = bytes_of(options->prompt, options->prompt_bytes);
    if (!options->prompt_bytes) {
        generate.n_tokens = options->token_count;
        generate.tokens = (uint32_t *)options->tokens;
    }
    generate.parse_special = options->parse_special;
    generate.ignore_end = options->ignore_end;
    generate.max_tokens = options->max_tokens;
    generate.sampling = &sampling.message;
    generate.n_stop = options->stop_count;
    generate.stop = stop;
    generate.min_tokens = options->min_tokens;
    generate.n_stop_tokens = options->stop_token_count;
    generate.stop_tokens = (uint32_t *)options->stop_tokens;
    generate.special_text = options->special_text;
    generate.logprobs = options->logprobs;
    generate.top_logprobs = options->top_logprobs;
    generate.progress = options->progress;
    Moed__V1__Record record = MOED__V1__RECORD__INIT;
    if (options->record) {
        record.gate = options->record->gate;
        record.hidden_every = options->record->hidden_every;
        record.hidden_phase = options->record->hidden_phase;
        record.stepwise = options->record->stepwise;
        record.prompt_only = options->record->prompt_only;
        generate.record = &record;
    }
    Moed__V1__ToWorker body = MOED__V1__TO_WORKER__INIT;
    body.body_case = MOED__V1__TO_WORKER__BODY_GENERATE;
    body.generate = &generate;
    code = request_start(session, &body, out, error);
    sampling_message_fini(&sampling);
    grammar_message_fini(&grammar);
    free(stop);
    return code;
}

enum moed_code moed_generate_start(struct moed_session *session,
                                   const struct moed_generate_options *options,
                                   struct moed_request **out, struct moed_error *error)
{
    struct moed_session *to = route(session, options);
    enum moed_code code = generate_start(to, options, out, error);
    session_unref(to);
    return code;
}

enum moed_code moed_generate_answers_start(struct moed_session *session,
                                           const struct moed_generate_options *options,
                                           size_t count, struct moed_request **requests,
                                           struct moed_error *error)
{
    struct moed_generate_options o = *options;
    struct moed_session *to = route(session, options); /* one worker: it computes the prompt once */
    enum moed_code code = MOED_OK;
    if (o.sampling.seed == MOED_RANDOM_SEED)
        o.sampling.seed = random_seed();
    for (size_t i = 0; i < count && !code; i++, o.sampling.seed++) {
        if (o.sampling.seed == MOED_RANDOM_SEED) /* the name of no seed */
            o.sampling.seed = 0;
        code = generate_start(to, &o, &requests[i], error);
        while (code && i-- > 0) {
            moed_request_free(requests[i]);
            requests[i] = NULL;
        }
        if (code)
            break;
    }
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
    struct moed_session *to = router_route(session, tokens, token_count * sizeof *tokens);
    enum moed_code code = request_start(to, &body, out, error);
    session_unref(to);
    return code;
}

enum moed_code moed_logprobs_start(struct moed_session *session, const uint32_t *tokens,
                                   size_t token_count, size_t first, uint32_t top,
                                   struct moed_request **out, struct moed_error *error)
{
    first = first ? first : 1;
    if (first >= token_count || first > UINT32_MAX)
        return error_report(error, MOED_ERROR_USAGE, false,
                            "probabilities from token %zu on, of %zu: give at least one with "
                            "another before it",
                            first, token_count);
    Moed__V1__LogprobsRequest logprobs = MOED__V1__LOGPROBS_REQUEST__INIT;
    logprobs.n_tokens = token_count;
    logprobs.tokens = (uint32_t *)tokens;
    logprobs.first = (uint32_t)first;
    logprobs.top = top;
    Moed__V1__ToWorker body = MOED__V1__TO_WORKER__INIT;
    body.body_case = MOED__V1__TO_WORKER__BODY_LOGPROBS;
    body.logprobs = &logprobs;
    struct moed_session *to = router_route(session, tokens, token_count * sizeof *tokens);
    enum moed_code code = request_start(to, &body, out, error);
    session_unref(to);
    return code;
}

/* Events to the callback until the end; frees the request. */
static enum moed_code drain(struct moed_request *r, moed_callback *callback, void *arg,
                            bool *stopped, struct moed_result *result, struct moed_error *error)
{
    struct moed_event event;
    enum moed_code code;
    *stopped = false;
    while (!(code = moed_request_next(r, -1, &event, error)) && event.kind != MOED_EVENT_DONE) {
        if (*stopped || !callback || !callback(arg, &event))
            continue;
        *stopped = true;
        moed_request_cancel(r);
    }
    if (!code && result)
        *result = event.result;
    moed_request_free(r);
    return code;
}

enum moed_code moed_generate(struct moed_session *session,
                             const struct moed_generate_options *options, moed_callback *callback,
                             void *arg, struct moed_result *result, struct moed_error *error)
{
    struct moed_request *r;
    bool stopped;
    enum moed_code code = moed_generate_start(session, options, &r, error);
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

enum moed_code moed_logprobs(struct moed_session *session, const uint32_t *tokens,
                             size_t token_count, size_t first, uint32_t top,
                             moed_callback *callback, void *arg, struct moed_error *error)
{
    struct moed_request *r;
    enum moed_code code = moed_logprobs_start(session, tokens, token_count, first, top, &r, error);
    return code ? code : drain_all(r, callback, arg, error);
}
