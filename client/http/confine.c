/* Confinement; see confine.h. */
#include "client/http/confine.h"

#include "base/log.h"
#include "confine/calls.h"
#include "confine/files.h"
#include "confine/memory.h"
#include "confine/privileges.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

static void allow_again(struct confine_files *f, struct renewal *r)
{
    static struct renewal_directories found[RENEWAL_FILES]; /* large */
    for (int i = 0; i < RENEWAL_FILES; i++) {
        found[i].count = 0;
        if (!r->paths[i] || renewal_directories_find(r->paths[i], &found[i]))
            continue;
        log_warn("%s is read at the start only: its directory is not for such files alone",
                 r->paths[i]);
        renewal_end(r);
        return;
    }
    for (int i = 0; i < RENEWAL_FILES; i++) {
        for (size_t k = 0; k < found[i].count; k++)
            confine_files_allow(f, found[i].paths[k], CONFINE_READ);
        if (found[i].count && found[i].fixed[0])
            log_warn("%s is not read again once %s leads to another directory: restart moed-http "
                     "then",
                     r->paths[i], found[i].fixed);
    }
}

void frontend_confine_files(const char *run, const char *unix_path, struct renewal *const *again,
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
    for (size_t i = 0; i < n && confine_files_possible(); i++)
        allow_again(&f, again[i]);
    confine_files_end(&f);
}

void frontend_confine_calls(void)
{
    confine_calls(CONFINE_FRONTEND, false);
}
