/* Limits of control groups; see cgroup_memory.h. Sources: the kernel's
 * Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst. */
#include "base/cgroup_memory.h"

#include "base/cgroup.h"

#include <stdio.h>
#include <string.h>

#define PATH_BYTES 8192
#define END_NS     5000000000ull /* a killed process with large mappings takes seconds to end */

/* The two versions' files. */
struct version {
    const char *mount, *limit, *used, *inactive, *active, *events;
};

static const struct version versions[] = {
    {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file", "active_file",
     "memory.events"},
    {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file", "total_active_file", "memory.oom_control"},
};

struct group {
    const char *root;
    const struct version *version;
    struct cgroup at;
};

static FILE *open_file(const struct group *g, const char *file)
{
    char path[PATH_BYTES];
    int n = snprintf(path, sizeof path, "%s%s%s/%s", g->root, g->version->mount, g->at.path, file);
    return n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
}

static bool read_number(const struct group *g, const char *file, uint64_t *out)
{
    FILE *f = open_file(g, file);
    unsigned long long n = 0;
    if (f == NULL)
        return false;
    bool ok = fscanf(f, "%llu", &n) == 1; /* "max" is no number: no limit */
    fclose(f);
    *out = n;
    return ok;
}

static uint64_t page_cache(const struct group *g)
{
    FILE *f = open_file(g, "memory.stat");
    char line[256], name[64];
    unsigned long long bytes, sum = 0;
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "%63s %llu", name, &bytes) == 2 &&
            (strcmp(name, g->version->inactive) == 0 || strcmp(name, g->version->active) == 0))
            sum += bytes;
    if (f != NULL)
        fclose(f);
    return sum;
}

static uint64_t available_in(const struct group *g)
{
    uint64_t limit, used;
    if (!read_number(g, g->version->limit, &limit) || !read_number(g, g->version->used, &used))
        return UINT64_MAX;
    uint64_t cache = page_cache(g);
    used = used > cache ? used - cache : 0;
    return limit > used ? limit - used : 0;
}

/* Whether what the process allocates counts in the group. One that is not known, for instance for
 * want of rights, counts. */
static bool is_inside(const struct group *g, long pid)
{
    struct cgroup at;
    FILE *f = cgroup_open_list(g->root, pid);
    bool known = false, inside = false;
    while (!inside && cgroup_next(f, "memory", &at)) {
        known |= at.second == g->at.second;
        inside = cgroup_is_below(&at, &g->at);
    }
    if (f != NULL)
        fclose(f);
    return inside || !known;
}

static uint64_t promised_in(const struct group *g, const struct cgroup_promise *promises,
                            unsigned n)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < n; i++)
        if (is_inside(g, promises[i].pid))
            bytes += promises[i].bytes;
    return bytes;
}

/* Of the group and all above it. */
static uint64_t available_upwards(struct group *g, const struct cgroup_promise *promises,
                                  unsigned n)
{
    uint64_t least = UINT64_MAX;
    do {
        uint64_t here = available_in(g);
        if (here == UINT64_MAX)
            continue;
        uint64_t promised = promised_in(g, promises, n);
        here = here > promised ? here - promised : 0;
        least = here < least ? here : least;
    } while (cgroup_up(&g->at));
    return least;
}

/* The next of this process's groups that may limit memory. */
static bool next_group(FILE *f, const char *root, struct group *g)
{
    if (!cgroup_next(f, "memory", &g->at))
        return false;
    g->root = root;
    g->version = &versions[!g->at.second];
    return true;
}

uint64_t cgroup_memory_available(const char *root)
{
    return cgroup_memory_unpromised(root, NULL, 0);
}

uint64_t cgroup_memory_unpromised(const char *root, const struct cgroup_promise *promises,
                                  unsigned n)
{
    uint64_t least = UINT64_MAX;
    struct group g;
    FILE *f = cgroup_open_list(root, 0);
    while (next_group(f, root, &g)) {
        uint64_t available = available_upwards(&g, promises, n);
        least = available < least ? available : least;
    }
    if (f != NULL)
        fclose(f);
    return least;
}

/* The number behind "oom_kill" in a line of the file. */
static bool read_oom_kills(FILE *f, uint64_t *out)
{
    char line[256];
    unsigned long long n = 0;
    bool found = false;
    while (f != NULL && !found && fgets(line, sizeof line, f) != NULL)
        found = sscanf(line, "oom_kill %llu", &n) == 1;
    if (f != NULL)
        fclose(f);
    *out = n;
    return found;
}

/* In a container the group may be the root of the mount, as in cgroup_up(). */
static bool group_oom_kills(struct group *g, uint64_t *out)
{
    if (read_oom_kills(open_file(g, g->version->events), out))
        return true;
    g->at.path[0] = '\0';
    return read_oom_kills(open_file(g, g->version->events), out);
}

uint64_t cgroup_memory_oom_kills(const char *root)
{
    char file[PATH_BYTES];
    uint64_t kills = 0;
    struct group g;
    bool found = false;
    FILE *f = cgroup_open_list(root, 0);
    while (!found && next_group(f, root, &g))
        found = group_oom_kills(&g, &kills);
    if (f != NULL)
        fclose(f);
    snprintf(file, sizeof file, "%s/proc/vmstat", root);
    if (!found)
        read_oom_kills(fopen(file, "re"), &kills);
    return kills;
}

void cgroup_oom_kills_look(struct cgroup_oom_kills *k, const char *root, uint64_t now_ns)
{
    uint64_t count = cgroup_memory_oom_kills(root);
    if (now_ns - k->rise_ns > END_NS)
        k->unclaimed = 0;
    if (k->looked && count > k->count) {
        k->unclaimed += count - k->count;
        k->rise_ns = now_ns;
    }
    k->count = count;
    k->looked = true;
}

bool cgroup_oom_kills_claim(struct cgroup_oom_kills *k, const char *root, uint64_t now_ns)
{
    cgroup_oom_kills_look(k, root, now_ns);
    if (k->unclaimed == 0)
        return false;
    k->unclaimed--; /* the next one may be of another process */
    return true;
}
