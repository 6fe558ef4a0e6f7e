/* lib/exec/topology: made-up machines as trees of files, and the placement of threads on them. */
#include "exec/pool.h"
#include "exec/topology.h"

#include "file_tree.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel, for topology_read: it knows this many CPUs (0: the machine's), of which the process
 * may use those from `first` on, or fails with `error`. */
static struct {
    unsigned n_cpus, first;
    int error;
} kernel;

int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set)
{
    long n = 0;
    errno = kernel.error ? kernel.error : 8 * bytes < kernel.n_cpus ? EINVAL : 0;
    if (errno)
        return -1;
    memset(set, 0, bytes);
    for (unsigned cpu = kernel.first; cpu < kernel.n_cpus; cpu++)
        CPU_SET_S(cpu, bytes, set);
    if (!kernel.n_cpus)
        n = syscall(SYS_sched_getaffinity, pid, bytes, set);
    return n < 0 ? -1 : 0;
}

static void put_siblings(unsigned cpu, const char *list)
{
    char path[128];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", cpu);
    put(path, list);
}

/* Of the CPUs first to last. */
static struct topology *read_machine(unsigned first, unsigned last)
{
    static struct topology t;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (unsigned cpu = first; cpu <= last; cpu++)
        CPU_SET(cpu, &set);
    topology_read_from(root, &set, &t);
    return &t;
}

static void check_order(const struct topology *t, const unsigned *cpus, unsigned n)
{
    assert_int_equal(t->n_cpus, n);
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(t->cpus[i].cpu, cpus[i]);
}

/* The system reports nothing: each CPU is a core. */
static void test_bare(void **state)
{
    (void)state;
    struct topology *t = read_machine(2, 4);
    check_order(t, (const unsigned[]){2, 3, 4}, 3);
    assert_int_equal(t->n_cores, 3);
    assert_int_equal(t->n_nodes, 1);
    assert_int_equal(t->quota, 0);
    assert_int_equal(topology_threads(t), 3);
}

/* Two cores of two threads each, as laptops number them. */
static void test_neighbouring_siblings(void **state)
{
    (void)state;
    put_siblings(0, "0-1");
    put_siblings(1, "0-1");
    put_siblings(2, "2-3");
    put_siblings(3, "2-3");
    struct topology *t = read_machine(0, 3);
    check_order(t, (const unsigned[]){0, 2, 1, 3}, 4);
    assert_int_equal(topology_threads(t), 2);
    /* Allowed: the first core's second thread and both threads of the other core. */
    t = read_machine(1, 3);
    check_order(t, (const unsigned[]){1, 2, 3}, 3);
    assert_int_equal(topology_threads(t), 2);
}

/* A server: two sockets of two cores, the second threads numbered after all cores. */
static void make_server(void)
{
    for (unsigned cpu = 0; cpu < 8; cpu++) {
        char list[32];
        snprintf(list, sizeof list, "%u,%u", cpu % 4, cpu % 4 + 4);
        put_siblings(cpu, list);
    }
    put("/sys/devices/system/node/node0/cpulist", "0-1,4-5");
    put("/sys/devices/system/node/node2/cpulist", "2-3,6-7"); /* node numbers may have gaps */
}

static void test_two_nodes(void **state)
{
    (void)state;
    make_server();
    struct topology *t = read_machine(0, 7);
    check_order(t, (const unsigned[]){0, 2, 1, 3, 4, 6, 5, 7}, 8);
    assert_int_equal(t->n_cores, 4);
    assert_int_equal(t->n_nodes, 2);
    assert_int_equal(t->node_ids[0], 0);
    assert_int_equal(t->node_ids[1], 2);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(t->cpus[i].node, i % 2);
    assert_int_equal(topology_threads(t), 4);
}

/* A share is of neighbouring cores, with their second threads: a node each for two, and no core is
 * in two shares unless there are more shares than cores. */
