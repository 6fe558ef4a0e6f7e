/* lib/exec/numa and the pool's nodes, with two made-up memory nodes on any machine. */
#include "exec/numa.h"
#include "exec/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096u

static void test_experts(void **state)
{
    (void)state;
    for (uint32_t expert = 0; expert < 64; expert++) {
        assert_int_equal(numa_node_of_expert(expert, 64, 1), 0);
        assert_int_equal(numa_node_of_expert(expert, 64, 2), expert >= 32);
    }
    /* 5 over 2: 3 and 2. 1 over 4: on the first. */
    static const unsigned nodes[] = {0, 0, 0, 1, 1};
    for (uint32_t expert = 0; expert < 5; expert++)
        assert_int_equal(numa_node_of_expert(expert, 5, 2), nodes[expert]);
    assert_int_equal(numa_node_of_expert(0, 1, 4), 0);
}

/* A dense layer, then two layers of 4 experts of 3 pages and 64 bytes, behind 2 pages of other
 * data. */
#define SLAB (3 * PAGE + 64u)
static struct pool_slabs slabs[3] = {
    {0},
    {.n_experts = 4, .slab_bytes = SLAB, .offset = 2 * PAGE},
    {.n_experts = 4, .slab_bytes = SLAB, .offset = 2 * PAGE + 4 * SLAB},
};
static struct pool_plan plan = {
    .header = {.n_layers = 3, .bytes = 2 * PAGE + 8 * SLAB + 5 * PAGE + 1}, .slabs = slabs};

static void test_ranges(void **state)
{
    /* Offsets 2, 5 + 64, 8 + 128, 11 + 192 pages and bytes, the next layer's 14 + 256 and so on:
     * each cut is rounded up. */
    static const struct numa_range expected[] = {
        {0, 2 * PAGE, NUMA_ALL_NODES}, {2 * PAGE, 9 * PAGE, 0},
        {9 * PAGE, 15 * PAGE, 1},      {15 * PAGE, 21 * PAGE, 0},
        {21 * PAGE, 27 * PAGE, 1},     {27 * PAGE, 32 * PAGE, NUMA_ALL_NODES},
    };
    struct numa_range ranges[16];
    (void)state;
    assert_true(numa_range_count(&plan, 2) <= 16);
    uint32_t n = numa_ranges(&plan, 2, PAGE, ranges);
    assert_int_equal(n, sizeof expected / sizeof *expected);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(ranges[i].start, expected[i].start);
        assert_int_equal(ranges[i].end, expected[i].end);
        assert_int_equal(ranges[i].node, expected[i].node);
    }
}

/* With one node all experts belong to it. With pages larger than a layer the ranges still cover
 * every byte once. */
static void test_other_shapes(void **state)
{
    struct numa_range ranges[64];
    (void)state;
    for (unsigned n_nodes = 1; n_nodes <= 8; n_nodes++)
        for (uint64_t page = PAGE; page <= PAGE << 6; page *= 2) {
            uint32_t n = numa_ranges(&plan, n_nodes, page, ranges);
            assert_true(n >= 1 && n <= numa_range_count(&plan, n_nodes));
            assert_int_equal(ranges[0].start, 0);
            for (uint32_t i = 0; i < n; i++) {
                assert_true(ranges[i].end > ranges[i].start);
                assert_int_equal(ranges[i].end % page, 0);
                assert_true(ranges[i].node == NUMA_ALL_NODES || ranges[i].node < n_nodes);
                assert_int_equal(ranges[i].end, i + 1 < n ? ranges[i + 1].start : ranges[i].end);
            }
            assert_true(ranges[n - 1].end >= plan.header.bytes);
        }
    plan.header.tiered = 1; /* the slabs are elsewhere */
    assert_int_equal(numa_ranges(&plan, 2, PAGE, ranges), 1);
    plan.header.tiered = 0;
}

/* -- calls to the kernel -- */

