/* The simulator on traces and costs that can be worked out by hand. */
#include "bench/replay/bound.h"
#include "bench/replay/deciding.h"
#include "bench/replay/engine.h"
#include "bench/replay/future.h"
#include "bench/replay/predicting.h"
#include "bench/replay/simulate.h"
#include "bench/replay/steps.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

/* One layer of four experts of one segment of 100 bytes; a token activates one. */
enum { EXPERTS = 4 };

/* gate: [n_tokens][EXPERTS], of each sequence; NULL: none. */
static struct trace *make_trace_with(uint32_t n_sequences, uint32_t n_tokens, uint32_t n_prompt,
                                     const uint16_t *selected, const float *gate)
{
    char path[] = "/tmp/moed-test-trace-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    struct trace_shape shape = {.model = "tiny",
                                .n_layers = 1,
                                .n_experts = EXPERTS,
                                .n_used = 1,
                                .d_model = 4,
                                .has = gate ? TRACE_GATE : 0,
                                .router = {.n_experts = EXPERTS, .n_used = 1, .scale = 1}};
    struct trace_layer layer = {.n_segments = 1, .segment_bytes = 100};
    struct trace_writer *w;
    struct error e;
    assert_int_equal(trace_writer_new(path, &shape, &layer, &w, &e), ERROR_OK);
    uint32_t *ids = calloc(n_tokens, sizeof *ids);
    for (uint32_t i = 0; i < n_sequences; i++) {
        struct trace_data data = {.sequence = {n_tokens, n_prompt, ids},
                                  .selected = selected + (size_t)i * n_tokens,
                                  .gate = gate};
        assert_int_equal(trace_write_sequence(w, &data, &e), ERROR_OK);
    }
    free(ids);
    assert_int_equal(trace_writer_finish(w, &e), ERROR_OK);
    struct trace *t;
    assert_int_equal(trace_open(path, &t, &e), ERROR_OK);
    unlink(path);
    return t;
}

static struct trace *make_trace(uint32_t n_sequences, uint32_t n_tokens, uint32_t n_prompt,
                                const uint16_t *selected)
{
    return make_trace_with(n_sequences, n_tokens, n_prompt, selected, NULL);
}

/* Only the experts take time. */
static const struct machine idle = {.name = "idle",
                                    .device_bytes_per_s = INFINITY,
                                    .device_flop_per_s = INFINITY,
                                    .link_bytes_per_s = 1,
                                    .cpu_bytes_per_s = 1,
                                    .dram_bytes_per_s = 1};

static struct replay_result replay_on(const struct machine *machine, const struct trace *t,
                                      const struct sched_costs *costs, const char *policy,
                                      double vram, uint32_t batch)
{
    struct replay_result r;
    struct error e = {0};
    const struct sched_policy *p = NULL;
    for (uint32_t i = 0; (p = sched_policy_at_any(i)) && strcmp(p->name, policy) != 0; i++)
        ;
    assert_non_null(p);
    struct replay_run run = {
        .trace = t, .machine = machine, .costs = costs, .policy = p, .vram = vram, .batch = batch};
    if (replay_simulate(&run, &r, &e))
        fail_msg("%s", e.text);
    return r;
}

static struct replay_result replay(const struct trace *t, const struct sched_costs *costs,
                                   const char *policy, double vram, uint32_t batch)
{
    return replay_on(&idle, t, costs, policy, vram, batch);
}

static void near(double got, double expected)
{
    if (fabs(got - expected) > 1e-6 * fabs(expected) + 1e-9)
        fail_msg("%.9g, not %.9g", got, expected);
}

/* A load takes 10 s, an expert on the device 1, on the CPU 4; neither slows the other down. */
static const struct sched_costs costs = {
    .load_s = 10, .load_contended_s = 10, .device_s = 1, .cpu_s = 4, .cpu_contended_s = 4};

