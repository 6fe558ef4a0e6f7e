/* Calibration: measures the costs of this machine before the first request. It times a segment on
 * the device and on cpuexec by the number of tokens, the link, and all three at the same time. The
 * result is stored for the next start (calibration/calibration.h). One thread, before the engine's
 * starts. */
#ifndef MOED_WORKER_CALIBRATE_CALIBRATE_H
#define MOED_WORKER_CALIBRATE_CALIBRATE_H

#include "calibration/calibration.h"
#include "device/device.h"
#include "exec/exec.h"
#include "memory/memory_client.h"

struct device_cache;
struct device_compute;
struct expert_link;
struct host_experts;

struct calibration_parts {
    const struct memory_client *memory;
    struct exec *own;
    struct device_compute *compute;
    struct device_cache *cache; /* asks memd for loads */
    struct host_experts *host;  /* NULL: all experts are in the pool */
    struct expert_link *link;   /* to the CPU executor */
    const struct device_spec *device;
    const char *device_text;
    uint32_t max_tokens;
    bool rows_stay; /* on the device, where the dense part is computed */
    bool anew;      /* ignore a calibration that is older than memd's load of this model */
};

/* Reads the calibration from its file, or measures and stores it. Without an executor the CPU's
 * figures are the device's, and nothing is stored. ERROR_MEMORY, or the error of the device. */
enum error_code calibrate(const struct calibration_parts *p, struct calibration *out,
                          struct error *e);

#endif
