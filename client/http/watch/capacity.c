/* Capacities; see capacity.h. */
#include "client/http/watch/capacity.h"

#include "client/cli/deployment_status.h"
#include "daemon/run_dir.h"

/* NULL: it does not answer. The caller frees it. */
static Moed__V1__Reply *health_of(const char *deployment, const char *process)
{
    char run[RUN_DIR_BYTES];
    Moed__V1__Reply *reply;
    struct error e;
    return run_dir_path(deployment, run, &e) || deployment_health(run, process, &reply, &e) ? NULL
                                                                                            : reply;
}

static void release(Moed__V1__Reply *reply)
{
    if (reply)
        moed__v1__reply__free_unpacked(reply, NULL);
}

uint64_t capacity_device_bytes(const char *deployment)
{
    Moed__V1__Reply *reply = health_of(deployment, "memd");
    const Moed__V1__DeviceMemory *m = reply ? reply->health->device_memory : NULL;
    uint64_t bytes = m ? m->dense_bytes + m->expert_bytes + m->kv_bytes : 0;
    release(reply);
    return bytes;
}

uint64_t capacity_parallel(const char *deployment)
{
    const char *names[SUPERVISE_WORKERS];
    char run[RUN_DIR_BYTES];
    struct error e;
    uint64_t sum = 0;
    unsigned n = run_dir_path(deployment, run, &e) ? 0 : deployment_workers(run, names);
    for (unsigned i = 0; i < n; i++) {
        Moed__V1__Reply *reply = health_of(deployment, names[i]);
        sum += reply ? reply->health->parallel : 0;
        release(reply);
    }
    return sum;
}
