/* deploy/models/decide.c: cases worked by hand, and random ones against rules that any order of
 * actions must keep. */
#include "deploy/models/decide.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#define S     1000000000ull
#define NOW   (1000 * S)
#define LARGE (1ull << 40)

static const struct models_limits roomy = {
    .now_ns = NOW, .available_bytes = LARGE, .budget_bytes = UINT64_MAX};

static struct model_facts off(uint64_t need)
{
    return (struct model_facts){.state = MODEL_OFF, .need_bytes = need, .keep_ns = 300 * S};
}

static struct model_facts wanted(uint64_t need, uint64_t since_s)
{
    struct model_facts m = off(need);
    m.waits_ns = NOW - since_s * S;
    m.wanted_ns = NOW - S / 10;
    return m;
}

static struct model_facts up(uint64_t need, uint64_t idle_s)
{
    struct model_facts m = off(need);
    m.state = MODEL_UP;
    m.own = true;
    m.used_ns = NOW - idle_s * S;
    return m;
}

static void expect(const struct model_facts *m, size_t n, const struct models_limits *l,
                   enum action_kind kind, size_t model)
{
    struct action a = models_decide(m, n, l);
    assert_int_equal(a.kind, kind);
    if (kind != ACTION_NONE)
        assert_int_equal(a.model, model);
}

static void test_start(void **state)
{
    struct model_facts m[] = {off(10), wanted(10, 1), wanted(10, 2)};
    expect(m, 1, &roomy, ACTION_NONE, 0);
    expect(m, 3, &roomy, ACTION_START, 2);  /* it has waited longer */
    m[2].wanted_ns = NOW - MODEL_WANTED_NS; /* its client has gone */
    expect(m, 3, &roomy, ACTION_START, 1);
    m[0].state = MODEL_STARTING; /* one at a time */
    expect(m, 3, &roomy, ACTION_NONE, 0);
}

static void test_makes_space(void **state)
{
    struct models_limits l = roomy;
    struct model_facts m[] = {wanted(50, 1), up(10, 20), up(10, 40)};
    l.available_bytes = 45;
    expect(m, 3, &l, ACTION_STOP, 2); /* idle for longest */
    m[2].busy = true;
    expect(m, 3, &l, ACTION_STOP, 1);
    m[1].used_ns = NOW - S; /* a request may be on its way */
    expect(m, 3, &l, ACTION_NONE, 0);
    m[1].own = false; /* a person's is left alone */
    m[1].used_ns = NOW - 100 * S;
    expect(m, 3, &l, ACTION_NONE, 0);
    m[2].state = MODEL_OFF; /* nothing of ours has memory: waiting does not help */
    m[2].busy = false;
    expect(m, 3, &l, ACTION_REFUSE, 0);
    l.available_bytes = 50;
    expect(m, 3, &l, ACTION_START, 0);
}

static void test_limits(void **state)
{
    struct models_limits l = roomy;
    struct model_facts m[] = {wanted(50, 1), up(30, 20)};
    l.most = 1;
    expect(m, 2, &l, ACTION_STOP, 1);
    l.most = 2;
    expect(m, 2, &l, ACTION_START, 0);
    l.budget_bytes = 79;
    expect(m, 2, &l, ACTION_STOP, 1);
    l.budget_bytes = 80;
    expect(m, 2, &l, ACTION_START, 0);
    m[1].on_gpu = true; /* it has the GPU's memory */
    expect(m, 2, &l, ACTION_STOP, 1);
    l.budget_bytes = 49;
    m[1].state = MODEL_OFF;
    expect(m, 2, &l, ACTION_REFUSE, 0);
}

/* A model needs its least KV cache, too, and gets a part of what is left. */
static void test_kv(void **state)
{
    struct models_limits l = roomy;
    struct model_facts m[] = {wanted(50, 1), up(30, 20)};
    m[0].kv_least_bytes = 10;
    m[0].kv_most_bytes = 40;
    m[1].kv_bytes = 20;
    l.budget_bytes = 109;
    expect(m, 2, &l, ACTION_STOP, 1);
    l.budget_bytes = 110;
    expect(m, 2, &l, ACTION_START, 0);
    assert_int_equal(models_kv_bytes(m, 2, 0, &l), 10);
    l.budget_bytes = 150;
    assert_int_equal(models_kv_bytes(m, 2, 0, &l), 25);
    l.budget_bytes = UINT64_MAX;
    assert_int_equal(models_kv_bytes(m, 2, 0, &l), 40);
    l.available_bytes = 80; /* without what is promised */
    assert_int_equal(models_kv_bytes(m, 2, 0, &l), 15);
    l.available_bytes = 59;
    m[1].busy = true;
    expect(m, 2, &l, ACTION_NONE, 0);
    l.available_bytes = 60;
    expect(m, 2, &l, ACTION_START, 0);
    assert_int_equal(models_kv_bytes(m, 2, 0, &l), 10);
}