/* Two slots, LRU. The prompt is expert 0. Decoded: 0 (hit), 1, 0, 2 (evicts 1), 1 (evicts 0): three
 * of five are misses, each 10 + 1 s, two hits of 1 s: 35 s. Moved bytes include the prompt's: four
 * segments. Wasted: none, the steps used all. */
static void test_lru(void **state)
{
    static const uint16_t selected[] = {0, 0, 1, 0, 2, 1};
    struct trace *t = make_trace(1, 6, 1, selected);
    struct replay_result r = replay(t, &costs, "lru", 0.5, 1);
    assert_int_equal(r.decode_tokens, 5);
    assert_int_equal(r.prefill_tokens, 1);
    near(r.decode_tokens_per_s, 5.0 / 35);
    near(r.prefill_tokens_per_s, 1.0 / 11);
    near(r.hit_rate, 2.0 / 5);
    near(r.on_device, 2.0 / 5);
    near(r.loaded, 3.0 / 5);
    near(r.on_cpu, 0);
    near(r.tpot_p50_s, 11);
    near(r.moved_bytes, 400);
    near(r.wasted_bytes, 0);
    near(r.link_busy, 30.0 / 35);
    near(r.device_busy, 5.0 / 35);
    near(r.layer_s, 7);
    trace_close(t);
}

/* To ask an idle link takes 2 s. As test_lru, where each of the three loads finds it idle: 3 * 13
 * + 2. As test_batch: the second load of a step follows the first, 2 + 20 + 1, then 2 + 10 + 1. */
static void test_link_call(void **state)
{
    static const uint16_t one[] = {0, 0, 1, 0, 2, 1}, two[] = {0, 1, 3, 0, 2, 3};
    struct machine asked = idle;
    asked.link_call_s = 2;
    struct trace *t = make_trace(1, 6, 1, one);
    near(replay_on(&asked, t, &costs, "lru", 0.5, 1).decode_tokens_per_s, 5.0 / 41);
    trace_close(t);
    t = make_trace(2, 3, 1, two);
    near(replay_on(&asked, t, &costs, "ondemand", 0.5, 2).decode_tokens_per_s, 4.0 / 36);
    trace_close(t);
}

/* The CPU's call of 2 s reads no memory, so a copy of 6 s does 2 of them at its full pace. Then
 * both take twice as long: 4 * 2 s for the copy, until 10. By then the CPU has done 4 of its 8 s;
 * the rest takes 4 more. */
static void test_cpu_call(void **state)
{
    static const uint16_t selected[] = {0, 0};
    struct trace *t = make_trace(1, 2, 1, selected);
    const struct sched_costs shared = {
        .load_s = 6, .load_contended_s = 12, .cpu_s = 8, .cpu_contended_s = 16};
    struct engine e = {0};
    const struct engine_options options = {
        .trace = t, .costs = &shared, .n_slots = 2, .cache = CACHE_LRU};
    assert_true(engine_init(&e, &options));
    engine_load(&e, 0, 0, 1);
    engine_give_cpu(&e, 2, 8, 2);
    assert_true(engine_await(&e, 0, 0, 1));
    near(e.now_s, 10);
    engine_await_cpu(&e);
    near(e.now_s, 14);
    near(e.cpu_busy_s, 14);
    near(e.cpu_computed_s, 12);
    near(e.link_busy_s, 10);
    engine_fini(&e);
    trace_close(t);
}

/* Belady's: 0, 1, 0, 2, 1 with two slots. At 2 no later step uses 0, so 2 evicts it, and the last 1
 * hits: two misses, 3 + 22 s. */
static void test_belady(void **state)
{
    static const uint16_t selected[] = {0, 0, 1, 0, 2, 1};
    struct trace *t = make_trace(1, 6, 1, selected);
    struct replay_result r = replay(t, &costs, "belady", 0.5, 1);
    near(r.hit_rate, 3.0 / 5);
    near(r.decode_tokens_per_s, 5.0 / 25);
    trace_close(t);
}

