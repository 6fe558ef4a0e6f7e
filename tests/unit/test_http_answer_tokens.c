/* The tokens of an answer of the HTTP APIs: where their text is cut, their log-probabilities, and
 * what the answer counts of them. */
#include "http_answer_bench.h"

#include "client/http/api/answer_scores.h"
#include "client/http/api/answer_usage.h"
#include "client/http/api/budget.h"
#include "client/http/api/llama_completion.h"
#include "client/http/api/openai.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Of a prompt with several choices counts as cached what the coldest one found. */
static void test_cached_tokens(void **state)
{
    static const struct {
        unsigned prompt, in, cached;
    } told[] = {{0, 100, 0}, {0, 100, 99}, {1, 50, 48}, {1, 50, 32}, {2, 10, 4000000000u}};
    struct choice choices[5] = {0};
    struct ask_prompt prompts[3] = {0};
    struct answer a = {.choices = choices, .n_choices = 5, .ask.prompts = prompts};
    for (unsigned i = 0; i < 5; i++)
        choices[i] = (struct choice){
            .answer = &a,
            .prompt = told[i].prompt,
            .done = true,
            .result = {.prompt_tokens = told[i].in, .cached_tokens = told[i].cached}};
    assert_int_equal(answer_usage(&a).in, 160);
    assert_int_equal(answer_usage(&a).cached, 42); /* the last prompt's is no number */
    a.n_choices = 4;
    assert_int_equal(answer_usage(&a).cached, 32);
    a.n_choices = 2;
    assert_int_equal(answer_usage(&a).cached, 0);
    choices[0] = choices[1];
    assert_int_equal(answer_usage(&a).cached, 99);
    choices[0].done = false; /* it may still be the coldest */
    assert_int_equal(answer_usage(&a).cached, 0);
}

/* The numbers of an answer that another worker went on with. */
static void test_timings(void **state)
{
    struct bench b;
    struct moed_model facts = {.context = 512};
    struct deployment deployment = {.facts = &facts};
    bench_init(&b, parse_llama_completion, "{\"prompt\":\"a\"}", &llama_dialect,
               &canned_answers[0]);
    b.a.deployment = &deployment;
    b.c.done = true;
    b.c.result = (struct moed_result){.prompt_tokens = 11, .cached_tokens = 22, .seed = 5};
    b.a.dialect->whole(&b.a);
    assert_non_null(strstr(b.x.out.data, "\"cache_n\":11,\"prompt_n\":0,"));
    assert_non_null(strstr(b.x.out.data, "{\"n_ctx\":512,\"n_predict\":-1,\"seed\":5,\"temp"));
    bench_fini(&b);
}

/* Drafts are shown where there were some; of choices that are another request's also, their sum. */
static void test_drafts(void **state)
{
    struct bench b;
    struct moed_model facts = {.context = 512};
    struct deployment deployment = {.facts = &facts};
    bench_init(&b, parse_llama_completion, "{\"prompt\":\"a\"}", &llama_dialect,
               &canned_answers[0]);
    b.a.deployment = &deployment;
    b.c.result = (struct moed_result){.generated_tokens = 9};
    b.a.dialect->whole(&b.a);
    assert_null(strstr(b.x.out.data, "draft_n"));
    strbuf_clear(&b.x.out);
    b.c.result = (struct moed_result){.drafted_tokens = 5, .accepted_tokens = 3};
    b.a.dialect->whole(&b.a);
    assert_non_null(strstr(b.x.out.data, ",\"draft_n\":5,\"draft_n_accepted\":3}"));
    strbuf_clear(&b.x.out);
    openai_usage(&b.a, &b.x.out);
    assert_non_null(strstr(b.x.out.data, "{\"reasoning_tokens\":0,\"accepted_prediction_tokens\":3,"
                                         "\"rejected_prediction_tokens\":2}}"));
    strbuf_clear(&b.x.out); /* a prediction's own tokens take their place */
    b.c.result.prediction_tokens = 9;
    b.c.result.predicted_tokens = 8;
    openai_usage(&b.a, &b.x.out);
    assert_non_null(strstr(b.x.out.data, ",\"accepted_prediction_tokens\":8,"
                                         "\"rejected_prediction_tokens\":1}}"));
    b.c.budget.resumed = true; /* behind the end of its reasoning */
    b.c.budget.before = (struct moed_result){.drafted_tokens = 2, .accepted_tokens = 1};
    const struct moed_result rest = {.drafted_tokens = 4, .accepted_tokens = 2};
    assert_false(budget_resume(&b.c, &rest));
    assert_true(b.c.result.drafted_tokens == 6 && b.c.result.accepted_tokens == 3);
    bench_fini(&b);
}

/* Tokens of one event are cut where they end, not in pieces of one length: the reasoning that is
 * shown is that of the tokens that were read. */
