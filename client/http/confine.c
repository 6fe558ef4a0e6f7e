/* Confinement; see confine.h. */
#include "client/http/confine.h"

#include "base/log.h"
#include "client/http/server/renewal.h"
#include "confine/calls.h"
#include "confine/files.h"
#include "confine/memory.h"
#include "confine/privileges.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

static void allow_again(struct confine_files *f, const char *path)
{
    char own[PATH_MAX], target[PATH_MAX];
    if (!renewal_directory(path, false, own) || !renewal_directory(path, true, target)) {
        log_warn("%s is read at the start only: its directory is not for such files alone", path);
        return;
    }
    confine_files_allow(f, own, CONFINE_READ);
    confine_files_allow(f, target, CONFINE_READ);
}

void frontend_confine_files(const char *run, const char *unix_path, const char *const *again,
                            size_t n)
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
    for (size_t i = 0; i < n; i++)
        if (again[i] && confine_files_possible())
            allow_again(&f, again[i]);
    confine_files_end(&f);
}

void frontend_confine_calls(void)
{
    confine_calls(CONFINE_FRONTEND, false);
}
