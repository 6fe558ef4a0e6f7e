/* What the worker may still do; see worker.h. */
#include "worker.h"

#include "calibration/calibration.h"
#include "confine/calls.h"
#include "confine/files.h"
#include "confine/memory.h"
#include "confine/privileges.h"

/* A GPU's driver opens what nobody has a list of. */
static bool has_driver(const struct worker *w)
{
    struct device_spec spec;
    return device_parse(w->device, &spec, NULL) == ERROR_OK && spec.kind == DEVICE_CUDA;
}

void worker_confine_files(const struct worker *w)
{
    struct confine_files f;
    char calibrations[PATH_MAX];
    if (!w->daemon.confine || has_driver(w))
        return;
    confine_memory();
    confine_privileges_daemon();
    confine_files_begin(&f);
    confine_files_allow_daemon(&f, w->daemon.run);
    if (calibration_make_folder(calibrations))
        confine_files_allow(&f, calibrations, CONFINE_READ | CONFINE_WRITE);
    confine_files_end(&f);
}

void worker_confine_calls(const struct worker *w)
{
    if (w->daemon.confine)
        confine_calls(has_driver(w) ? CONFINE_DRIVER : CONFINE_DAEMON, false);
}