static void test_shares(void **state)
{
    static struct topology s;
    (void)state;
    make_server();
    struct topology *t = read_machine(0, 7);
    topology_share(t, 0, 1, &s);
    check_order(&s, (const unsigned[]){0, 2, 1, 3, 4, 6, 5, 7}, 8);
    topology_share(t, 0, 2, &s);
    check_order(&s, (const unsigned[]){0, 1, 4, 5}, 4);
    assert_int_equal(s.n_cores, 2);
    assert_int_equal(topology_threads(&s), 2);
    topology_share(t, 1, 2, &s);
    check_order(&s, (const unsigned[]){2, 3, 6, 7}, 4);
    assert_int_equal(s.cpus[0].node, 1);
    assert_int_equal(s.n_nodes, 2); /* a CPU's node keeps its number */
    topology_share(t, 2, 3, &s);
    check_order(&s, (const unsigned[]){2, 6}, 2);
    topology_share(t, 4, 5, &s); /* the first core again */
    check_order(&s, (const unsigned[]){0, 4}, 2);
    t->quota = 3;
    topology_share(t, 1, 2, &s);
    assert_int_equal(topology_threads(&s), 1);
}

static void check_kinds(unsigned n, const unsigned *first, const unsigned *second)
{
    static struct topology s;
    struct topology *t = read_machine(0, 7);
    topology_share(t, 0, 2, &s);
    check_order(&s, first, n);
    topology_share(t, 1, 2, &s);
    check_order(&s, second, n);
}

/* Two fast cores of two threads each and four slow ones of one: each of two shares has a fast core
 * and two slow ones, whatever the kernel says of them. */
static void test_shares_of_two_kinds(void **state)
{
    (void)state;
    for (unsigned cpu = 0; cpu < 4; cpu++)
        put_siblings(cpu, cpu < 2 ? "0-1" : "2-3");
    put("/sys/devices/cpu_core/cpus", "0-3");
    check_kinds(4, (const unsigned[]){0, 4, 6, 1}, (const unsigned[]){2, 5, 7, 3});
    char path[128];
    snprintf(path, sizeof path, "%s/sys/devices/cpu_core/cpus", root);
    assert_int_equal(remove(path), 0);
    static const char *const files[] = {"cpufreq/cpuinfo_max_freq", "cpu_capacity"};
    for (int i = 0; i < 2; i++) {
        for (unsigned cpu = 0; cpu < 8; cpu++) {
            snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/%s", cpu, files[i]);
            put(path, cpu < 4 ? (i ? "1024" : "5000000") : (i ? "600" : "3900000"));
        }
        check_kinds(4, (const unsigned[]){0, 4, 6, 1}, (const unsigned[]){2, 5, 7, 3});
    }
}

/* Cores 0 to fast - 1 are fast, the others slow. want: the number of fast ones of each of n shares,
 * all of `each` cores and none in two. */
static void check_fast(unsigned fast, unsigned cores, unsigned n, unsigned each,
                       const unsigned *want)
{
    static struct topology s;
    bool used[TOPOLOGY_MAX_CPUS] = {false};
    for (unsigned cpu = 0; cpu < cores; cpu++) {
        char path[128];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/cpu_capacity", cpu);
        put(path, cpu < fast ? "1024" : "600");
    }
    struct topology *t = read_machine(0, cores - 1);
    for (unsigned rank = 0; rank < n; rank++) {
        unsigned got = 0;
        topology_share(t, rank, n, &s);
        assert_int_equal(s.n_cpus, each);
        for (unsigned i = 0; i < each; i++) {
            assert_false(used[s.cpus[i].cpu]);
            used[s.cpus[i].cpu] = true;
            got += s.cpus[i].cpu < fast;
        }
        assert_int_equal(got, want[rank]);
    }
}

/* Where the number of shares does not divide the cores, slow ones are left over. */
static void test_shares_leave_slow_cores(void **state)
{
    (void)state;
    check_fast(6, 8, 3, 2, (const unsigned[]){2, 2, 2});
    check_fast(6, 10, 4, 2, (const unsigned[]){2, 2, 1, 1});
    check_fast(8, 12, 5, 2, (const unsigned[]){2, 2, 2, 1, 1});
}

/* Limited to the second socket: only one node remains, whatever its number. */
static void test_affinity(void **state)
{
    (void)state;
    make_server();
    struct topology *t = read_machine(2, 3);
    check_order(t, (const unsigned[]){2, 3}, 2);
    assert_int_equal(t->n_nodes, 1);
    assert_int_equal(t->node_ids[0], 2);
    assert_int_equal(topology_threads(t), 2);
}

