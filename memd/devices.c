/* The deployment's devices at memd's start: opened, their memory taken, filled, and given a cache
 * each; see memd.h. */
#include "memd.h"

#include "base/clock.h"
#include "base/log.h"
#include "model/memory_need.h"

#include <inttypes.h>

/* A CUDA device's lack of memory, unlike the host's, is perhaps over in a moment. */
static enum error_code note_full(struct memd *m, enum error_code code)
{
    m->device_full = code == ERROR_MEMORY && m->device_spec.kind == DEVICE_CUDA;
    return code;
}

enum error_code memd_open_devices(struct memd *m, struct error *e)
{
    enum error_code code = ERROR_OK;
    for (unsigned i = 0; i < m->device_spec.n_devices && !code; i++) {
        m->devices[i].spec = device_of(&m->device_spec, i);
        code = device_link_new(&m->devices[i].spec, &m->devices[i].link, e);
        if (!code)
            device_link_report(m->devices[i].link, daemon_awaits_memory, &m->daemon);
    }
    return note_full(m, code);
}

void memd_keep_dense_on_host(struct memd *m)
{
    const struct pool_map map = pool_plan_map(&m->plan);
    const char *host_only = params_host_dense(&map.params);
    if (!host_only || m->device_spec.kind != DEVICE_CUDA || m->device_spec.dense_on_host)
        return;
    log_info("the model has %s: the host computes them and the rest of the dense part, as with "
             "dense=host; the device has memory for experts only",
             host_only);
    m->device_spec.dense_on_host = true;
    for (unsigned i = 0; i < m->device_spec.n_devices; i++)
        m->devices[i].spec.dense_on_host = true;
}

/* How many of the deployment's workers compute on a device: worker n on device (n - 1) modulo the
 * number of devices. */
static uint32_t workers_of(const struct memd *m, unsigned device)
{
    unsigned n = m->device_spec.n_devices;
    return (uint32_t)(m->workers / n + (device < m->workers % n));
}

/* While the model is loaded no other program is to take the workers' memory; later the cache holds
 * it. */
static void hold_shares(struct memd_device *d)
{
    const struct device_plan *p = &d->plan;
    uint64_t each = device_share_worker_bytes(p, device_share_start_kv(p));
    struct error e;
    if (device_link_hold(d->link, p->workers, each, &e))
        log_warn("the workers' memory of the device is not held for them: %s", e.text);
}

static enum error_code take_memory(struct memd *m, unsigned i, struct error *e)
{
    struct memd_device *d = &m->devices[i];
    struct pool_map planned = pool_plan_map(&m->plan);
    struct device_plan_options options = {.device = &d->spec,
                                          .workers = workers_of(m, i),
                                          .parallel = memory_parallel(&planned.params, m->parallel),
                                          .kv_requests = (uint32_t)m->parallel,
                                          .context = (uint32_t)m->context,
                                          .batch = (uint32_t)m->batch,
                                          .reproducible = m->reproducible};
    enum error_code code = kv_type_parse(m->kv_type, &options.kv_type, e);
    if (!code)
        code = device_plan_new(d->link, &planned, &options, &d->plan, e);
    const struct device_plan *p = &d->plan;
    if (!code)
        code = device_link_allocate(d->link, p->dense_bytes, p->n_flags, p->slot_bytes, p->layout,
                                    p->n_slots, &d->arena, e);
    if (!code)
        hold_shares(d);
    return code;
}

enum error_code memd_take_device_memory(struct memd *m, struct error *e)
{
    enum error_code code = ERROR_OK;
    for (unsigned i = 0; i < m->device_spec.n_devices && !code; i++)
        code = take_memory(m, i, e);
    return note_full(m, code);
}

/* Copies the dense weights to a device, before any worker gets their address. */
static enum error_code place_dense(struct memd *m, struct memd_device *d, struct error *e)
{
    struct pool_range dense = pool_map_dense(&m->map);
    uint64_t started = clock_ns();
    if (!d->arena->dense_bytes)
        return ERROR_OK;
    enum error_code code = device_link_place_dense(d->link, m->map.base + dense.offset, e);
    if (!code)
        log_info("%.2f GB of dense weights copied to the device in %.2f s",
                 (double)dense.bytes * 1e-9, (double)(clock_ns() - started) * 1e-9);
    return code;
}

/* A worker that wrote an invalid record loses its lease. */
void memd_worker_broken(void *arg, uint64_t lease)
{
    struct memd *m = arg;
    leases_end(m->leases, lease);
}

/* The driver is of no use any more: the supervisor starts memd again, which loads the model anew.
 */
static void device_lost(void *arg, const struct error *e)
{
    struct memd *m = arg;
    log_error("the device has failed: %s", e->text);
    atomic_store(&m->device_failed, true);
    daemon_request_stop(&m->daemon, EXIT_RETRY);
}

static enum error_code make_cache(struct memd *m, struct memd_device *d, struct error *e)
{
    enum error_code code = place_dense(m, d, e);
    struct cache_options options = {
        .link = d->link,
        .arena = d->arena,
        .plan = &d->plan,
        .cache = m->choice.cache,
        .budget = m->choice.budget,
        .prefetcher = m->choice.prefetcher,
        .profile = m->predictors.region.base ? trained_activations(&m->predictors.view) : NULL,
        .tier = m->tier,
        .worker_broken = memd_worker_broken,
        .worker_broken_arg = m,
        .device_lost = device_lost,
        .device_lost_arg = m};
    if (!code)
        code = cache_new(&m->map, &options, &m->cache_counters, &m->caches.each[m->caches.n], e);
    if (!code)
        m->caches.n++;
    return code;
}

enum error_code memd_make_caches(struct memd *m, struct error *e)
{
    m->cache_counters = cache_metrics_counters(m->daemon.metrics);
    enum error_code code = pool_map_attach(m->pool.base, m->pool.bytes, &m->map, e);
    for (unsigned i = 0; i < m->device_spec.n_devices && !code; i++)
        code = make_cache(m, &m->devices[i], e);
    if (code)
        return code;
    caches_start_pinning(&m->caches);
    cache_metrics_state(m->daemon.metrics, &m->caches, m->device_spec.kind == DEVICE_EMU);
    return ERROR_OK;
}
