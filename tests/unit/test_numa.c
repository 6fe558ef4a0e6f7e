/* lib/exec/numa and the pool's nodes, with two made-up memory nodes on any machine. */
#include "exec/numa.h"
#include "exec/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096u

/* ---- The rule ---- */

/* Shares of the nodes' work for one token, of tile rows of gate and up and of down: the busiest
 * node's over the mean. */
static double busiest_of_mean(const struct numa_split *split, uint32_t gate_tiles,
                              uint32_t down_tiles, const uint32_t *experts, uint32_t n)
{
    double load[TOPOLOGY_MAX_NODES] = {0}, most = 0, sum = 0;
    uint32_t slices = numa_slices(split, gate_tiles);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t s = 0; s < split->n_segments; s++)
            for (uint32_t k = 0; k < slices; k++)
                load[(numa_gate_node(split, experts[i], s, slices) + k) % split->n_nodes] +=
                    2.0 *
                    (numa_first_tile(gate_tiles, slices, k + 1) -
                     numa_first_tile(gate_tiles, slices, k)) /
                    gate_tiles;
        uint32_t of_down = numa_slices(split, down_tiles);
        for (uint32_t k = 0; k < of_down; k++)
            load[(numa_down_node(split, experts[i], of_down) + k) % split->n_nodes] +=
                1.0 * split->n_segments *
                (numa_first_tile(down_tiles, of_down, k + 1) -
                 numa_first_tile(down_tiles, of_down, k)) /
                down_tiles;
    }
    for (unsigned node = 0; node < split->n_nodes; node++) {
        assert_true(load[node] > 0);
        most = load[node] > most ? load[node] : most;
        sum += load[node];
    }
    return most * split->n_nodes / sum;
}

/* Slices cover a matrix in order, in groups of NUMA_SLICE_TILES but for the last. */
static void test_slices(void **state)
{
    (void)state;
    for (unsigned n_nodes = 1; n_nodes <= TOPOLOGY_MAX_NODES; n_nodes++)
        for (uint32_t n_tiles = 1; n_tiles <= 300; n_tiles++) {
            const struct numa_split split = {n_nodes, 1, true};
            uint32_t n = numa_slices(&split, n_tiles);
            assert_in_range(n, 1, n_nodes);
            assert_int_equal(numa_first_tile(n_tiles, n, 0), 0);
            assert_int_equal(numa_first_tile(n_tiles, n, n), n_tiles);
            for (uint32_t i = 0; i < n && n > 1; i++) {
                uint32_t first = numa_first_tile(n_tiles, n, i);
                assert_int_equal(first % NUMA_SLICE_TILES, 0);
                assert_true(numa_first_tile(n_tiles, n, i + 1) >= first + NUMA_SLICE_TILES);
            }
        }
    assert_int_equal(numa_slices(&(struct numa_split){8, 1, false}, 300), 1);
}

/* One token's experts on 8 nodes. DeepSeek-V3: 8 of 256 from 4 of 8 groups that follow each other;
 * gpt-oss: 4 of 128; Mixtral: 2 of 8. With whole experts the busiest node has 2.5 to 4 times the
 * mean. */
static void test_even_shares(void **state)
{
    static const uint32_t groups[] = {0, 3, 31, 40, 64, 66, 200, 221}, four[] = {1, 2, 3, 90},
                          two[] = {0, 4}, same[] = {8, 16, 24, 32, 40, 48, 56, 64};
    const struct numa_split deepseek = {8, 16, true}, gpt_oss = {8, 9, true},
                            mixtral = {8, 16, true}, qwen = {8, 6, true};
    (void)state;
    assert_true(busiest_of_mean(&deepseek, 8, 448, groups, 8) < 1.05);
    assert_true(busiest_of_mean(&gpt_oss, 20, 180, four, 4) < 1.15);
    assert_true(busiest_of_mean(&mixtral, 56, 256, two, 2) < 1.15);
    assert_true(busiest_of_mean(&qwen, 16, 256, groups, 8) < 1.05);
    assert_true(busiest_of_mean(&qwen, 16, 256, same, 8) < 1.05);
}

