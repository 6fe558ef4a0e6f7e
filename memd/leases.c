/* memd's leases; see leases.h.
 *
 * A lease begins when memd accepts its connection and ends with that connection:
 *
 *     connect --> asking --(grant)--> granted --(leases_attach)--> attached
 *        |           \--(another build, no number is left)--> refused, closed
 *        \--(256 leases are in use)--> refused, closed
 *     attached --(leases_detach)--> granted
 *     asking, granted, attached --(end of file, wrong message, leases_end)--> free
 *
 * A worker's number in the KV pool outlives its lease until the process is gone: a device may still
 * write what the worker has queued. (The kernel closes its sockets before that.)
 *
 * The watch thread grants and frees; the control thread attaches, detaches and counts. `lock`
 * guards the table. No system call that can block runs under it. */
#include "leases.h"

#include "base/log.h"
#include "daemon/run_dir.h"
#include "ipc/cache_channel.h"
#include "ipc/lease_listener.h"
#include "ipc/lease_offer.h"
#include "memory/layouts.h"
#include "memory/memory_client.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_LEASES 256

struct lease_entry {
    uint64_t number; /* 0: free entry */
    int fd;
    pid_t pid;
    int pidfd; /* -1: none */
    bool granted;
    int worker;          /* its number in the KV pool; -1: none */
    struct cache *cache; /* of its device; NULL: none */
    char role[16];       /* "" until it attached */
};

struct leases {
    pthread_mutex_t lock;
    struct lease_entry entries[MAX_LEASES];
    uint64_t last_number, n_freed;
    struct lent lent;
    int leaving[KV_POOL_WORKERS]; /* pidfds of workers whose lease has ended; -1: none. The watch
                                     thread's */
    struct watch *watch;
    struct lease_listener listener;
};

static struct lease_entry *find_by_number(struct leases *l, uint64_t number)
{
    for (int i = 0; i < MAX_LEASES; i++)
        if (number && l->entries[i].number == number)
            return &l->entries[i];
    return NULL;
}

static struct lease_entry *find_by_fd(struct leases *l, int fd)
{
    for (int i = 0; i < MAX_LEASES; i++)
        if (l->entries[i].number && l->entries[i].fd == fd)
            return &l->entries[i];
    return NULL;
}

/* ---- Numbers in the KV pool; on the watch thread ---- */

static void free_worker(struct leases *l, uint32_t worker)
{
    if (l->leaving[worker] >= 0)
        close(l->leaving[worker]);
    l->leaving[worker] = -1;
    kv_pool_forget(l->lent.kv_pool, worker);
}

static bool on_worker_gone(void *arg, int pidfd)
{
    struct leases *l = arg;
    for (uint32_t i = 0; i < KV_POOL_WORKERS; i++)
        if (l->leaving[i] == pidfd)
            free_worker(l, i);
    return false;
}

/* The worker's lease has ended. Takes pidfd. */
static void leave_pool(struct leases *l, int worker, int pidfd)
{
    struct error e;
    if (worker < 0 || pidfd < 0) {
        if (pidfd >= 0)
            close(pidfd);
        if (worker >= 0)
            free_worker(l, (uint32_t)worker);
        return;
    }
    l->leaving[worker] = pidfd;
    if (watch_add(l->watch, pidfd, on_worker_gone, l, &e)) {
        log_warn("cannot wait for the end of a worker: %s", e.text);
        free_worker(l, (uint32_t)worker);
    }
}

static void end_lease(struct leases *l, int fd)
{
    struct lease_entry ended = {0};
    pthread_mutex_lock(&l->lock);
    struct lease_entry *entry = find_by_fd(l, fd);
    if (entry) {
        ended = *entry;
        entry->number = 0;
        l->n_freed++;
    }
    pthread_mutex_unlock(&l->lock);
    if (ended.number)
        log_info("lease %llu of %s (pid %d) has ended", (unsigned long long)ended.number,
                 ended.role[0] ? ended.role : "a client", (int)ended.pid);
    if (ended.number && ended.cache)
        cache_remove_worker(ended.cache, ended.number);
    if (ended.number && l->lent.tier)
        tier_remove_worker(l->lent.tier, ended.number);
    if (ended.number)
        leave_pool(l, ended.worker, ended.pidfd);
    close(fd);
}

