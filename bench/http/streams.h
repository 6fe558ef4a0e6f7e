/* Several streams at once, through one way to the model, timed by when their text arrives. */
#ifndef MOED_BENCH_HTTP_STREAMS_H
#define MOED_BENCH_HTTP_STREAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STREAMS_MAX 256

/* One round: `streams` answers, one started every spacing_ms, to prompts of random ids. */
struct round_plan {
    uint32_t streams, prompt_tokens, generate, spacing_ms, vocab;
    uint64_t seed;
};

struct samples {
    double *ms;
    size_t count, capacity;
};

/* What clients see: from a request's submission to its first text, and from each arrival of text to
 * the next of the same stream. */
struct timings {
    struct samples first, between;
};

struct stream {
    int fd; /* readable while the stream has something */
    uint64_t sent_ns, last_ns;
    bool done;
    void *state; /* the way's */
};

/* A way to the model. */
struct way {
    const char *name;
    void *arg;
    /* Submits a prompt and sets s->fd. */
    bool (*start)(void *arg, const uint32_t *prompt, const struct round_plan *plan,
                  struct stream *s);
    /* Takes what is there without waiting. *text: some of the answer's text came. False: the stream
     * has failed; the way has said why on standard error. */
    bool (*read)(struct stream *s, bool *text);
    void (*end)(struct stream *s);
};

/* Adds to *t. False: a stream has failed. */
bool round_run(const struct round_plan *plan, const struct way *way, struct timings *t);

/* Adds to *t what *from has from these places on. */
void timings_add(struct timings *t, const struct timings *from, size_t first, size_t between);
void timings_free(struct timings *t);
/* The q-th quantile, in ms; sorts them. 0 where there are none. */
double samples_quantile(struct samples *s, double q);

#endif