/* By segments, where pages are too large for slices: still all nodes, less evenly. */
static void test_shares_by_segments(void **state)
{
    static const uint32_t experts[] = {0, 3, 31, 40, 64, 66, 120, 125};
    struct numa_split split = {8, 6, false};
    (void)state;
    bool used[8] = {false};
    for (uint32_t i = 0; i < 8; i++)
        for (uint32_t segment = 0; segment < 6; segment++)
            used[numa_gate_node(&split, experts[i], segment, 1)] = true;
    for (unsigned node = 0; node < 8; node++)
        assert_true(used[node]);
}

/* ---- The places of a pool's bytes ---- */

/* A dense layer, then two layers of 4 experts of 2 segments behind 2 pages of other data. Float32
 * matrices of 64 columns or rows: a tile row is a page. */
#define TILE    PAGE
#define GATE    (16 * TILE)    /* 256 rows of 64 columns */
#define DOWN    (4 * 4 * TILE) /* 64 rows of 256 columns */
#define SEGMENT (2 * GATE + DOWN)
#define SLAB    (2 * SEGMENT)
static struct pool_slabs slabs[3] = {
    {0},
    {.n_experts = 4,
     .n_segments = 2,
     .slab_bytes = SLAB,
     .segment_bytes = SEGMENT,
     .up_offset = GATE,
     .down_offset = 2 * GATE,
     .segment_width = 256,
     .d_model = 64,
     .gate_type = TENSOR_F32,
     .up_type = TENSOR_F32,
     .down_type = TENSOR_F32,
     .offset = 2 * PAGE},
    {.n_experts = 4,
     .n_segments = 2,
     .slab_bytes = SLAB,
     .segment_bytes = SEGMENT,
     .up_offset = GATE,
     .down_offset = 2 * GATE,
     .segment_width = 256,
     .d_model = 64,
     .gate_type = TENSOR_F32,
     .up_type = TENSOR_F32,
     .down_type = TENSOR_F32,
     .offset = 2 * PAGE + 4 * SLAB},
};
static struct pool_plan plan = {.header = {.n_layers = 3, .bytes = 2 * PAGE + 8 * SLAB + 2 * PAGE},
                                .slabs = slabs};

static struct numa_places places_on(unsigned n_nodes, uint64_t page_bytes)
{
    struct topology t = {.n_cpus = 1, .n_cores = 1, .n_nodes = n_nodes};
    struct numa_places p;
    numa_places_init(&p, &t, &plan, page_bytes);
    return p;
}

/* A tiered pool has no experts: the log must not say how they lie. */
static void test_how(void **state)
{
    (void)state;
    for (uint32_t tiered = 0; tiered <= 1; tiered++) {
        plan.header.tiered = tiered;
        struct numa_places one = places_on(1, PAGE), rows = places_on(2, PAGE),
                           huge = places_on(2, 2u << 20);
        assert_null(numa_how(&one));
        assert_true(tiered ? !numa_how(&rows) : !strcmp(numa_how(&rows), "rows"));
        assert_true(tiered ? !numa_how(&huge) : !strncmp(numa_how(&huge), "segments", 8));
        assert_true(rows.by_rows == !tiered && !huge.by_rows);
    }
    plan.header.tiered = 0;
}

/* Every tile row of every matrix lies where a thread of its node looks for it. */
static void test_places(void **state)
{
    (void)state;
    assert_int_equal(tile_row_bytes(TENSOR_F32, 64), TILE);
    for (unsigned n_nodes = 2; n_nodes <= 6; n_nodes++) {
        struct numa_places p = places_on(n_nodes, PAGE);
        const struct numa_split split = {n_nodes, 2, true};
        uint32_t slices = numa_slices(&split, 16), hint = 0;
        assert_true(p.by_rows);
        assert_int_equal(numa_node_at(&p, PAGE, &hint), NUMA_ALL_NODES);
        assert_int_equal(numa_node_at(&p, plan.header.bytes - PAGE, &hint), NUMA_ALL_NODES);
        for (uint32_t i = 0; i < 2 * 4 * 2 * 16; i++) {
            uint32_t layer = 1 + i / 128, expert = i / 32 % 4, segment = i / 16 % 2, tile = i % 16;
            uint64_t at = slabs[layer].offset + expert * SLAB + segment * SEGMENT;
            uint32_t slice = 0;
            while (tile >= numa_first_tile(16, slices, slice + 1))
                slice++;
            unsigned node = (numa_gate_node(&split, expert, segment, slices) + slice) % n_nodes;
            assert_int_equal(numa_node_at(&p, at + tile * TILE, &hint), node);
            assert_int_equal(numa_node_at(&p, at + GATE + tile * TILE + TILE - 1, &hint), node);
            assert_int_equal(numa_node_at(&p, at + 2 * GATE + tile % 4 * 4 * TILE, &hint),
                             numa_down_node(&split, expert, 1));
        }
        p.by_rows = false;
        assert_int_equal(numa_node_at(&p, slabs[2].offset + SLAB + SEGMENT, &hint),
                         (3 + 1) % n_nodes);
    }
    assert_false(places_on(2, 2 << 20).by_rows);
    plan.header.tiered = 1; /* the slabs are elsewhere */
    struct numa_places p = places_on(2, PAGE);
    uint32_t hint = 0;
    assert_false(p.by_rows);
    assert_int_equal(numa_node_at(&p, slabs[1].offset, &hint), NUMA_ALL_NODES);
    plan.header.tiered = 0;
}