/* Fiddler's rule: 4 < 10 + 1, so the CPU computes the missing expert. static keeps nothing in the
 * first 32 steps. */
static void test_threshold(void **state)
{
    static const uint16_t selected[] = {0, 0, 1, 0, 2, 1};
    struct trace *t = make_trace(1, 6, 1, selected);
    struct replay_result r = replay(t, &costs, "threshold", 0.5, 1);
    near(r.on_cpu, 1);
    near(r.decode_tokens_per_s, 5.0 / 20);
    near(r.cpu_busy, 1);
    near(r.link_busy, 0);
    trace_close(t);
}

/* Two sequences at once, ondemand: experts 1 and 2 in one step: the second load ends at 20, then 1
 * s: 21. Expert 3 of both: one load, 11 s. */
static void test_batch(void **state)
{
    static const uint16_t selected[] = {0, 1, 3, 0, 2, 3};
    struct trace *t = make_trace(2, 3, 1, selected);
    struct replay_result r = replay(t, &costs, "ondemand", 0.5, 2);
    assert_int_equal(r.decode_tokens, 4);
    near(r.decode_tokens_per_s, 4.0 / 32);
    near(r.moved_bytes, 500); /* and both prompts' */
    trace_close(t);
}

/* A call of the device takes 15 s. The prompts: 10 + 15 + 1 and, for the hit, 15 + 1 s. Then 0,
 * which is resident, and 1 together. The device waits for the load, 10 + 15 + 2, because computing
 * 0 first would take 16, and then 1 another 16. With calls of 5 s the first call is over when the
 * load arrives: 10 + 5 + 1. */
static void test_at_once(void **state)
{
    static const uint16_t selected[] = {0, 0, /**/ 0, 1};
    struct machine slow_calls = idle;
    struct trace *t = make_trace(2, 2, 1, selected);
    slow_calls.device_call_s = 15;
    struct replay_result r = replay_on(&slow_calls, t, &costs, "lru", 0.5, 2);
    near(r.prefill_tokens_per_s, 2.0 / 42);
    near(r.decode_tokens_per_s, 2.0 / 27);
    near(r.on_device, 1.0 / 2);
    slow_calls.device_call_s = 5;
    near(replay_on(&slow_calls, t, &costs, "lru", 0.5, 2).decode_tokens_per_s, 2.0 / 16);
    trace_close(t);
}

/* As test_at_once with slow calls, and a prediction. One of 8 s is made while the device waits for
 * the load: 10 + 15 + 2. One of 12 or 20 s takes longer than the load, and is made while the device
 * computes: 10 + 17, 10 + 20. */
static void test_late_prediction(void **state)
{
    static const uint16_t selected[] = {0, 0, /**/ 0, 1};
    struct machine predicts = idle;
    struct trace *t = make_trace(2, 2, 1, selected);
    predicts.device_call_s = 15;
    static const double call_s[] = {8, 12, 20}, took_s[] = {27, 27, 30};
    for (int i = 0; i < 3; i++) {
        predicts.predict_call_s = call_s[i];
        near(replay_on(&predicts, t, &costs, "mixtral-offloading", 0.5, 2).decode_tokens_per_s,
             2 / took_s[i]);
    }
    trace_close(t);
}

/* A call of the device takes 25 s. Loads of three experts end at 10, 20 and 30. The first call, 10
 * to 36, computes the first of them, and the second call both others: 36 + 25 + 2. */
static void test_arrived(void **state)
{
    static const uint16_t selected[] = {0, 1, /**/ 0, 2, /**/ 0, 3};
    struct machine slow_calls = idle;
    struct trace *t = make_trace(3, 2, 1, selected);
    slow_calls.device_call_s = 25;
    near(replay_on(&slow_calls, t, &costs, "ondemand", 1, 3).decode_tokens_per_s, 3.0 / 63);
    trace_close(t);
}

/* Prompts one after the other, then one token of each; when a sequence ends the next one's prompt
 * comes between. */
