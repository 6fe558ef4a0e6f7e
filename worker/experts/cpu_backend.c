/* The CPU's share of a layer; see cpu_backend.h. */
#include "cpu_backend.h"

#include "base/clock.h"
#include "base/log.h"

#include <math.h>
#include <string.h>

/* The worker reclaims a job that takes SLOW_TIMES its expected time and at least SLOW_LEAST_S. */
#define SLOW_TIMES   50
#define SLOW_LEAST_S 1.0

void cpu_backend_find(struct cpu_backend *b, uint64_t now_ns)
{
    circuit_breaker_try_close(&b->breaker, true, now_ns);
    b->channel = !b->link || b->breaker.on ? NULL : expert_link_channel(b->link);
}

bool cpu_backend_send(struct cpu_backend *b, const struct cpu_backend_input *input)
{
    struct expert_channel *ch = b->channel;
    struct expert_job job = {.sequence = ++b->sequence,
                             .layer = input->layer,
                             .n_tokens = input->n_tokens,
                             .n_tasks = b->n_tasks,
                             .n_groups = input->groups.n};
    if (!b->inputs_sent) {
        memcpy(ch->indices, input->indices, (size_t)input->n_rows * sizeof *ch->indices);
        memcpy(ch->x, input->values, (size_t)input->n_tokens * input->d_model * sizeof *ch->x);
        for (uint32_t i = 0; i < input->groups.n; i++)
            ch->groups[i] = (struct expert_group_record){input->groups.groups[i].first,
                                                         input->groups.groups[i].n};
    }
    b->inputs_sent = true;
    if (ring_push(&ch->jobs, &job) != 1)
        return false;
    ring_notify(&ch->jobs);
    return true;
}

static bool is_too_slow(struct cpu_backend *b, double expected_s, bool patient, uint64_t started_ns)
{
    uint64_t now_ns = clock_ns();
    double took_s = (double)(now_ns - started_ns) * 1e-9;
    if (patient || took_s < fmax(SLOW_LEAST_S, SLOW_TIMES * expected_s))
        return false;
    circuit_breaker_open(&b->breaker, now_ns);
    log_warn("cpuexec takes %.1f s for a job that should take %.1f ms: the worker computes it, and "
             "sends no job for %.0f s",
             took_s, expected_s * 1e3, (double)b->breaker.length_ns * 1e-9);
    return true;
}

bool cpu_backend_await(struct cpu_backend *b, double expected_s, bool patient,
                       struct expert_completion *done)
{
    struct expert_channel *ch = b->channel;
    const _Atomic bool *dead = expert_link_dead(b->link);
    uint64_t progress = atomic_load(&ch->header->progress), started = clock_ns(), since = started;
    for (;;) {
        if (ring_wait(&ch->completions, dead, &b->spinner, EXPERT_STALL_MS / 4)) {
            if (ring_pop(&ch->completions, done) != 1)
                return false;
            if (done->sequence == b->sequence) {
                circuit_breaker_reset(&b->breaker);
                return done->status == ERROR_OK;
            }
            continue;
        }
        if (atomic_load(&ch->header->computing) != b->sequence)
            started = clock_ns(); /* the job waits for another worker's */
        if (atomic_load(dead) || is_too_slow(b, expected_s, patient, started))
            return false;
        uint64_t now = atomic_load(&ch->header->progress);
        if (now != progress) {
            progress = now;
            since = clock_ns();
        } else if (clock_ns() - since > EXPERT_STALL_MS * 1000000ull) {
            log_warn("cpuexec makes no progress: the worker computes its job");
            return false;
        }
    }
}

void cpu_backend_abandon(struct cpu_backend *b)
{
    expert_link_abandon(b->link);
    b->channel = NULL;
}
