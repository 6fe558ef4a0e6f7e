/* bench/replay/report*.c and plan.c: made-up results as a table and as CSV, to the letter, and a
 * page that the test parses; lists, and the order of the runs. */
#include "bench/replay/plan.h"
#include "bench/replay/report.h"

#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const struct replay_result results[] = {
    {.policy = "lru",
     .vram = 0.25,
     .batch = 1,
     .decode_tokens = 1000,
     .prefill_tokens = 64,
     .decode_tokens_per_s = 12.345,
     .prefill_tokens_per_s = 456.7,
     .tpot_p50_s = 0.0805,
     .tpot_p99_s = 0.125,
     .hit_rate = 0.5,
     .prefetch_accuracy = NAN,
     .fetch_rate = NAN,
     .good_pred = NAN,
     .moved_bytes = 3e9,
     .wasted_bytes = 0,
     .cpu_busy = 0,
     .link_busy = 0.875,
     .device_busy = 0.125,
     .decision_s = 1.25e-6,
     .bound = 0.75},
    {.policy = "moed",
     .vram = 0.25,
     .batch = 1,
     .decode_tokens = 1000,
     .prefill_tokens = 0,
     .decode_tokens_per_s = 20,
     .prefill_tokens_per_s = NAN,
     .tpot_p50_s = 0.05,
     .tpot_p99_s = 0.0625,
     .hit_rate = 0.625,
     .prefetch_accuracy = 0.75,
     .fetch_rate = 0.5,
     .good_pred = 0.375,
     .moved_bytes = 2.5e9,
     .wasted_bytes = 0.5e9,
     .cpu_busy = 0.5,
     .link_busy = 0.75,
     .device_busy = 0.25,
     .decision_s = 12.5e-6,
     .bound = 0.9375},
    {.policy = "moed", .vram = 0.1, .batch = 16, .decode_tokens_per_s = 1234.6, .bound = 0.5},
};

static struct replay_report report_of(uint32_t n)
{
    return (struct replay_report){.model = "A \"model\", <small>",
                                  .trace = "t.trace, 1064 tokens",
                                  .machine = "desktop",
                                  .machine_what = "a card & two channels",
                                  .command = "moed-replay t.trace",
                                  .results = results,
                                  .n_results = n};
}

static void assert_text(struct strbuf *text, const char *expected)
{
    assert_false(text->failed);
    assert_string_equal(text->data, expected);
    strbuf_fini(text);
}

/* ---- The table ---- */

static void test_table(void **state)
{
    struct replay_report r = report_of(2);
    struct strbuf text;
    strbuf_init(&text);
    report_table(&r, 0, &text);
    assert_text(
        &text,
        "A \"model\", <small> on desktop\n"
        "\n"
        "vram 25 %, batch 1\n"
        "policy  decode  prefill  TPOT p50  TPOT p99  hits  accuracy  fetched  GoodPred  moved  "
        "wasted   CPU  link  device  decide  of bound\n"
        "         tok/s    tok/s        ms        ms     %         %        %         %     GB  "
        "    GB     %     %       %      us         %\n"
        "lru       12.3      457      80.5       125  50.0         -        -         -   3.00  "
        "  0.00   0.0  87.5    12.5    1.25      75.0\n"
        "moed      20.0        -      50.0      62.5  62.5      75.0     50.0      37.5   2.50  "
        "  0.50  50.0  75.0    25.0    12.5      93.8\n");
}