static void test_idle(void **state)
{
    struct model_facts m[] = {up(10, 299), up(10, 301)};
    expect(m, 2, &roomy, ACTION_STOP, 1);
    m[1].busy = true;
    expect(m, 2, &roomy, ACTION_NONE, 0);
    m[1].busy = false;
    m[1].wanted_ns = NOW - 200 * S; /* somebody has asked since */
    expect(m, 2, &roomy, ACTION_NONE, 0);
    m[0].keep_ns = 0;
    expect(m, 2, &roomy, ACTION_STOP, 0);
    m[0].used_ns = NOW - MODEL_GRACE_NS / 2;
    expect(m, 2, &roomy, ACTION_NONE, 0);
    m[0].used_ns = 1;
    m[0].keep_ns = MODEL_FOREVER;
    expect(m, 2, &roomy, ACTION_NONE, 0);
    m[0].drop = true;
    expect(m, 2, &roomy, ACTION_STOP, 0);
    m[0].busy = true;
    expect(m, 2, &roomy, ACTION_NONE, 0);
    m[0].broken = true;
    expect(m, 2, &roomy, ACTION_STOP, 0);
}

static void test_failed(void **state)
{
    struct model_facts m[] = {wanted(10, 1)};
    m[0].state = MODEL_FAILED;
    m[0].failed_ns = NOW - MODEL_RETRY_NS + 1;
    expect(m, 1, &roomy, ACTION_NONE, 0);
    m[0].failed_ns = NOW - MODEL_RETRY_NS;
    expect(m, 1, &roomy, ACTION_START, 0);
}

/* Whatever the state: a model is started only if it fits and is wanted; what is stopped is ours,
 * and not in use unless it is broken; while one moves nothing happens. */
static void test_rules(void **state)
{
    srand(7);
    for (int round = 0; round < 200000; round++) {
        struct model_facts m[6];
        struct models_limits l = {.now_ns = NOW,
                                  .available_bytes = (uint64_t)(rand() % 100),
                                  .budget_bytes =
                                      rand() % 2 ? UINT64_MAX : (uint64_t)(rand() % 150),
                                  .most = (unsigned)(rand() % 4)};
        uint64_t sum = 0;
        unsigned n_up = 0;
        bool moving = false, gpu = false;
        for (int i = 0; i < 6; i++) {
            m[i] = (struct model_facts){
                .state = (enum model_state)(rand() % 20 ? rand() % 2 * MODEL_UP : rand() % 5),
                .own = rand() % 4 > 0,
                .on_gpu = rand() % 20 == 0,
                .busy = rand() % 3 == 0,
                .broken = rand() % 20 == 0,
                .drop = rand() % 20 == 0,
                .need_bytes = (uint64_t)(rand() % 60),
                .wanted_ns = rand() % 2 ? NOW - (uint64_t)(rand() % 20) * S : 0,
                .waits_ns = rand() % 2 ? NOW - (uint64_t)(rand() % 60) * S : 0,
                .used_ns = NOW - (uint64_t)(rand() % 600) * S,
                .keep_ns = rand() % 4 ? (uint64_t)(rand() % 400) * S : MODEL_FOREVER,
                .failed_ns = NOW - (uint64_t)(rand() % 10) * S};
            moving |= m[i].state == MODEL_STARTING || m[i].state == MODEL_STOPPING;
            if (m[i].own && m[i].state == MODEL_UP) {
                sum += m[i].need_bytes;
                n_up++;
                gpu |= m[i].on_gpu;
            }
        }
        struct action a = models_decide(m, 6, &l);
        const struct model_facts *x = &m[a.model];
        if (a.kind == ACTION_NONE)
            continue;
        assert_false(moving);
        if (a.kind == ACTION_STOP) {
            assert_true(x->own && x->state == MODEL_UP);
            assert_true(!x->busy || x->broken);
        } else {
            assert_true(x->state == MODEL_OFF || x->state == MODEL_FAILED);
            assert_true(model_is_wanted(x, NOW));
        }
        if (a.kind == ACTION_START) {
            assert_true(x->need_bytes <= l.available_bytes && !gpu);
            assert_true(l.budget_bytes == UINT64_MAX || sum + x->need_bytes <= l.budget_bytes);
            assert_true(!l.most || n_up < l.most);
        }
        if (a.kind == ACTION_REFUSE)
            assert_int_equal(n_up, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_start),  cmocka_unit_test(test_makes_space),
        cmocka_unit_test(test_limits), cmocka_unit_test(test_kv),
        cmocka_unit_test(test_idle),   cmocka_unit_test(test_failed),
        cmocka_unit_test(test_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
