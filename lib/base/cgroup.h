/* The control groups of a process, as /proc/PID/cgroup lists them. Sources: the kernel's
 * Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/cgroups.rst. */
#ifndef MOED_BASE_CGROUP_H
#define MOED_BASE_CGROUP_H

#include <stdbool.h>
#include <stdio.h>

struct cgroup {
    bool second;     /* of version 2, which has all controllers */
    char path[4200]; /* "/a/b"; "": the root of the mount */
};

/* ROOT/proc/PID/cgroup, of this process where pid is 0. NULL: there is none. */
FILE *cgroup_open_list(const char *root, long pid);
/* The next of the list's groups that may have this controller: that of version 2, and those of
 * version 1 that name it. list may be NULL. */
bool cgroup_next(FILE *list, const char *controller, struct cgroup *g);
/* Goes to the group above; false: g is the root of the mount. In a container the path may be the
 * host's: then only the mount's root exists, and that is the container's own group. */
bool cgroup_up(struct cgroup *g);
/* Whether a group is `above`, or lies below it. In a cgroup namespace the path of a group outside
 * of it begins with "/..". */
bool cgroup_is_below(const struct cgroup *g, const struct cgroup *above);

#endif