/* 80 columns: columns that do not fit follow below, with the policies repeated. */
static void test_narrow_table(void **state)
{
    struct replay_report r = report_of(3);
    struct strbuf text;
    strbuf_init(&text);
    report_table(&r, 60, &text);
    assert_text(&text, "A \"model\", <small> on desktop\n"
                       "\n"
                       "vram 25 %, batch 1\n"
                       "policy  decode  prefill  TPOT p50  TPOT p99  hits  accuracy\n"
                       "         tok/s    tok/s        ms        ms     %         %\n"
                       "lru       12.3      457      80.5       125  50.0         -\n"
                       "moed      20.0        -      50.0      62.5  62.5      75.0\n"
                       "\n"
                       "policy  fetched  GoodPred  moved  wasted   CPU  link  device\n"
                       "              %         %     GB      GB     %     %       %\n"
                       "lru           -         -   3.00    0.00   0.0  87.5    12.5\n"
                       "moed       50.0      37.5   2.50    0.50  50.0  75.0    25.0\n"
                       "\n"
                       "policy  decide  of bound\n"
                       "            us         %\n"
                       "lru       1.25      75.0\n"
                       "moed      12.5      93.8\n"
                       "\n"
                       "vram 10 %, batch 16\n"
                       "policy  decode  prefill  TPOT p50  TPOT p99  hits  accuracy\n"
                       "         tok/s    tok/s        ms        ms     %         %\n"
                       "moed      1235     0.00      0.00      0.00   0.0       0.0\n"
                       "\n"
                       "policy  fetched  GoodPred  moved  wasted   CPU  link  device\n"
                       "              %         %     GB      GB     %     %       %\n"
                       "moed        0.0       0.0   0.00    0.00   0.0   0.0     0.0\n"
                       "\n"
                       "policy  decide  of bound\n"
                       "            us         %\n"
                       "moed      0.00      50.0\n");
}

/* No line is longer than the terminal, if a column fits at all. */
static void test_widths(void **state)
{
    struct replay_report r = report_of(3);
    for (uint32_t width = 20; width < 200; width++) {
        struct strbuf text;
        strbuf_init(&text);
        report_table(&r, width, &text);
        const char *line = strchr(text.data, '\n') + 1;
        for (const char *end; (end = strchr(line, '\n')); line = end + 1)
            assert_true((size_t)(end - line) <= width);
        strbuf_fini(&text);
    }
}

/* ---- CSV ---- */

static void test_csv(void **state)
{
    struct replay_report r = report_of(2);
    struct strbuf text;
    strbuf_init(&text);
    report_csv(&r, &text);
    assert_text(&text,
                "policy,vram,batch,decode_tokens,prefill_tokens,decode_tokens_per_s,"
                "prefill_tokens_per_s,tpot_p50_s,tpot_p99_s,hit_rate,prefetch_accuracy,fetch_rate,"
                "good_pred,moved_bytes,wasted_bytes,cpu_busy,link_busy,device_busy,decision_s,"
                "bound,on_device,loaded,on_cpu,layer_s,prefill_bound,model,trace,machine,note\r\n"
                "lru,0.25,1,1000,64,12.345000000000001,456.69999999999999,0.080500000000000002,"
                "0.125,0.5,,,,3000000000,0,0,0.875,0.125,1.2500000000000001e-06,0.75,0,0,0,0,0,"
                "\"A \"\"model\"\", <small>\",\"t.trace, 1064 tokens\",desktop,\r\n"
                "moed,0.25,1,1000,0,20,,0.050000000000000003,0.0625,0.625,0.75,0.5,0.375,"
                "2500000000,500000000,0.5,0.75,0.25,1.2500000000000001e-05,0.9375,0,0,0,0,0,"
                "\"A \"\"model\"\", <small>\",\"t.trace, 1064 tokens\",desktop,\r\n");
}

/* ---- The page ---- */

/* Finds errors that an XML parser would report: tags that are not closed in order, attributes
 * without quotes or twice, a bare & or <. Returns the end of the tag. */
