/* lib/model/kv_arithmetic.c: parameters of which keys and values depend give another checksum. */
#include "model/kv_arithmetic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct model_params *some_params(int filler)
{
    struct model_params *p = malloc(sizeof *p);
    assert_non_null(p);
    memset(p, filler, sizeof *p); /* the bytes between fields */
    memset(&p->n_layers, 0,
           offsetof(struct model_params, router) - offsetof(struct model_params, n_layers));
    memset(&p->rope.exact_ramp + 1, filler, sizeof(uint32_t) - sizeof(bool));
    p->n_layers = 2;
    p->norm_eps = 1e-6f;
    p->router.kind = ROUTER_SOFTMAX;
    p->router.n_experts = 16;
    p->router.n_used = 4;
    p->router.n_groups = p->router.n_groups_used = 0;
    p->router.renormalise = true;
    p->router.scale = 1;
    p->router.weight_sum_eps = p->router.weight_sum_least = 0;
    memset(&p->d_expert, 0,
           offsetof(struct model_params, layers) - offsetof(struct model_params, d_expert));
    for (uint32_t i = 0; i < p->n_layers; i++) {
        struct layer_params *l = &p->layers[i];
        memset(l, 0, offsetof(struct layer_params, unrotated));
        l->n_heads = 8;
        l->unrotated = false;
        l->expert_limit = l->shared_limit = 0;
    }
    return p;
}

static void test_padding_and_name(void **state)
{
    struct model_params *a = some_params(0), *b = some_params(0xa5);
    (void)state;
    assert_int_equal(kv_arithmetic(a), kv_arithmetic(b));
    strcpy(a->name, "another");
    assert_int_equal(kv_arithmetic(a), kv_arithmetic(b));
    free(a);
    free(b);
}

static void test_fields(void **state)
{
    struct model_params *p = some_params(0);
    uint64_t first = kv_arithmetic(p);
    (void)state;
#define DIFFERS(field, value)                                                                      \
    do {                                                                                           \
        __typeof__(field) before = (field);                                                        \
        (field) = (value);                                                                         \
        assert_int_not_equal(kv_arithmetic(p), first);                                             \
        (field) = before;                                                                          \
        assert_int_equal(kv_arithmetic(p), first);                                                 \
    } while (0)
    DIFFERS(p->rope.beta_slow, 1.5f);
    DIFFERS(p->rope.exact_ramp, true);
    DIFFERS(p->windowed_rope.dims, 64);
    DIFFERS(p->norm_eps, 1e-5f);
    DIFFERS(p->router.scale, 2.5f);
    DIFFERS(p->router.renormalise, false);
    DIFFERS(p->router.weight_sum_eps, 1e-20f);
    DIFFERS(p->value_scale, 0.5f);
    DIFFERS(p->published, 127);
    DIFFERS(p->layers[1].window, 128);
    DIFFERS(p->layers[1].unrotated, true);
    DIFFERS(p->layers[1].shared_limit, 7);
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_padding_and_name),
                                       cmocka_unit_test(test_fields)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
