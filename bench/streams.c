/* Timed requests; see streams.h.
 *
 * The worker times a single stream: it knows when the request began and when each token was ready.
 * Several streams are timed here by the arrival of their tokens, from the last stream's first token
 * until that stream has all its tokens. The others go on as long. So only steps count in which
 * every stream takes part.
 */
#include "streams.h"

#include "base/clock.h"

#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_MS 100 /* an interruption is noticed within this time */

/* Tokens that a stream generates before the last one begins: at most one for each chunk of a
 * prompt, which has at least CHUNK_LEAST rows; and those of the time in which the requests start.
 */
enum { CHUNK_LEAST = 16, START_TOKENS = 1024 };

struct stream {
    struct moed_request *request;
    bool done;
    struct moed_result result;
    double *token_s; /* [n_most]: arrival of each */
    uint32_t n_tokens;
};

struct run {
    const struct streams_plan *plan;
    struct stream streams[MAX_STREAMS];
    struct pollfd fds[MAX_STREAMS];
    uint32_t n_most; /* tokens of an answer */
    uint32_t n_started, n_done;
};

uint32_t streams_most_tokens(uint32_t streams, uint32_t prompt_tokens, uint32_t generate)
{
    return streams == 1 ? generate
                        : generate + START_TOKENS +
                              (uint32_t)((uint64_t)streams * prompt_tokens / CHUNK_LEAST);
}

__attribute__((format(printf, 3, 4))) static enum moed_code
fail(struct moed_error *error, enum moed_code code, const char *format, ...)
{
    va_list args;
    *error = (struct moed_error){.code = code};
    va_start(args, format);
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    return code;
}

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static enum moed_code start_stream(struct run *r, struct moed_session *session,
                                   struct moed_error *error)
{
    const struct streams_plan *plan = r->plan;
    uint32_t index = r->n_started;
    struct stream *s = &r->streams[index];
    uint32_t *prompt = calloc(plan->prompt_tokens, sizeof *prompt);
    s->token_s = calloc(r->n_most, sizeof *s->token_s);
    uint64_t state = plan->seed * MAX_STREAMS + index;
    for (uint32_t i = 0; prompt && i < plan->prompt_tokens; i++)
        prompt[i] = (uint32_t)(next_random(&state) % plan->vocab);
    struct moed_generate_options options = {.size = sizeof options,
                                            .tokens = prompt,
                                            .token_count = plan->prompt_tokens,
                                            .ignore_end = true,
                                            .max_tokens = r->n_most};
    enum moed_code code = prompt && s->token_s
                              ? moed_generate_start(session, &options, &s->request, error)
                              : fail(error, MOED_ERROR_MEMORY, "no memory for the prompts");
    free(prompt);
    if (code) {
        free(s->token_s);
        return code;
    }
    r->fds[index] = (struct pollfd){.fd = moed_request_fd(s->request), .events = POLLIN};
    r->n_started++;
    if (r->fds[index].fd < 0)
        return fail(error, MOED_ERROR_IO, "no descriptor left to wait with");
    return MOED_OK;
}

/* Takes all events of one stream that have arrived. */
static enum moed_code read_stream(struct run *r, uint32_t index, struct moed_error *error)
{
    struct stream *s = &r->streams[index];
    while (!s->done) {
        const struct moed_event *event;
        enum moed_code code = moed_request_next(s->request, 0, &event, error);
        if (code == MOED_ERROR_TIMEOUT)
            return MOED_OK;
        if (code)
            return code;
        double now_s = clock_s();
        for (size_t i = 0; i < event->token_count && s->n_tokens < r->n_most; i++)
            s->token_s[s->n_tokens++] = now_s;
        if (event->kind != MOED_EVENT_DONE)
            continue;
        s->done = true;
        s->result = *event->result;
        r->fds[index].fd = -1; /* poll ignores it */
        r->n_done++;
    }
    return MOED_OK;
}

/* The stream whose first token came last; NULL: not all have one. */
static const struct stream *last_stream(const struct run *r)
{
    const struct stream *last = &r->streams[0];
    for (uint32_t i = 0; i < r->n_started; i++) {
        const struct stream *s = &r->streams[i];
        if (s->n_tokens == 0)
            return NULL;
        last = s->token_s[0] > last->token_s[0] ? s : last;
    }
    return last;
}

/* When a stream has its tokens: later than the first one, with which several may come. 0: not yet.
 */
static double end_of(const struct run *r, const struct stream *s)
{
    for (uint32_t i = r->plan->generate - 1; i < s->n_tokens; i++)
        if (s->token_s[i] > s->token_s[0])
            return s->token_s[i];
    return 0;
}

static bool has_tokens(const struct run *r)
{
    const struct stream *last = last_stream(r);
    return last && (r->plan->streams > 1 ? end_of(r, last) > 0 : last->done);
}

