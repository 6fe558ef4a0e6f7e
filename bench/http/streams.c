/* Timed streams; see streams.h. Both ways are read by the same loop, so that they share its cost.
 */
#include "streams.h"

#include "base/clock.h"
#include "base/sort_doubles.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUND_S 120 /* a round that takes longer has failed */

static void add(struct samples *s, double ms)
{
    if (s->count == s->capacity) {
        s->capacity = s->capacity ? 2 * s->capacity : 1024;
        s->ms = realloc(s->ms, s->capacity * sizeof *s->ms);
        if (!s->ms)
            abort();
    }
    s->ms[s->count++] = ms;
}

double samples_quantile(struct samples *s, double q)
{
    if (!s->count)
        return 0;
    sort_doubles(s->ms, s->count);
    return s->ms[(size_t)((double)(s->count - 1) * q)];
}

void timings_add(struct timings *t, const struct timings *from, size_t first, size_t between)
{
    for (size_t i = first; i < from->first.count; i++)
        add(&t->first, from->first.ms[i]);
    for (size_t i = between; i < from->between.count; i++)
        add(&t->between, from->between.ms[i]);
}

void timings_free(struct timings *t)
{
    free(t->first.ms);
    free(t->between.ms);
    *t = (struct timings){0};
}

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static bool start(const struct round_plan *plan, const struct way *way, uint32_t index,
                  struct stream *s)
{
    uint32_t *prompt = calloc(plan->prompt_tokens, sizeof *prompt);
    if (!prompt)
        return false;
    uint64_t state = plan->seed * STREAMS_MAX + index;
    for (uint32_t i = 0; i < plan->prompt_tokens; i++)
        prompt[i] = (uint32_t)(next_random(&state) % plan->vocab);
    *s = (struct stream){.fd = -1, .sent_ns = clock_ns()};
    bool good = way->start(way->arg, prompt, plan, s);
    free(prompt);
    return good;
}

static bool take(const struct way *way, struct stream *s, struct timings *t)
{
    bool text = false;
    if (!way->read(s, &text))
        return false;
    uint64_t now = clock_ns();
    if (text && s->last_ns)
        add(&t->between, (double)(now - s->last_ns) * 1e-6);
    else if (text)
        add(&t->first, (double)(now - s->sent_ns) * 1e-6);
    if (text)
        s->last_ns = now;
    return true;
}

struct round {
    struct stream streams[STREAMS_MAX];
    struct pollfd fds[STREAMS_MAX];
    uint32_t started, done;
};

static bool take_ready(struct round *r, const struct way *way, struct timings *t)
{
    for (uint32_t i = 0; i < r->started; i++) {
        if (!r->fds[i].revents || r->streams[i].done)
            continue;
        if (!take(way, &r->streams[i], t))
            return false;
        if (r->streams[i].done) {
            r->fds[i].fd = -1; /* poll ignores it */
            r->done++;
        }
    }
    return true;
}

static bool run_all(const struct round_plan *plan, const struct way *way, struct round *r,
                    struct timings *t)
{
    uint64_t begin = clock_ns(), end = begin + ROUND_S * 1000000000ull;
    while (r->done < plan->streams) {
        uint64_t next = begin + (uint64_t)r->started * plan->spacing_ms * 1000000u,
                 now = clock_ns();
        if (now > end) {
            fprintf(stderr, "bench-http: %s: %u of %u streams ended in %d s\n", way->name, r->done,
                    plan->streams, ROUND_S);
            return false;
        }
        if (r->started < plan->streams && now >= next) {
            struct stream *s = &r->streams[r->started++];
            if (!start(plan, way, r->started - 1, s))
                return false;
            r->fds[r->started - 1] = (struct pollfd){.fd = s->fd, .events = POLLIN};
            continue;
        }
        poll(r->fds, r->started, clock_ms_until(r->started < plan->streams ? next : end));
        if (!take_ready(r, way, t))
            return false;
    }
    return true;
}

bool round_run(const struct round_plan *plan, const struct way *way, struct timings *t)
{
    struct round *r = calloc(1, sizeof *r);
    bool good = r && run_all(plan, way, r, t);
    for (uint32_t i = 0; r && i < r->started; i++)
        way->end(&r->streams[i]);
    free(r);
    return good;
}
