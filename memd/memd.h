/* The state of moed-memd: main.c makes it, requests.c answers the control plane from it. */
#ifndef MOED_MEMD_MEMD_H
#define MOED_MEMD_MEMD_H

#include "memd/device/cache_metrics.h"
#include "memd/device/caches.h"
#include "device/device_plan.h"
#include "place_map.h"
#include "leases.h"
#include "memd/load/load.h"
#include "policy_choice.h"
#include "policy_metrics.h"
#include "memd/host/conversations.h"
#include "memd/host/tier.h"

#include "daemon/daemon.h"
#include "daemon/kv_promises.h"
#include "device/device.h"
#include "ipc/shm.h"
#include "metrics/recent.h"
#include "model/memory_need.h"

struct memd_device {
    struct device_spec spec;
    struct device_link *link; /* until its cache takes it over */
    struct device_plan plan;
    const struct device_arena *arena;
};

struct memd {
    struct daemon daemon;
    /* options */
    const char *model, *device, *ram, *predictors_path, *kv_cache, *kv_dir, *kv_dir_size;
    struct policy_names names;
    uint64_t threads, segment_bytes;
    const char *kv_type; /* this and the next three: the worker's, for the plan of the device */
    uint64_t context, parallel, batch, workers;
    bool reproducible;
    struct device_spec device_spec;
    struct memd_device devices[DEVICES_MAX]; /* [device_spec.n_devices] */
    struct policy_choice choice;
    struct policy_metrics *policy_metrics; /* NULL: no policy is in force */
    /* what it owns */
    struct gguf *gguf;
    struct pool_plan plan;
    struct shm pool, residency;
    struct conversations conversations;
    enum shm_pages pages;           /* of the pool */
    struct numa_places places;      /* of the pool's pages */
    uint64_t bytes_loaded, load_ns; /* before memd was ready */
    struct pool_map map;            /* for the cache */
    uint64_t generation;
    struct tier_plan tier_plan;
    uint32_t batch_planned;            /* on the host */
    struct tier *tier;                 /* NULL: all experts are in the pool */
    struct caches caches;              /* one a device with memory of its own */
    struct predictors_file predictors; /* region.base NULL: none */
    char *predictors_unused;           /* why the file is not used; NULL: it is, or there is none */
    struct kv_promises promises;       /* of other deployments */
    struct leases *leases;
    bool device_full; /* at start the device has not enough memory */
    _Atomic bool device_failed;
    struct counter *loaded_bytes;
    struct tier_counters tier_counters;   /* where there is a tier */
    struct cache_counters cache_counters; /* of the caches, together */
    struct recent *recent;
    /* For people who watch, made with the first request; map NULL: nobody has asked yet. */
    struct memd_watch {
        struct place_map *map;
        struct residency_table residency[DEVICES_MAX];
        struct host_tier tier;
    } watch;
    /* The link's counts when the present policy was chosen; all 0: at the start. */
    struct memd_since {
        uint64_t link_bytes, link_busy_ns, ns;
    } since;
};

/* What recent.h samples. */
enum {
    RECENT_LINK_BYTES,
    RECENT_LINK_BUSY_NS,
    RECENT_DEMANDED_BYTES,
    RECENT_PREFETCHED_BYTES,
    RECENT_USED_BYTES,
    RECENT_WASTED_BYTES,
    RECENT_READ_BYTES,
    RECENT_PREDICTED_BYTES,
    RECENT_PREDICTED_USED_BYTES,
    N_RECENT
};
_Static_assert((int)N_RECENT <= (int)RECENT_MOST, "they fit");

/* devices.c, at the start, in this order. Open them: a missing device must not show after minutes
 * of loading. Plan and allocate their memory: nor one that is too small. Fill it. */
enum error_code memd_open_devices(struct memd *m, struct error *e);
/* The host computes a dense part that the devices cannot compute. */
void memd_keep_dense_on_host(struct memd *m);
enum error_code memd_take_device_memory(struct memd *m, struct error *e);
enum error_code memd_make_caches(struct memd *m, struct error *e);
/* A worker that wrote an invalid record loses its lease; arg: struct memd. */
void memd_worker_broken(void *arg, uint64_t lease);

/* Of struct daemon_handlers; arg: struct memd. */
enum error_code memd_handle_request(void *arg, const Moed__V1__Request *request,
                                    Moed__V1__Reply *reply, struct error *e);
void memd_fill_health(void *arg, Moed__V1__HealthReply *health);

/* confine.c. The first before memd has a second thread, with its options; the second when it has
 * loaded the model. */
void memd_confine_files(const struct memd *m);
void memd_confine_calls(const struct memd *m);

#endif