static void test_steps(void **state)
{
    static const uint16_t selected[9] = {0};
    static const struct {
        uint32_t n, sequence, token;
        bool decoding;
    } expected[] = {{2, 0, 0, false}, {2, 1, 0, false}, {2, 0, 2, true}, {2, 2, 0, false}};
    struct trace *t = make_trace(3, 3, 2, selected);
    struct steps s = {0};
    bool decoding;
    assert_true(steps_init(&s, t, &(struct steps_options){.batch = 2}));
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_int_equal(steps_next(&s, &decoding), expected[i].n);
        assert_int_equal(decoding, expected[i].decoding);
        assert_int_equal(s.tokens[0].sequence, expected[i].sequence);
        assert_int_equal(s.tokens[0].token, expected[i].token);
    }
    assert_int_equal(steps_next(&s, &decoding), 0); /* one sequence remains: no full batch */
    steps_fini(&s);
    trace_close(t);
}

/* With bypass: 0, 1, 0, 2, 1 and one slot. The cache keeps the expert with the earliest next use: 0
 * hits; 1 is used after 0, so it bypasses the cache; 0 hits, then never again; 2 may come or not; 1
 * misses. Without the first 0, a prompt, the misses are 1, 2, 1 of five uses. With two slots 1 is
 * loaded during the prompt: 2 is the only miss. */
static void test_least_misses(void **state)
{
    static const uint16_t selected[] = {0, 0, 1, 0, 2, 1};
    struct trace *t = make_trace(1, 6, 1, selected);
    struct future f = {0};
    uint64_t misses, uses;
    assert_true(future_init(&f, t, &(struct steps_options){.batch = 1}));
    assert_true(future_least_misses(&f, t, &(struct steps_options){.batch = 1}, 1, &misses, &uses));
    assert_int_equal(uses, 5);
    assert_int_equal(misses, 3);
    assert_true(future_least_misses(&f, t, &(struct steps_options){.batch = 1}, 2, &misses, &uses));
    assert_int_equal(misses, 1);
    future_fini(&f);
    trace_close(t);
}

/* A layer needs its experts at once: those of two sequences, 1 and 0, then 1 and 2. One slot, which
 * holds 0 after the prompt: 0 hits and 1 misses, then 1 may replace 0, which is not used again, and
 * hits; 2 misses. */
static void test_least_misses_of_layers(void **state)
{
    static const uint16_t selected[] = {0, 1, 1, 1, 0, 2};
    struct trace *t = make_trace(2, 3, 1, selected);
    struct future f = {0};
    uint64_t misses, uses;
    assert_true(future_init(&f, t, &(struct steps_options){.batch = 2}));
    assert_true(future_least_misses(&f, t, &(struct steps_options){.batch = 2}, 1, &misses, &uses));
    assert_int_equal(uses, 4);
    assert_int_equal(misses, 2);
    future_fini(&f);
    trace_close(t);
}

/* 5 s outside, 6 uses, 2 missing. Both loaded: the link needs 20 s, 5 of them outside: 20 in all.
 * One loaded, the CPU computes the other one, 4 s, concurrently with the device's 5: 5 + max(4, 10
 * - 5, 5) = 10. Both by the CPU: 5 + 8 = 13. Between them, loading x of the two and computing 2 -
 * x: 5 + max((2 - x) 4, 10 x - 5, 4 + x), least where 8 - 4 x = 4 + x: x = 0.8, 9.8 s. What is
 * found is below that by no more than the search's step, 6 / 20000 of a segment. */
static void test_bound(void **state)
{
    double uses[] = {0, 6};
    struct bound_work work = {.outside_s = 5, .uses = uses, .most_tokens = 1, .misses = 2};
    double found = bound_seconds(&costs, &work);
    assert_true(found <= 9.8 + 1e-9 && found > 9.8 - 5 * 6 / 20000.0);
    work.misses = 0; /* the CPU takes some of what is there: C 4 = 6 - C, 1.2 segments, 4.8 s */
    found = bound_seconds(&costs, &work);
    assert_true(found <= 9.8 + 1e-9 && found > 9.8 - 5 * 6 / 20000.0);
}