/* The kernel's policy for a page: the mode, and whether this is the only node. False if the kernel
 * does not report it. */
static bool policy_of(const void *page, unsigned node, int *mode, bool *only_node)
{
    unsigned long nodes[16];
    const size_t bits = 8 * sizeof *nodes;
    memset(nodes, 0, sizeof nodes);
    if (syscall(SYS_get_mempolicy, mode, nodes, 16 * bits, page, MPOL_F_ADDR) != 0)
        return false;
    *only_node = nodes[node / bits] == 1ul << node % bits;
    for (unsigned i = 0; i < 16; i++)
        *only_node &= i == node / bits || nodes[i] == 0;
    return true;
}

static void assert_policy(const uint8_t *page, unsigned node, int wanted)
{
    int mode;
    bool only_node = false;
    assert_true(policy_of(page, node, &mode, &only_node));
    assert_int_equal(mode, wanted);
    assert_true(wanted == MPOL_DEFAULT || only_node);
}

static unsigned first_node(void)
{
    static struct topology t;
    topology_read(&t);
    return t.memory_ids[0];
}

/* Memory whose placement can be set and read back; else the test is skipped. */
static uint8_t *some_pages(size_t bytes, unsigned node)
{
    int mode = -1;
    bool only_node;
    uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    if (sysconf(_SC_PAGESIZE) == PAGE && policy_of(memory, node, &mode, &only_node) &&
        mode == MPOL_DEFAULT)
        return memory;
    print_message(
        "skipped: the system does not support memory policies, or has pages of another size\n");
    munmap(memory, bytes);
    skip();
    return NULL;
}

/* Two nodes that both stand for this machine's first node. The test makes the calls of a machine
 * with two nodes, and the kernel reports the accepted policies. test_ranges checks the node of each
 * range. */
static void test_placed(void **state)
{
    struct topology t = {.n_cpus = 1, .n_cores = 1, .n_nodes = 2, .memory_ids = {1023, 1023}};
    struct numa_range ranges[16];
    unsigned node = first_node();
    uint64_t bytes = plan.header.bytes;
    uint8_t *memory = some_pages(bytes + PAGE, node);
    (void)state;
    numa_place_pool(&t, &plan, PAGE, memory,
                    bytes); /* no such node: an error in the log, and no change of the memory */
    assert_policy(memory, node, MPOL_DEFAULT);

    t.memory_ids[0] = t.memory_ids[1] = (uint16_t)node;
    numa_place_pool(&t, &plan, PAGE, memory, bytes);
    uint32_t n = numa_ranges(&plan, 2, PAGE, ranges);
    for (uint32_t i = 0; i < n; i++)
        for (uint64_t at = ranges[i].start; at < ranges[i].end; at += PAGE)
            assert_policy(memory + at, node,
                          ranges[i].node == NUMA_ALL_NODES ? MPOL_INTERLEAVE : MPOL_PREFERRED);
    assert_policy(memory + ranges[n - 1].end, node, MPOL_DEFAULT); /* behind the pool */
    memset(memory, 1, bytes);
    munmap(memory, bytes + PAGE);
}

static void test_spread(void **state)
{
    struct topology t = {.n_cpus = 1, .n_cores = 1, .n_nodes = 1};
    unsigned node = first_node();
    uint8_t *memory = some_pages(4 * PAGE, node);
    (void)state;
    t.memory_ids[0] = t.memory_ids[1] = (uint16_t)node;
    numa_spread(&t, memory, 4 * PAGE); /* one node: no effect */
    assert_policy(memory, node, MPOL_DEFAULT);
    t.n_nodes = 2;
    numa_spread(&t, memory, 4 * PAGE);
    for (int i = 0; i < 4; i++)
        assert_policy(memory + i * PAGE, node, MPOL_INTERLEAVE);
    munmap(memory, 4 * PAGE);
}

/* -- threads -- */

