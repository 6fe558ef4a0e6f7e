/* Reads the topology from /sys and /proc; see topology.h. */
#include "exec/topology_files.h"

#include "base/cgroup.h"
#include "base/log.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint16_t core_of(const char *root, unsigned cpu)
{
    char path[128], list[PATH_BYTES];
    unsigned lowest;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", cpu);
    if (topology_read_line(root, path, list) && topology_list_names(list, cpu, &lowest))
        return (uint16_t)lowest;
    return (uint16_t)cpu;
}

/* The kernel's measure of a core's speed, or its highest frequency; 0: unknown. */
static uint32_t measured_speed(const char *root, unsigned cpu)
{
    static const char *const files[] = {"cpu_capacity", "cpufreq/cpuinfo_max_freq"};
    char path[128], line[PATH_BYTES];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/%s", cpu, files[i]);
        if (topology_read_line(root, path, line))
            return (uint32_t)strtoul(line, NULL, 10);
    }
    return 0;
}

/* The speed of a core to compare it with the machine's others. */
static uint32_t speed_of(const char *root, unsigned cpu)
{
    char line[PATH_BYTES];
    unsigned lowest;
    uint32_t speed;
    if (topology_read_line(root, "/sys/devices/cpu_core/cpus", line)) {
        if (topology_list_names(line, cpu, &lowest))
            return TOPOLOGY_FAST;
        speed = measured_speed(root, cpu);
        return speed == 0 ? 1 : speed < TOPOLOGY_FAST / 2 ? speed : TOPOLOGY_FAST / 2;
    }
    return measured_speed(root, cpu);
}

/* Leaves out the low-power cores of a hybrid CPU: of its slow kind, those that are much slower than
 * the fastest of that kind. */
static void drop_low_power(struct topology *t)
{
    uint32_t most = 0;
    unsigned n = 0;
    bool hybrid = false;
    for (unsigned i = 0; i < t->n_cpus; i++) {
        uint32_t speed = t->speeds[t->cpus[i].core];
        hybrid |= speed == TOPOLOGY_FAST;
        most = speed < TOPOLOGY_FAST && speed > most ? speed : most;
    }
    for (unsigned i = 0; hybrid && i < t->n_cpus; i++)
        if (t->speeds[t->cpus[i].core] >= most - most / 4)
            t->cpus[n++] = t->cpus[i];
    t->n_cpus = hybrid ? n : t->n_cpus;
}

/* Reads the first number of a group's file, and the second; version 1 has one in each file. */
static bool read_period(const char *root, const struct cgroup *g, long *quota, long *period)
{
    char path[2 * PATH_BYTES], line[PATH_BYTES];
    if (g->second) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", g->path);
        return topology_read_line(root, path, line) && sscanf(line, "%ld %ld", quota, period) == 2;
    }
    snprintf(path, sizeof path, "/sys/fs/cgroup/cpu%s/cpu.cfs_quota_us", g->path);
    if (!topology_read_line(root, path, line) || sscanf(line, "%ld", quota) != 1)
        return false;
    snprintf(path, sizeof path, "/sys/fs/cgroup/cpu%s/cpu.cfs_period_us", g->path);
    return topology_read_line(root, path, line) && sscanf(line, "%ld", period) == 1;
}

/* Whole cores of a cgroup; 0: no limit, which is "max" or -1. */
static unsigned group_quota(const char *root, const struct cgroup *g)
{
    long quota, period;
    if (!read_period(root, g, &quota, &period) || quota <= 0 || period <= 0)
        return 0;
    return (unsigned)((quota + period - 1) / period);
}

/* The lowest quota of our cgroups and their ancestors. */
static unsigned read_quota(const char *root)
{
    unsigned least = 0, quota;
    struct cgroup g;
    FILE *list = cgroup_open_list(root, 0);
    if (!list)
        return group_quota(root, &(struct cgroup){.second = true});
    while (cgroup_next(list, "cpu", &g))
        do {
            quota = group_quota(root, &g);
            least = quota && (!least || quota < least) ? quota : least;
        } while (cgroup_up(&g));
    fclose(list);
    return least;
}

/* The number of CPUs before cpus[i] that belong to the same core. */
static unsigned rank_in_core(const struct topology *t, unsigned i)
{
    unsigned n = 0;
    for (unsigned k = 0; k < i; k++)
        n += t->cpus[k].core == t->cpus[i].core;
    return n;
}

struct placed {
    struct topology_cpu cpu;
    unsigned rank,
        turn; /* of the CPU in its core; of the CPU among those of this rank on its node */
};

static int in_order(const void *a, const void *b)
{
    const struct placed *p = a, *q = b;
    if (p->rank != q->rank)
        return p->rank < q->rank ? -1 : 1;
    if (p->turn != q->turn)
        return p->turn < q->turn ? -1 : 1;
    if (p->cpu.node != q->cpu.node)
        return p->cpu.node < q->cpu.node ? -1 : 1;
    return p->cpu.cpu < q->cpu.cpu ? -1 : p->cpu.cpu > q->cpu.cpu;
}

