/* Confinement; see confine.h. */
#include "client/http/confine.h"

#include "confine/calls.h"
#include "confine/files.h"
#include "confine/memory.h"
#include "confine/privileges.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

void frontend_confine_files(const char *run, const char *unix_path)
{
    struct confine_files f;
    const char *only = getenv("MOED_RUN");
    char parent[PATH_MAX], beside[PATH_MAX];
    snprintf(parent, sizeof parent, "%s", run);
    snprintf(beside, sizeof beside, "%s", unix_path ? unix_path : "");
    confine_memory();
    confine_privileges_all();
    confine_files_begin(&f);
    confine_files_allow_daemon(&f, run);
    /* The deployments are beside RUN, unless $MOED_RUN is the only one. */
    confine_files_allow(&f, only && *only ? only : dirname(parent), CONFINE_READ);
    if (unix_path) /* the socket is removed at the end */
        confine_files_allow(&f, dirname(beside), CONFINE_SOCKETS);
    confine_files_end(&f);
}

void frontend_confine_calls(void)
{
    confine_calls(CONFINE_FRONTEND, false);
}
