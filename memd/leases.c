/* memd's leases; see leases.h.
 *
 * A lease lives from the accept of its connection to its end of file. The table is guarded by a mutex, held
 * for moments only: the watch thread (accepts, ends) and the control thread (attach, detach, counts) use it.
 */
#include "leases.h"

#include "base/log.h"
#include "daemon/run_dir.h"
#include "ipc/lease.h"
#include "memory/memory_client.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    const struct shm *pool, *residency;
    uint64_t generation;
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

/* A holder never has anything to say on the socket: readable means that it has gone. */
static bool holder_gone(void *arg, int fd)
{
    struct leases *l = arg;
    pthread_mutex_lock(&l->lock);
    struct lease_entry *entry = find_by_fd(l, fd);
    if (entry) {
        log_info("lease %llu of %s (pid %d) has ended", (unsigned long long)entry->number,
                 entry->role[0] ? entry->role : "a client", (int)entry->pid);
        entry->number = 0;
        l->n_freed++;
    }
    pthread_mutex_unlock(&l->lock);
    close(fd);
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
    m.value[1] = l->generation;
    m.value[2] = l->pool->bytes;
    m.value[3] = l->residency->bytes;
    enum error_code code = lease_send(fd, &m, (int[]){l->pool->fd, l->residency->fd}, 2, e);
    if (!code)
        code = watch_add(l->watch, fd, holder_gone, l, e);
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

enum error_code leases_open(const char *run, const struct shm *pool, const struct shm *residency,
                            uint64_t generation, struct leases **out, struct error *e)
{
    struct leases *l = calloc(1, sizeof *l);
    if (!l)
        return error_set(e, ERROR_MEMORY, "no memory for the lease table");
    pthread_mutex_init(&l->lock, NULL);
    l->pool = pool;
    l->residency = residency;
    l->generation = generation;
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
        code = error_set(e, ERROR_NOT_FOUND, "lease %llu is not granted",
                         (unsigned long long)lease);
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
        code = error_set(e, ERROR_NOT_FOUND, "lease %llu is not granted",
                         (unsigned long long)lease);
    pthread_mutex_unlock(&l->lock);
    return code;
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
