/* Serving workers; see serve.h.
 *
 *     accepted --(a good offer)--> serving --(worker gone, ring broken, serve_close)--> finished
 *        \--(a bad offer, none in time)----------------------------------------------------^
 *
 * The watch thread accepts, starts a connection's thread, and frees the entry of a finished one
 * when the next worker comes. A connection's thread does the handshake, then takes jobs from its
 * ring. It holds `compute` while the pool computes one. No job allocates memory. */
#include "serve.h"

#include "job.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/run_dir.h"
#include "exec/exec.h"
#include "ipc/expert_channel.h"
#include "ipc/lease_listener.h"
#include "ipc/lease_offer.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define OFFER_TIMEOUT_MS 2000
#define MAX_CONNECTIONS  32

struct connection {
    struct serve *serve;
    int fd;
    pid_t pid;
    pthread_t thread;
    bool used;             /* the entry is in use: the watch thread's, then serve_close's */
    _Atomic bool stop;     /* the worker has gone, or serve_close ends the thread */
    _Atomic bool finished; /* the thread is about to return */
    _Atomic(struct ring_header *) bell; /* wakes the thread; NULL before it serves */
    struct shm shm;
    struct expert_channel channel;
    struct exec *exec;
    struct expert_task *tasks; /* [max_tasks] */
    uint32_t *indices;         /* [max_rows]: checked copies of the channel's */
    struct row_group *groups;  /* [max_tokens]: too */
};

struct serve {
    const struct memory_client *memory;
    struct pool *pool;
    bool rounds;
    unsigned spin_us; /* at least: base/spinner.h */
    struct serve_counters counters;
    struct watch *watch;
    struct lease_listener listener;
    pthread_mutex_t compute; /* held while the pool computes a job */
    struct connection connections[MAX_CONNECTIONS];
};

static enum error_code prepare_compute(struct connection *c, struct error *e)
{
    const struct model_params *p = &c->serve->memory->map.params;
    if (c->channel.d_model != p->d_model)
        return error_set(e, ERROR_PROTOCOL,
                         "the channel is for width %" PRIu32 ", the model has %" PRIu32,
                         c->channel.d_model, p->d_model);
    struct exec_limits limits = {.max_tokens = c->channel.max_tokens,
                                 .max_cols = p->d_model > p->d_expert ? p->d_model : p->d_expert,
                                 .max_task_rows = c->channel.max_rows,
                                 .max_width = p->d_expert};
    c->tasks = calloc(c->channel.max_tasks, sizeof *c->tasks);
    c->indices = calloc(c->channel.max_rows, sizeof *c->indices);
    c->groups = calloc(c->channel.max_tokens, sizeof *c->groups);
    if (!c->tasks || !c->indices || !c->groups)
        return error_set(e, ERROR_MEMORY, "no memory for the job's tables");
    enum error_code code = exec_new(c->serve->pool, &limits, c->serve->rounds, &c->exec, e);
    if (!code)
        exec_set_progress(c->exec, &c->channel.header->progress);
    return code;
}

static enum error_code handshake(struct connection *c, struct error *e)
{
    int region_fd;
    uint64_t bytes;
    enum error_code code = lease_offer_receive(c->fd, EXPERT_OFFER, c->serve->memory->generation,
                                               OFFER_TIMEOUT_MS, &region_fd, &bytes, e);
    if (code)
        return code;
    code = shm_map(region_fd, true, bytes, &c->shm, e);
    if (!code)
        code = expert_channel_attach(&c->channel, c->shm.base, c->shm.bytes, e);
    if (!code)
        code = prepare_compute(c, e);
    enum error_code sent = lease_offer_answer(c->fd, EXPERT_OFFER, code, code ? NULL : e);
    return code ? code : sent;
}

