/* lib/device/worker_memory.c: what a worker needs of a device's memory, with results worked out by
 * hand. */
#include "device_formulas.h"

static bool many; /* the plan includes products through BLAS */

static struct worker_memory capacity_of(const struct pool_map *map, enum tensor_type kv, bool dense,
                                        uint32_t parallel, uint32_t context)
{
    struct worker_memory_needs n = {.module = &module,
                                    .map = map,
                                    .max_tokens = 256,
                                    .parallel = parallel,
                                    .kv_requests = parallel,
                                    .context = context,
                                    .kv_type = kv,
                                    .dense = dense,
                                    .blas = many};
    struct worker_memory out;
    worker_memory(&n, &out);
    return out;
}

static void test_kv_bytes(void **state)
{
    struct pool_map map = sample_map();
    /* 3 requests of 100 positions are 6 pages, each a multiple of 4096 bytes; a position of a layer
     * is 2 heads of 8 halves, keys and values: 64 bytes */
    assert_int_equal(capacity_of(&map, TENSOR_F16, true, 3, 100).kv_bytes, 2 * 6 * 64 * 64);
    assert_int_equal(capacity_of(&map, TENSOR_F32, true, 3, 100).kv_bytes, 2 * 6 * 64 * 128);
    assert_int_equal(capacity_of(&map, TENSOR_F16, true, 1, 64).kv_bytes, 2 * 64 * 64);
    assert_int_equal(capacity_of(&map, TENSOR_F16, true, 1, 65).kv_bytes, 2 * 2 * 64 * 64);
    assert_int_equal(capacity_of(&map, TENSOR_F16, false, 3, 100).kv_bytes, 0);
    set_heads(&map, 2, 32, 32); /* two heads of a scale and 32 quants */
    assert_int_equal(capacity_of(&map, TENSOR_Q8_0, true, 3, 100).kv_bytes,
                     6 * 20480); /* 2 * 64 * 2 * 2 * 34 = 17408 */
    set_heads(&map, 2, 8, 24);   /* 2 heads of 8 and 24 halves: 128 bytes */
    assert_int_equal(capacity_of(&map, TENSOR_F16, true, 3, 100).kv_bytes, 2 * 6 * 64 * 128);
    /* a layer pays its own heads, and nothing without attention */
    set_heads(&map, 2, 8, 8);
    map.params.layers[1].n_kv_heads = 4;
    assert_int_equal(capacity_of(&map, TENSOR_F16, true, 3, 100).kv_bytes, 6 * 64 * (64 + 128));
    map.params.layers[1] = (struct layer_params){.kind = LAYER_DELTA_NET};
    struct worker_memory without = capacity_of(&map, TENSOR_F16, true, 3, 100);
    assert_int_equal(without.kv_bytes, 6 * 64 * 64);
    assert_int_equal(without.state_bytes, 0);
    /* but a state a request, and a run: 3 inputs of 2 * 16 + 32 channels, and 2 heads of 16 x 16
     * with a chunk of 16 keys, updates and decays */
    map.params.delta =
        (struct delta_params){.taps = 4, .k_heads = 1, .v_heads = 2, .k_dim = 16, .v_dim = 16};
    struct worker_memory with = capacity_of(&map, TENSOR_F16, true, 3, 100);
    assert_int_equal(with.state_bytes, 3 * (4 * (3 * 64 + 2 * (256 + 512 + 32)) + 8));
    assert_true(with.scratch_bytes >= without.scratch_bytes + with.state_bytes);
    assert_int_equal(capacity_of(&map, TENSOR_F16, false, 3, 100).state_bytes, 0);
    map.params.delta = (struct delta_params){0};
    /* layers with a window are in a group of their own: 1 page of each 64 positions, and of the
     * last 10 and a batch of 256, which are 6 pages at most */
    set_heads(&map, 2, 8, 8);
    map.params.layers[1] = map.params.layers[0];
    map.params.layers[1].window = 10;
    assert_int_equal(capacity_of(&map, TENSOR_F16, true, 1, 64).kv_bytes, 2 * 4096);
    assert_int_equal(capacity_of(&map, TENSOR_F16, true, 2, 6400).kv_bytes, 2 * (100 + 6) * 4096);
    map.params.layers[1].window = 0;
    /* latent: one row of 24 values, which is both */
    map.params.arch = architecture_find("deepseek2", 9);
    map.params.kv_rank = 16;
    set_heads(&map, 1, 24, 16);
    assert_int_equal(capacity_of(&map, TENSOR_F16, true, 3, 100).kv_bytes, 6 * 8192); /* 6144 */
}

