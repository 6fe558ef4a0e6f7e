/* memd's leases; see leases.h.
 *
 * A lease lives from the accept of its connection to its end of file. The table is guarded by a mutex, held
 * for moments only: the watch thread (accepts, ends) and the control thread (attach, detach, counts) use it.
 */
#include "leases.h"

#include "base/log.h"
#include "daemon/run_dir.h"
#include "ipc/cache_channel.h"
#include "ipc/lease.h"
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
    int listen_fd;
    struct watch *watch;
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
    uint64_t number = 0;
    pthread_mutex_lock(&l->lock);
    struct lease_entry *entry = find_by_fd(l, fd);
    if (entry) {
        number = entry->number;
        log_info("lease %llu of %s (pid %d) has ended", (unsigned long long)number,
                 entry->role[0] ? entry->role : "a client", (int)entry->pid);
        entry->number = 0;
        l->n_freed++;
    }
    pthread_mutex_unlock(&l->lock);
    if (number && l->lent.cache)
        cache_remove_worker(l->lent.cache, number);
    if (number && l->lent.tier)
        tier_remove_worker(l->lent.tier, number);
    close(fd);
}

/* To the cache and the tier, where there are any, a mapping each: neither need ask when the other is done with it. The
 * descriptor is ours. */
static enum error_code add_worker(struct leases *l, uint64_t number, int fd, uint64_t bytes,
                                  struct error *e)
{
    struct shm region;
    enum error_code code = ERROR_OK;
    if (l->lent.tier) {
        int copy = l->lent.cache ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : fd;
        code = copy < 0 ? error_set(e, ERROR_IO, "cache channel: %m")
                        : shm_map(copy, true, bytes, &region, e);
        if (!code)
            code = tier_add_worker(l->lent.tier, number, &region, e);
    }
    if (!l->lent.cache)
        return code;
    if (code) {
        close(fd);
        return code;
    }
    code = shm_map(fd, true, bytes, &region, e);
    return code ? code : cache_add_worker(l->lent.cache, number, &region, e);
}

/* The region that a worker offers. The descriptor is ours. */
static enum error_code take_offer(struct leases *l, int fd, const struct lease_message *offer,
                                  const int *fds, unsigned n_fds, struct error *e)
{
    enum error_code code = ERROR_OK;
    if (offer->kind != CACHE_OFFER || n_fds != 1 || (!l->lent.cache && !l->lent.tier))
        code = error_set(e, ERROR_PROTOCOL, "expected an offer with one descriptor");
    else if (offer->value[1] != l->lent.generation)
        code = error_set(e, ERROR_VERSION, "the worker holds another load of the model");
    if (code) {
        for (unsigned i = 0; i < n_fds; i++)
            close(fds[i]);
        return code;
    }
    pthread_mutex_lock(&l->lock);
    const struct lease_entry *entry = find_by_fd(l, fd);
    uint64_t number = entry ? entry->number : 0;
    pthread_mutex_unlock(&l->lock);
    return add_worker(l, number, fds[0], offer->value[0], e);
}

