/* Routed experts; see experts.h.
 *
 * A link is one region shared with one executor (ipc/expert_channel.h). The connector thread makes links:
 * whenever there is none alive it connects, offers a fresh region, and hands the accepted link to the engine
 * thread through `fresh`; then it waits for the link's end. The engine thread owns `link` from the moment it
 * takes it; a link that died or stalled is never used again, so what a late executor writes is not read.
 *
 *   (none) --connector: accepted--> fresh --engine: begin--> link --dead or stalled--> dropped
 */
#include "experts.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/run_dir.h"
#include "ipc/expert_channel.h"
#include "ipc/lease.h"
#include "ipc/shm.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECT_TIMEOUT_MS 200
#define ACCEPT_TIMEOUT_MS  5000
#define RETRY_MS           50

struct link {
    int fd;
    struct shm shm;
    struct expert_channel channel;
    _Atomic bool dead; /* the executor has gone; set by the connector */
    _Atomic int holders; /* connector and engine: the last one frees */
};

struct experts {
    char run[RUN_DIR_BYTES];
    const struct memory_client *memory;
    struct exec *own;
    uint32_t max_tokens, n_used, n_experts, d_model;
    unsigned spin_us;
    struct experts_counters counters;

    /* connector */
    pthread_t connector;
    bool connector_started;
    int stop_fd;
    _Atomic bool stop;
    pthread_mutex_t lock;
    pthread_cond_t attached;
    struct link *fresh; /* guarded by lock: accepted, not yet taken by the engine */

    /* engine */
    struct link *link;
    uint64_t sequence;
    bool sent; /* the job under way is with the link */
    bool one_request;
    uint32_t layer, n_tokens, n_tasks;
    const float *values;
    struct expert_task *tasks; /* [n_experts] */
    uint32_t *indices;         /* [max_tokens * n_used]: token of each row */
    uint32_t *row_of;          /* [max_tokens * n_used]: row of each token and rank */
    uint32_t *first_row;       /* [n_experts + 1] */
    float *rows;               /* [max_tokens * n_used][d_model]: of our own computing */
};

static void link_release(struct link *l)
{
    if (!l || atomic_fetch_sub(&l->holders, 1) != 1)
        return;
    shm_close(&l->shm);
    if (l->fd >= 0)
        close(l->fd);
    free(l);
}

static enum error_code make_region(struct experts *x, struct link *l, struct error *e)
{
    size_t bytes = expert_channel_bytes(x->max_tokens, x->n_used, x->n_experts, x->d_model);
    enum error_code code = shm_create("moed-experts", bytes, &l->shm, e);
    if (code)
        return code;
    expert_channel_init(l->shm.base, x->max_tokens, x->n_used, x->n_experts, x->d_model,
                        x->memory->generation);
    return expert_channel_attach(&l->channel, l->shm.base, l->shm.bytes, e);
}

/* Until the executor has answered the offer, or we end. */
static enum error_code wait_for_answer(struct experts *x, struct link *l, struct error *e)
{
    struct pollfd fds[] = {{.fd = l->fd, .events = POLLIN}, {.fd = x->stop_fd, .events = POLLIN}};
    int n = poll(fds, 2, ACCEPT_TIMEOUT_MS);
    if (n > 0 && fds[0].revents)
        return ERROR_OK;
    return error_set(e, ERROR_TIMEOUT, "cpuexec does not answer the offer");
}

static enum error_code offer_region(struct experts *x, struct link *l, struct error *e)
{
    struct lease_message m = {.magic = LEASE_MAGIC, .kind = EXPERT_OFFER};
    m.value[0] = l->shm.bytes;
    m.value[1] = x->memory->generation;
    enum error_code code = lease_send(l->fd, &m, &l->shm.fd, 1, e);
    if (!code)
        code = wait_for_answer(x, l, e);
    if (!code)
        code = lease_receive(l->fd, &m, NULL, 0, &(unsigned){0}, 0, e);
    if (!code && m.kind != EXPERT_ACCEPT)
        code = error_set(e, ERROR_PROTOCOL, "the executor refused (%s)",
                         error_meaning((enum error_code)m.value[0]));
    return code;
}

