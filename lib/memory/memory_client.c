/* Attaching to memd; see memory_client.h. */
#include "memory/memory_client.h"

#include "base/checked.h"
#include "daemon/control.h"
#include "daemon/run_dir.h"
#include "ipc/lease.h"
#include "ipc/kv_pool.h"
#include "ipc/rpc.h"
#include "memory/layouts.h"

#include <string.h>
#include <unistd.h>

static enum error_code refused(const struct lease_message *m, struct error *e)
{
    char difference[300];
    if (m->kind != MEMORY_REFUSED)
        return error_set(e, ERROR_PROTOCOL, "memd's answer is no grant of a lease");
    if (m->value[0] == ERROR_VERSION)
        return error_set(
            e, ERROR_VERSION,
            "memd is of another build, whose shared memory differs: %s; `moed upgrade --reload` "
            "replaces memd, too",
            layouts_difference(m->value[1], difference, sizeof difference));
    return error_set(e, ERROR_LIMIT, "memd refused the lease: %s",
                     error_meaning((enum error_code)m->value[0]));
}

static enum error_code receive_grant(struct memory_client *c, bool is_worker, int timeout_ms,
                                     struct error *e)
{
    struct lease_message grant;
    int fds[LEASE_MAX_FDS];
    unsigned n_fds = 0;
    enum error_code code =
        lease_receive(c->lease_fd, &grant, fds, LEASE_MAX_FDS, &n_fds, timeout_ms, e);
    if (code)
        return code;
    bool on_device = grant.kind == MEMORY_GRANT_DEVICE;
    bool has[] = {true,
                  true,
                  grant.value[4] && !on_device,
                  grant.value[5] != 0,
                  grant.value[6] != 0,
                  is_worker && grant.value[10] != 0,
                  is_worker && grant.value[11] != 0,
                  is_worker && grant.value[11] != 0};
    unsigned expected = 0;
    for (unsigned i = 0; i < sizeof has / sizeof *has; i++)
        expected += has[i];
    if ((grant.kind != MEMORY_GRANT && !on_device) || n_fds != expected) {
        for (unsigned i = 0; i < n_fds; i++)
            close(fds[i]);
        return refused(&grant, e);
    }
    if (is_worker && grant.value[10] && grant.value[12] >= KV_POOL_WORKERS)
        code = error_set(e, ERROR_PROTOCOL, "memd gives the worker no number");
    c->kv_worker = (uint32_t)grant.value[12];
    c->lease = grant.value[0];
    c->generation = grant.value[1];
    c->arena_bytes = grant.value[4];
    c->dense_bytes = grant.value[7];
    c->slots_offset = grant.value[8];
    c->flags_offset = grant.value[9];
    memcpy(c->arena_handle.bytes, grant.bytes, sizeof c->arena_handle.bytes);
    const struct {
        struct shm *region;
        uint64_t bytes;
        bool writable;
    } regions[] = {
        {&c->pool, grant.value[2], false},           {&c->residency_shm, grant.value[3], false},
        {&c->arena, grant.value[4], false},          {&c->tier_shm, grant.value[5], false},
        {&c->predictors_shm, grant.value[6], false}, {&c->kv_shm, grant.value[10], true},
        {&c->kv_index_shm, grant.value[11], false}};
    unsigned fd = 0;
    for (unsigned i = 0; i < sizeof regions / sizeof *regions; i++) {
        if (!has[i])
            continue;
        if (code)
            close(fds[fd++]);
        else
            code = shm_map(fds[fd++], regions[i].writable, regions[i].bytes, regions[i].region, e);
    }
    if (fd < n_fds) /* the last one is no region */
        c->kv_file_fd = fds[fd];
    return code;
}

static enum error_code attach_tier(struct memory_client *c, struct error *e)
{
    if (!c->tier_shm.base)
        return c->map.header->tiered
                   ? error_set(e, ERROR_PROTOCOL,
                               "memd's pool has no experts, and memd lends no host tier")
                   : ERROR_OK;
    enum error_code code = host_tier_attach(&c->tier, c->tier_shm.base, c->tier_shm.bytes, e);
    if (code)
        return code;
    bool sane = c->map.header->tiered && c->tier.header->generation == c->generation &&
                c->tier.n_layers == c->map.params.n_layers &&
                c->tier.n_experts == c->map.params.router.n_experts;
    for (uint32_t i = 0; sane && i < c->map.params.n_layers; i++)
        sane = !c->map.slabs[i].n_experts || c->map.slabs[i].slab_bytes <= c->tier.slot_bytes;
    return sane ? ERROR_OK
                : error_set(e, ERROR_PROTOCOL, "memd's pool and host tier do not belong together");
}

/* The device's memory: the slots are as large as the residency table says; the copy of the dense
 * weights has their size and lies before the slots. */
