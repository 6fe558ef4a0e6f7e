/* A calibration's measurements in their order; see measure.h and measure_internal.h. */
#include "measure_internal.h"

#include "worker/links/device_cache.h"
#include "worker/links/device_compute.h"
#include "worker/links/expert_link.h"

#include <time.h>

static void scale(struct calibration_side *side, double by)
{
    for (uint32_t i = 0; i < side->n_points; i++)
        side->points[i].seconds *= by;
}

enum error_code calibration_measure(const struct calibration_parts *p, struct calibration *c,
                                    bool *whole, struct error *e)
{
    struct measure_bench b;
    if (!measure_bench_init(&b, p)) {
        measure_bench_fini(&b);
        return error_set(e, ERROR_MEMORY, "no memory for the calibration");
    }
    b.channel = expert_link_channel(p->link);
    exec_set_groups(p->own, &(struct row_groups){NULL, 0});
    if (p->device->kind == DEVICE_CUDA) {
        measure_store_segments(&b);
        if (!b.n_stored) {
            measure_bench_fini(&b);
            return error_set(
                e, ERROR_MEMORY,
                "the device has no memory left besides memd's arena: set a smaller vram=");
        }
    }
    measure_device(&b, &c->device_side, &c->device_call_s);
    *whole = b.channel && measure_cpu(&b, &c->cpu_side, &c->cpu_call_s, &c->job_overhead_s);
    if (!*whole) {
        c->cpu_side = c->device_side;
        c->cpu_call_s = c->device_call_s;
        c->job_overhead_s = 0;
    }
    scale(&c->device_side, 1 / p->device->speed);
    c->device_call_s /= p->device->speed;
    measure_link(&b, c);
    device_cache_measured(p->cache);
    measure_bench_fini(&b);
    if (b.lost.code) {
        if (e)
            *e = b.lost;
        return b.lost.code;
    }
    c->measured_at = (int64_t)time(NULL);
    return ERROR_OK;
}