static struct link *connect_link(struct experts *x, struct error *e)
{
    struct link *l = calloc(1, sizeof *l);
    if (!l) {
        error_set(e, ERROR_MEMORY, "no memory for a link");
        return NULL;
    }
    *l = (struct link){.fd = -1, .shm.fd = -1, .holders = 1};
    char path[RUN_PATH_BYTES];
    run_dir_file(x->run, "cpuexec.lease", path);
    enum error_code code = lease_connect(path, CONNECT_TIMEOUT_MS, &l->fd, e);
    if (!code)
        code = make_region(x, l, e);
    if (!code)
        code = offer_region(x, l, e);
    if (code) {
        link_release(l);
        return NULL;
    }
    return l;
}

/* Until the executor or we end. */
static void wait_for_end(struct experts *x, struct link *l)
{
    struct pollfd fds[] = {{.fd = l->fd, .events = POLLIN}, {.fd = x->stop_fd, .events = POLLIN}};
    while (poll(fds, 2, -1) < 0 && errno == EINTR) {
    }
    atomic_store(&l->dead, true);
    doorbell_ring(&l->channel.completions.header->doorbell); /* the engine may wait for an answer */
}

static void hand_over(struct experts *x, struct link *l)
{
    atomic_store(&l->holders, 2);
    pthread_mutex_lock(&x->lock);
    struct link *unused = x->fresh;
    x->fresh = l;
    pthread_cond_broadcast(&x->attached);
    pthread_mutex_unlock(&x->lock);
    link_release(unused);
}

static void *connector_main(void *arg)
{
    struct experts *x = arg;
    pthread_setname_np(pthread_self(), "worker/cpuexec");
    bool said = false;
    while (!atomic_load(&x->stop)) {
        struct error e;
        struct link *l = connect_link(x, &e);
        if (l) {
            log_info("cpuexec attached");
            hand_over(x, l);
            wait_for_end(x, l);
            link_release(l);
            said = false;
            if (!atomic_load(&x->stop))
                log_warn("cpuexec has gone: computing experts here until it is back");
            continue;
        }
        if (!said)
            log_info("no cpuexec yet: %s", e.text);
        said = true;
        poll(&(struct pollfd){.fd = x->stop_fd, .events = POLLIN}, 1, RETRY_MS);
    }
    return NULL;
}

static bool allocate(struct experts *x)
{
    size_t rows = (size_t)x->max_tokens * x->n_used;
    x->tasks = calloc(x->n_experts, sizeof *x->tasks);
    x->indices = calloc(rows, sizeof *x->indices);
    x->row_of = calloc(rows, sizeof *x->row_of);
    x->first_row = calloc(x->n_experts + 1u, sizeof *x->first_row);
    x->rows = calloc(rows * x->d_model, sizeof *x->rows);
    return x->tasks && x->indices && x->row_of && x->first_row && x->rows;
}

enum error_code experts_new(const char *run, const struct memory_client *memory, struct exec *own,
                            uint32_t max_tokens, unsigned spin_us,
                            const struct experts_counters *counters, struct experts **out,
                            struct error *e)
{
    const struct model_params *p = &memory->map.params;
    struct experts *x = calloc(1, sizeof *x);
    if (!x)
        return error_set(e, ERROR_MEMORY, "no memory for the experts' tables");
    memcpy(x->run, run, strnlen(run, sizeof x->run - 1));
    x->memory = memory;
    x->own = own;
    x->max_tokens = max_tokens;
    x->n_used = p->n_used;
    x->n_experts = p->n_experts;
    x->d_model = p->d_model;
    x->spin_us = spin_us;
    x->counters = *counters;
    pthread_mutex_init(&x->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&x->attached, &monotonic);
    pthread_condattr_destroy(&monotonic);
    x->stop_fd = eventfd(0, EFD_CLOEXEC);
    enum error_code code = ERROR_OK;
    if (x->stop_fd < 0 || !allocate(x))
        code = error_set(e, ERROR_MEMORY, "no memory for the experts' tables");
    else if (pthread_create(&x->connector, NULL, connector_main, x))
        code = error_set(e, ERROR_MEMORY, "cannot start the thread that connects to cpuexec");
    else
        x->connector_started = true;
    if (code) {
        experts_free(x);
        return code;
    }
    *out = x;
    return ERROR_OK;
}

