/* memd's leases; see leases.h.
 *
 * A lease begins when memd accepts its connection and ends with that connection:
 *
 *     connect --(grant)--> granted --(leases_attach)--> attached --(leases_detach)--> granted
 *        \--(256 leases are in use)--> refused, closed
 *     granted, attached --(end of file, wrong message, leases_end)--> free
 *
 * The watch thread grants and frees; the control thread attaches, detaches and counts. `lock`
 * guards the table. No system call that can block runs under it. */
#include "leases.h"

#include "base/log.h"
#include "daemon/run_dir.h"
#include "ipc/cache_channel.h"
#include "ipc/lease_listener.h"
#include "ipc/lease_offer.h"
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
    char role[16]; /* "" until it attached */
};

struct leases {
    pthread_mutex_t lock;
    struct lease_entry entries[MAX_LEASES];
    uint64_t last_number, n_freed;
    struct lent lent;
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
    if (ended.number && l->lent.cache)
        cache_remove_worker(l->lent.cache, ended.number);
    if (ended.number && l->lent.tier)
        tier_remove_worker(l->lent.tier, ended.number);
    close(fd);
}

/* Give the cache and the tier a mapping of the worker's region each, so that each can unmap it
 * whenever it is done with it. Takes region_fd. */
static enum error_code add_worker(struct leases *l, uint64_t number, int region_fd, uint64_t bytes,
                                  struct error *e)
{
    struct shm region;
    enum error_code code = ERROR_OK;
    if (l->lent.tier) {
        int copy = l->lent.cache ? fcntl(region_fd, F_DUPFD_CLOEXEC, 0) : region_fd;
        code = copy < 0 ? error_set(e, ERROR_IO, "cache channel: %m")
                        : shm_map(copy, true, bytes, &region, e);
        if (!code)
            code = tier_add_worker(l->lent.tier, number, &region, e);
    }
    if (!l->lent.cache)
        return code;
    if (code) {
        close(region_fd);
        return code;
    }
    code = shm_map(region_fd, true, bytes, &region, e);
    return code ? code : cache_add_worker(l->lent.cache, number, &region, e);
}

static uint64_t number_of(struct leases *l, int fd)
{
    pthread_mutex_lock(&l->lock);
    const struct lease_entry *entry = find_by_fd(l, fd);
    uint64_t number = entry ? entry->number : 0;
    pthread_mutex_unlock(&l->lock);
    return number;
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
    if (l->lent.cache || l->lent.tier) {
        code = add_worker(l, number_of(l, fd), region_fd, bytes, e);
    } else {
        close(region_fd);
        code = error_set(e, ERROR_PROTOCOL, "there is neither an expert cache nor a host tier");
    }
    enum error_code sent = lease_offer_answer(fd, CACHE_OFFER, code, code ? NULL : e);
    return code ? code : sent;
}

/* The watch calls it when the holder sent a message, or has gone. */
static bool on_holder(void *arg, int fd)
{
    struct leases *l = arg;
    struct error e;
    enum error_code code = take_offer(l, fd, &e);
    if (!code)
        return true;
    if (code != ERROR_UNAVAILABLE) /* it has gone */
        log_warn("a lease holder is dropped: %s", e.text);
    end_lease(l, fd);
    return false;
}

static struct lease_entry *take_entry(struct leases *l, int fd, pid_t pid)
{
    for (int i = 0; i < MAX_LEASES; i++)
        if (!l->entries[i].number) {
            l->entries[i] = (struct lease_entry){.number = ++l->last_number, .fd = fd, .pid = pid};
            return &l->entries[i];
        }
    return NULL;
}

static uint64_t take_number(struct leases *l, int fd, pid_t pid)
{
    pthread_mutex_lock(&l->lock);
    const struct lease_entry *entry = take_entry(l, fd, pid);
    uint64_t number = entry ? entry->number : 0;
    pthread_mutex_unlock(&l->lock);
    return number;
}