/* Uneven batches: two segments of 1 token and two of 3, t_cpu 1 + w, t_device w. Nothing is
 * missing: the CPU takes C segments, those of one token first, 2 s each; the device is spared at
 * most those of three, so 2 C = 8 - 3 C: C = 1.6, 3.2 s. All missing: 10 (4 - C) to be loaded,
 * against 4 s for the first two on the CPU and 4 for each more: 40 - 10 C = 4 + 4 (C - 2), C = 44 /
 * 14, 8.57 s. */
static void test_uneven_bound(void **state)
{
    const struct sched_costs by_tokens = {10, 10, 0, 1, 1, 1, 1, 1, 0, 0};
    double uses[] = {0, 2, 0, 2};
    struct bound_work work = {.uses = uses, .most_tokens = 3};
    double found = bound_seconds(&by_tokens, &work);
    assert_true(found <= 3.2 + 1e-9 && found > 3.2 - 0.01);
    work.misses = 4;
    found = bound_seconds(&by_tokens, &work);
    assert_true(found <= 60.0 / 7 + 1e-9 && found > 60.0 / 7 - 0.01);
}

/* As test_lru's machine, but deciding takes time: 7 s an expert of `balance`, less with other
 * assigners, and 3 s a layer of `next-gate`, whose gate takes 15 s more. */
static void test_deciding(void **state)
{
    struct machine slow = idle;
    slow.plan_expert_s = 7;
    slow.predict_call_s = 3;
    slow.predict_gate_s = slow.device_call_s = 15;
    struct trace_shape shape = {.n_layers = 2, .n_experts = EXPERTS, .d_model = 4};
    near(deciding_plan_s(&slow, ASSIGN_BALANCE, 2), 14);
    assert_true(deciding_plan_s(&slow, ASSIGN_QSTAR, 2) < 14);
    near(deciding_plan_s(&slow, ASSIGN_OPTIMAL, 2), 0);
    for (int i = 0; i < PREDICT_KINDS; i++)
        assert_true((deciding_call_s(&slow, (enum sched_predictor)i) > 0) == (i != PREDICT_NONE));
    near(deciding_call_s(&slow, PREDICT_NEXT_GATE), 3);
    near(deciding_call_s(&slow, PREDICT_EXPERT_MAP), 3.3);
    near(deciding_gate_s(&slow, PREDICT_NEXT_GATE, &shape, 0, 1), 15);
    near(deciding_gate_s(&slow, PREDICT_NEXT_GATE, &shape, 1, 1),
         0); /* the last layer: no gate comes */
    near(deciding_gate_s(&slow, PREDICT_NONE, &shape, 0, 1), 0);
    near(deciding_gate_s(&slow, PREDICT_EXPERT_MAP, &shape, 0, 1), 0); /* a background predictor */

    /* lru: the same token again and again. After the prompt's load each token takes the call and
     * the computation, 16 s, and the plan. */
    static const uint16_t selected[] = {0, 0, 0};
    struct trace *t = make_trace(1, 3, 1, selected);
    slow.plan_expert_s = 10;
    near(replay_on(&slow, t, &costs, "lru", 1, 1).decode_tokens_per_s, 1 / (16 + 10 * 0.3));
    trace_close(t);
}

/* The same with batches in which a few experts have most tokens, so that the mean number of tokens
 * is no good estimate. */
