/* Pages of keys and values by layer (model/kv_layout.h): sizes of published models, worked out by
 * hand, and layouts of random models against what the header promises. */
#include "model/kv_layout.h"

#include "ipc/kv_pool.h"
#include "model/memory_need.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "random_numbers.h"

enum { BATCH = 260, KIB = 1024 };

/* n layers; every `period`-th attends to all positions and has `full` heads, the others `windowed`
 * heads of a window. All heads of `dim` values. */
static struct model_params *model_of(uint32_t n, uint32_t period, uint32_t window, uint32_t full,
                                     uint32_t full_dim, uint32_t windowed, uint32_t dim)
{
    struct model_params *p = calloc(1, sizeof *p);
    p->arch = architecture_find("gemma4", 6);
    p->n_layers = n;
    for (uint32_t i = 0; i < n; i++) {
        bool sees_all = i % period == period - 1;
        uint32_t head = sees_all ? full_dim : dim;
        p->layers[i] = (struct layer_params){.n_kv_heads = sees_all ? full : windowed,
                                             .k_dim = head,
                                             .v_dim = head,
                                             .window = sees_all ? 0 : window};
    }
    return p;
}

/* Gemma-4-26B-A4B: 5 layers of 2 heads of 512, 25 of 8 heads of 256 with a window of 1024. A page
 * of the former has 64 * 20 KiB; a layer of the latter 64 * 8 KiB, so two of them a page. */
static void test_gemma(void **state)
{
    struct model_params *p = model_of(30, 6, 1024, 2, 512, 8, 256);
    struct kv_layout kv;
    (void)state;
    kv_layout_make(p, TENSOR_F16, &kv);
    assert_int_equal(kv.page_bytes, 64 * 20 * KIB);
    assert_int_equal(kv.n_groups, 1 + 13);
    assert_int_equal(kv.window, 1024);
    assert_int_equal(kv_layout_window_pages(&kv, BATCH), (1023 + 260 + 63) / 64 + 1);
    /* 32768 tokens: 640 MiB, and 13 * 22 pages of the windows: 358 MiB; without windows 7040 MiB */
    assert_int_equal(kv_layout_pages(&kv, 32768, BATCH), 512 + 13 * 22);
    assert_int_equal(kv_layout_positions(&kv, 512 + 13 * 22, BATCH), 32768);
    struct memory_kv need = memory_kv_bytes(p, TENSOR_F16);
    assert_int_equal(need.a_token, 20 * KIB);
    assert_int_equal(need.a_token_of_window, 200 * KIB);
    assert_int_equal(need.window_bytes, (uint64_t)13 * 22 * 64 * 20 * KIB);
    free(p);
}

/* gpt-oss-20b: 12 layers of each kind, alike: a page holds either. */
static void test_gpt_oss(void **state)
{
    struct model_params *p = model_of(24, 2, 128, 8, 64, 8, 64);
    struct kv_layout kv;
    (void)state;
    kv_layout_make(p, TENSOR_F16, &kv);
    assert_int_equal(kv.page_bytes, 64 * 12 * 2 * KIB);
    assert_int_equal(kv.n_groups, 2);
    free(p);
}

/* Without windows, or with nothing but windows, there is one group with all layers. */
static void test_one_kind(void **state)
{
    struct model_params *all = model_of(4, 1, 0, 2, 64, 2, 64);
    struct model_params *none = model_of(4, 5, 128, 2, 64, 2, 64);
    struct kv_layout kv;
    (void)state;
    for (int i = 0; i < 2; i++) {
        kv_layout_make(i ? none : all, TENSOR_F16, &kv);
        assert_int_equal(kv.n_groups, 1);
        assert_int_equal(kv.window, 0);
        assert_int_equal(kv.page_bytes, 64 * 4 * 2 * 2 * 64 * 2);
        assert_int_equal(kv_layout_pages(&kv, 1000, BATCH), 16);
        assert_int_equal(kv_layout_positions(&kv, 16, BATCH), 1024);
    }
    free(all);
    free(none);
}

static void check_layout(const struct model_params *p, enum tensor_type type)
{
    static bool used[KV_GROUPS_MOST];
    struct kv_layout kv;
    uint64_t ends[KV_GROUPS_MOST] = {0};
    kv_layout_make(p, type, &kv);
    assert_true(kv.n_groups >= 1 && kv.n_groups <= KV_GROUPS_MOST);
    assert_int_equal(kv.page_bytes % KV_POOL_ALIGN, 0);
    for (uint32_t i = 0; i < KV_GROUPS_MOST; i++)
        used[i] = false;
    for (uint32_t i = 0; i < p->n_layers; i++) {
        const struct kv_layer_place *place = &kv.layers[i];
        uint64_t bytes = (uint64_t)KV_POOL_TOKENS * p->layers[i].n_kv_heads *
                         (kv_key_bytes(p, i, type) + kv_value_bytes(p, i, type));
        assert_true(place->group < kv.n_groups);
        assert_int_equal(place->group > 0, kv.window > 0 && p->layers[i].window > 0);
        assert_int_equal(place->offset, ends[place->group]); /* no layer lies in another */
        assert_int_equal(place->offset % 64, 0);
        ends[place->group] += bytes;
        assert_true(ends[place->group] <= kv.page_bytes);
        used[place->group] = true;
    }
    for (uint32_t i = 1; i < kv.n_groups; i++)
        assert_true(used[i]);
    for (uint32_t pages = kv.n_groups; pages < 4000; pages += 1 + below(300)) {
        uint64_t positions = kv_layout_positions(&kv, pages, BATCH);
        assert_true(positions > 0 && kv_layout_pages(&kv, (uint32_t)positions, BATCH) <= pages);
        assert_true(kv_layout_pages(&kv, (uint32_t)positions + 1, BATCH) > pages);
    }
}

static void test_random(void **state)
{
    (void)state;
    random_state = 5;
    for (int i = 0; i < 300; i++) {
        struct model_params *p =
            model_of(1 + below(80), 1 + below(9), 1 + below(3000), 1 + below(8),
                     32 * (1 + below(8)), 1 + below(16), 32 * (1 + below(16)));
        check_layout(p, TENSOR_F16);
        check_layout(p, TENSOR_Q8_0);
        free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemma),
        cmocka_unit_test(test_gpt_oss),
        cmocka_unit_test(test_one_kind),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