/* A memory node without CPUs, as with memory expansion cards. */
static void test_node_without_cpus(void **state)
{
    (void)state;
    put("/sys/devices/system/node/node0/cpulist", "0-3");
    put("/sys/devices/system/node/node1/cpulist", "");
    assert_int_equal(read_machine(0, 3)->n_nodes, 1);
}

/* ---- Many nodes ---- */

static void put_node(unsigned id, const char *file, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "/sys/devices/system/node/node%u/%s", id, file);
    put(path, text);
}

/* n nodes of `cpus` cores each. */
static void make_nodes(unsigned n, unsigned cpus)
{
    for (unsigned id = 0; id < n; id++) {
        char list[32];
        snprintf(list, sizeof list, "%u-%u", id * cpus, (id + 1) * cpus - 1);
        put_node(id, "cpulist", list);
    }
}

/* As two EPYC with a node for each L3 cache. */
static void test_32_nodes(void **state)
{
    (void)state;
    make_nodes(32, 8);
    struct topology *t = read_machine(0, 255);
    assert_int_equal(t->n_nodes, 32);
    for (unsigned i = 0; i < 256; i++)
        assert_int_equal(t->cpus[i].node, t->cpus[i].cpu / 8);
    for (unsigned node = 0; node < 32; node++) {
        assert_int_equal(t->node_ids[node], node);
        assert_int_equal(t->memory_ids[node], node);
    }
}

/* CPUs of nodes beyond the table count as those of the nearest node: by the kernel's distances,
 * without them by number. */
static void test_too_many_nodes(void **state)
{
    (void)state;
    make_nodes(TOPOLOGY_MAX_NODES + 1, 1);
    struct topology *t = read_machine(0, TOPOLOGY_MAX_NODES);
    assert_int_equal(t->n_nodes, TOPOLOGY_MAX_NODES);
    assert_int_equal(t->cpus[TOPOLOGY_MAX_NODES].node, TOPOLOGY_MAX_NODES - 1);
    char online[32], distances[8 * TOPOLOGY_MAX_NODES] = "";
    snprintf(online, sizeof online, "0-%d", TOPOLOGY_MAX_NODES);
    put("/sys/devices/system/node/online", online);
    for (unsigned id = 0; id <= TOPOLOGY_MAX_NODES; id++)
        strcat(distances, id == 5 ? "12 " : id == TOPOLOGY_MAX_NODES ? "10 " : "32 ");
    put_node(TOPOLOGY_MAX_NODES, "distance", distances);
    t = read_machine(0, TOPOLOGY_MAX_NODES);
    for (unsigned i = 0; i < t->n_cpus; i++)
        assert_int_equal(t->cpus[i].node,
                         t->cpus[i].cpu == TOPOLOGY_MAX_NODES ? 5 : t->cpus[i].cpu);
}

static void check_memory(unsigned n, const unsigned *ids)
{
    struct topology *t = read_machine(0, n - 1);
    assert_int_equal(t->n_nodes, n);
    for (unsigned node = 0; node < n; node++)
        assert_int_equal(t->memory_ids[node], ids[node]);
}

/* Nodes without memory, as nodes 1 and 3 of a Threadripper 2990WX, and nodes whose memory the
 * process's cpuset forbids: their threads use the nearest node's memory. */
static void test_memory_nodes(void **state)
{
    (void)state;
    make_nodes(4, 1);
    check_memory(4, (const unsigned[]){0, 1, 2, 3});
    put("/sys/devices/system/node/has_memory", "0,2");
    put("/sys/devices/system/node/online", "0-3");
    put_node(1, "distance", "16 10 16 16");
    put_node(3, "distance", "24 16 16 10");
    check_memory(4, (const unsigned[]){0, 0, 2, 2});
    put("/proc/self/status", "Name:\ttest\nMems_allowed:\t4\nMems_allowed_list:\t2-3\nx:\t1");
    check_memory(4, (const unsigned[]){2, 2, 2, 2});
    put("/proc/self/status", "Mems_allowed_list:\t9"); /* which has no memory: not known */
    check_memory(4, (const unsigned[]){0, 1, 2, 3});
}