static const char *check_attributes(const char *at)
{
    char seen[16][32];
    for (int n = 0; *at == ' ';) {
        size_t name =
            strspn(++at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-:0123456789");
        if (name == 0)
            break;
        assert_true(name < sizeof seen[0] && n < 16);
        snprintf(seen[n], sizeof seen[n], "%.*s", (int)name, at);
        for (int i = 0; i < n; i++)
            assert_string_not_equal(seen[i], seen[n]);
        n++;
        at += name;
        assert_true(at[0] == '=' && at[1] == '"');
        at += 2 + strcspn(at + 2, "\"<&");
        assert_true(*at == '"');
        at++;
    }
    return at;
}

static const char *check_entity(const char *at)
{
    static const char *const known[] = {"&lt;", "&gt;", "&amp;", "&quot;"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strncmp(at, known[i], strlen(known[i])) == 0)
            return at + strlen(known[i]);
    fail_msg("an & that begins no entity: %.40s", at);
    return at;
}

static void assert_well_formed(const char *text)
{
    static char open[64][16];
    int depth = 0, elements = 0;
    const char doctype[] = "<!DOCTYPE html>\n";
    assert_memory_equal(text, doctype, strlen(doctype));
    for (const char *at = text + strlen(doctype); *at;) {
        if (*at == '&') {
            at = check_entity(at);
        } else if (*at != '<') {
            assert_true((unsigned char)*at >= 0x20 || *at == '\n');
            assert_true(depth > 0 || isspace((unsigned char)*at));
            at++;
        } else if (at[1] == '/') {
            char name[16];
            size_t n = strcspn(at + 2, ">");
            snprintf(name, sizeof name, "%.*s", (int)n, at + 2);
            assert_true(depth > 0);
            assert_string_equal(name, open[--depth]);
            at += 3 + n;
        } else {
            size_t n = strcspn(at + 1, " />");
            assert_true(n > 0 && n < sizeof open[0] && depth < 64);
            assert_true(depth > 0 || elements == 0);
            snprintf(open[depth], sizeof open[depth], "%.*s", (int)n, at + 1);
            at = check_attributes(at + 1 + n);
            elements++;
            depth += *at != '/';
            at += *at == '/';
            assert_true(*at == '>');
            at++;
        }
    }
    assert_int_equal(depth, 0);
    assert_true(elements > 100);
}

static uint32_t count(const char *text, const char *what)
{
    uint32_t n = 0;
    for (; (text = strstr(text, what)); text += strlen(what))
        n++;
    return n;
}

static void test_page(void **state)
{
    struct replay_report r = report_of(3);
    struct strbuf text;
    strbuf_init(&text);
    report_html(&r, &text);
    assert_well_formed(text.data);
    /* no external resources, no scripts */
    assert_null(strstr(text.data, "<script"));
    assert_null(strstr(text.data, "src="));
    assert_null(strstr(text.data, "href="));
    assert_null(strstr(text.data, "url("));
    assert_null(strstr(text.data, "@import"));
    for (const char *at = text.data; (at = strstr(at, "http")); at++)
        assert_memory_equal(at, "http://www.w3.org/", strlen("http://www.w3.org/"));
    assert_null(strstr(text.data, ">nan"));
    assert_null(strstr(text.data, "\"nan"));
    assert_null(strstr(text.data, "inf\""));
    /* six kinds of plots of two groups each; each policy in each, and in the table */
    assert_int_equal(count(text.data, "<svg "), 12);
    assert_int_equal(count(text.data, ">lru<"), 7);
    assert_int_equal(count(text.data, ">moed<"), 14);
    assert_non_null(strstr(text.data, "A &quot;model&quot;, &lt;small&gt; on desktop"));
    assert_non_null(strstr(text.data, "a card &amp; two channels"));
    strbuf_fini(&text);
}

/* A substitution stands in all three formats; the policy that knows the future wins nothing. */
static void test_notes(void **state)
{
    struct replay_result of[3];
    memcpy(of, results, sizeof of);
    snprintf(of[0].note, sizeof of[0].note, "next-gate in place of mlp, which is not trained");
    of[1].oracle = true;
    struct replay_report r = report_of(2);
    r.results = of;
    r.without_solver = true;
    struct strbuf text;
    strbuf_init(&text);
    report_table(&r, 0, &text);
    assert_non_null(strstr(text.data, "\nlru*      12.3"));
    assert_non_null(strstr(text.data, "\n\n* lru: next-gate in place of mlp, which is not trained\n"
                                      "* optimal is left out: moed-replay was built without"));
    strbuf_clear(&text);
    report_csv(&r, &text);
    assert_non_null(
        strstr(text.data, ",desktop,\"next-gate in place of mlp, which is not trained\"\r\n"));
    assert_non_null(strstr(text.data, "\r\noptimal,0.25,1,,,,,,,,,,,,,,,,,,,,,,,\"A \"\"model\"\", "
                                      "<small>\",\"t.trace, 1064 tokens\",desktop,left out: "
                                      "moed-replay was built without a solver (GLPK)\r\n"));
    strbuf_clear(&text);
    report_html(&r, &text);
    assert_well_formed(text.data);
    assert_int_equal(count(text.data, ">lru*<"), 7);
    assert_non_null(strstr(text.data, "<p>* lru: next-gate in place of mlp"));
    char expected[160];
    snprintf(expected, sizeof expected, "class=\"best\" x=\"118.0\" y=\"7.0\" width=\"%.1f\"",
             214 * 12.345 / 24);
    assert_non_null(strstr(text.data, expected));
    snprintf(expected, sizeof expected, "class=\"bar\" x=\"118.0\" y=\"25.0\" width=\"%.1f\"",
             214 * 20.0 / 24);
    assert_non_null(strstr(text.data, expected));
    strbuf_fini(&text);
}

/* lru decodes 12.345 tok/s at 0.75 of the bound, 16.46; moed 20 at 0.9375, 21.333. The axis of
 * batch 1 ends at the next four round steps: 4 x 6. The plot is 214 wide from 118. */
static void test_bars(void **state)
{
    struct replay_report r = report_of(2);
    struct strbuf text;
    char expected[160];
    strbuf_init(&text);
    report_html(&r, &text);
    assert_non_null(strstr(text.data, ">24</text>"));
    snprintf(expected, sizeof expected, "class=\"bar\" x=\"118.0\" y=\"7.0\" width=\"%.1f\"",
             214 * 12.345 / 24);
    assert_non_null(strstr(text.data, expected));
    snprintf(expected, sizeof expected, "class=\"best\" x=\"118.0\" y=\"25.0\" width=\"%.1f\"",
             214 * 20.0 / 24);
    assert_non_null(strstr(text.data, expected));
    for (int i = 0; i < 2; i++) {
        double bound = results[i].decode_tokens_per_s / results[i].bound;
        snprintf(expected, sizeof expected, "class=\"mark\" x1=\"%.1f\" y1=\"%.1f\"",
                 118 + 214 * bound / 24, 5.0 + 18 * i);
        assert_non_null(strstr(text.data, expected));
    }
    strbuf_fini(&text);
}

/* A figure that no policy has gives no plot and no text. Without results the page is still
 * valid. */
static void test_empty(void **state)
{
    struct replay_result nothing = {.policy = "lru", .vram = 1, .batch = 1};
    for (const struct report_column *c = report_columns; c->key; c++) {
        const double none = NAN;
        memcpy((char *)&nothing + c->offset, &none, sizeof none);
    }
    for (uint32_t n = 0; n < 2; n++) {
        struct replay_report r = report_of(n);
        struct strbuf text;
        r.results = &nothing;
        strbuf_init(&text);
        report_html(&r, &text);
        assert_int_equal(count(text.data, "<svg "), 0);
        assert_null(strstr(text.data, "nan"));
        strbuf_clear(&text);
        report_table(&r, 80, &text);
        assert_null(strstr(text.data, "nan"));
        strbuf_clear(&text);
        report_csv(&r, &text);
        assert_int_equal(count(text.data, "\r\n"), 1 + n);
        assert_null(strstr(text.data, "nan"));
        strbuf_fini(&text);
    }
}

/* ---- The plan ---- */

static void test_lists(void **state)
{
    struct replay_plan p = {0};
    struct error e;
    assert_int_equal(plan_policies(&p, "moed,lru", &e), ERROR_OK);
    assert_int_equal(p.n_policies, 2);
    assert_string_equal(p.policies[0]->name, "moed");
    assert_string_equal(p.policies[1]->name, "lru");
    assert_int_equal(plan_policies(&p, "all", &e), ERROR_OK);
    assert_true(p.n_policies >= 9 && !sched_policy_at(p.n_policies));
    assert_int_equal(plan_vram(&p, "10%,25%,100%", &e), ERROR_OK);
    assert_true(p.n_vram == 3 && fabs(p.vram[0] - 0.1) < 1e-12 && p.vram[2] == 1);
    assert_int_equal(plan_batch(&p, "1,16", &e), ERROR_OK);
    assert_true(p.n_batch == 2 && p.batch[0] == 1 && p.batch[1] == 16);
}

/* Parts that the text does not name stay the preset's. A cache that does not take the preset's
 * budget uses its own. */
static void test_variants(void **state)
{
    struct replay_plan p = {0};
    struct error e;
    const struct sched_policy *moed = sched_policy_find("moed");
    assert_int_equal(
        plan_policies(&p, "moed/assign=qstar,moed,moed/cache=lfu/predictor=none/prefetch=urgent",
                      &e),
        ERROR_OK);
    assert_int_equal(p.n_policies, 3);
    assert_string_equal(p.policies[0]->name, "moed/assign=qstar");
    assert_int_equal(p.policies[0]->assigner, ASSIGN_QSTAR);
    assert_int_equal(p.policies[0]->cache, moed->cache);
    assert_int_equal(p.policies[0]->predictor, moed->predictor);
    assert_ptr_equal(p.policies[1], moed);
    assert_int_equal(p.policies[2]->assigner, moed->assigner);
    assert_int_equal(p.policies[2]->cache, CACHE_LFU);
    assert_int_equal(p.policies[2]->budget, BUDGET_UNIFORM);
    assert_int_equal(p.policies[2]->predictor, PREDICT_NONE);
    assert_int_equal(p.policies[2]->prefetcher, PREFETCH_URGENT);
    static const char *const wrong[] = {
        "moed/",
        "moed/cache",
        "moed/cache=",
        "moed/cache=x",
        "/cache=lru",
        "moed/part=lru",
        "lfu/budget=global",
        "moed/assign=optimal",
        "x/cache=lru",
        "moed//cache=lru",
        "moed/predictor=none/predictor=none/predictor=none/predictor=none/predictor=none"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(plan_policies(&p, wrong[i], &e), ERROR_USAGE);
    static const struct {
        const char *text, *parts[2]; /* parts of the message */
    } reported[] = {
        {"moed/cache=nope", {"cache \"nope\"", "map-frequency"}},
        {"moed/budget=uniform", {"cache value does not take budget uniform", "global"}},
        {"moed/assign=nope", {"assigner \"nope\"", "qstar"}},
        {"moed/prefetch=nope", {"prefetcher \"nope\"", "chunked"}},
        {"moed/predictor=nope", {"predictor \"nope\"", "mixture"}},
        {"moed/nope=lru", {"part \"nope\"", "budget"}},
        {"lru/budget=global/cache=lfu", {"cache lfu does not take budget global", "uniform"}},
        {"nope/cache=lru", {"no policy \"nope/cache=lru\"", "moed"}},
    };
    for (size_t i = 0; i < sizeof reported / sizeof *reported; i++) {
        assert_int_equal(plan_policies(&p, reported[i].text, &e), ERROR_USAGE);
        for (int k = 0; k < 2; k++)
            if (!strstr(e.text, reported[i].parts[k]))
                fail_msg("%s: the message \"%s\" lacks \"%s\"", reported[i].text, e.text,
                         reported[i].parts[k]);
    }
    /* in any order, checked for the final cache */
    assert_int_equal(plan_policies(&p, "moed/budget=uniform/cache=lru", &e), ERROR_OK);
    assert_int_equal(p.policies[0]->budget, BUDGET_UNIFORM);
}

/* For each assigner the default predictor needs no training. If the assigner plans before the
 * coming layer's gate, the default is a background predictor, which predicts a layer earlier. */
static void test_untrained_is_of_use(void **state)
{
    const struct predict_shape shape = {.n_layers = 4, .n_experts = 8, .n_used = 2};
    for (int a = 0; sched_assigner_name((enum sched_assigner)a); a++) {
        enum sched_predictor kind = sched_predictor_untrained((enum sched_assigner)a);
        struct predict_traits traits = predictor_traits(kind, &shape);
        assert_true(predictor_is_trained(kind, &shape));
        if (sched_assigner_plans_prefetch((enum sched_assigner)a))
            assert_true(!traits.in_line && traits.answers && traits.distance_first > 1);
        else
            assert_true(traits.in_line);
    }
}

/* Without trained predictors presets get another predictor under their own name; a predictor that
 * the user names is refused. */
static void test_untrained(void **state)
{
    struct replay_plan p = {0};
    struct error e;
    struct strbuf settled;
    const struct predict_shape shape = {
        .n_layers = 4, .n_experts = 8, .n_used = 2, .d_model = 16, .max_tokens = 1};
    strbuf_init(&settled);
    assert_int_equal(plan_policies(&p,
                                   "promoe,moed,prescope/cache=lru,prescope/predictor=none,"
                                   "prescope/assign=greedy,promoe/assign=presched",
                                   &e),
                     ERROR_OK);
    assert_int_equal(plan_settle_predictors(&p, &shape, &settled, &e), ERROR_OK);
    assert_string_equal(settled.data, "promoe with next-gate, prescope/cache=lru with expert-map, "
                                      "prescope/assign=greedy with next-gate, "
                                      "promoe/assign=presched with expert-map");
    assert_string_equal(p.policies[0]->name, "promoe");
    assert_int_equal(p.policies[0]->predictor, PREDICT_NEXT_GATE);
    assert_int_equal(p.policies[0]->prefetcher, sched_policy_find("promoe")->prefetcher);
    assert_ptr_equal(p.policies[1], sched_policy_find("moed"));
    assert_string_equal(p.policies[2]->name, "prescope/cache=lru");
    assert_int_equal(p.policies[2]->predictor, PREDICT_EXPERT_MAP);
    assert_int_equal(p.policies[3]->predictor, PREDICT_NONE);
    assert_int_equal(p.policies[4]->predictor, PREDICT_NEXT_GATE);
    assert_int_equal(p.policies[5]->predictor, PREDICT_EXPERT_MAP);
    strbuf_fini(&settled);
    strbuf_init(&settled);
    assert_int_equal(plan_policies(&p, "moed/predictor=mlp", &e), ERROR_OK);
    assert_int_equal(plan_settle_predictors(&p, &shape, &settled, &e), ERROR_USAGE);
    assert_non_null(strstr(e.text, "predictor mlp has to be trained"));
    assert_true(settled.len == 0);
    strbuf_fini(&settled);
}

static void test_wrong_lists(void **state)
{
    struct replay_plan p = {0};
    struct error e;
    static const char *const policies[] = {"", "moed,", "moe", "moed,,lru", "all,moed"};
    static const char *const vram[] = {"", "0%", "101%", "25", "25%,", "-1%", "x", "1e1%"};
    static const char *const batch[] = {"", "0", "1,", "1.5", "4097", "-1", "one"};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        assert_int_equal(plan_policies(&p, policies[i], &e), ERROR_USAGE);
        assert_non_null(strstr(e.text, sched_policy_names()));
    }
    for (size_t i = 0; i < sizeof vram / sizeof *vram; i++)
        assert_int_equal(plan_vram(&p, vram[i], &e), ERROR_USAGE);
    for (size_t i = 0; i < sizeof batch / sizeof *batch; i++)
        assert_int_equal(plan_batch(&p, batch[i], &e), ERROR_USAGE);
    assert_int_equal(plan_batch(&p, "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", &e), ERROR_USAGE);
}

static uint32_t calls;

static enum error_code stand_in(const struct replay_run *run, struct replay_result *out,
                                struct error *e)
{
    calls++;
    if (run->batch == 7)
        return error_set(e, ERROR_LIMIT, "seven");
    *out = (struct replay_result){.decode_tokens = run->max_tokens, .hit_rate = run->vram};
    return ERROR_OK;
}

static void test_order(void **state)
{
    struct replay_plan p = {0};
    struct error e;
    struct replay_run what = {.max_tokens = 99};
    struct replay_result out[8];
    assert_int_equal(plan_policies(&p, "lru,moed", &e), ERROR_OK);
    assert_int_equal(plan_vram(&p, "10%,50%", &e), ERROR_OK);
    assert_int_equal(plan_batch(&p, "1,4", &e), ERROR_OK);
    assert_int_equal(plan_size(&p), 8);
    calls = 0;
    assert_int_equal(plan_run(&p, &what, stand_in, NULL, NULL, out, &e), ERROR_OK);
    assert_int_equal(calls, 8);
    for (uint32_t i = 0; i < 8; i++) {
        assert_string_equal(out[i].policy, i % 2 ? "moed" : "lru");
        assert_int_equal(out[i].batch, i / 2 % 2 ? 4 : 1);
        assert_true(out[i].vram == p.vram[i / 4] && out[i].hit_rate == out[i].vram);
        assert_int_equal(out[i].decode_tokens, 99);
    }
    assert_int_equal(plan_batch(&p, "7", &e), ERROR_OK);
    assert_int_equal(plan_run(&p, &what, stand_in, NULL, NULL, out, &e), ERROR_LIMIT);
    assert_string_equal(e.text, "policy lru: seven");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_narrow_table),
        cmocka_unit_test(test_widths),
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_page),
        cmocka_unit_test(test_notes),
        cmocka_unit_test(test_bars),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_variants),
        cmocka_unit_test(test_untrained_is_of_use),
        cmocka_unit_test(test_untrained),
        cmocka_unit_test(test_wrong_lists),
        cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