static void test_scratch_bytes(void **state)
{
    struct pool_map map = sample_map();
    /* 256 tokens, 512 rows of partial sums, 512 * 2 rows between gate and down; each buffer in
     * multiples of 256 */
    uint64_t experts = 256 * 32 * 4 + 512 * 32 * 4 + 32 * 256 + (16 * 1024 + 256) + 1024;
    assert_int_equal(capacity_of(&map, TENSOR_F16, false, 3, 100).scratch_bytes,
                     DEVICE_STREAM_BYTES + experts);
    /* with the dense part: what the forward pass has for a token, at least; more for more positions
     */
    uint64_t least = 256 * 4 * (2 * 32 + 4 * 16 + 2 * 16 + 8 + 2 * 48 + 100);
    uint64_t dense = capacity_of(&map, TENSOR_F16, true, 3, 100).scratch_bytes;
    assert_true(dense > DEVICE_STREAM_BYTES + experts + least);
    /* for device-only layers: the tables of 64 tokens' 2 choices of 2 segments; and all
     * places, 8 bytes each */
    chosen_factor = 200;
    assert_int_equal(capacity_of(&map, TENSOR_F16, true, 3, 100).scratch_bytes - dense,
                     64 * 2 * 2 * 100);
    chosen_factor = 100;
    slabs[1].n_experts = map.params.router.n_experts =
        8 + 64; /* experts' own scratch, two gates' logits and the gate's scratch grow too */
    uint64_t many_experts = capacity_of(&map, TENSOR_F16, true, 3, 100).scratch_bytes;
    map.params.router.n_experts = 8;
    uint64_t few_experts = capacity_of(&map, TENSOR_F16, true, 3, 100).scratch_bytes;
    slabs[1].n_experts = 8;
    assert_int_equal(many_experts - few_experts, 2 * 64 * 2 * 8 + 2 * 64 * 256 * 4 + 64 * 32);
    assert_int_equal(capacity_of(&map, TENSOR_F16, true, 3, 356).scratch_bytes - dense,
                     256 * 4 * 4); /* the page table grows within its 256 bytes */
    /* With products through BLAS there are 48 more rows of logits, of their largest and its place,
     * and of the scratch to find them. The largest matrix takes 4 * (20 * 96 + 256). Where it is of
     * one plane, the output head takes 100 * 32 + 256, rounded up. */
    many = true;
    assert_int_equal(capacity_of(&map, TENSOR_F16, true, 3, 100).scratch_bytes - dense,
                     48 * (100 + 2 * 256) * 4 + 48 * 256 + 8704);
    tensors[1].planes = 1;
    assert_int_equal(capacity_of(&map, TENSOR_F16, true, 3, 100).scratch_bytes - dense,
                     48 * (100 + 2 * 256) * 4 + 48 * 256 + 3584);
    tensors[1].planes = 4;
    assert_int_equal(capacity_of(&map, TENSOR_F16, false, 3, 100).scratch_bytes,
                     DEVICE_STREAM_BYTES + experts);
    many = false;
}

static void test_capacity_overflow(void **state)
{
    struct pool_map map = sample_map();
    map.params.n_layers = 2;
    set_heads(&map, 1024, UINT32_MAX, UINT32_MAX);
    assert_true(capacity_of(&map, TENSOR_F32, true, UINT32_MAX, UINT32_MAX).kv_bytes == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kv_bytes),
        cmocka_unit_test(test_scratch_bytes),
        cmocka_unit_test(test_capacity_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