/* Nodes of 43, 43 and 42 cores on each socket: as many shares as nodes, or a multiple or divisor,
 * keep to nodes. */
static void test_shares_of_uneven_nodes(void **state)
{
    static const unsigned first[] = {0, 43, 86, 128, 171, 214, 256};
    static const unsigned shares[] = {1, 2, 3, 6, 12, 18};
    static struct topology s;
    (void)state;
    for (unsigned node = 0; node < 6; node++) {
        char list[32];
        snprintf(list, sizeof list, "%u-%u", first[node], first[node + 1] - 1);
        put_node(node, "cpulist", list);
    }
    struct topology *t = read_machine(0, 255);
    for (unsigned k = 0; k < 6; k++) {
        bool used[256] = {false};
        for (unsigned rank = 0; rank < shares[k]; rank++) {
            unsigned at = rank * 6 / shares[k], end = at + (shares[k] < 6 ? 6 / shares[k] : 1);
            topology_share(t, rank, shares[k], &s);
            assert_int_equal(s.n_cores, 256 / shares[k]);
            for (unsigned i = 0; i < s.n_cpus; i++) {
                assert_in_range(s.cpus[i].node, at, end - 1);
                assert_false(used[s.cpus[i].cpu]);
                used[s.cpus[i].cpu] = true;
            }
        }
    }
}

/* ---- Kinds of cores ---- */

static void put_frequency(unsigned cpu, const char *khz)
{
    char path[128];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/cpufreq/cpuinfo_max_freq", cpu);
    put(path, khz);
}

/* Two fast cores of two threads, four slow ones, and two of low power, as in Core Ultra: these are
 * left out, unless there are no others. */
static void test_low_power_cores(void **state)
{
    (void)state;
    for (unsigned cpu = 0; cpu < 4; cpu++)
        put_siblings(cpu, cpu < 2 ? "0-1" : "2-3");
    put("/sys/devices/cpu_core/cpus", "0-3");
    for (unsigned cpu = 0; cpu < 10; cpu++)
        put_frequency(cpu, cpu < 4 ? "4800000" : cpu < 8 ? "3800000" : "2500000");
    struct topology *t = read_machine(0, 9);
    check_order(t, (const unsigned[]){0, 2, 4, 5, 6, 7, 1, 3}, 8);
    assert_int_equal(topology_threads(t), 6);
    check_order(read_machine(8, 9), (const unsigned[]){8, 9}, 2);
}

/* The CPUs that each of n threads may use, as bits. */
static void expect_places(unsigned n_cpus, unsigned n, uint64_t cpus)
{
    struct pool *p;
    struct error e;
    assert_int_equal(pool_new_on(read_machine(0, n_cpus - 1), "test", n, true, 0, &p, &e), 0);
    for (unsigned i = 0; i < n; i++) {
        const cpu_set_t *set = pool_thread_cpus(p, i);
        for (unsigned cpu = 0; cpu < n_cpus; cpu++)
            assert_int_equal(CPU_ISSET(cpu, set) != 0, cpus >> cpu & 1);
    }
    pool_free(p);
}

/* 8 fast cores and 16 slow ones, as Core i9-13900K: up to 8 threads stay on the fast ones. */
static void test_few_threads_on_fast_cores(void **state)
{
    (void)state;
    for (unsigned cpu = 0; cpu < 16; cpu++) {
        char list[16];
        snprintf(list, sizeof list, "%u-%u", cpu / 2 * 2, cpu / 2 * 2 + 1);
        put_siblings(cpu, list);
    }
    put("/sys/devices/cpu_core/cpus", "0-15");
    expect_places(32, 8, 0x5555);
    expect_places(32, 9, 0xffff5555);
}

static void test_quota(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/a/b");
    put("/sys/fs/cgroup/a/b/cpu.max", "max 100000");
    struct topology *t = read_machine(0, 7);
    assert_int_equal(topology_threads(t), 8);
    put("/sys/fs/cgroup/a/cpu.max", "250000 100000"); /* two cores and a half */
    t = read_machine(0, 7);
    assert_int_equal(t->quota, 3);
    assert_int_equal(topology_threads(t), 3);
    put("/sys/fs/cgroup/a/b/cpu.max", "50000 100000"); /* the least of both counts */
    assert_int_equal(topology_threads(read_machine(0, 7)), 1);
    /* A container sees its own group as the root. */
    put("/proc/self/cgroup", "0::/");
    put("/sys/fs/cgroup/cpu.max", "400000 100000");
    assert_int_equal(topology_threads(read_machine(0, 7)), 4);
    assert_int_equal(topology_threads(read_machine(0, 1)), 2);
}

