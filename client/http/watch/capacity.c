/* Capacities; see capacity.h. */
#include "client/http/watch/capacity.h"

#include "client/state/deployment_status.h"
#include "daemon/run_dir.h"

uint64_t capacity_device_bytes(const char *deployment)
{
    char run[RUN_DIR_BYTES];
    Moed__V1__Reply *reply;
    struct error e;
    if (run_dir_path(deployment, run, &e) || deployment_health(run, "memd", &reply, &e))
        return 0;
    const Moed__V1__DeviceMemory *m = reply->health->device_memory;
    uint64_t bytes = m ? m->dense_bytes + m->expert_bytes + m->kv_bytes : 0;
    moed__v1__reply__free_unpacked(reply, NULL);
    return bytes;
}

uint64_t capacity_parallel(const char *deployment)
{
    char run[RUN_DIR_BYTES];
    struct error e;
    return run_dir_path(deployment, run, &e) ? 0 : deployment_workers_health(run).parallel;
}