static void free_number(struct leases *l, uint64_t number)
{
    pthread_mutex_lock(&l->lock);
    struct lease_entry *entry = find_by_number(l, number);
    if (entry)
        entry->number = 0;
    pthread_mutex_unlock(&l->lock);
}

/* The message of a grant (memory_client.h) and its descriptors; returns how many those are. */
static unsigned describe_grant(const struct leases *l, uint64_t number, struct lease_message *m,
                               int fds[LEASE_MAX_FDS])
{
    const struct lent *lent = &l->lent;
    const struct device_arena *arena = lent->cache ? cache_arena(lent->cache) : NULL;
    const struct device_extent *first = arena ? &arena->extents[0] : NULL;
    const struct shm *tier = lent->tier ? tier_region(lent->tier) : NULL;
    bool shares = first && first->shared.base;
    *m = (struct lease_message){
        .kind = MEMORY_GRANT,
        .value = {number, lent->generation, lent->pool->bytes, lent->residency->bytes,
                  first ? first->n_slots * arena->slot_bytes : 0, tier ? tier->bytes : 0,
                  lent->predictors ? lent->predictors->bytes : 0, arena ? arena->dense_bytes : 0,
                  arena ? arena->slots_offset : 0, arena ? arena->flags_offset : DEVICE_NO_FLAGS,
                  lent->kv ? lent->kv->bytes : 0, lent->kv_index ? lent->kv_index->bytes : 0}};
    if (arena && !shares) {
        m->kind = MEMORY_GRANT_DEVICE;
        memcpy(m->bytes, first->handle.bytes, sizeof m->bytes);
    }
    unsigned n = 0;
    fds[n++] = lent->pool->fd;
    fds[n++] = lent->residency->fd;
    if (shares)
        fds[n++] = first->shared.fd;
    if (tier)
        fds[n++] = tier->fd;
    if (lent->predictors)
        fds[n++] = lent->predictors->fd;
    if (lent->kv)
        fds[n++] = lent->kv->fd;
    if (lent->kv_index) {
        fds[n++] = lent->kv_index->fd;
        fds[n++] = lent->kv_file;
    }
    return n;
}

static enum error_code grant(struct leases *l, int fd, pid_t pid, struct error *e)
{
    uint64_t number = take_number(l, fd, pid);
    if (!number) {
        const struct lease_message m = {.kind = MEMORY_REFUSED, .value = {ERROR_LIMIT}};
        lease_send(fd, &m, NULL, 0, NULL);
        return error_set(e, ERROR_LIMIT, "all %d leases are in use", MAX_LEASES);
    }
    struct lease_message m;
    int fds[LEASE_MAX_FDS];
    unsigned n_fds = describe_grant(l, number, &m, fds);
    enum error_code code = lease_send(fd, &m, fds, n_fds, e);
    if (!code)
        code = watch_add(l->watch, fd, on_holder, l, e);
    if (code)
        free_number(l, number);
    return code;
}

static void on_accepted(void *arg, int fd, pid_t pid)
{
    struct leases *l = arg;
    struct error e;
    if (grant(l, fd, pid, &e)) {
        log_warn("lease for pid %d: %s", (int)pid, e.text);
        close(fd);
    }
}

enum error_code leases_open(const char *run, const struct lent *lent, struct leases **out,
                            struct error *e)
{
    struct leases *l = calloc(1, sizeof *l);
    if (!l)
        return error_set(e, ERROR_MEMORY, "no memory for the lease table");
    pthread_mutex_init(&l->lock, NULL);
    l->lent = *lent;
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
    for (int i = 0; i < MAX_LEASES; i++)
        if (l->entries[i].number)
            close(l->entries[i].fd);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

enum error_code leases_attach(struct leases *l, uint64_t lease, const char *role, struct error *e)
{
    enum error_code code = ERROR_OK;
    pthread_mutex_lock(&l->lock);
    struct lease_entry *entry = find_by_number(l, lease);
    if (entry)
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
