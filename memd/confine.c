/* What memd may still do; see memd.h. */
#include "memd.h"

#include "confine/calls.h"
#include "confine/files.h"
#include "confine/memory.h"
#include "confine/privileges.h"
#include "gguf/gguf.h"

#include <stdlib.h>
#include <sys/stat.h>

/* A GPU's driver opens what nobody has a list of. */
static bool has_driver(const struct memd *m)
{
    struct device_spec spec;
    return device_parse(m->device, &spec, NULL) == ERROR_OK && spec.kind == DEVICE_CUDA;
}

static void allow_model(const struct memd *m, struct confine_files *f)
{
    uint32_t parts = gguf_count_parts(m->model);
    if (parts == 1)
        confine_files_allow(f, m->model, CONFINE_READ);
    for (uint32_t i = 0; i < parts && parts > 1; i++) {
        char *path = gguf_part_path(m->model, i, parts);
        confine_files_allow(f, path, CONFINE_READ);
        free(path);
    }
}

void memd_confine_files(const struct memd *m)
{
    struct confine_files f;
    if (!m->daemon.confine || has_driver(m))
        return;
    confine_memory();
    confine_privileges_daemon();
    confine_files_begin(&f);
    confine_files_allow_daemon(&f, m->daemon.run);
    allow_model(m, &f);
    confine_files_allow(&f, m->predictors_path, CONFINE_READ);
    if (m->kv_dir) {
        mkdir(m->kv_dir, 0700); /* else conversations_make does, which it could not any more */
        confine_files_allow(&f, m->kv_dir, CONFINE_READ | CONFINE_WRITE);
    }
    confine_files_end(&f);
}

void memd_confine_calls(const struct memd *m)
{
    if (m->daemon.confine)
        confine_calls(has_driver(m) ? CONFINE_DRIVER : CONFINE_DAEMON, true);
}
