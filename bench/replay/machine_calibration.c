/* A calibration as a machine; see machine_calibration.h. */
#include "bench/replay/machine_calibration.h"

#include "calibration/layer_costs.h"
#include "device/device.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Seconds of a segment over the link. If the calibration did not measure it, the value follows from
 * the text of the device's option. */
static enum error_code load_seconds(const char *path, const struct calibration *c, double *out,
                                    struct error *e)
{
    struct device_spec device;
    char words[sizeof c->device]; /* the value of --device; a space and the device's name follow it
                                   */
    *out = c->link_segment_s;
    if (c->link_segment_s > 0)
        return ERROR_OK;
    snprintf(words, sizeof words, "%.*s", (int)strcspn(c->device, " "), c->device);
    if (device_parse(words, &device, e))
        return error_prefix(e, "%s", path);
    if (device.kind == DEVICE_HOST || !(device.link_bytes_per_s > 0))
        return error_set(e, ERROR_UNSUPPORTED, "%s: device %s has no link to replay", path,
                         c->device);
    *out = device.link_latency_s + (double)c->segment_bytes / device.link_bytes_per_s;
    return ERROR_OK;
}

/* The initial costs of a worker: the measured costs with the stored corrections. */
static struct layer_costs as_corrected(const struct calibration *c, double load_s)
{
    struct sched_costs first = calibration_costs(c, load_s);
    struct layer_corrections kept = layer_costs_stored(c);
    struct layer_costs costs;
    layer_costs_init(&costs, &first, c->job_overhead_s);
    layer_costs_resume(&costs, &kept);
    return costs;
}

enum error_code machine_from_calibration(const char *path, struct machine *out,
                                         struct sched_costs *costs, struct error *e)
{
    struct calibration c;
    double load_s;
    enum error_code code = calibration_load_file(path, &c, e);
    if (!code)
        code = load_seconds(path, &c, &load_s, e);
    if (code)
        return code;
    struct layer_costs corrections = as_corrected(&c, load_s);
    struct sched_costs k = corrections.now;
    double bytes = (double)c.segment_bytes;
    struct machine m = {
        .name = "calibration",
        .dram_bytes_per_s = bytes / k.load_contended_s + bytes / sched_cpu_contended_s(&k, 1),
        .cpu_bytes_per_s = bytes / sched_cpu_s(&k, 1),
        .cpu_flop_per_s = k.cpu_token_s > 0 ? 2 * bytes / k.cpu_token_s : INFINITY,
        .cpu_call_s = c.cpu_call_s + corrections.job_s,
        .link_bytes_per_s = bytes / k.load_s,
        .link_call_s = c.link_latency_s,
        .device_bytes_per_s = bytes / sched_device_s(&k, 1),
        .device_flop_per_s = k.device_token_s > 0 ? 2 * bytes / k.device_token_s : INFINITY,
        .device_call_s = c.device_call_s,
        .plan_expert_s = MACHINE_PLAN_EXPERT_S,
        .predict_call_s = MACHINE_PREDICT_CALL_S,
        .predict_gate_s = c.device_call_s,
    };
    snprintf(m.what, sizeof m.what, "%.96s; %.56s", c.machine, c.device);
    *out = m;
    *costs = k;
    return ERROR_OK;
}