static void put_in_order(struct topology *t)
{
    static _Thread_local struct placed placed[TOPOLOGY_MAX_CPUS];
    for (unsigned i = 0; i < t->n_cpus; i++) {
        struct placed *p = &placed[i];
        *p = (struct placed){.cpu = t->cpus[i], .rank = rank_in_core(t, i)};
        for (unsigned k = 0; k < i; k++)
            p->turn += placed[k].rank == p->rank && placed[k].cpu.node == p->cpu.node;
        t->n_cores += p->rank == 0;
    }
    qsort(placed, t->n_cpus, sizeof *placed, in_order);
    for (unsigned i = 0; i < t->n_cpus; i++)
        t->cpus[i] = placed[i].cpu;
}

void topology_read_from(const char *root, const cpu_set_t *allowed, struct topology *out)
{
    memset(out, 0, sizeof *out);
    for (unsigned cpu = 0; cpu < TOPOLOGY_MAX_CPUS; cpu++)
        if (CPU_ISSET(cpu, allowed)) {
            uint16_t core = core_of(root, cpu);
            out->cpus[out->n_cpus++] = (struct topology_cpu){.cpu = (uint16_t)cpu, .core = core};
            out->speeds[core] = speed_of(root, cpu);
        }
    drop_low_power(out);
    topology_read_nodes(root, out);
    put_in_order(out);
    out->quota = read_quota(root);
}

/* Reads the CPUs below TOPOLOGY_MAX_CPUS that this process may use. A kernel that knows more CPUs
 * than a set holds wants a larger one (EINVAL). Returns the number of all CPUs; 0: errno. */
static int read_allowed(cpu_set_t *out)
{
    enum { MOST = 1 << 20 };
    int error = EINVAL, count = 0;
    for (int n = TOPOLOGY_MAX_CPUS; error == EINVAL && n <= MOST; n *= 2) {
        cpu_set_t *set = CPU_ALLOC(n);
        size_t bytes = CPU_ALLOC_SIZE(n);
        if (!set)
            break;
        CPU_ZERO_S(bytes, set);
        error = sched_getaffinity(0, bytes, set) == 0 ? 0 : errno;
        count = error ? 0 : CPU_COUNT_S(bytes, set);
        memcpy(out, set, sizeof *out);
        CPU_FREE(set);
    }
    errno = error;
    return count;
}

/* Once a process: its pools read the same. */
static void warn(int n_cpus, int n_allowed)
{
    static atomic_bool warned;
    if (atomic_exchange(&warned, true))
        return;
    if (!n_allowed)
        log_warn("sched_getaffinity: %m: threads for %d CPUs are not bound to any", n_cpus);
    else if (n_cpus < n_allowed)
        log_warn("of %d CPUs threads use the %d below number %d", n_allowed, n_cpus,
                 TOPOLOGY_MAX_CPUS);
    else
        log_warn("no CPU of this process is below number %d: threads for %d CPUs are not bound to "
                 "any",
                 TOPOLOGY_MAX_CPUS, n_cpus);
}

/* As many CPUs as there are allowed ones, or CPUs of the machine where that is not known. Returns
 * their number. */
static int guess_allowed(int n_allowed, cpu_set_t *out)
{
    int n = n_allowed ? n_allowed : (int)sysconf(_SC_NPROCESSORS_ONLN);
    n = n < 1 ? 1 : n > TOPOLOGY_MAX_CPUS ? TOPOLOGY_MAX_CPUS : n;
    CPU_ZERO(out);
    for (int cpu = 0; cpu < n; cpu++)
        CPU_SET(cpu, out);
    return n;
}

void topology_read(struct topology *out)
{
    cpu_set_t set;
    int n_allowed = read_allowed(&set), error = errno, n = n_allowed ? CPU_COUNT(&set) : 0;
    bool is_known = n > 0;
    if (!is_known)
        n = guess_allowed(n_allowed, &set);
    errno = error;
    if (!is_known || n < n_allowed)
        warn(n, n_allowed);
    topology_read_from("", &set, out);
    out->is_guessed = !is_known;
}

unsigned topology_threads(const struct topology *t)
{
    unsigned n = t->quota && t->quota < t->n_cores ? t->quota : t->n_cores;
    return n ? n : 1;
}

/* True: the slowest of the cores is of another kind than the fastest. Cores of one kind may differ
 * by some per cent in their highest frequency. */
static bool differ(const struct topology *t, const uint16_t *cores, unsigned n)
{
    uint32_t least = UINT32_MAX, most = 0;
    for (unsigned i = 0; i < n; i++) {
        uint32_t speed = t->speeds[cores[i]];
        least = speed < least ? speed : least;
        most = speed > most ? speed : most;
    }
    return n > 0 && least < most - most / 8;
}

