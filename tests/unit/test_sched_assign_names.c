/* lib/sched's names: of policies and their parts, of assigners, caches, budgets, predictors and
 * prefetchers. Every name is found, described and listed; names for replay only are not listed. */
#include "assign_costs.h"

#include <string.h>

static void test_names(void **state)
{
    static const struct {
        const char *name;
        enum sched_assigner assigner;
        enum sched_cache_kind cache;
        enum sched_budget budget;
        bool predicts;
    } presets[] = {
        {"ondemand", ASSIGN_LOAD_ALL, CACHE_NONE, BUDGET_GLOBAL, false},
        {"static", ASSIGN_LOAD_ALL, CACHE_STATIC, BUDGET_GLOBAL, false},
        {"threshold", ASSIGN_THRESHOLD, CACHE_STATIC, BUDGET_GLOBAL, false},
        {"lru", ASSIGN_LOAD_ALL, CACHE_LRU, BUDGET_UNIFORM, false},
        {"lfu", ASSIGN_LOAD_ALL, CACHE_LFU, BUDGET_UNIFORM, false},
        {"mixtral-offloading", ASSIGN_LOAD_ALL, CACHE_LRU, BUDGET_UNIFORM, true},
        {"eam", ASSIGN_LOAD_ALL, CACHE_LFU, BUDGET_UNIFORM, true},
        {"score", ASSIGN_SCORE_QUEUE, CACHE_SCORE, BUDGET_UNIFORM, true},
        {"prescope", ASSIGN_PRESCHED, CACHE_STATIC, BUDGET_GLOBAL, true},
        {"moepic", ASSIGN_LOAD_ALL, CACHE_LCP, BUDGET_CONFIGURED, true},
        {"promoe", ASSIGN_LOAD_ALL, CACHE_LRU_PREFETCH, BUDGET_UNIFORM, true},
        {"finemoe", ASSIGN_LOAD_ALL, CACHE_MAP_FREQUENCY, BUDGET_GLOBAL, true},
        {"qstar", ASSIGN_QSTAR, CACHE_LRU, BUDGET_GLOBAL, false},
        {"layerwise", ASSIGN_LAYERWISE, CACHE_LAYERWISE, BUDGET_GLOBAL, false},
        {"llama.cpp", ASSIGN_LAYERWISE_OFFLOAD, CACHE_LAYERWISE, BUDGET_GLOBAL, false},
        {"dali", ASSIGN_GREEDY, CACHE_DALI, BUDGET_UNIFORM, true},
        {"specmd", ASSIGN_LOAD_ALL, CACHE_LEAST_STALE, BUDGET_GLOBAL, true},
        {"ktransformers", ASSIGN_LAYERWISE_STREAM, CACHE_PROMPT, BUDGET_UNIFORM, false},
        {"moe-lightning", ASSIGN_LOAD_ALL, CACHE_STREAMED, BUDGET_UNIFORM, false},
        {"flashmoe", ASSIGN_LOAD_ALL, CACHE_LEARNED, BUDGET_UNIFORM, false},
        {"adapmoe", ASSIGN_LOAD_ALL, CACHE_ALLOCATED, BUDGET_UNIFORM, true},
        {"fate", ASSIGN_LOAD_ALL, CACHE_SHALLOW, BUDGET_UNIFORM, true},
        {"klotski", ASSIGN_LOAD_ALL, CACHE_LAYERWISE, BUDGET_GLOBAL, true},
        {"moed", ASSIGN_BALANCE, CACHE_VALUE, BUDGET_GLOBAL, true},
    };
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        const struct sched_policy *p = sched_policy_find(presets[i].name);
        assert_non_null(p);
        assert_int_equal(p->assigner, presets[i].assigner);
        assert_int_equal(p->cache, presets[i].cache);
        assert_int_equal(p->budget, presets[i].budget);
        assert_int_equal(p->predictor != PREDICT_NONE, presets[i].predicts);
    }
    assert_int_equal(sched_policy_find("threshold")->assigner, ASSIGN_THRESHOLD);
    assert_int_equal(sched_policy_find("dali")->predictor, PREDICT_RESIDUAL);
    assert_int_equal(sched_policy_find("dali")->prefetcher, PREFETCH_LOADED);
    assert_int_equal(sched_policy_find("moed")->prefetcher, PREFETCH_SELECTIVE);
    assert_int_equal(sched_policy_find("moepic")->predictor, PREDICT_GATE_SCORES);
    assert_null(sched_policy_find("moe"));
    assert_null(sched_policy_find(""));
    uint32_t n = 0;
    for (; sched_policy_at(n); n++) {
        const struct sched_policy *p = sched_policy_at(n);
        assert_ptr_equal(sched_policy_find(p->name), p);
        assert_non_null(strstr(sched_policy_names(), p->name));
        assert_true(strlen(p->what) > 10);
        assert_true(sched_cache_takes(p->cache, p->budget));
    }
    assert_int_equal(n, 24);
    assert_string_equal(
        sched_policy_names(),
        "ondemand, static, lru, lfu, mixtral-offloading, eam, threshold, score, "
        "qstar, layerwise, llama.cpp, dali, prescope, moepic, promoe, finemoe, specmd, "
        "ktransformers, moe-lightning, flashmoe, adapmoe, fate, klotski, moed");
    /* The oracles are for replay only. */
    assert_string_equal(sched_policy_at_any(n)->name, "belady");
    assert_string_equal(sched_policy_at_any(n + 1)->name, "optimal");
    assert_null(sched_policy_at_any(n + 2));
    assert_null(sched_policy_find("belady"));
    for (int i = 0; i < 8; i++) {
        enum sched_prefetcher found;
        const char *name = sched_prefetcher_name((enum sched_prefetcher)i);
        assert_true(sched_prefetcher_find(name, &found) && (int)found == i);
        assert_non_null(strstr(sched_prefetcher_names(), name));
    }
    assert_null(sched_prefetcher_name((enum sched_prefetcher)8));
    for (int kind = 0; kind < N_ASSIGNERS; kind++) {
        enum sched_assigner found = ASSIGN_LOAD_ALL;
        assert_true(sched_assigner_find(sched_assigner_name((enum sched_assigner)kind), &found));
        assert_int_equal(found, kind);
        assert_true(strlen(sched_assigner_what(found)) > 10);
    }
    assert_string_equal(
        sched_assigner_names(),
        "load-all, threshold, qstar, greedy, layerwise, presched, score-queue, "
        "balance, qstar-stream, greedy-unbound, layerwise-stream, layerwise-offload");
    assert_non_null(strstr(sched_assigner_help(), sched_assigner_names()));
    for (int kind = 0; kind < CACHE_KINDS; kind++) {
        enum sched_cache_kind found = CACHE_NONE;
        const char *name = sched_cache_name((enum sched_cache_kind)kind);
        assert_true(sched_cache_find_any(name, &found));
        assert_non_null(strstr(sched_cache_names_any(), name));
        /* Lookups do not find names for replay only, and lists omit them. */
        enum sched_cache_kind other = CACHE_NONE;
        bool live = kind < CACHE_BELADY;
        assert_int_equal(sched_cache_replay_only(found), !live);
        assert_int_equal(sched_cache_find(name, &other), live);
        assert_int_equal(other, live ? found : CACHE_NONE);
        assert_int_equal(found, kind);
        assert_true(strlen(sched_cache_what(found)) > 10);
        assert_true(sched_cache_takes(found, sched_cache_budget(found)));
    }
    assert_string_equal(sched_cache_names(),
                        "none, static, lru, lfu, workload, workload-guarded, layerwise, "
                        "lru-prefetch, lcp, score, map-frequency, value, arc, lrfu, w-tinylfu, "
                        "least-stale, prompt-frequency, streamed, learned, lru-allocated, shallow");
    assert_null(strstr(sched_cache_names(), "belady"));
    assert_null(strstr(sched_cache_help(), "random"));
    assert_non_null(strstr(sched_cache_help(), sched_cache_names()));
    enum sched_assigner a = ASSIGN_QSTAR;
    assert_false(sched_assigner_find("load", &a));
    assert_int_equal(a, ASSIGN_QSTAR);
    enum sched_cache_kind c;
    assert_true(sched_cache_find("workload", &c) && c == CACHE_DALI);
    assert_false(sched_cache_find("dali", &c));
    assert_string_equal(sched_assigner_name(ASSIGN_OPTIMAL), "optimal"); /* for replay only */
    assert_null(sched_assigner_name((enum sched_assigner)(ASSIGN_OPTIMAL + 1)));
    assert_null(sched_cache_name((enum sched_cache_kind)CACHE_KINDS));
    for (int kind = 0; kind < PREDICT_KINDS; kind++) {
        enum sched_predictor found = PREDICT_NONE;
        const char *name = sched_predictor_name((enum sched_predictor)kind);
        assert_true(sched_predictor_find(name, &found));
        assert_int_equal(found, kind);
        assert_true(strlen(sched_predictor_what(found)) > 10);
        assert_non_null(strstr(sched_predictor_names(), name));
    }
    assert_null(sched_predictor_name((enum sched_predictor)PREDICT_KINDS));
    for (int kind = 0; kind < BUDGET_KINDS; kind++) {
        enum sched_budget found = BUDGET_GLOBAL;
        const char *name = sched_budget_name((enum sched_budget)kind);
        assert_true(sched_budget_find(name, &found));
        assert_int_equal(found, kind);
        assert_true(strlen(sched_budget_what(found)) > 10);
        assert_non_null(strstr(sched_budget_names(), name));
    }
    assert_null(sched_budget_name((enum sched_budget)BUDGET_KINDS));
    enum sched_predictor p = PREDICT_RESIDUAL;
    assert_false(sched_predictor_find("", &p));
    assert_int_equal(p, PREDICT_RESIDUAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
