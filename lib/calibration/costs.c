/* The assigners' costs from a calibration; see calibration.h. */
#include "calibration/calibration.h"

struct sched_costs calibration_costs(const struct calibration *c, double load_s)
{
    struct calibration_line on_device = calibration_fit(&c->device_side),
                            on_cpu = calibration_fit(&c->cpu_side);
    double overlap = c->cpu_overlap > 0 ? c->cpu_overlap : 1;
    double cpu_slower = c->cpu_slowdown > 0 ? c->cpu_slowdown : 1;
    on_cpu.base_s *= overlap; /* in a layer the device computes at the same time */
    on_cpu.token_s *= overlap;
    if (c->link_segment_s > 0)
        load_s = c->link_segment_s;
    return (struct sched_costs){
        .load_s = load_s,
        .load_contended_s = load_s * (c->link_slowdown > 0 ? c->link_slowdown : 1),
        .device_s = on_device.base_s,
        .device_token_s = on_device.token_s,
        .cpu_s = on_cpu.base_s,
        .cpu_token_s = on_cpu.token_s,
        .cpu_contended_s = on_cpu.base_s * cpu_slower,
        .cpu_contended_token_s = on_cpu.token_s * cpu_slower,
    };
}