static void count_job(const struct connection *c, const struct expert_job *job, uint64_t ns)
{
    const struct serve_counters *k = &c->serve->counters;
    const struct pool_slabs *slabs = &c->serve->memory->map.slabs[job->layer];
    uint64_t rows = 0, bytes = 0;
    for (uint32_t i = 0; i < job->n_tasks; i++) {
        rows += c->tasks[i].n_tokens;
        bytes += c->tasks[i].n_segments * slabs->segment_bytes;
    }
    counter_add(k->jobs, 1);
    counter_add(k->experts, job->n_tasks);
    counter_add(k->rows, rows);
    counter_add(k->weight_bytes, bytes);
    counter_add(k->compute_ns, ns);
    histogram_observe(k->job_seconds, (double)ns * 1e-9);
}

/* The pool computes one worker's job at a time. Waiting for the others counts as progress, so that
 * a worker does not reclaim a job that will be computed; but only for a minute, after which it may.
 */
#define MAX_WAIT_LOOKS 240 /* of a quarter of EXPERT_STALL_MS */

static void wait_turn(struct connection *c)
{
    for (int looks = 0;; looks++) {
        struct timespec end;
        /* The clock of pthread_mutex_timedlock, the one that ThreadSanitizer knows. */
        clock_gettime(CLOCK_REALTIME, &end);
        end.tv_nsec += EXPERT_STALL_MS / 4 * 1000000l;
        end.tv_sec += end.tv_nsec / 1000000000l;
        end.tv_nsec %= 1000000000l;
        if (pthread_mutex_timedlock(&c->serve->compute, &end) == 0)
            return;
        if (looks < MAX_WAIT_LOOKS)
            atomic_fetch_add(&c->channel.header->progress, 1);
    }
}

static void compute(struct connection *c, const struct expert_job *job)
{
    const struct pool_map *map = &c->serve->memory->map;
    const struct pool_slabs *slabs = &map->slabs[job->layer];
    bool quantize = exec_experts_quantize(slabs);
    wait_turn(c);
    atomic_store(&c->channel.header->computing, job->sequence);
    pool_wake(c->serve->pool);
    exec_set_groups(c->exec, &(struct row_groups){c->groups, job->n_groups});
    const struct activations *a = exec_prepare(c->exec, 0, c->channel.x, c->channel.d_model,
                                               job->n_tokens, c->channel.d_model, quantize);
    exec_experts(c->exec, map, job->layer, a, c->tasks, job->n_tasks);
    pthread_mutex_unlock(&c->serve->compute);
}

/* False when the connection can no longer be used. */
static bool serve_job(struct connection *c, const struct expert_job *job)
{
    struct error e;
    uint64_t started = clock_ns();
    const struct memory_client *memory = c->serve->memory;
    enum error_code code =
        expert_job_take(&c->channel, job, &memory->map, &memory->tier, c->tasks, c->indices, &e);
    if (!code)
        code = expert_job_take_groups(&c->channel, job, c->groups, &e);
    if (code) {
        log_warn("worker %d: %s", (int)c->pid, e.text);
        counter_add(c->serve->counters.refused, 1);
    } else {
        compute(c, job);
    }
    struct expert_completion done = {.sequence = job->sequence, .status = code};
    done.ended_ns = clock_ns();
    done.compute_ns = done.ended_ns - started;
    if (ring_push(&c->channel.completions, &done) != 1) {
        log_warn("worker %d: its completion ring is full or broken", (int)c->pid);
        return false;
    }
    ring_notify(&c->channel.completions);
    if (!code)
        count_job(c, job, done.compute_ns);
    return true;
}

static void serve_jobs(struct connection *c)
{
    struct spinner spinner;
    spinner_init(&spinner, c->serve->spin_us);
    while (!atomic_load(&c->stop)) {
        struct expert_job job;
        if (!ring_wait(&c->channel.jobs, &c->stop, &spinner, -1))
            continue;
        int popped = ring_pop(&c->channel.jobs, &job);
        if (popped < 0) {
            log_warn("worker %d: its job ring is broken", (int)c->pid);
            return;
        }
        if (popped == 1 && !serve_job(c, &job))
            return;
    }
}

static void stop_connection(struct connection *c)
{
    atomic_store(&c->stop, true);
    struct ring_header *bell = atomic_load(&c->bell);
    if (bell)
        doorbell_ring(&bell->doorbell);
}

/* After the handshake the worker sends nothing on its socket: when it is readable, the worker has
 * gone, or misbehaves. */