/* Version 1, and a host of both versions: the controller is in any line. */
static void test_quota_of_version_1(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "12:memory:/m\n5:cpu,cpuacct:/a/b\n0::/x");
    put("/sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us", "-1");
    put("/sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us", "100000");
    assert_int_equal(topology_threads(read_machine(0, 7)), 8);
    put("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "250000");
    put("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000");
    assert_int_equal(topology_threads(read_machine(0, 7)), 3);
    /* In a container the path may be the host's. */
    put("/proc/self/cgroup", "5:cpuacct,cpu:/docker/c");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
    assert_int_equal(topology_threads(read_machine(0, 7)), 2);
    /* Version 2 in a later line. */
    put("/proc/self/cgroup", "1:name=systemd:/s\n0::/g");
    put("/sys/fs/cgroup/g/cpu.max", "100000 100000");
    assert_int_equal(topology_threads(read_machine(0, 7)), 1);
}

/* The machine of the test. */
static void test_here(void **state)
{
    static struct topology t;
    (void)state;
    topology_read(&t);
    assert_true(t.n_cpus >= 1 && t.n_cores >= 1 && t.n_cores <= t.n_cpus && t.n_nodes >= 1);
    assert_true(topology_threads(&t) >= 1 && topology_threads(&t) <= t.n_cpus);
    for (unsigned i = 0; i < t.n_cpus; i++)
        assert_true(t.cpus[i].node < t.n_nodes);
}

/* The kernel knows more CPUs than a cpu_set_t holds: those that it holds are used. */
static void test_many_cpus(void **state)
{
    static struct topology t;
    (void)state;
    kernel.n_cpus = 5000;
    kernel.first = 1000;
    topology_read(&t);
    kernel.n_cpus = kernel.first = 0;
    assert_int_equal(t.n_cpus, TOPOLOGY_MAX_CPUS - 1000);
    for (unsigned i = 0; i < t.n_cpus; i++)
        assert_true(t.cpus[i].cpu >= 1000);
    assert_false(t.is_guessed);
}

/* Which CPUs the process may use is not known, or they have higher numbers: their count is. */
static void test_unknown_cpus(void **state)
{
    static struct topology t;
    (void)state;
    kernel.error = EPERM;
    topology_read(&t);
    kernel.error = 0;
    assert_int_equal(t.n_cpus, sysconf(_SC_NPROCESSORS_ONLN));
    assert_true(t.is_guessed);
    kernel.n_cpus = 1208;
    kernel.first = 1200;
    topology_read(&t);
    kernel.n_cpus = kernel.first = 0;
    assert_int_equal(t.n_cpus, 8);
    assert_true(t.is_guessed);
}

#define ON_A_MACHINE(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {ON_A_MACHINE(test_bare),
                                       ON_A_MACHINE(test_neighbouring_siblings),
                                       ON_A_MACHINE(test_two_nodes),
                                       ON_A_MACHINE(test_shares),
                                       ON_A_MACHINE(test_shares_of_two_kinds),
                                       ON_A_MACHINE(test_shares_leave_slow_cores),
                                       ON_A_MACHINE(test_affinity),
                                       ON_A_MACHINE(test_quota),
                                       ON_A_MACHINE(test_quota_of_version_1),
                                       ON_A_MACHINE(test_node_without_cpus),
                                       ON_A_MACHINE(test_32_nodes),
                                       ON_A_MACHINE(test_too_many_nodes),
                                       ON_A_MACHINE(test_memory_nodes),
                                       ON_A_MACHINE(test_shares_of_uneven_nodes),
                                       ON_A_MACHINE(test_low_power_cores),
                                       ON_A_MACHINE(test_few_threads_on_fast_cores),
                                       cmocka_unit_test(test_many_cpus),
                                       cmocka_unit_test(test_unknown_cpus),
                                       cmocka_unit_test(test_here)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