static void test_uneven_batches(void **state)
{
    uint16_t selected[24 * 20];
    uint64_t random = 7;
    for (size_t i = 0; i < sizeof selected / sizeof *selected; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint32_t x = (uint32_t)(random >> 40) & 255;
        selected[i] = x < 150 ? 0 : x < 200 ? 1 : (uint16_t)(x % EXPERTS);
    }
    struct trace *t = make_trace(24, 20, 4, selected);
    const struct sched_costs by_tokens = {10, 12, 0.5, 0.1, 1, 3, 2, 3, 0, 0};
    const struct sched_policy *p;
    for (uint32_t i = 0; (p = sched_policy_at_any(i)); i++)
        for (uint32_t batch = 4; replay_has(p) && batch <= 16; batch *= 2) {
            struct replay_result r = replay(t, &by_tokens, p->name, 0.5, batch);
            if (!(r.bound > 0 && r.bound <= 1 + 1e-9))
                fail_msg("%s, batch %u: %g of the bound", p->name, batch, r.bound);
        }
    trace_close(t);
}

/* No policy is faster than the bound, and the same run gives the same figures. */
static void test_never_above(void **state)
{
    uint16_t selected[8 * 60];
    uint64_t random = 1;
    for (size_t i = 0; i < sizeof selected / sizeof *selected; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        selected[i] = (uint16_t)((random >> 60) % 3 ? i / 60 % EXPERTS : random >> 61 & 3);
    }
    struct trace *t = make_trace(8, 60, 10, selected);
    const struct sched_policy *p;
    for (uint32_t i = 0; (p = sched_policy_at_any(i)); i++) {
        if (!replay_has(p))
            continue;
        for (uint32_t batch = 1; batch <= 3; batch++) {
            struct replay_result a = replay(t, &costs, p->name, 0.5, batch),
                                 b = replay(t, &costs, p->name, 0.5, batch);
            if (!(a.bound > 0 && a.bound <= 1 + 1e-9))
                fail_msg("%s, batch %u: %g of the bound", p->name, batch, a.bound);
            a.decision_s = b.decision_s = 0;
            assert_true(a.decode_tokens_per_s == b.decode_tokens_per_s &&
                        a.hit_rate == b.hit_rate && a.moved_bytes == b.moved_bytes);
            near(a.on_device + a.loaded + a.on_cpu, 1);
            assert_true(a.cpu_busy <= 1 + 1e-9 && a.link_busy <= 1 + 1e-9 &&
                        a.device_busy <= 1 + 1e-9);
        }
    }
    trace_close(t);
}

/* Four layers of four experts, a token activates one. The gates give the same result for every
 * token; embeddings (1, 0) and (-1, 0). */
static struct trace *make_map_trace(void)
{
    enum { N_LAYERS = 4, TOKENS = 3 };
    char path[] = "/tmp/moed-test-trace-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    struct trace_shape shape = {.model = "tiny",
                                .n_layers = N_LAYERS,
                                .n_experts = EXPERTS,
                                .n_used = 1,
                                .d_model = 2,
                                .has = TRACE_GATE | TRACE_EMBEDDINGS,
                                .router = {.n_experts = EXPERTS, .n_used = 1, .scale = 1}};
    struct trace_layer layers[N_LAYERS];
    uint32_t ids[TOKENS] = {0, 1, 0};
    uint16_t selected[TOKENS * N_LAYERS];
    float gate[TOKENS * N_LAYERS * EXPERTS];
    for (uint32_t i = 0; i < N_LAYERS; i++)
        layers[i] = (struct trace_layer){.n_segments = 1, .segment_bytes = 100};
    for (uint32_t i = 0; i < TOKENS * N_LAYERS; i++) {
        selected[i] = 1;
        memcpy(gate + (size_t)i * EXPERTS, (const float[]){0.125f, 0.5f, 0.125f, 0.25f},
               EXPERTS * sizeof *gate);
    }
    struct trace_data data = {.sequence = {TOKENS, 1, ids}, .selected = selected, .gate = gate};
    struct trace_writer *w;
    struct trace *t;
    struct error e;
    assert_int_equal(trace_writer_new(path, &shape, layers, &w, &e), ERROR_OK);
    assert_int_equal(trace_write_embedding(w, 0, (const float[]){1, 0}, &e), ERROR_OK);
    assert_int_equal(trace_write_embedding(w, 1, (const float[]){-1, 0}, &e), ERROR_OK);
    assert_int_equal(trace_write_sequence(w, &data, &e), ERROR_OK);
    assert_int_equal(trace_writer_finish(w, &e), ERROR_OK);
    assert_int_equal(trace_open(path, &t, &e), ERROR_OK);
    unlink(path);
    return t;
}

