/* Streams through libmoed; see ways.h. */
#include "ways.h"

#include <stdio.h>

static bool complain(const struct moed_error *error)
{
    fprintf(stderr, "bench-http: libmoed: %s\n", error->message);
    return false;
}

static bool start(void *arg, const uint32_t *prompt, const struct round_plan *plan,
                  struct stream *s)
{
    struct moed_error error;
    struct moed_request *request;
    struct moed_generate_options options = {.size = sizeof options,
                                            .tokens = prompt,
                                            .token_count = plan->prompt_tokens,
                                            .ignore_end = true,
                                            .max_tokens = plan->generate};
    if (moed_generate_start(arg, &options, &request, &error))
        return complain(&error);
    s->state = request;
    s->fd = moed_request_fd(request);
    return s->fd >= 0;
}

static bool take(struct stream *s, bool *text)
{
    struct moed_error error;
    const struct moed_event *event;
    enum moed_code code;
    while (!(code = moed_request_next(s->state, 0, &event, &error))) {
        if (event->kind == MOED_EVENT_TOKENS && event->text_bytes)
            *text = true;
        s->done = event->kind == MOED_EVENT_DONE;
        if (s->done)
            return true;
    }
    return code == MOED_ERROR_TIMEOUT || complain(&error);
}

static void end(struct stream *s)
{
    moed_request_free(s->state);
}

struct way way_libmoed(struct moed_session *session)
{
    return (struct way){
        .name = "libmoed", .arg = session, .start = start, .read = take, .end = end};
}