/* Give the cache and the tier a mapping of the worker's region each, so that each can unmap it
 * whenever it is done with it. Takes region_fd. */
static enum error_code add_worker(struct leases *l, const struct lease_entry *holder, int region_fd,
                                  uint64_t bytes, struct error *e)
{
    uint64_t number = holder->number;
    struct shm region;
    enum error_code code = ERROR_OK;
    if (l->lent.tier) {
        int copy = holder->cache ? fcntl(region_fd, F_DUPFD_CLOEXEC, 0) : region_fd;
        code = copy < 0 ? error_set(e, ERROR_IO, "cache channel: %m")
                        : shm_map(copy, true, bytes, &region, e);
        if (!code)
            code = tier_add_worker(l->lent.tier, number, &region, e);
    }
    if (!holder->cache)
        return code;
    if (code) {
        close(region_fd);
        return code;
    }
    code = shm_map(region_fd, true, bytes, &region, e);
    return code ? code : cache_add_worker(holder->cache, number, &region, e);
}

/* A copy of the entry; number 0: there is none. */
static struct lease_entry copy_entry(struct leases *l, int fd)
{
    struct lease_entry copy = {0};
    pthread_mutex_lock(&l->lock);
    const struct lease_entry *entry = find_by_fd(l, fd);
    if (entry)
        copy = *entry;
    pthread_mutex_unlock(&l->lock);
    return copy;
}

/* The holder's one message: the offer of a cache channel. */
static enum error_code take_offer(struct leases *l, int fd, struct error *e)
{
    int region_fd;
    uint64_t bytes;
    enum error_code code =
        lease_offer_receive(fd, CACHE_OFFER, l->lent.generation, 0, &region_fd, &bytes, e);
    if (code)
        return code;
    struct lease_entry holder = copy_entry(l, fd);
    if (holder.cache || l->lent.tier) {
        code = add_worker(l, &holder, region_fd, bytes, e);
    } else {
        close(region_fd);
        code = error_set(e, ERROR_PROTOCOL, "there is neither an expert cache nor a host tier");
    }
    enum error_code sent = lease_offer_answer(fd, CACHE_OFFER, code, code ? NULL : e);
    return code ? code : sent;
}

static enum error_code take_question(struct leases *l, int fd, struct error *e);

/* The watch calls it when the holder sent a message, or has gone. */
static bool on_holder(void *arg, int fd)
{
    struct leases *l = arg;
    struct error e;
    enum error_code code =
        copy_entry(l, fd).granted ? take_offer(l, fd, &e) : take_question(l, fd, &e);
    if (!code)
        return true;
    if (code != ERROR_UNAVAILABLE) /* it has gone */
        log_warn("a lease holder is dropped: %s", e.text);
    end_lease(l, fd);
    return false;
}

/* Takes peer->pidfd, where there is an entry. False: there is none. */
static bool take_entry(struct leases *l, int fd, const struct lease_peer *peer)
{
    bool taken = false;
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < MAX_LEASES && !taken; i++) {
        if (l->entries[i].number)
            continue;
        l->entries[i] = (struct lease_entry){.number = ++l->last_number,
                                             .fd = fd,
                                             .pid = peer->pid,
                                             .pidfd = peer->pidfd,
                                             .worker = -1};
        taken = true;
    }
    pthread_mutex_unlock(&l->lock);
    return taken;
}

static void free_entry(struct leases *l, int fd)
{
    pthread_mutex_lock(&l->lock);
    struct lease_entry *entry = find_by_fd(l, fd);
    if (entry)
        entry->number = 0;
    pthread_mutex_unlock(&l->lock);
}