static struct {
    uint32_t n[4], n_known[4]; /* of the layer, in the running step */
} reported;

static void take(void *arg, const struct layer_prediction *p)
{
    reported.n[p->target.layer] = p->n;
    reported.n_known[p->target.layer] = p->n_known;
}

/* FineMoE's selection in a replay, uncut. The second token's embedding is the opposite of the first
 * map's (cosine -1), so by the embedding all four experts are predicted in layers 1 to 3. Once its
 * gates equal the map's (cosine 1), one expert is predicted for layer 4. The third token finds a
 * map of equal embedding: one expert in every layer. The cache gets the probabilities of all
 * four. */
static void test_map_uncut(void **state)
{
    struct trace *t = make_map_trace();
    struct predicting *p =
        predicting_new(PREDICT_EXPERT_MAP, t, PREDICTING_MAX_TOKENS, NULL, NULL, take, NULL);
    const uint32_t selected = 1;
    assert_non_null(p);
    for (uint32_t token = 0; token < 3; token++) {
        memset(&reported, 0, sizeof reported);
        predicting_step(p, token + 1, &(struct predicting_token){0, token, 1}, 1);
        for (uint32_t layer = 0; layer < 4; layer++) {
            predicting_look(p, layer);
            predicting_routed(p, layer, &selected);
            predicting_show(p, layer, &selected, true);
        }
        for (uint32_t layer = 0; layer < 4; layer++) {
            assert_int_equal(reported.n[layer], token == 0 ? 0 : token == 1 && layer < 3 ? 4 : 1);
            assert_int_equal(reported.n_known[layer], token == 0 ? 0 : 4);
        }
    }
    predicting_free(p);
    trace_close(t);
}

/* HybriMoE's cache counts the gates of a prompt, too, which is too long to predict. Expert 0 is
 * worth 0.8 / 4 when 2 is loaded, 1 only (0.2 + 0.2) / 4, so 1 goes and 0 is found. */
static void test_scores_of_prompts(void **state)
{
    static const uint16_t selected[] = {0, 1, 2, 0};
    static const float gate[] = {0.8f,  0.2f, 0,     0,    0.8f, 0.2f, 0, 0,
                                 0.05f, 0.2f, 0.65f, 0.1f, 1,    0,    0, 0};
    struct trace *t = make_trace_with(1, 4, 2, selected, gate);
    const struct sched_policy policy = {
        .name = "scores", .cache = CACHE_SCORE, .budget = BUDGET_UNIFORM};
    struct replay_run run = {.trace = t,
                             .machine = &idle,
                             .costs = &costs,
                             .policy = &policy,
                             .vram = 0.5,
                             .batch = 1,
                             .predict_tokens = 1};
    struct replay_result r;
    struct error e;
    (void)state;
    assert_int_equal(replay_simulate(&run, &r, &e), ERROR_OK);
    near(r.hit_rate, 0.5);
    trace_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_map_uncut),
        cmocka_unit_test(test_lru),
        cmocka_unit_test(test_scores_of_prompts),
        cmocka_unit_test(test_link_call),
        cmocka_unit_test(test_cpu_call),
        cmocka_unit_test(test_belady),
        cmocka_unit_test(test_threshold),
        cmocka_unit_test(test_batch),
        cmocka_unit_test(test_at_once),
        cmocka_unit_test(test_late_prediction),
        cmocka_unit_test(test_arrived),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_least_misses),
        cmocka_unit_test(test_least_misses_of_layers),
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_uneven_bound),
        cmocka_unit_test(test_deciding),
        cmocka_unit_test(test_never_above),
        cmocka_unit_test(test_uneven_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
