/* bench/replay/shared.h: a run that takes from earlier runs what does not depend on the policy, the
 * budget and the machine has the same results as a run that computes everything itself. And
 * routing.h, against the trace. */
#include "bench/replay/plan.h"
#include "bench/replay/shared.h"
#include "bench/replay/synthesize.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

/* Prompts of 24 tokens are predicted, too. The tokens of the last step of a batch of 3 are of the
 * third to the fifth sequence. */
enum { LAYERS = 5, EXPERTS = 16, USED = 3, SEQUENCES = 5, TOKENS = 56, PROMPT = 24 };

static struct trace *make_trace(void)
{
    struct synthesis s = synthesis_default();
    struct error e;
    struct trace *t;
    char path[] = "/tmp/moed-test-shared-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    s.n_layers = LAYERS;
    s.first_layer = 1;
    s.n_experts = EXPERTS;
    s.n_used = USED;
    s.n_segments = 2;
    s.n_tokens = SEQUENCES * TOKENS;
    s.sequence = TOKENS;
    s.prompt = PROMPT;
    assert_int_equal(synthesize(&s, path, &e), ERROR_OK);
    assert_int_equal(trace_open(path, &t, &e), ERROR_OK);
    unlink(path);
    return t;
}

static void same(const char *what, const struct replay_run *run, double a, double b)
{
    if (a != b && !(isnan(a) && isnan(b)))
        fail_msg(
            "%s, %g of the experts, batch %u on %s: %s is %.17g with shared results, not %.17g",
            run->policy->name, run->vram, run->batch, run->machine->name, what, a, b);
}

/* The same, and in both forms. */
static void compare(const struct replay_run *run)
{
    struct replay_run own = *run;
    struct replay_result x, y;
    struct error e;
    own.shared = NULL;
    assert_int_equal(replay_simulate(run, &x, &e), ERROR_OK);
    assert_int_equal(replay_simulate(&own, &y, &e), ERROR_OK);
    assert_int_equal(x.decode_tokens, y.decode_tokens);
    assert_int_equal(x.prefill_tokens, y.prefill_tokens);
    same("decode", run, x.decode_tokens_per_s, y.decode_tokens_per_s);
    same("prefill", run, x.prefill_tokens_per_s, y.prefill_tokens_per_s);
    same("tpot_p99", run, x.tpot_p99_s, y.tpot_p99_s);
    same("hit_rate", run, x.hit_rate, y.hit_rate);
    same("accuracy", run, x.prefetch_accuracy, y.prefetch_accuracy);
    same("fetched", run, x.fetch_rate, y.fetch_rate);
    same("moved", run, x.moved_bytes, y.moved_bytes);
    same("bound", run, x.bound, y.bound);
    same("prefill_bound", run, x.prefill_bound, y.prefill_bound);
}

static void test_same_results(void **state)
{
    static const char *const machines[] = {"desktop", "gh200"};
    static const double shares[] = {0.2, 0.6};
    struct trace *t = make_trace();
    struct shared *shared = shared_new();
    struct replay_plan *plan = calloc(1, sizeof *plan);
    struct error e;
    assert_true(shared && plan);
    assert_int_equal(plan_policies(plan,
                                   "moed,moed/cache=lru,moed/predictor=residual,dali,finemoe,eam,"
                                   "klotski,score,moepic,lru,belady",
                                   &e),
                     ERROR_OK);
    for (uint32_t batch = 1; batch <= 3; batch += 2)
        for (uint32_t i = 0; i < plan->n_policies * 4; i++) {
            struct machine machine;
            assert_int_equal(machine_find(machines[i / 2 % 2], &machine, &e), ERROR_OK);
            compare(&(struct replay_run){.trace = t,
                                         .machine = &machine,
                                         .policy = plan->policies[i / 4],
                                         .vram = shares[i % 2],
                                         .batch = batch,
                                         .shared = shared});
        }
    free(plan);
    shared_free(shared);
    trace_close(t);
}

/* All parts of the key: what another run has left must not be taken. */
static void test_other_steps(void **state)
{
    struct trace *t = make_trace();
    struct shared *shared = shared_new();
    struct machine machine;
    struct error e;
    assert_non_null(shared);
    assert_int_equal(machine_find("desktop", &machine, &e), ERROR_OK);
    struct replay_run run = {.trace = t,
                             .machine = &machine,
                             .policy = sched_policy_at_any(0),
                             .vram = 0.4,
                             .batch = 1,
                             .shared = shared};
    for (uint32_t i = 0; strcmp(run.policy->name, "moed") != 0; i++)
        run.policy = sched_policy_at_any(i);
    compare(&run);
    run.max_tokens = 2 * TOKENS;
    compare(&run);
    run.prompt = 7;
    compare(&run);
    run.chunk = 4;
    compare(&run);
    run.predict_tokens = 3;
    compare(&run);
    run.batch = 4;
    compare(&run);
    shared_free(shared);
    trace_close(t);
}

/* Every step has its tokens' choices, each expert once, with as many tokens as chose it. */
static void test_routing(void **state)
{
    struct trace *t = make_trace();
    struct routing r = {0};
    const struct steps_options options = {.batch = 2};
    uint32_t selected[USED];
    uint64_t tokens = 0;
    assert_true(routing_init(&r, t, &options));
    for (uint64_t step = 0; step < r.n_steps; step++)
        for (uint32_t layer = 1; layer < LAYERS; layer++) {
            const uint16_t *experts, *workloads;
            uint32_t n = routing_activated(&r, step, layer, &experts, &workloads);
            int chosen[EXPERTS] = {0};
            const struct routing_step *s = &r.steps[step];
            for (uint32_t i = 0; i < s->n_tokens; i++) {
                const struct predicting_token *token = &r.tokens[s->first_token + i];
                trace_selected(t, token->sequence, token->token, layer, selected);
                for (uint32_t k = 0; k < USED; k++)
                    chosen[selected[k]]++;
                assert_int_equal(s->decoding, token->token >= PROMPT);
            }
            for (uint32_t i = 0; i < n; i++) {
                assert_true(i == 0 || experts[i - 1] < experts[i]);
                assert_int_equal(workloads[i], chosen[experts[i]]);
                chosen[experts[i]] = 0;
            }
            for (uint32_t i = 0; i < EXPERTS; i++)
                assert_int_equal(chosen[i], 0);
            tokens += layer == 1 ? s->n_tokens : 0;
        }
    /* The fifth sequence's prompt is computed, but no other is left to decode beside it. */
    assert_int_equal(tokens, 4 * TOKENS + PROMPT);
    routing_fini(&r);
    trace_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_results),
        cmocka_unit_test(test_other_steps),
        cmocka_unit_test(test_routing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
