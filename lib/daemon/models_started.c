/* The deployments that moed-models has started; see models_started.h. */
#include "daemon/models_started.h"

#include <stdio.h>
#include <string.h>

void models_started_file(const char *run, char out[RUN_PATH_BYTES])
{
    run_dir_file(run, "models.started", out);
}

static bool run_of(const char *name, char out[RUN_DIR_BYTES])
{
    char folder[RUN_DIR_BYTES];
    if (run_dir_path(name, out, NULL) || !run_dir_folder(folder)) /* the first checks the name */
        return false;
    return snprintf(out, RUN_DIR_BYTES, "%s/%s", folder, name) < RUN_DIR_BYTES;
}

void models_started_list(const char *run,
                         void (*visit)(void *arg, const char *name, const char *run), void *arg)
{
    char path[RUN_PATH_BYTES], name[64], started[RUN_DIR_BYTES];
    models_started_file(run, path);
    FILE *f = fopen(path, "re");
    while (f && fgets(name, sizeof name, f)) {
        name[strcspn(name, "\n")] = '\0';
        if (run_of(name, started))
            visit(arg, name, started);
    }
    if (f)
        fclose(f);
}