static enum error_code check_arena(const struct memory_client *c, struct error *e)
{
    const struct residency_header *h = c->residency.header;
    uint64_t end;
    if (c->arena_bytes && (!h->slot_bytes || h->slots.first > c->arena_bytes / h->slot_bytes))
        return error_set(e, ERROR_PROTOCOL, "memd's arena is smaller than its slots");
    bool sane =
        checked_add(c->slots_offset, c->arena_bytes, &end) && c->slots_offset >= c->dense_bytes;
    bool flags = c->flags_offset != DEVICE_NO_FLAGS;
    if (flags) /* they lie between the dense part and the slots */
        sane = sane && !c->arena.base && c->arena_bytes && c->flags_offset >= c->dense_bytes &&
               c->flags_offset % sizeof(uint32_t) == 0 && c->flags_offset <= c->slots_offset &&
               h->n_slots <= (c->slots_offset - c->flags_offset) / sizeof(uint32_t);
    if (c->dense_bytes)
        sane = sane && !c->arena.base && c->dense_bytes == pool_map_dense(&c->map).bytes;
    else
        sane = sane && (flags || c->slots_offset == 0);
    return sane ? ERROR_OK
                : error_set(e, ERROR_PROTOCOL,
                            "memd's arena has an invalid dense part, slots or flags");
}

static enum error_code attach_maps(struct memory_client *c, struct error *e)
{
    enum error_code code = pool_map_attach(c->pool.base, c->pool.bytes, &c->map, e);
    if (!code)
        code = residency_attach(&c->residency, c->residency_shm.base, c->residency_shm.bytes, e);
    if (!code)
        code = check_arena(c, e);
    if (!code && (c->residency.n_layers != c->map.params.n_layers ||
                  c->residency.n_experts != c->map.params.router.n_experts ||
                  c->map.header->generation != c->generation))
        code =
            error_set(e, ERROR_PROTOCOL, "memd's pool and residency table do not belong together");
    return code ? code : attach_tier(c, e);
}

static enum error_code register_lease(const struct memory_client *c, const char *run,
                                      const char *process, int timeout_ms, struct error *e)
{
    Moed__V1__MemoryAttachRequest attach = MOED__V1__MEMORY_ATTACH_REQUEST__INIT;
    attach.lease = c->lease;
    attach.role = (char *)process;
    attach.layout_version = POOL_LAYOUT_VERSION;
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    request.body_case = MOED__V1__REQUEST__BODY_MEMORY_ATTACH;
    request.memory_attach = &attach;
    Moed__V1__Reply *reply;
    enum error_code code = control_call_peer(
        run, "memd", &request, MOED__V1__REPLY__BODY_MEMORY_ATTACH, timeout_ms, &reply, e);
    if (!code)
        moed__v1__reply__free_unpacked(reply, NULL);
    return code;
}

static enum error_code ask(const struct memory_client *c, enum memory_role role, unsigned device,
                           struct error *e)
{
    const struct lease_message m = {.kind = MEMORY_ASK, .value = {layouts_number(), role, device}};
    return lease_send(c->lease_fd, &m, NULL, 0, e);
}

enum error_code memory_client_attach(const char *run, const char *process, enum memory_role role,
                                     unsigned device, int timeout_ms, struct memory_client *out,
                                     struct error *e)
{
    char path[RUN_PATH_BYTES];
    run_dir_file(run, "memd.lease", path);
    struct memory_client c = {.lease_fd = -1,
                              .pool.fd = -1,
                              .residency_shm.fd = -1,
                              .arena.fd = -1,
                              .tier_shm.fd = -1,
                              .predictors_shm.fd = -1,
                              .kv_shm.fd = -1,
                              .kv_index_shm.fd = -1,
                              .kv_file_fd = -1};
    enum error_code code = lease_connect(path, timeout_ms, &c.lease_fd, e);
    if (!code)
        code = ask(&c, role, device, e);
    if (!code)
        code = receive_grant(&c, role == MEMORY_WORKER, timeout_ms, e);
    if (!code)
        code = attach_maps(&c, e);
    if (!code)
        code = register_lease(&c, run, process, timeout_ms, e);
    if (code) {
        memory_client_detach(&c);
        return code;
    }
    *out = c;
    return ERROR_OK;
}

void memory_client_detach(struct memory_client *c)
{
    shm_close(&c->pool);
    shm_close(&c->residency_shm);
    shm_close(&c->arena);
    shm_close(&c->tier_shm);
    shm_close(&c->predictors_shm);
    shm_close(&c->kv_shm);
    shm_close(&c->kv_index_shm);
    if (c->kv_file_fd >= 0)
        close(c->kv_file_fd);
    c->kv_file_fd = -1;
    if (c->lease_fd >= 0)
        close(c->lease_fd);
    c->lease_fd = -1;
}
