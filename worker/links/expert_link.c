/* The connection to the CPU executor; see expert_link.h.
 *
 * The worker shares a region with one executor. The connector thread makes regions: if no executor
 * is attached, it connects, offers a new region, hands the accepted one to the engine's thread
 * through `fresh`, and waits for its end. The engine owns `current` once it has taken it. A region
 * whose executor died or stalled is never used again, so the engine reads nothing that a late
 * executor writes.
 *
 *   (none) --connector: accepted--> fresh --engine: channel--> current --dead or stalled--> dropped
 */
#include "expert_link.h"

#include "base/log.h"
#include "daemon/run_dir.h"
#include "ipc/lease_offer.h"
#include "ipc/shm.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONNECT_TIMEOUT_MS 200
#define ACCEPT_TIMEOUT_MS  5000
#define RETRY_MS           50

struct link {
    int fd;
    struct shm shm;
    struct expert_channel channel;
    _Atomic bool dead;   /* the executor has gone, or its channel was given up */
    _Atomic int holders; /* connector and engine; the last to release it frees it */
};

struct expert_link {
    char run[RUN_DIR_BYTES];
    const struct memory_client *memory;
    uint32_t max_tokens;
    pthread_t connector;
    bool connector_started;
    int stop_fd;
    _Atomic bool stop;
    pthread_mutex_t lock;
    pthread_cond_t attached;
    struct link *fresh;   /* guarded by lock: accepted, not yet taken by the engine */
    struct link *current; /* the engine's */
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

static enum error_code make_region(struct expert_link *x, struct link *l, struct error *e)
{
    const struct model_params *p = &x->memory->map.params;
    size_t bytes =
        expert_channel_bytes(x->max_tokens, p->router.n_used, p->router.n_experts, p->d_model);
    enum error_code code = shm_create("moed-experts", bytes, &l->shm, e);
    if (code)
        return code;
    expert_channel_init(l->shm.base, x->max_tokens, p->router.n_used, p->router.n_experts,
                        p->d_model, x->memory->generation);
    return expert_channel_attach(&l->channel, l->shm.base, l->shm.bytes, e);
}

/* Waits until the executor has answered the offer, or the worker ends. */
static enum error_code wait_for_answer(struct expert_link *x, struct link *l, struct error *e)
{
    struct pollfd fds[] = {{.fd = l->fd, .events = POLLIN}, {.fd = x->stop_fd, .events = POLLIN}};
    int n = poll(fds, 2, ACCEPT_TIMEOUT_MS);
    if (n > 0 && fds[0].revents)
        return ERROR_OK;
    return error_set(e, ERROR_TIMEOUT, "cpuexec does not answer the offer");
}

static enum error_code offer_region(struct expert_link *x, struct link *l, struct error *e)
{
    enum error_code code = lease_offer_send(l->fd, EXPERT_OFFER, &l->shm, x->memory->generation, e);
    if (!code)
        code = wait_for_answer(x, l, e);
    if (!code)
        code = lease_offer_answered(l->fd, EXPERT_OFFER, 0, e);
    return code;
}

static struct link *connect_link(struct expert_link *x, struct error *e)
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

/* Waits until the executor or the worker ends. */
static void wait_for_end(struct expert_link *x, struct link *l)
{
    struct pollfd fds[] = {{.fd = l->fd, .events = POLLIN}, {.fd = x->stop_fd, .events = POLLIN}};
    while (poll(fds, 2, -1) < 0 && errno == EINTR) {
    }
    atomic_store(&l->dead, true);
    doorbell_ring(
        &l->channel.completions.header->doorbell); /* the engine may be waiting for results */
}

static void hand_over(struct expert_link *x, struct link *l)
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
    struct expert_link *x = arg;
    pthread_setname_np(pthread_self(), "worker/cpuexec");
    bool reported = false;
    while (!atomic_load(&x->stop)) {
        struct error e;
        struct link *l = connect_link(x, &e);
        if (l) {
            log_info("cpuexec attached");
            hand_over(x, l);
            wait_for_end(x, l);
            link_release(l);
            reported = false;
            if (!atomic_load(&x->stop))
                log_warn("cpuexec has gone: computing experts here until it is back");
            continue;
        }
        if (!reported)
            log_info("no cpuexec yet: %s", e.text);
        reported = true;
        poll(&(struct pollfd){.fd = x->stop_fd, .events = POLLIN}, 1, RETRY_MS);
    }
    return NULL;
}

enum error_code expert_link_new(const char *run, const struct memory_client *memory,
                                uint32_t max_tokens, struct expert_link **out, struct error *e)
{
    struct expert_link *x = calloc(1, sizeof *x);
    if (!x)
        return error_set(e, ERROR_MEMORY, "no memory for the connection to cpuexec");
    memcpy(x->run, run, strnlen(run, sizeof x->run - 1));
    x->memory = memory;
    x->max_tokens = max_tokens;
    pthread_mutex_init(&x->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&x->attached, &monotonic);
    pthread_condattr_destroy(&monotonic);
    x->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (x->stop_fd < 0 || pthread_create(&x->connector, NULL, connector_main, x)) {
        expert_link_free(x);
        return error_set(e, ERROR_MEMORY, "cannot start the thread that connects to cpuexec");
    }
    x->connector_started = true;
    *out = x;
    return ERROR_OK;
}

void expert_link_free(struct expert_link *x)
{
    if (!x)
        return;
    atomic_store(&x->stop, true);
    if (x->stop_fd >= 0 && eventfd_write(x->stop_fd, 1))
        log_warn("eventfd: %m");
    if (x->connector_started)
        pthread_join(x->connector, NULL);
    link_release(x->current);
    link_release(x->fresh);
    if (x->stop_fd >= 0)
        close(x->stop_fd);
    pthread_mutex_destroy(&x->lock);
    pthread_cond_destroy(&x->attached);
    free(x);
}

bool expert_link_wait(struct expert_link *x, int timeout_ms)
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

struct expert_channel *expert_link_channel(struct expert_link *x)
{
    if (!x->current || atomic_load(&x->current->dead)) {
        pthread_mutex_lock(&x->lock);
        struct link *fresh = x->fresh;
        x->fresh = NULL;
        pthread_mutex_unlock(&x->lock);
        link_release(x->current);
        x->current = fresh;
    }
    return x->current ? &x->current->channel : NULL;
}

void expert_link_abandon(struct expert_link *x)
{
    atomic_store(&x->current->dead, true);
    shutdown(x->current->fd, SHUT_RDWR); /* wakes the connector, which makes a new one */
    link_release(x->current);
    x->current = NULL;
}

const _Atomic bool *expert_link_dead(const struct expert_link *x)
{
    return &x->current->dead;
}
