/* The port that was chosen; see port_file.h. */
#include "client/http/port_file.h"

#include "base/log.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

static void name_of(const char *run, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s/http.port", run);
}

uint16_t port_file_read(const char *run)
{
    char path[PATH_MAX];
    unsigned port = 0;
    name_of(run, path);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    if (fscanf(f, "%5u", &port) != 1 || port > 65535)
        port = 0;
    fclose(f);
    return (uint16_t)port;
}

void port_file_write(const char *run, unsigned port)
{
    char path[PATH_MAX];
    name_of(run, path);
    FILE *f = fopen(path, "we");
    bool good = f && fprintf(f, "%u\n", port) > 0;
    if (f && fclose(f) != 0)
        good = false;
    if (!good)
        log_warn("cannot write %s: %m; after a restart the port will be another one", path);
}
