/* Timed requests; see streams.h.
 *
 * The worker times a single stream: it knows when the request began and when each token was ready.
 * Several streams are timed here by the arrival of their tokens, from the last stream's first token
 * to the first stream's last one. So only steps count in which every stream takes part.
 */
#include "streams.h"

#include "base/clock.h"

#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_MS 100 /* an interruption is noticed within this time */

struct stream {
    struct moed_request *request;
    bool done;
    struct moed_result result;
    double *token_s; /* [generate]: arrival of each */
    uint32_t n_tokens;
};

struct run {
    const struct streams_plan *plan;
    struct stream streams[MAX_STREAMS];
    struct pollfd fds[MAX_STREAMS];
    uint32_t n_started, n_done;
};

static enum moed_code fail(struct moed_error *error, enum moed_code code, const char *message)
{
    *error = (struct moed_error){.code = code};
    snprintf(error->message, sizeof error->message, "%s", message);
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
    s->token_s = calloc(plan->generate, sizeof *s->token_s);
    uint64_t state = plan->seed * MAX_STREAMS + index;
    for (uint32_t i = 0; prompt && i < plan->prompt_tokens; i++)
        prompt[i] = (uint32_t)(next_random(&state) % plan->vocab);
    struct moed_generate_options options = {.size = sizeof options,
                                            .tokens = prompt,
                                            .token_count = plan->prompt_tokens,
                                            .ignore_end = true,
                                            .max_tokens = plan->generate};
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
        for (size_t i = 0; i < event->token_count && s->n_tokens < r->plan->generate; i++)
            s->token_s[s->n_tokens++] = clock_s();
        if (event->kind != MOED_EVENT_DONE)
            continue;
        s->done = true;
        s->result = *event->result;
        r->fds[index].fd = -1; /* poll ignores it */
        r->n_done++;
        if (s->n_tokens != r->plan->generate)
            return fail(error, MOED_ERROR_LIMIT, "the context ended before the answer did");
    }
    return MOED_OK;
}

static enum moed_code read_all(struct run *r, struct moed_error *error)
{
    while (r->n_done < r->n_started) {
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
    out->prefill_tokens_per_s = result->prompt_tokens / ((double)result->prefill_ns * 1e-9);
    out->decode_tokens_per_s = (result->generated_tokens - 1) / ((double)result->decode_ns * 1e-9);
}

static enum moed_code time_several(const struct run *r, struct streams_speed *out,
                                   struct moed_error *error)
{
    uint32_t last = r->plan->generate - 1, tokens = 0;
    double from_s = r->streams[0].token_s[0], to_s = r->streams[0].token_s[last];
    for (uint32_t i = 1; i < r->n_started; i++) {
        const struct stream *s = &r->streams[i];
        from_s = s->token_s[0] > from_s ? s->token_s[0] : from_s;
        to_s = s->token_s[last] < to_s ? s->token_s[last] : to_s;
    }
    for (uint32_t i = 0; i < r->n_started; i++)
        for (uint32_t t = 0; t <= last; t++)
            tokens += r->streams[i].token_s[t] > from_s && r->streams[i].token_s[t] <= to_s;
    if (to_s <= from_s)
        return fail(error, MOED_ERROR_LIMIT,
                    "the streams did not decode together: start the deployment with a larger "
                    "--parallel, or give a larger --generate");
    out->prefill_tokens_per_s = 0;
    out->decode_tokens_per_s = tokens / (to_s - from_s);
    return MOED_OK;
}

enum moed_code streams_run(struct moed_session *session, const struct streams_plan *plan,
                           struct streams_speed *out, struct moed_error *error)
{
    struct run *r = calloc(1, sizeof *r);
    if (!r)
        return fail(error, MOED_ERROR_MEMORY, "no memory for the streams");
    r->plan = plan;
    enum moed_code code = MOED_OK;
    while (!code && r->n_started < plan->streams)
        code = start_stream(r, session, error);
    if (!code)
        code = read_all(r, error);
    if (!code && plan->streams == 1)
        time_one(r, out);
    else if (!code)
        code = time_several(r, out, error);
    for (uint32_t i = 0; i < r->n_started; i++) {
        moed_request_free(r->streams[i].request);
        free(r->streams[i].token_s);
    }
    free(r);
    return code;
}