void experts_free(struct experts *x)
{
    if (!x)
        return;
    atomic_store(&x->stop, true);
    if (x->stop_fd >= 0 && eventfd_write(x->stop_fd, 1))
        log_warn("eventfd: %m");
    if (x->connector_started)
        pthread_join(x->connector, NULL);
    link_release(x->link);
    link_release(x->fresh);
    if (x->stop_fd >= 0)
        close(x->stop_fd);
    free(x->tasks);
    free(x->indices);
    free(x->row_of);
    free(x->first_row);
    free(x->rows);
    pthread_mutex_destroy(&x->lock);
    pthread_cond_destroy(&x->attached);
    free(x);
}

bool experts_wait(struct experts *x, int timeout_ms)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += timeout_ms / 1000;
    end.tv_nsec += timeout_ms % 1000 * 1000000l;
    if (end.tv_nsec >= 1000000000l) {
        end.tv_sec++;
        end.tv_nsec -= 1000000000l;
    }
    pthread_mutex_lock(&x->lock);
    while (!x->fresh && pthread_cond_timedwait(&x->attached, &x->lock, &end) == 0) {
    }
    bool attached = x->fresh != NULL;
    pthread_mutex_unlock(&x->lock);
    return attached;
}

/* Drop a link that has died; take a new one. */
static void refresh_link(struct experts *x)
{
    if (x->link && !atomic_load(&x->link->dead))
        return;
    pthread_mutex_lock(&x->lock);
    struct link *fresh = x->fresh;
    x->fresh = NULL;
    pthread_mutex_unlock(&x->lock);
    if (x->link || fresh) {
        link_release(x->link);
        x->link = fresh;
    }
}

/* One task for each activated expert, ascending; its rows are its tokens, ascending. */
static void plan_tasks(struct experts *x, uint32_t layer, uint32_t n_tokens,
                       const uint32_t *selected)
{
    uint32_t *next = x->first_row, n_rows = n_tokens * x->n_used;
    memset(next, 0, (x->n_experts + 1u) * sizeof *next);
    for (uint32_t i = 0; i < n_rows; i++)
        next[selected[i] + 1]++;
    for (uint32_t expert = 0; expert < x->n_experts; expert++)
        next[expert + 1] += next[expert];
    x->n_tasks = 0;
    for (uint32_t expert = 0; expert < x->n_experts; expert++) {
        uint32_t first = next[expert], n = next[expert + 1] - first;
        if (!n)
            continue;
        /* Leading segments that are resident are the device's; the `host` device has none. */
        struct residency r = residency_read(&x->memory->residency, layer, expert);
        x->tasks[x->n_tasks++] = (struct expert_task){
            .expert = expert,
            .first_segment = r.resident,
            .n_segments = x->memory->map.slabs[layer].n_segments - r.resident,
            .n_tokens = n,
            .tokens = x->indices + first,
        };
    }
    for (uint32_t i = 0; i < n_rows; i++) {
        uint32_t row = next[selected[i]]++;
        x->indices[row] = i / x->n_used;
        x->row_of[i] = row;
    }
}