static void test_tokens_are_cut_where_they_end(void **state)
{
    static const char text[] = "aK\xc3\xb6lnzzzz</think>";
    static const uint32_t lengths[] = {1, 2, 3, 4, 8}; /* the second ends in the character */
    struct bench b;
    struct strbuf shown;
    size_t at = 0, read = 0;
    bench_init(&b, parse_chat, CHAT(",\"thinking_budget_tokens\":3"), &chat_dialect,
               &canned_answers[3]);
    while (!output_is_over_budget(&b.c.output)) {
        assert_true(read < 5);
        at += output_take_token(&b.c.output, lengths[read++], text + at, sizeof text - 1 - at);
    }
    assert_int_equal(read, 3);
    strbuf_init(&shown);
    output_text(&b.c.output, PART_REASONING, &shown);
    assert_string_equal(text_of(&shown), "aK\xc3\xb6ln");
    strbuf_fini(&shown);
    bench_fini(&b);
}

/* What was held back belongs to its own token when it comes. */
static void test_text_that_comes_late(void **state)
{
    struct bench b;
    struct output *o = &b.c.output;
    bench_init(&b, parse_chat, CHAT(",\"stop\":[\"</think>bcd\"]"), &chat_dialect,
               &canned_answers[3]);
    assert_int_equal(output_take_token(o, 2, "a", 1), 1);
    assert_int_equal(output_take_token(o, 2, "bcdef", 5), 3);
    output_take_rest(o, "ef", 2); /* no token has it */
    assert_int_equal(output_take_token(o, 8, "", 0), 0);
    assert_int_equal(output_take_token(o, 2, "", 0), 0);
    assert_int_equal(output_reasoning_tokens(o), 4); /* as far as is known */
    assert_int_equal(output_take_token(o, 1, "</think>bcx", 11), 11);
    assert_int_equal(output_reasoning_tokens(o), 3);
    bench_fini(&b);
}

/* ---- Log-probabilities ---- */

static struct vocabulary *letters(void)
{
    struct vocabulary *v = calloc(1, sizeof *v);
    assert_non_null(v);
    atomic_init(&v->references, 1);
    strbuf_init(&v->text);
    v->count = 3;
    v->ends = malloc(3 * sizeof *v->ends);
    strbuf_append(&v->text, "a\xc3\x9f\xc3", 4); /* "a", a sharp s, half a character */
    v->ends[0] = 1, v->ends[1] = 3, v->ends[2] = 4;
    return v;
}

static void add_scores(struct scores *s)
{
    static const uint32_t first = 0, tokens[] = {1, 2}, top[] = {1, 0, 2, 1};
    static const float values[] = {-0.5f, -INFINITY}, top_values[] = {-0.5f, -1, -0.25f, -2};
    scores_add(s, &first, 1, NULL, NULL, NULL);
    scores_add(s, tokens, 2, values, top, top_values);
}

static void test_scores(void **state)
{
    struct scores s = {.top = 2};
    struct vocabulary *v = letters();
    struct strbuf out;
    add_scores(&s);
    scores_place(&s, (uint32_t[]){5, 6, 7}, 3);
    strbuf_init(&out);
    scores_columns_json(&s, 0, 3, v, &out);
    assert_string_equal(out.data,
                        "{\"tokens\":[\"a\",\"\xc3\x9f\",\"bytes:\\\\xc3\"],"
                        "\"token_logprobs\":[null,-0.5,-9999],\"top_logprobs\":[null,"
                        "{\"\xc3\x9f\":-0.5,\"a\":-1},{\"bytes:\\\\xc3\":-0.25,\"\xc3\x9f\":-2}],"
                        "\"text_offset\":[5,6,7]}");
    strbuf_clear(&out);
    scores_json(&s, 1, 2, v, &out);
    assert_string_equal(out.data,
                        "[{\"token\":\"\xc3\x9f\",\"logprob\":-0.5,\"bytes\":[195,159],"
                        "\"top_logprobs\":[{\"token\":\"\xc3\x9f\",\"logprob\":-0.5,\"bytes\":"
                        "[195,159]},{\"token\":\"a\",\"logprob\":-1,\"bytes\":[97]}]}]");
    assert_int_equal(vocabulary_text(v, 3).len, 0);
    strbuf_fini(&out);
    scores_fini(&s);
    vocabulary_release(v);
}