/* -- calls to the kernel -- */

/* The calls about memory policies that were made. */
static struct {
    bool made_up; /* set_mempolicy is answered here */
    int error;    /* with this, if it is not 0 */
    unsigned n, n_nodes[1024], node[1024];
    int mode[1024];
} calls;

long syscall(long number, ...)
{
    static long (*next)(long, ...);
    long a[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    if (calls.made_up && number == SYS_set_mempolicy) {
        const unsigned long *mask = (const unsigned long *)a[1];
        errno = calls.error;
        if (errno)
            return -1;
        calls.mode[calls.n] = (int)a[0];
        calls.n_nodes[calls.n] = 0;
        for (unsigned id = 0; id < 1024; id++)
            if (mask[id / 64] >> id % 64 & 1) {
                calls.node[calls.n] = id;
                calls.n_nodes[calls.n]++;
            }
        calls.n++;
        return 0;
    }
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "syscall");
    return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

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

/* Nodes 5 and 7, whose memory both stands for node 3's, as where 5 and 7 have none: all pages of
 * all layers' experts are made on node 3, and the thread has its own policy afterwards. */
static void test_made_on_nodes(void **state)
{
    struct topology t = {.n_nodes = 2, .node_ids = {5, 7}, .memory_ids = {3, 3}};
    uint8_t *pool = some_pages(plan.header.bytes, first_node());
    struct numa_places p;
    struct error e;
    (void)state;
    numa_places_init(&p, &t, &plan, PAGE);
    memset(&calls, 0, sizeof calls);
    calls.made_up = true;
    assert_int_equal(numa_populate(&p, pool, 0, plan.header.bytes, &e), 0);
    calls.made_up = false;
    assert_true(calls.n > 8);
    for (unsigned i = 0; i < calls.n - 1; i++) {
        assert_int_equal(calls.mode[i], MPOL_PREFERRED);
        assert_int_equal(calls.n_nodes[i], 1);
        assert_int_equal(calls.node[i], 3);
    }
    assert_int_equal(calls.mode[calls.n - 1], MPOL_DEFAULT);
    munmap(pool, plan.header.bytes);
}

/* Each run of pages is made on its node, also where a call covers a part of the pool. */
static void test_runs(void **state)
{
    struct topology t = {.n_nodes = 2, .node_ids = {0, 1}, .memory_ids = {0, 1}};
    uint8_t *pool = some_pages(plan.header.bytes, first_node());
    struct numa_places p;
    struct error e;
    (void)state;
    numa_places_init(&p, &t, &plan, PAGE);
    for (uint64_t at = 0; at < plan.header.bytes; at += 64 * PAGE) {
        uint64_t left = plan.header.bytes - at, bytes = left < 64 * PAGE ? left : 64 * PAGE;
        uint32_t last = NUMA_ALL_NODES, hint = 0;
        unsigned n = 0;
        memset(&calls, 0, sizeof calls);
        calls.made_up = true;
        assert_int_equal(numa_populate(&p, pool, at, bytes, &e), 0);
        calls.made_up = false;
        for (uint64_t page = at; page < at + bytes; page += PAGE) {
            uint32_t node = numa_node_at(&p, page + PAGE / 2, &hint);
            if (node != last && node != NUMA_ALL_NODES)
                assert_int_equal(calls.node[n++], node);
            last = node;
        }
        assert_int_equal(calls.n, n + 1);
    }
    munmap(pool, plan.header.bytes);
}

/* As in a container: the pages are made without a place, with one warning. */
static void test_refused(void **state)
{
    struct topology t = {.n_nodes = 2, .memory_ids = {0, 1}};
    uint8_t *pool = some_pages(plan.header.bytes, first_node());
    struct numa_places p;
    struct error e;
    (void)state;
    numa_places_init(&p, &t, &plan, PAGE);
    calls.made_up = true;
    calls.error = EPERM;
    assert_int_equal(numa_populate(&p, pool, 0, plan.header.bytes, &e), 0);
    assert_true(p.refused);
    assert_int_equal(numa_populate(&p, pool, 0, plan.header.bytes, &e), 0);
    memset(&calls, 0, sizeof calls);
    memset(pool, 1, plan.header.bytes);
    munmap(pool, plan.header.bytes);
}

/* Two nodes that both stand for this machine's first node. The kernel reports the accepted
 * policies: what belongs to no expert is spread, and experts have none. */
static void test_dense(void **state)
{
    unsigned node = first_node();
    struct topology t = {.n_nodes = 2, .memory_ids = {1023, 1023}};
    uint8_t *pool = some_pages(plan.header.bytes + PAGE, node);
    struct numa_places p;
    (void)state;
    numa_places_init(&p, &t, &plan, PAGE);
    numa_spread_dense(&p, pool, plan.header.bytes); /* no such node: a warning, and no change */
    assert_policy(pool, node, MPOL_DEFAULT);
    t.memory_ids[0] = t.memory_ids[1] = (uint16_t)node;
    numa_places_init(&p, &t, &plan, PAGE);
    numa_spread_dense(&p, pool, plan.header.bytes);
    for (uint64_t at = 0; at <= plan.header.bytes; at += PAGE) {
        uint32_t hint = 0;
        bool dense = at < plan.header.bytes && numa_node_at(&p, at, &hint) == NUMA_ALL_NODES;
        assert_policy(pool + at, node, dense ? MPOL_INTERLEAVE : MPOL_DEFAULT);
    }
    munmap(pool, plan.header.bytes + PAGE);
}

static void test_spread(void **state)
{
    struct topology t = {.n_cpus = 1, .n_cores = 1, .n_nodes = 1};
    unsigned node = first_node();
    uint8_t *memory = some_pages(4 * PAGE, node);
    (void)state;
    t.memory_ids[0] = t.memory_ids[1] = (uint16_t)node;
    numa_spread(&t, "test", memory, 4 * PAGE); /* one node: no effect */
    assert_policy(memory, node, MPOL_DEFAULT);
    t.n_nodes = 2;
    numa_spread(&t, "test", memory, 4 * PAGE);
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

/* Jobs of one queue and of two follow each other, with few chunks and more threads than cores: a
 * helper that decides whether to enter may read the next job's queues. Each chunk runs once. */
static void test_changing_queues(void **state)
{
    static struct work w;
    struct pool *p = pool_on_two_nodes(7);
    uint32_t wanted = 0;
    (void)state;
    memset(&w, 0, sizeof w);
    for (uint32_t round = 0; round < 3000; round++) {
        uint32_t n = 2 + round % 3, cut = round / 3 % (n + 1);
        if (round % 2)
            pool_run(p, count_chunk, &w, n);
        else
            pool_run_by_node(p, count_chunk, &w, (const uint32_t[]){0, cut, n}, 2);
        assert_int_equal(w.runs[0], round + 1);
        assert_int_equal(w.runs[3], wanted += n == 4);
    }
    pool_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_slices),
                                       cmocka_unit_test(test_even_shares),
                                       cmocka_unit_test(test_shares_by_segments),
                                       cmocka_unit_test(test_how),
                                       cmocka_unit_test(test_places),
                                       cmocka_unit_test(test_made_on_nodes),
                                       cmocka_unit_test(test_runs),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_dense),
                                       cmocka_unit_test(test_spread),
                                       cmocka_unit_test(test_own_node_first),
                                       cmocka_unit_test(test_lopsided),
                                       cmocka_unit_test(test_changing_queues)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
