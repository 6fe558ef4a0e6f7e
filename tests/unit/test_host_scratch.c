/* The worker's scratch as memd plans it (model/host_scratch.h), against what the worker's parts
 * allocate for every architecture. */
#include "engine_bench.h"

#include "ipc/expert_channel.h"
#include "kernels/bf16.h"
#include "model/host_scratch.h"

#include <dirent.h>
#include <inttypes.h>
#include <malloc.h>

enum { PARALLEL = 4, THREADS = 2, NEAR_BYTES = 256 << 10 };

static uint64_t allocated(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* Bytes of bench_make_compute's parts without the threads, the weights' table and the states, and
 * what is planned for them. */
static void measure(const char *path, uint64_t *there, uint64_t *planned)
{
    static struct engine_bench b;
    b = (struct engine_bench){0};
    load_file(&b.model, path);
    b.memory = (struct memory_client){.lease_fd = -1, .map = b.model.map};
    b.context = 4 * GOLDEN_TOKENS;
    b.metrics = metrics_new();
    const struct model_params *p = &b.memory.map.params;
    uint64_t before = allocated();
    bench_make_compute(&b, PARALLEL, TENSOR_F16);
    *there = allocated() - before - PARALLEL * params_state_bytes(p);
    *planned = host_scratch_bytes(p, serving_batch_tokens(BATCH_IN_MEMORY, PARALLEL), THREADS, 0);
    forward_free(b.forward);
    experts_free(b.experts);
    dense_free(b.dense);
    weights_free(&b.weights);
    exec_free(b.exec);
    pool_free(b.pool);
    metrics_free(b.metrics);
    unload_model(&b.model);
}

static void test_all_architectures(void **state)
{
    (void)state;
    const char *dir = GOLDEN("");
    DIR *d = opendir(dir);
    struct dirent *entry;
    int n = 0;
    assert_non_null(d);
    while ((entry = readdir(d))) {
        char path[1024];
        uint64_t there, planned;
        const char *end = strrchr(entry->d_name, '.');
        if (!end || strcmp(end, ".gguf") != 0 || strncmp(entry->d_name, "vocab", 5) == 0)
            continue;
        snprintf(path, sizeof path, "%s%s", dir, entry->d_name);
        measure(path, &there, &planned);
        if (there > planned || planned > there + NEAR_BYTES)
            fail_msg("%s: %.2f MB are allocated, %.2f are planned", entry->d_name,
                     (double)there * 1e-6, (double)planned * 1e-6);
        n++;
    }
    closedir(d);
    assert_true(n > 30);
}

/* The inputs that threads pack for products of BF16 weights, beside the rest of the scratch. */
static uint64_t packed(const struct pool_plan *plan, uint32_t tokens)
{
    struct memory_worker w = {.batch = tokens - PARALLEL, .parallel = PARALLEL, .threads = THREADS};
    uint64_t all = memory_scratch_bytes(plan, &w);
    w.reproducible = true;
    return all - memory_scratch_bytes(plan, &w);
}

static uint32_t widest(const struct pool_plan *plan)
{
    uint32_t most = plan->header.params.d_model;
    for (uint32_t i = 0; i < plan->header.n_tensors; i++) {
        const struct pool_tensor *t = &plan->tensors[i];
        if (t->form == POOL_MATRIX && t->type == TENSOR_BF16 && t->cols > most)
            most = t->cols;
    }
    return most;
}

/* Two bytes a value and two more, for weights of BF16 alone and where the CPU has instructions for
 * them. */
static void test_packed(void **state)
{
    enum { TOKENS = 512 };
    static const char *const names[] = {"quant-F16.gguf", "quant-BF16.gguf"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct loaded_model m;
        char path[1024];
        snprintf(path, sizeof path, "%s%s", GOLDEN(""), names[i]);
        load_file(&m, path);
        uint64_t bytes = i && bf16_get() ? THREADS * TOKENS * (2ull * widest(&m.plan) + 2) : 0;
        assert_int_equal(packed(&m.plan, TOKENS), bytes);
        const char *const *narrowest = kernels_available();
        while (narrowest[1])
            narrowest++;
        assert_true(kernels_select(*narrowest));
        assert_int_equal(packed(&m.plan, TOKENS), 0);
        assert_true(kernels_select("auto"));
        unload_model(&m);
    }
}

/* What exec allocates for them is what is planned: nothing on a CPU without the instructions. */
static void test_packing(void **state)
{
    struct loaded_model m;
    struct pool *pool;
    struct exec *x;
    struct error e;
    (void)state;
    load_file(&m, GOLDEN("quant-BF16.gguf"));
    const struct model_params *p = &m.map.params;
    const struct exec_limits limits = {512, widest(&m.plan), 512 * p->router.n_used, p->d_expert};
    must(pool_new("test", THREADS, false, 0, &pool, &e), &e);
    uint64_t bytes[2];
    /* The first large allocations are mappings of whole pages, those after them are not. */
    must(exec_new(pool, &limits, 0, &x, &e), &e);
    exec_free(x);
    for (int rounds = 0; rounds < 2; rounds++) {
        uint64_t before = allocated();
        must(exec_new(pool, &limits, rounds, &x, &e), &e);
        bytes[rounds] = allocated() - before;
        exec_free(x);
    }
    int64_t there = (int64_t)(bytes[1] - bytes[0]), planned = (int64_t)packed(&m.plan, 512);
    if (llabs(there - planned) > 4096)
        fail_msg("%" PRId64 " bytes are allocated, %" PRId64 " are planned", there, planned);
    pool_free(pool);
    unload_model(&m);
}

/* cpuexec has scratch for each worker's batches: cpuexec/serve.c. */
static void test_executor(void **state)
{
    struct loaded_model m;
    struct pool *pool;
    struct exec *x;
    struct error e;
    struct memory_worker w = {.batch = 512, .parallel = PARALLEL, .threads = THREADS};
    (void)state;
    load_file(&m, GOLDEN("quant-F16.gguf"));
    const struct model_params *p = &m.map.params;
    const uint32_t tokens = 512 + PARALLEL, used = p->router.n_used;
    const struct exec_limits limits = {tokens, p->d_model, tokens * used, p->d_expert};
    must(pool_new("test", THREADS, false, 0, &pool, &e), &e);
    uint64_t before = allocated();
    must(exec_new(pool, &limits, true, &x, &e), &e);
    uint64_t there =
        allocated() - before + expert_channel_bytes(tokens, used, p->router.n_experts, p->d_model);
    w.workers = 2;
    uint64_t without = memory_scratch_bytes(&m.plan, &w);
    w.cpuexec = true;
    assert_in_range((memory_scratch_bytes(&m.plan, &w) - without) / 2, there, there + (1 << 20));
    exec_free(x);
    pool_free(pool);
    unload_model(&m);
}

/* The scratch of the batch is part of the need, and the default batch leaves most of what is left.
 */
static void test_batch(void **state)
{
    struct loaded_model m;
    struct memory_worker w = {.parallel = PARALLEL, .threads = THREADS, .reproducible = true};
    (void)state;
    load_file(&m, GOLDEN("deepseek2-v3.gguf"));
    const struct pool_plan *plan = &m.plan;
    uint64_t least = memory_need_bytes(plan, 0, &w), scratch = memory_scratch_bytes(plan, &w);
    for (w.batch = 512; w.batch <= 2048; w.batch *= 2) {
        uint64_t more = memory_scratch_bytes(plan, &w) - scratch;
        assert_true(more > 0);
        assert_int_equal(memory_need_bytes(plan, 0, &w), least + more);
        assert_int_equal(memory_batch(plan, &w, 2048, 4 * (scratch + more)), w.batch);
        assert_int_equal(memory_batch(plan, &w, 2048, 4 * (scratch + more) - 1), w.batch / 2);
    }
    assert_int_equal(memory_batch(plan, &w, 2048, 0), BATCH_LEAST);
    assert_int_equal(memory_batch(plan, &w, 2048, UINT64_MAX), 2048);
    w.batch = 1280; /* a half of it is no whole number of groups */
    assert_int_equal(memory_batch(plan, &w, w.batch, 4 * memory_scratch_bytes(plan, &w) - 1), 512);
    w.batch = 0;
    w.workers = 3;
    assert_int_equal(memory_scratch_bytes(plan, &w), 3 * scratch);
    unload_model(&m);
}

int main(void)
{
    void *volatile probe = malloc(1 << 16);
    bool counted = allocated() >= 1 << 16; /* not with a sanitizer's malloc */
    free(probe);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_batch), cmocka_unit_test(test_packed),
                                       cmocka_unit_test(test_all_architectures),
                                       cmocka_unit_test(test_packing),
                                       cmocka_unit_test(test_executor)};
    if (counted)
        return cmocka_run_group_tests(tests, NULL, NULL);
    int failed = _cmocka_run_group_tests("without allocations", tests, 2, NULL, NULL);
    if (!failed)
        print_message("skipped: malloc does not count its bytes here, as under a sanitizer\n");
    return failed ? failed : 77;
}
