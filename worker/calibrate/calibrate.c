/* The identity of a calibration, and its file; see calibrate.h. measure.c measures. */
#include "calibrate.h"

#include "measure.h"
#include "worker/links/device_cache.h"
#include "worker/links/device_compute.h"

#include "base/clock.h"
#include "base/cpu_name.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A value of the file is one line. */
static void plain(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}

static void identify(const struct calibration_parts *p, struct calibration *c)
{
    const struct model_params *m = &p->memory->map.params;
    const struct pool_slabs *s = &p->memory->map.slabs[m->n_dense];
    char cpu[96];
    cpu_name(cpu, sizeof cpu);
    snprintf(c->machine, sizeof c->machine, "%s, %u cores, %u threads, %s kernels", cpu,
             pool_usable_cores(), pool_thread_count(exec_pool(p->own)), kernels_get()->name);
    const char *name = device_compute_name(p->compute);
    snprintf(c->device, sizeof c->device, "%s%s%s", p->device_text, name[0] ? " " : "", name);
    snprintf(c->model, sizeof c->model, "%.95s", m->name);
    snprintf(c->shapes, sizeof c->shapes,
             "%" PRIu32 " layers of %" PRIu32 " experts, %" PRIu32 " by %" PRIu32 ", %" PRIu32
             " segments of %" PRIu64 " bytes, %s",
             m->n_layers - m->n_dense, s->n_experts, m->d_model, m->d_expert, s->n_segments,
             s->segment_bytes, tensor_type_info((enum tensor_type)s->gate_type)->name);
    plain(c->machine);
    plain(c->device);
    plain(c->model);
    c->segment_bytes = s->segment_bytes;
}

/* Whether a stored calibration is of use; *out is set then. reports: why a file is not. */
static bool is_stored(const struct calibration_parts *p, const struct calibration *c, bool reports,
                      struct calibration *out)
{
    struct error why;
    enum error_code code = calibration_load(c, out, &why);
    if (reports && (code == ERROR_FORMAT || code == ERROR_IO))
        log_warn("calibration ignored: %s", why.text);
    if (reports && code == ERROR_VERSION)
        log_info("calibrating again: %s", why.text);
    if (!code && !(out->link_segment_s > 0) && !device_cache_holds_all(p->cache))
        code = ERROR_NOT_FOUND; /* it was measured while everything was resident */
    /* a pool's generation is the time of its load */
    return !code && !(p->anew && out->measured_at < (int64_t)(p->memory->generation / 1000000000u));
}

static enum error_code measure(const struct calibration_parts *p, struct calibration *c,
                               struct error *e)
{
    struct error why;
    uint64_t started = clock_ns();
    bool whole;
    enum error_code code = calibration_measure(p, c, &whole, e);
    if (code)
        return code;
    log_info("calibrated in %.2f s%s", (double)(clock_ns() - started) * 1e-9,
             whole ? "" : ", without cpuexec: not stored");
    if (whole && calibration_store(c, &why))
        log_warn("cannot store the calibration: %s", why.text);
    return ERROR_OK;
}

/* Workers that start together measure one after the other, and the second uses what the first has
 * stored. */
enum error_code calibrate(const struct calibration_parts *p, struct calibration *out,
                          struct error *e)
{
    struct calibration c = {0};
    identify(p, &c);
    if (is_stored(p, &c, true, out)) {
        log_info("calibration of an earlier start is used");
        return ERROR_OK;
    }
    int lock = calibration_lock(&c);
    enum error_code code = ERROR_OK;
    if (lock >= 0 && is_stored(p, &c, false, out))
        log_info("the calibration of another worker is used");
    else if (!(code = measure(p, &c, e)))
        *out = c;
    if (lock >= 0)
        close(lock);
    return code;
}