/* The message of a grant (memory_client.h) and its descriptors; returns how many those are. */
static unsigned describe_grant(const struct leases *l, const struct lease_entry *holder,
                               struct lease_message *m, int fds[LEASE_MAX_FDS])
{
    const struct lent *lent = &l->lent;
    bool is_worker = holder->worker >= 0;
    const struct device_arena *arena = holder->cache ? cache_arena(holder->cache) : NULL;
    const struct shm *residency = holder->cache ? cache_residency(holder->cache) : lent->residency;
    const struct device_extent *first = arena ? &arena->extents[0] : NULL;
    const struct shm *tier = lent->tier ? tier_region(lent->tier) : NULL;
    bool shares = first && first->shared.base;
    *m = (struct lease_message){
        .kind = MEMORY_GRANT,
        .value = {holder->number, lent->generation, lent->pool->bytes, residency->bytes,
                  first ? first->n_slots * arena->slot_bytes : 0, tier ? tier->bytes : 0,
                  lent->predictors ? lent->predictors->bytes : 0, arena ? arena->dense_bytes : 0,
                  arena ? arena->slots_offset : 0, arena ? arena->flags_offset : DEVICE_NO_FLAGS,
                  is_worker ? lent->kv->bytes : 0,
                  is_worker && lent->kv_index ? lent->kv_index->bytes : 0,
                  is_worker ? (uint64_t)holder->worker : KV_POOL_WORKERS}};
    if (arena && !shares) {
        m->kind = MEMORY_GRANT_DEVICE;
        memcpy(m->bytes, first->handle.bytes, sizeof m->bytes);
    }
    unsigned n = 0;
    fds[n++] = lent->pool->fd;
    fds[n++] = residency->fd;
    if (shares)
        fds[n++] = first->shared.fd;
    if (tier)
        fds[n++] = tier->fd;
    if (lent->predictors)
        fds[n++] = lent->predictors->fd;
    if (is_worker)
        fds[n++] = lent->kv->fd;
    if (is_worker && lent->kv_index) {
        fds[n++] = lent->kv_index->fd;
        fds[n++] = lent->kv_file;
    }
    return n;
}

static enum error_code refuse(int fd, enum error_code code, struct error *e)
{
    const struct lease_message m = {.kind = MEMORY_REFUSED, .value = {code, layouts_number()}};
    lease_send(fd, &m, NULL, 0, NULL);
    return e->code;
}

/* A number in the KV pool, where the client is a worker and there is a pool. */
static enum error_code join_pool(struct leases *l, struct lease_entry *entry, enum memory_role role,
                                 struct error *e)
{
    if (role != MEMORY_WORKER || !l->lent.kv_pool)
        return ERROR_OK;
    entry->worker = kv_pool_join(l->lent.kv_pool, entry->pid);
    return entry->worker >= 0
               ? ERROR_OK
               : error_set(e, ERROR_LIMIT, "%d workers are attached", KV_POOL_WORKERS);
}

/* The holder's first message. */
static enum error_code take_question(struct leases *l, int fd, struct error *e)
{
    struct lease_message ask, grant;
    char difference[300];
    int fds[LEASE_MAX_FDS];
    enum error_code code = lease_receive(fd, &ask, NULL, 0, NULL, 0, e);
    if (code)
        return code;
    if (ask.kind != MEMORY_ASK)
        error_set(e, ERROR_PROTOCOL, "the first message of a lease is no question for it");
    else if (ask.value[0] != layouts_number())
        error_set(e, ERROR_VERSION, "it is of another build, whose shared memory differs: %s",
                  layouts_difference(ask.value[0], difference, sizeof difference));
    else if (ask.value[2] && ask.value[2] >= l->lent.caches->n)
        error_set(e, ERROR_USAGE, "it asks for device %llu of %u", (unsigned long long)ask.value[2],
                  l->lent.caches->n);
    else
        e->code = ERROR_OK;
    if (e->code)
        return refuse(fd, e->code, e);
    pthread_mutex_lock(&l->lock);
    struct lease_entry *entry = find_by_fd(l, fd);
    code = join_pool(l, entry, (enum memory_role)ask.value[1], e);
    entry->granted = !code;
    entry->cache = l->lent.caches->each[ask.value[2]];
    struct lease_entry holder = *entry;
    pthread_mutex_unlock(&l->lock);
    if (code)
        return refuse(fd, code, e);
    unsigned n_fds = describe_grant(l, &holder, &grant, fds);
    return lease_send(fd, &grant, fds, n_fds, e);
}