/* Puts a node's cores in such an order that each of its `shares`, of `each` cores in a row, has as
 * equally many of each kind as possible: from the fastest core on, they are dealt to the shares in
 * turn. What is left are the slowest. */
static void deal(const struct topology *t, uint16_t *cores, unsigned n, unsigned shares,
                 unsigned each)
{
    uint16_t sorted[TOPOLOGY_MAX_CPUS];
    unsigned done = 0;
    if (!shares || !differ(t, cores, n))
        return;
    for (unsigned i = 0; i < n; i++) { /* insertion keeps equals in order */
        unsigned at = i;
        for (; at > 0 && t->speeds[sorted[at - 1]] < t->speeds[cores[i]]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = cores[i];
    }
    for (unsigned s = 0; s < shares; s++)
        for (unsigned i = s; i < shares * each; i += shares)
            cores[done++] = sorted[i];
    memcpy(cores + done, sorted + done, (n - done) * sizeof *cores);
}

/* The shares of the cores, as positions in a list of the cores, node by node. */
struct division {
    unsigned n_shares, each;                /* cores of a share */
    unsigned n_nodes;                       /* the shares are divided by node; 0: they are not */
    unsigned first[TOPOLOGY_MAX_NODES + 1]; /* of each node's cores in the list */
};

static void count_cores(const struct topology *t, unsigned first[TOPOLOGY_MAX_NODES + 1])
{
    memset(first, 0, (TOPOLOGY_MAX_NODES + 1) * sizeof *first);
    for (unsigned i = 0; i < t->n_cores; i++)
        first[t->cpus[i].node + 1]++;
    for (unsigned node = 0; node < t->n_nodes; node++)
        first[node + 1] += first[node];
}

static void divide(const struct topology *t, unsigned n_shares, struct division *d)
{
    *d = (struct division){.n_shares = n_shares, .each = t->n_cores / n_shares};
    d->each = d->each ? d->each : 1;
    count_cores(t, d->first);
    unsigned nodes = n_shares < t->n_nodes ? t->n_nodes / n_shares : 1;  /* of a share */
    unsigned shares = n_shares > t->n_nodes ? n_shares / t->n_nodes : 1; /* of a node */
    if (nodes * n_shares != shares * t->n_nodes)
        return;
    for (unsigned node = 0; node < t->n_nodes; node += nodes)
        if (d->first[node + nodes] - d->first[node] < shares * d->each)
            return;
    d->n_nodes = t->n_nodes;
}

/* The position of a share's first core. */
static unsigned first_of_share(const struct division *d, unsigned rank)
{
    if (!d->n_nodes)
        return rank * d->each;
    if (d->n_shares <= d->n_nodes)
        return d->first[rank * (d->n_nodes / d->n_shares)];
    unsigned shares = d->n_shares / d->n_nodes;
    return d->first[rank / shares] + rank % shares * d->each;
}

/* The number of shares that begin with a core of the node. */
static unsigned shares_of_node(const struct division *d, unsigned node)
{
    unsigned n = 0;
    for (unsigned rank = 0; rank < d->n_shares; rank++) {
        unsigned at = first_of_share(d, rank);
        n += at >= d->first[node] && at + d->each <= d->first[node + 1];
    }
    return n;
}

/* The cores' lowest CPUs, node by node. */
static unsigned list_cores(const struct topology *t, const struct division *d, uint16_t *cores)
{
    unsigned n = 0;
    for (unsigned node = 0; node < t->n_nodes; node++) {
        unsigned first = n;
        for (unsigned i = 0; i < t->n_cores; i++) /* one CPU of each core comes first */
            if (t->cpus[i].node == node)
                cores[n++] = t->cpus[i].core;
        deal(t, cores + first, n - first, shares_of_node(d, node), d->each);
    }
    return n;
}

void topology_share(const struct topology *t, unsigned rank, unsigned n, struct topology *out)
{
    uint16_t cores[TOPOLOGY_MAX_CPUS];
    struct division d;
    divide(t, n, &d);
    unsigned n_cores = list_cores(t, &d, cores), first = first_of_share(&d, rank);
    *out = (struct topology){.n_nodes = t->n_nodes, .quota = t->quota ? t->quota / n : 0};
    memcpy(out->node_ids, t->node_ids, sizeof out->node_ids);
    memcpy(out->memory_ids, t->memory_ids, sizeof out->memory_ids);
    memcpy(out->speeds, t->speeds, sizeof out->speeds);
    if (t->quota && !out->quota)
        out->quota = 1;
    for (unsigned i = 0; i < t->n_cpus; i++)
        for (unsigned k = 0; n_cores && k < d.each; k++)
            if (cores[(first + k) % n_cores] == t->cpus[i].core) {
                out->n_cores += i < t->n_cores;
                out->cpus[out->n_cpus++] = t->cpus[i];
            }
}