/* A holder says nothing on the socket but the offer of a cache channel; else readable means that it has gone. */
static bool holder_speaks(void *arg, int fd)
{
    struct leases *l = arg;
    struct lease_message offer;
    struct error e;
    int fds[LEASE_MAX_FDS];
    unsigned n_fds = 0;
    if (lease_receive(fd, &offer, fds, LEASE_MAX_FDS, &n_fds, 0, &e)) {
        end_lease(l, fd);
        return false;
    }
    enum error_code code = take_offer(l, fd, &offer, fds, n_fds, &e);
    if (code)
        log_warn("cache channel: %s", e.text);
    struct lease_message answer = {.magic = LEASE_MAGIC,
                                   .kind = code ? CACHE_REFUSE : CACHE_ACCEPT};
    answer.value[0] = code;
    if (code == ERROR_OK && lease_send(fd, &answer, NULL, 0, &e) == ERROR_OK)
        return true;
    if (code)
        lease_send(fd, &answer, NULL, 0, NULL);
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

static enum error_code grant(struct leases *l, int fd, pid_t pid, struct error *e)
{
    pthread_mutex_lock(&l->lock);
    struct lease_entry *entry = take_entry(l, fd, pid);
    uint64_t number = entry ? entry->number : 0;
    pthread_mutex_unlock(&l->lock);
    struct lease_message m = {.magic = LEASE_MAGIC, .kind = MEMORY_GRANT};
    if (!number) {
        m.kind = MEMORY_REFUSED;
        m.value[0] = ERROR_LIMIT;
        lease_send(fd, &m, NULL, 0, NULL);
        return error_set(e, ERROR_LIMIT, "all %d leases are taken", MAX_LEASES);
    }
    m.value[0] = number;
    m.value[1] = l->lent.generation;
    m.value[2] = l->lent.pool->bytes;
    m.value[3] = l->lent.residency->bytes;
    const struct device_arena *arena = l->lent.cache ? cache_arena(l->lent.cache) : NULL;
    const struct device_piece *first = arena ? &arena->pieces[0] : NULL;
    bool shares = first && first->shared.base;
    m.value[4] = first ? first->n_slots * arena->slot_bytes : 0;
    m.value[7] = arena ? arena->dense_bytes : 0;
    m.value[8] = arena ? arena->slots_offset : 0;
    m.value[9] = arena ? arena->flags_offset : DEVICE_NO_FLAGS;
    if (arena && !shares) {
        m.kind = MEMORY_GRANT_DEVICE;
        memcpy(m.bytes, first->handle.bytes, sizeof m.bytes);
    }
    const struct shm *tier = l->lent.tier ? tier_region(l->lent.tier) : NULL;
    m.value[5] = tier ? tier->bytes : 0;
    const struct shm *learned = l->lent.learned;
    m.value[6] = learned ? learned->bytes : 0;
    int fds[LEASE_MAX_FDS] = {l->lent.pool->fd, l->lent.residency->fd};
    unsigned n_fds = 2;
    if (shares)
        fds[n_fds++] = first->shared.fd;
    if (tier)
        fds[n_fds++] = tier->fd;
    if (learned)
        fds[n_fds++] = learned->fd;
    enum error_code code = lease_send(fd, &m, fds, n_fds, e);
    if (!code)
        code = watch_add(l->watch, fd, holder_speaks, l, e);
    if (code) {
        pthread_mutex_lock(&l->lock);
        entry->number = 0;
        pthread_mutex_unlock(&l->lock);
    }
    return code;
}

static bool accept_holder(void *arg, int listen_fd)
{
    struct leases *l = arg;
    struct error e;
    struct lease_peer peer;
    int fd;
    if (lease_accept(listen_fd, &fd, &peer, &e)) {
        log_warn("lease: %s", e.text);
        return true;
    }
    if (peer.pidfd >= 0)
        close(peer.pidfd); /* the socket's end tells the same */
    if (grant(l, fd, peer.pid, &e)) {
        log_warn("lease for pid %d: %s", (int)peer.pid, e.text);
        close(fd);
    }
    return true;
}

enum error_code leases_open(const char *run, const struct lent *lent, struct leases **out,
                            struct error *e)
{
    struct leases *l = calloc(1, sizeof *l);
    if (!l)
        return error_set(e, ERROR_MEMORY, "no memory for the lease table");
    pthread_mutex_init(&l->lock, NULL);
    l->lent = *lent;
    l->listen_fd = -1;
    char path[RUN_PATH_BYTES];
    run_dir_file(run, "memd.lease", path);
    enum error_code code = watch_new("memd/leases", &l->watch, e);
    if (!code)
        code = lease_listen(path, &l->listen_fd, e);
    if (!code)
        code = watch_add(l->watch, l->listen_fd, accept_holder, l, e);
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
    watch_free(l->watch);
    for (int i = 0; i < MAX_LEASES; i++)
        if (l->entries[i].number)
            close(l->entries[i].fd);
    if (l->listen_fd >= 0)
        close(l->listen_fd);
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