static void on_accepted(void *arg, int fd, const struct lease_peer *peer)
{
    struct leases *l = arg;
    struct error e;
    if (!take_entry(l, fd, peer)) {
        error_set(&e, ERROR_LIMIT, "all %d leases are in use", MAX_LEASES);
        refuse(fd, ERROR_LIMIT, &e);
    } else if (watch_add(l->watch, fd, on_holder, l, &e)) {
        free_entry(l, fd);
    } else {
        return;
    }
    log_warn("lease for pid %d: %s", (int)peer->pid, e.text);
    if (peer->pidfd >= 0)
        close(peer->pidfd);
    close(fd);
}

enum error_code leases_open(const char *run, const struct lent *lent, struct leases **out,
                            struct error *e)
{
    struct leases *l = calloc(1, sizeof *l);
    if (!l)
        return error_set(e, ERROR_MEMORY, "no memory for the lease table");
    pthread_mutex_init(&l->lock, NULL);
    l->lent = *lent;
    for (int i = 0; i < KV_POOL_WORKERS; i++)
        l->leaving[i] = -1;
    char path[RUN_PATH_BYTES];
    run_dir_file(run, "memd.lease", path);
    enum error_code code = watch_new("memd/leases", &l->watch, e);
    if (!code)
        code = lease_listener_open(&l->listener, path, l->watch, on_accepted, l, e);
    if (code) {
        leases_close(l);
        return code;
    }
    *out = l;
    return ERROR_OK;
}

void leases_close(struct leases *l)
{
    if (!l)
        return;
    lease_listener_close(&l->listener);
    watch_free(l->watch);
    for (int i = 0; i < MAX_LEASES; i++) {
        if (!l->entries[i].number)
            continue;
        close(l->entries[i].fd);
        if (l->entries[i].pidfd >= 0)
            close(l->entries[i].pidfd);
    }
    for (int i = 0; i < KV_POOL_WORKERS; i++)
        if (l->leaving[i] >= 0)
            close(l->leaving[i]);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

enum error_code leases_attach(struct leases *l, uint64_t lease, const char *role, struct error *e)
{
    enum error_code code = ERROR_OK;
    pthread_mutex_lock(&l->lock);
    struct lease_entry *entry = find_by_number(l, lease);
    if (entry && entry->granted)
        snprintf(entry->role, sizeof entry->role, "%s", role);
    else
        code =
            error_set(e, ERROR_NOT_FOUND, "lease %llu is not granted", (unsigned long long)lease);
    pthread_mutex_unlock(&l->lock);
    if (!code)
        log_info("lease %llu attached by %s", (unsigned long long)lease, role);
    return code;
}

enum error_code leases_detach(struct leases *l, uint64_t lease, struct error *e)
{
    enum error_code code = ERROR_OK;
    pthread_mutex_lock(&l->lock);
    struct lease_entry *entry = find_by_number(l, lease);
    if (entry)
        entry->role[0] = 0; /* the entry itself goes with its socket */
    else
        code =
            error_set(e, ERROR_NOT_FOUND, "lease %llu is not granted", (unsigned long long)lease);
    pthread_mutex_unlock(&l->lock);
    return code;
}

void leases_end(struct leases *l, uint64_t lease)
{
    pthread_mutex_lock(&l->lock);
    struct lease_entry *entry = find_by_number(l, lease);
    if (entry)
        shutdown(entry->fd, SHUT_RDWR);
    pthread_mutex_unlock(&l->lock);
}

void leases_visit_workers(struct leases *l,
                          void (*visit)(void *arg, const char *process, pid_t pid,
                                        const struct kv_pool_worker *worker),
                          void *arg)
{
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < MAX_LEASES; i++) {
        const struct lease_entry *entry = &l->entries[i];
        if (entry->number && entry->worker >= 0 && entry->role[0])
            visit(arg, entry->role, entry->pid, &l->lent.kv_pool->workers[entry->worker]);
    }
    pthread_mutex_unlock(&l->lock);
}

uint32_t leases_count(struct leases *l)
{
    uint32_t n = 0;
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < MAX_LEASES; i++)
        n += l->entries[i].number != 0;
    pthread_mutex_unlock(&l->lock);
    return n;
}

uint64_t leases_freed(struct leases *l)
{
    pthread_mutex_lock(&l->lock);
    uint64_t n = l->n_freed;
    pthread_mutex_unlock(&l->lock);
    return n;
}