static bool worker_gone(void *arg, int fd)
{
    (void)fd;
    stop_connection(arg);
    return false;
}

static void *connection_main(void *arg)
{
    struct connection *c = arg;
    struct error e;
    pthread_setname_np(pthread_self(), "cpuexec/serve");
    pool_settle_caller(c->serve->pool);
    enum error_code code = handshake(c, &e);
    if (code) {
        if (!atomic_load(&c->stop))
            log_warn("worker %d: %s", (int)c->pid, e.text);
    } else {
        log_info("worker %d attached: up to %" PRIu32 " tokens a job", (int)c->pid,
                 c->channel.max_tokens);
        atomic_store(&c->bell, c->channel.jobs.header);
        if (watch_add(c->serve->watch, c->fd, worker_gone, c, &e) == ERROR_OK)
            serve_jobs(c);
        else
            log_warn("worker %d: %s", (int)c->pid, e.text);
        watch_remove(c->serve->watch, c->fd);
        log_info("worker %d has gone", (int)c->pid);
    }
    shutdown(c->fd, SHUT_RDWR); /* reports the end to a worker that is dropped */
    atomic_store(&c->finished, true);
    return NULL;
}

static void free_connection(struct connection *c)
{
    pthread_join(c->thread, NULL);
    exec_free(c->exec);
    free(c->tasks);
    free(c->indices);
    free(c->groups);
    shm_close(&c->shm);
    close(c->fd);
    *c = (struct connection){.shm.fd = -1, .fd = -1};
}

static struct connection *take_entry(struct serve *s)
{
    for (int i = 0; i < MAX_CONNECTIONS; i++) {
        struct connection *c = &s->connections[i];
        if (c->used && atomic_load(&c->finished))
            free_connection(c);
        if (!c->used)
            return c;
    }
    return NULL;
}

static enum error_code start_connection(struct serve *s, int fd, pid_t pid, struct error *e)
{
    struct connection *c = take_entry(s);
    if (!c)
        return error_set(e, ERROR_LIMIT, "%d workers are attached", MAX_CONNECTIONS);
    *c = (struct connection){.serve = s, .fd = fd, .pid = pid, .shm.fd = -1};
    c->used = pthread_create(&c->thread, NULL, connection_main, c) == 0;
    return c->used ? ERROR_OK : error_set(e, ERROR_MEMORY, "cannot start a thread for it");
}

static void on_accepted(void *arg, int fd, const struct lease_peer *peer)
{
    struct error e;
    if (peer->pidfd >= 0)
        close(peer->pidfd); /* the end of the connection reports the worker's death, too */
    if (start_connection(arg, fd, peer->pid, &e)) {
        log_warn("worker %d refused: %s", (int)peer->pid, e.text);
        close(fd);
    }
}

enum error_code serve_open(const char *run, const struct memory_client *memory, struct pool *pool,
                           bool rounds, unsigned spin_us, const struct serve_counters *counters,
                           struct serve **out, struct error *e)
{
    struct serve *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(e, ERROR_MEMORY, "no memory for the table of workers");
    s->memory = memory;
    s->pool = pool;
    s->rounds = rounds;
    s->spin_us = spin_us;
    s->counters = *counters;
    pthread_mutex_init(&s->compute, NULL);
    char path[RUN_PATH_BYTES];
    run_dir_file(run, "cpuexec.lease", path);
    enum error_code code = watch_new("cpuexec/leases", &s->watch, e);
    if (!code)
        code = lease_listener_open(&s->listener, path, s->watch, on_accepted, s, e);
    if (code) {
        serve_close(s);
        return code;
    }
    *out = s;
    return ERROR_OK;
}

void serve_close(struct serve *s)
{
    if (!s)
        return;
    lease_listener_close(&s->listener);
    for (int i = 0; i < MAX_CONNECTIONS; i++)
        if (s->connections[i].used) {
            stop_connection(&s->connections[i]);
            shutdown(s->connections[i].fd, SHUT_RDWR); /* its thread may still wait for an offer */
            free_connection(&s->connections[i]);
        }
    watch_free(s->watch);
    pthread_mutex_destroy(&s->compute);
    free(s);
}