/* In a stream each log-probability comes once, in order. */
static void test_scores_of_a_stream(void **state)
{
    struct bench b;
    struct vocabulary *v = letters();
    bench_init(&b, parse_chat, CHAT(",\"stream\":true,\"logprobs\":true,\"top_logprobs\":2"),
               &chat_dialect, &canned_answers[0]);
    b.a.vocabulary = v;
    b.a.dialect->begin(&b.a);
    add_scores(&b.c.scores);
    output_take(&b.c.output, "a\xc3\x9f", 3, 2);
    b.a.dialect->end_choice(&b.c);
    assert_int_equal(b.c.scores.written, 3);
    const char *at = b.x.out.data;
    unsigned found = 0;
    for (; (at = strstr(at, "\"logprobs\":{\"content\":[")) != NULL; at++)
        found++;
    assert_int_equal(found, 1);
    bench_fini(&b);
    vocabulary_release(v);
}

/* Tokens whose text is held back may be behind the one call: a stream has neither their
 * log-probabilities nor counts them. */
static void test_scores_behind_the_call(void **state)
{
    static const char begin[] = "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": 1";
    static const uint32_t held[] = {1, 1, 1, 2, 4}; /* 2, }, }, and two behind the call */
    struct bench b;
    struct vocabulary *v = letters();
    struct output *o = &b.c.output;
    const uint32_t token = 0;
    const float value = -1;
    bench_init(&b, parse_chat,
               CHAT("," TOOLS ",\"parallel_tool_calls\":false,\"stream\":true,\"logprobs\":true,"
                    "\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true}"),
               &chat_dialect, &canned_answers[0]);
    b.a.vocabulary = v;
    b.a.dialect->begin(&b.a);
    b.c.tokens++;
    scores_add(&b.c.scores, &token, 1, &value, NULL, NULL);
    (void)output_take_token(o, sizeof begin - 1, begin, sizeof begin - 1);
    assert_int_equal(b.c.scores.written, 1);
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) {
        b.c.tokens++;
        scores_add(&b.c.scores, &token, 1, &value, NULL, NULL);
        (void)output_take_token(o, held[i], "", 0);
    }
    assert_int_equal(answer_usage(&b.a).out, 1);
    output_take_rest(o, "2}}\n</too", 9);
    assert_true(output_is_over(o));
    assert_int_equal(output_surplus(o), 2);
    assert_in_range(b.c.scores.written, 2, 4);
    for (int n = 5; n <= 6; n++) {
        char usage[32];
        snprintf(usage, sizeof usage, "\"completion_tokens\":%d,", n);
        assert_null(strstr(b.x.out.data, usage));
    }
    bench_fini(&b);
    vocabulary_release(v);
}

/* Two prompts that begin alike: scores of the second one's rest, which come before those of the
 * first one, are kept, and follow the beginning. */
static void test_scores_of_the_rest_come_first(void **state)
{
    uint32_t tokens[] = {7, 8, 9, 4}, offsets[] = {0, 1, 2, 3};
    float first[] = {-1, -2, -3}, rest[] = {-4};
    struct ask_prompt prompts[2] = {{.tokens = tokens, .token_count = 4, .offsets = offsets},
                                    {.tokens = tokens, .token_count = 4, .offsets = offsets}};
    struct choice choices[2] = {0};
    struct answer a = {.choices = choices, .n_choices = 2, .ask.prompts = prompts};
    struct moed_event event = {
        .kind = MOED_EVENT_LOGPROBS, .first = 3, .logprob_count = 1, .logprobs = rest};
    for (unsigned i = 0; i < 2; i++) {
        choices[i].answer = &a;
        choices[i].index = choices[i].prompt = i;
        scores_add(&choices[i].scores, tokens, 1, NULL, NULL, NULL);
    }
    choices[1].n_shared = 3;
    answer_add_prompt_scores(&choices[1], &event);
    assert_int_equal(choices[1].scores.count, 1);
    assert_false(answer_take_shared(&choices[1]));
    event.first = 1;
    event.logprob_count = 3;
    event.logprobs = first;
    answer_add_prompt_scores(&choices[0], &event);
    assert_true(answer_take_shared(&choices[1]));
    assert_false(answer_take_shared(&choices[1]));
    assert_int_equal(choices[1].scores.count, 4);
    static const float expected[] = {-1, -2, -4};
    assert_memory_equal(choices[1].scores.values + 1, expected, sizeof expected);
    assert_memory_equal(choices[1].scores.tokens, tokens, sizeof tokens);
    assert_memory_equal(choices[1].scores.offsets, offsets, sizeof offsets);
    scores_fini(&choices[0].scores);
    scores_fini(&choices[1].scores);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cached_tokens),
        cmocka_unit_test(test_timings),
        cmocka_unit_test(test_drafts),
        cmocka_unit_test(test_tokens_are_cut_where_they_end),
        cmocka_unit_test(test_text_that_comes_late),
        cmocka_unit_test(test_scores),
        cmocka_unit_test(test_scores_of_a_stream),
        cmocka_unit_test(test_scores_behind_the_call),
        cmocka_unit_test(test_scores_of_the_rest_come_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
