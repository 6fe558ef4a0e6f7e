/* Capacities; see capacity.h. */
#include "client/http/watch/capacity.h"

#include "base/clock.h"
#include "client/cli/deployment_status.h"
#include "daemon/run_dir.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define KEPT_NS 1000000000u

enum question { DEVICE_BYTES, PARALLEL, QUESTIONS };

struct capacity {
    struct capacity *next;
    uint64_t asked_ns[QUESTIONS]; /* 0: not yet */
    uint64_t said[QUESTIONS];
    char deployment[];
};

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

static uint64_t ask_device_bytes(const char *deployment)
{
    Moed__V1__Reply *reply = health_of(deployment, "memd");
    const Moed__V1__DeviceMemory *m = reply ? reply->health->device_memory : NULL;
    uint64_t bytes = m ? m->dense_bytes + m->expert_bytes + m->kv_bytes : 0;
    release(reply);
    return bytes;
}

static uint64_t ask_parallel(const char *deployment)
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

/* ---- What is kept ---- */

static bool is_fresh(uint64_t asked_ns)
{
    return asked_ns && clock_ns() - asked_ns < KEPT_NS;
}

/* NULL: no memory. */
static struct capacity *find(struct capacities *c, const char *deployment)
{
    struct capacity *at = c->first;
    while (at && strcmp(at->deployment, deployment) != 0)
        at = at->next;
    if (at)
        return at;
    size_t bytes = strlen(deployment) + 1;
    at = calloc(1, sizeof *at + bytes);
    if (!at)
        return NULL;
    memcpy(at->deployment, deployment, bytes);
    at->next = c->first;
    c->first = at;
    return at;
}

static uint64_t ask_again(struct capacities *c, const char *deployment, enum question what)
{
    static uint64_t (*const ask[])(const char *) = {ask_device_bytes, ask_parallel};
    struct capacity *kept = find(c, deployment);
    if (!kept)
        return 0;
    if (!is_fresh(kept->asked_ns[what])) {
        kept->said[what] = ask[what](deployment);
        kept->asked_ns[what] = clock_ns();
    }
    return kept->said[what];
}

uint64_t capacity_device_bytes(struct capacities *c, const char *deployment)
{
    return ask_again(c, deployment, DEVICE_BYTES);
}

uint64_t capacity_parallel(struct capacities *c, const char *deployment)
{
    return ask_again(c, deployment, PARALLEL);
}

void capacities_fini(struct capacities *c)
{
    for (struct capacity *at = c->first, *next; at; at = next) {
        next = at->next;
        free(at);
    }
    c->first = NULL;
}