/* A stream has ended before the last one has its tokens. */
static enum moed_code fail_early(const struct run *r, struct moed_error *error)
{
    const struct streams_plan *plan = r->plan;
    uint32_t began = 0;
    double ended_s = INFINITY; /* the first that did */
    for (uint32_t i = 0; i < r->n_started; i++)
        if (r->streams[i].done && r->streams[i].n_tokens)
            ended_s = fmin(ended_s, r->streams[i].token_s[r->streams[i].n_tokens - 1]);
    for (uint32_t i = 0; i < r->n_started; i++)
        began += r->streams[i].n_tokens && r->streams[i].token_s[0] <= ended_s;
    if (began < plan->streams)
        return fail(error, MOED_ERROR_LIMIT,
                    "%u of %u answers began before the first ended after %u tokens: start the "
                    "deployment with a larger --parallel",
                    (unsigned)began, (unsigned)plan->streams, (unsigned)r->n_most);
    return fail(error, MOED_ERROR_LIMIT,
                "an answer ended after %u tokens, before all had decoded %u together: start the "
                "deployment with a larger --ctx than %u, or give a smaller --generate",
                (unsigned)r->n_most, (unsigned)plan->generate, (unsigned)plan->context);
}

static enum moed_code read_all(struct run *r, struct moed_error *error)
{
    while (!has_tokens(r)) {
        if (r->n_done)
            return fail_early(r, error);
        poll(r->fds, r->n_started, LOOK_MS);
        if (*r->plan->stopping)
            return fail(error, MOED_ERROR_CANCELLED, "interrupted");
        for (uint32_t i = 0; i < r->n_started; i++) {
            if (r->streams[i].done || !r->fds[i].revents)
                continue;
            enum moed_code code = read_stream(r, i, error);
            if (code)
                return code;
        }
    }
    return MOED_OK;
}

static void time_one(const struct run *r, struct streams_speed *out)
{
    const struct moed_result *result = &r->streams[0].result;
    uint32_t computed = result->prompt_tokens - result->cached_tokens;
    out->prefill_tokens_per_s = computed / ((double)result->prefill_ns * 1e-9);
    out->decode_tokens_per_s = (result->generated_tokens - 1) / ((double)result->decode_ns * 1e-9);
    out->drafts_accepted = result->accepted_tokens > 0;
}

static void time_several(const struct run *r, struct streams_speed *out)
{
    const struct stream *last = last_stream(r);
    double from_s = last->token_s[0], to_s = end_of(r, last);
    uint32_t tokens = 0;
    for (uint32_t i = 0; i < r->n_started; i++)
        for (uint32_t t = 0; t < r->streams[i].n_tokens; t++)
            tokens += r->streams[i].token_s[t] > from_s && r->streams[i].token_s[t] <= to_s;
    out->prefill_tokens_per_s = 0;
    out->drafts_accepted = false; /* not asked: the streams are cancelled */
    out->decode_tokens_per_s = tokens / (to_s - from_s);
}

/* Cancels those that still run, and waits for their ends: what is measured next is to have the
 * machine for itself. */
static void end_streams(struct run *r)
{
    const struct moed_event *event;
    struct moed_error error;
    for (uint32_t i = 0; i < r->n_started; i++)
        moed_request_cancel(r->streams[i].request);
    for (uint32_t i = 0; i < r->n_started; i++) {
        struct stream *s = &r->streams[i];
        while (!s->done && !moed_request_next(s->request, -1, &event, &error))
            s->done = event->kind == MOED_EVENT_DONE;
        moed_request_free(s->request);
        free(s->token_s);
    }
}

static enum moed_code plan_tokens(struct run *r, struct moed_error *error)
{
    const struct streams_plan *plan = r->plan;
    uint32_t most = plan->context > plan->prompt_tokens ? plan->context - plan->prompt_tokens : 0;
    r->n_most = streams_most_tokens(plan->streams, plan->prompt_tokens, plan->generate);
    r->n_most = r->n_most < most ? r->n_most : most;
    if (r->n_most >= plan->generate)
        return MOED_OK;
    return fail(error, MOED_ERROR_LIMIT,
                "%u tokens after a prompt of %u are more than the deployment's context of %u: "
                "start it with a larger --ctx",
                (unsigned)plan->generate, (unsigned)plan->prompt_tokens, (unsigned)plan->context);
}

enum moed_code streams_run(struct moed_session *session, const struct streams_plan *plan,
                           struct streams_speed *out, struct moed_error *error)
{
    struct run *r = calloc(1, sizeof *r);
    if (!r)
        return fail(error, MOED_ERROR_MEMORY, "no memory for the streams");
    r->plan = plan;
    enum moed_code code = plan_tokens(r, error);
    while (!code && r->n_started < plan->streams)
        code = start_stream(r, session, error);
    if (!code)
        code = read_all(r, error);
    if (!code && plan->streams == 1)
        time_one(r, out);
    else if (!code)
        time_several(r, out);
    end_streams(r);
    free(r);
    return code;
}