static bool send_job(struct experts *x)
{
    struct expert_channel *ch = &x->link->channel;
    struct expert_job job = {.sequence = ++x->sequence,
                             .layer = x->layer,
                             .n_tokens = x->n_tokens,
                             .n_tasks = x->n_tasks,
                             .flags = x->one_request ? EXPERT_JOB_ONE_REQUEST : 0};
    for (uint32_t i = 0; i < x->n_tasks; i++)
        ch->tasks[i] = (struct expert_task_record){
            .expert = x->tasks[i].expert,
            .first_segment = x->tasks[i].first_segment,
            .n_segments = x->tasks[i].n_segments,
            .first_row = (uint32_t)(x->tasks[i].tokens - x->indices),
            .n_rows = x->tasks[i].n_tokens,
        };
    memcpy(ch->indices, x->indices, (size_t)x->n_tokens * x->n_used * sizeof *ch->indices);
    memcpy(ch->x, x->values, (size_t)x->n_tokens * x->d_model * sizeof *ch->x);
    if (ring_push(&ch->jobs, &job) != 1)
        return false;
    ring_notify(&ch->jobs);
    return true;
}

/* A link that failed us is not used again, even if its executor still lives. */
static void abandon_link(struct experts *x)
{
    atomic_store(&x->link->dead, true);
    shutdown(x->link->fd, SHUT_RDWR); /* wakes the connector: it makes a new one */
    link_release(x->link);
    x->link = NULL;
    counter_add(x->counters.taken_back, 1);
}

void experts_begin(struct experts *x, uint32_t layer, const float *values, uint32_t n_tokens,
                   const uint32_t *selected, bool one_request)
{
    x->layer = layer;
    x->one_request = one_request;
    x->n_tokens = n_tokens;
    x->values = values;
    plan_tasks(x, layer, n_tokens, selected);
    refresh_link(x);
    x->sent = x->link && send_job(x);
    if (x->link && !x->sent)
        abandon_link(x);
}

/* The completion of the job under way; false when the link died or stalled first. */
static bool await_completion(struct experts *x)
{
    struct expert_channel *ch = &x->link->channel;
    uint64_t progress = atomic_load(&ch->header->progress), since = clock_ns();
    for (;;) {
        struct expert_completion done;
        if (ring_wait(&ch->completions, &x->link->dead, x->spin_us, EXPERT_STALL_MS / 4)) {
            if (ring_pop(&ch->completions, &done) != 1)
                return false;
            if (done.sequence == x->sequence)
                return done.status == ERROR_OK;
            continue;
        }
        if (atomic_load(&x->link->dead))
            return false;
        uint64_t now = atomic_load(&ch->header->progress);
        if (now != progress) {
            progress = now;
            since = clock_ns();
        } else if (clock_ns() - since > EXPERT_STALL_MS * 1000000ull) {
            log_warn("cpuexec makes no progress: its work is taken back");
            return false;
        }
    }
}

static const float *compute_here(struct experts *x)
{
    const struct pool_map *map = &x->memory->map;
    const struct pool_slabs *slabs = &map->slabs[x->layer];
    bool quantize = exec_quantizes((enum tensor_type)slabs->gate_type) ||
                    exec_quantizes((enum tensor_type)slabs->up_type);
    for (uint32_t i = 0; i < x->n_tasks; i++)
        x->tasks[i].out = x->rows + (size_t)(x->tasks[i].tokens - x->indices) * x->d_model;
    const struct activations *a =
        exec_prepare(x->own, 1, x->values, x->d_model, x->n_tokens, x->d_model, quantize);
    exec_experts(x->own, map, x->layer, a, x->tasks, x->n_tasks);
    counter_add(x->counters.local, x->n_tasks);
    return x->rows;
}

const float *experts_finish(struct experts *x)
{
    if (!x->sent)
        return compute_here(x);
    uint64_t started = clock_ns();
    bool answered = await_completion(x);
    counter_add(x->counters.wait_ns, clock_ns() - started);
    if (!answered) {
        abandon_link(x);
        return compute_here(x);
    }
    counter_add(x->counters.sent, x->n_tasks);
    return x->link->channel.out;
}

uint32_t experts_row(const struct experts *x, uint32_t token, uint32_t rank)
{
    return x->row_of[token * x->n_used + rank];
}