/* CPUs 0 and 1, each on a node of its own. */
static const struct topology two_nodes = {
    .n_cpus = 2, .n_cores = 2, .n_nodes = 2, .node_ids = {0, 1}, .cpus = {{0, 0, 0}, {1, 1, 1}}};

#define N_CHUNKS 1000

struct work {
    _Atomic uint32_t runs[N_CHUNKS];
    _Atomic unsigned arrived;
    uint32_t n_taken[2], taken[2][N_CHUNKS]; /* by thread, in order */
};

/* Each thread waits until both have taken their first chunk, so each takes one of its own node. */
static void note_chunk(void *arg, unsigned thread, uint32_t chunk)
{
    struct work *w = arg;
    atomic_fetch_add(&w->runs[chunk], 1);
    if (w->n_taken[thread] == 0) {
        atomic_fetch_add(&w->arrived, 1);
        while (atomic_load(&w->arrived) < 2)
            ;
    }
    w->taken[thread][w->n_taken[thread]++] = chunk;
}

static struct pool *pool_on_two_nodes(unsigned n_threads)
{
    struct pool *p;
    struct error e;
    if (pool_new_on(&two_nodes, "test", n_threads, false, 0, &p, &e))
        fail_msg("%s", e.text);
    assert_int_equal(pool_node_count(p), 2);
    return p;
}

/* With any cut every chunk runs once. A thread takes its own node's chunks first and in order, then
 * the other node's. */
static void test_own_node_first(void **state)
{
    static struct work w;
    (void)state;
    struct pool *p = pool_on_two_nodes(2);
    for (uint32_t cut = 100; cut < N_CHUNKS; cut += 100) {
        memset(&w, 0, sizeof w);
        pool_run_by_node(p, note_chunk, &w, (const uint32_t[]){0, cut, N_CHUNKS}, 2);
        for (uint32_t i = 0; i < N_CHUNKS; i++)
            assert_int_equal(w.runs[i], 1);
        assert_int_equal(w.n_taken[0] + w.n_taken[1], N_CHUNKS);
        for (unsigned thread = 0; thread < 2; thread++) {
            bool helping = false;
            assert_true(w.n_taken[thread] > 0);
            assert_int_equal(w.taken[thread][0] >= cut, thread);
            for (uint32_t i = 0; i < w.n_taken[thread]; i++) {
                bool own = (w.taken[thread][i] >= cut) == (thread == 1);
                assert_false(helping && own);
                helping = !own;
            }
        }
    }
    pool_free(p);
}

static void count_chunk(void *arg, unsigned thread, uint32_t chunk)
{
    struct work *w = arg;
    (void)thread;
    atomic_fetch_add(&w->runs[chunk], 1);
}

/* A node may have no threads, or no work. */
static void test_lopsided(void **state)
{
    static struct work w;
    static const uint32_t cuts[][3] = {
        {0, 0, N_CHUNKS}, {0, N_CHUNKS, N_CHUNKS}, {0, 1, 1}, {0, 0, 0}};
    (void)state;
    for (unsigned n_threads = 1; n_threads <= 5; n_threads++) {
        struct pool *p = pool_on_two_nodes(n_threads);
        for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
            memset(&w, 0, sizeof w);
            pool_run_by_node(p, count_chunk, &w, cuts[i], 2);
            for (uint32_t chunk = 0; chunk < N_CHUNKS; chunk++)
                assert_int_equal(w.runs[chunk], chunk < cuts[i][2]);
        }
        memset(&w, 0, sizeof w);
        pool_run(p, count_chunk, &w, N_CHUNKS); /* these chunks belong to no node */
        for (uint32_t chunk = 0; chunk < N_CHUNKS; chunk++)
            assert_int_equal(w.runs[chunk], 1);
        pool_free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_experts),      cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_other_shapes), cmocka_unit_test(test_placed),
        cmocka_unit_test(test_spread),       cmocka_unit_test(test_own_node_first),
        cmocka_unit_test(test_lopsided)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
