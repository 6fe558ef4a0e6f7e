/* What a deployment does at one moment, from the sources of `moed ps` (the supervisor's status, the
 * processes' health) and `moed metrics`. A value that is not measured is NaN. */
#ifndef MOED_CLI_TOP_SAMPLE_H
#define MOED_CLI_TOP_SAMPLE_H

#include "client/state/deployment_status.h"
#include "daemon/run_dir.h"
#include "daemon/supervisor_protocol.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { SAMPLE_PROCESSES = SUPERVISE_PROCESSES + 1 };

struct sample_process {
    char name[32], state[32];
    pid_t pid; /* 0: it does not run */
    uint64_t uptime_ms;
    double restarts;     /* NaN: no supervisor counts them */
    double memory_bytes; /* resident, with what is shared */
    double cpu_s;        /* CPU time since its start */
};

struct sample {
    char name[64], run[RUN_DIR_BYTES], state[32], model[256];
    double at_s; /* clock_s */
    unsigned n_processes;
    struct sample_process processes[SAMPLE_PROCESSES];

    /* the workers together */
    struct workers_health workers;
    double requests_running, requests_waiting, clients, tokens_per_s;
    double requests_ended, generated_tokens, prompt_tokens, cached_tokens; /* since its start */

    /* the expert cache and its link over the last seconds, shares from 0 to 1 */
    double hit_rate, link_bytes_per_s, link_busy, device_busy, cpu_busy, precision;
    /* the host tier over the last seconds (--ram): experts found in host memory; decode time spent
     * waiting for the file */
    double memory_hit_rate, disk_bytes_per_s, disk_wait;
    /* the device's memory, as memd has given it out */
    bool has_device_memory;
    Moed__V1__DeviceMemory device_memory; /* without its device */
    /* memory of conversations */
    double kv_used_bytes, kv_free_bytes, kv_tokens;

    /* The model's experts by place, each in the unit that its owner counts. */
    double slots, resident; /* devices: segments that fit, that are there */
    double devices;
    double experts, segments; /* of the model */
    double host_experts;      /* in host memory; NaN: all */
};

/* Where the model's experts are, from 0 to 1. A copy on the device is one in host memory too. */
struct sample_places {
    double device, host, file; /* device: NaN where it has no memory of its own; file: not in host
                                  memory */
};

/* Takes a sample of the deployment in `run`. False: nothing runs there; the names are set. */
bool sample_take(struct sample *s, const char *name, const char *run);
struct sample_places sample_places(const struct sample *s);

/* The change of a counter a second between two samples; NaN: it was not measured, or began anew. */
double sample_rate(double before, double after, double seconds);

#endif
