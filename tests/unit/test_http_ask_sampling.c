/* Requests of the HTTP APIs: how tokens are sampled. What the parameters become, their defaults,
 * the samplers and their order, and what is refused by name. */
#include "client/http/api/llama_completion.h"
#include "client/http/api/ollama.h"
#include "client/http/api/openai.h"
#include "http_ask_cases.h"

#include <float.h>
#include <math.h>

static void expect_model_defaults(const struct ask *a)
{
    struct moed_sampling all;
    moed_sampling_init(&all, sizeof all);
    assert_memory_equal(&a->sampling, &all, sizeof all);
}

/* What a request leaves out is the model's, whichever API it comes by. */
static void test_defaults(void **state)
{
    struct ask a = accept(parse_chat, CHAT(""));
    expect_model_defaults(&a);
    assert_int_equal(a.max_tokens, 0);
    assert_int_equal(a.n, 1);
    assert_false(a.stream || a.seeded || a.include_usage);
    ask_seed(&a);
    uint64_t first = a.sampling.seed;
    ask_seed(&a);
    assert_true(a.sampling.seed != first); /* random; equal once in 2^53 */
    ask_fini(&a);
    a = accept(parse_completion, "{\"prompt\":\"a\"}");
    assert_int_equal(a.max_tokens, 16);
    assert_true(a.parse_special);
    expect_model_defaults(&a);
    ask_fini(&a);
    a = accept(parse_ollama_chat, CHAT(""));
    assert_true(a.stream);
    expect_model_defaults(&a);
    ask_fini(&a);
    a = accept(parse_completion, "{\"prompt\":\"a\",\"seed\":-1,\"n_predict\":-1,"
                                 "\"parse_special\":false}");
    assert_false(a.seeded || a.parse_special); /* -1: random; no limit */
    assert_int_equal(a.max_tokens, 0);
    ask_fini(&a);
}

/* What answers say of the sampling: the request's, or else the model's. */
static void test_shown_sampling(void **state)
{
    struct moed_sampling s = {.temperature = 0.6f, .top_p = 0.95f};
    struct moed_model model = {.sampling = &s};
    struct ask a = accept(parse_chat, CHAT(""));
    assert_true(ask_shown(&a, &model).temperature == 0.6f && ask_shown(&a, &model).top_p == 0.95f);
    assert_true(ask_shown(&a, NULL).temperature == 0.8f && ask_shown(&a, NULL).top_p == 1);
    ask_fini(&a);
    a = accept(parse_chat, CHAT(",\"temperature\":0.25,\"top_p\":0.5"));
    assert_true(ask_shown(&a, &model).temperature == 0.25f && ask_shown(&a, &model).top_p == 0.5f);
    ask_fini(&a);
    a = accept(parse_chat, CHAT(",\"temperature\":0")); /* the samplers do not apply */
    assert_true(ask_shown(&a, &model).temperature == 0 && ask_shown(&a, &model).top_p == 1);
    ask_fini(&a);
}

/* A 0 is the smallest value, as for OpenAI and llama-server; libmoed's 0 is another one. */
static void test_zeros(void **state)
{
    static const char *const zeros[] = {
        CHAT(",\"top_p\":0,\"typical_p\":0,\"dynatemp_exponent\":0,\"xtc_threshold\":0,"
             "\"mirostat_tau\":0,\"mirostat_eta\":0"),
        CHAT(",\"top_p\":0.0,\"typical\":1e-99,\"dynatemp_exponent\":-0.0,"
             "\"xtc_threshold\":1e-99,\"mirostat_tau\":0.0,\"mirostat_eta\":1e-99"),
    };
    for (size_t i = 0; i < sizeof zeros / sizeof *zeros; i++) {
        struct ask a = accept(parse_chat, zeros[i]);
        struct moed_sampling s = ask_sampling(&a);
        assert_true(s.top_p == FLT_MIN && s.typical_p == FLT_MIN && s.dynamic_exponent == FLT_MIN);
        assert_true(s.xtc_threshold == FLT_MIN && s.mirostat_tau == FLT_MIN);
        assert_true(s.mirostat_eta == FLT_MIN);
        assert_true(s.top_k == MOED_DEFAULT_COUNT && s.min_p == MOED_DEFAULT_FLOAT);
        assert_true(ask_shown(&a, NULL).top_p == 0);
        ask_fini(&a);
    }
}

static void test_samplers_arrive(void **state)
{
    struct ask a =
        accept(parse_chat,
               CHAT(",\"presence_penalty\":0.5,\"frequency_penalty\":-0.25,\"typical_p\":0.75,"
                    "\"top_n_sigma\":1.5,\"dynatemp_range\":0.5,\"dynatemp_exponent\":2,"
                    "\"xtc_probability\":0.5,\"xtc_threshold\":0.25,\"dry_multiplier\":0.75,"
                    "\"dry_base\":2,\"dry_allowed_length\":3,\"dry_penalty_last_n\":-1,"
                    "\"dry_sequence_breakers\":[\"\\n\",\":\"],\"mirostat\":2,\"mirostat_tau\":4,"
                    "\"mirostat_eta\":0.5,\"samplers\":[\"penalties\",\"top_k\",\"temperature\"],"
                    "\"min_tokens\":3,\"speculative.n_max\":4,\"stop_token_ids\":[7,8],"
                    "\"logprobs\":true,\"top_logprobs\":5,"
                    "\"logit_bias\":{\"12\":-100,\"foo\":1.5,\"13\":false}"));
    struct moed_sampling s = ask_sampling(&a);
    assert_true(s.presence_penalty == 0.5f && s.frequency_penalty == -0.25f);
    assert_true(s.typical_p == 0.75f && s.top_n_sigma == 1.5f);
    assert_true(s.dynamic_temperature == 0.5f && s.dynamic_exponent == 2);
    assert_true(s.xtc_probability == 0.5f && s.xtc_threshold == 0.25f);
    assert_true(s.dry_multiplier == 0.75f && s.dry_base == 2 && s.dry_allowed_length == 3);
    assert_int_equal(s.dry_window, 0);
    assert_int_equal(s.dry_breaker_count, 2);
    assert_memory_equal(s.dry_breakers[1].data, ":", 1);
    assert_true(s.mirostat == 2 && s.mirostat_tau == 4 && s.mirostat_eta == 0.5f);
    assert_string_equal(s.order, "ekt");
    assert_int_equal(s.bias_count, 3);
    assert_true(s.bias[0].token == 12 && s.bias[0].bias == -100);
    assert_memory_equal(s.bias[1].text.data, "foo", 3);
    assert_true(s.bias[2].token == 13 && isinf(s.bias[2].bias));
    assert_int_equal(a.min_tokens, 3);
    assert_true(a.max_drafts == 4 && !a.no_drafts);
    assert_int_equal(a.stop_token_count, 2);
    assert_true(a.logprobs && a.top_logprobs == 5);
    ask_fini(&a);
    a = accept(parse_completion, "{\"prompt\":\"a\",\"logprobs\":0,\"samplers\":\"kt\","
                                 "\"logit_bias\":[[5,1],[\" the\",false]],\"dry_multiplier\":1,"
                                 "\"dry_penalty_last_n\":0,\"dry_sequence_breakers\":[]}");
    s = ask_sampling(&a);
    assert_true(a.logprobs && a.top_logprobs == 0 && s.dry_multiplier == 0);
    assert_true(s.dry_breaker_count == 1 && s.dry_breakers[0].len == 0 && s.bias_count == 2);
    assert_string_equal(s.order, "kt");
    ask_fini(&a);
    a = accept(parse_ollama_chat, CHAT(",\"options\":{\"presence_penalty\":1,\"mirostat\":2,"
                                       "\"typical_p\":0.5,\"tfs_z\":1.0},\"logprobs\":true"));
    s = ask_sampling(&a);
    assert_true(s.presence_penalty == 1 && s.mirostat == 2 && s.typical_p == 0.5f && a.logprobs);
    ask_fini(&a);
}

/* Clients list all samplers that they know, also those that are off. */
static void test_unknown_samplers_are_left_out(void **state)
{
    struct ask a = accept(parse_chat, CHAT(",\"samplers\":[\"top_k\",\"adaptive_p\",\"min_p\"]"));
    assert_string_equal(a.order, "km");
    assert_string_equal(a.ignored, "samplers:adaptive_p");
    ask_fini(&a);
    a = accept(parse_chat, CHAT(",\"samplers\":\"akt\""));
    assert_string_equal(a.order, "kt");
    assert_string_equal(a.ignored, "samplers:a");
    ask_fini(&a);
    a = accept(parse_chat, CHAT(",\"samplers\":[\"infill\"]")); /* the usual ones */
    assert_null(ask_sampling(&a).order);
    ask_fini(&a);
    a = accept(parse_chat, CHAT(",\"samplers\":\"\""));
    assert_string_equal(ask_sampling(&a).order, "");
    ask_fini(&a);
    a = accept(parse_chat, CHAT(",\"samplers\":null"));
    assert_null(ask_sampling(&a).order);
    ask_fini(&a);
}

/* What SillyTavern's text completion sends to llama.cpp with its default settings. */
#define SILLY_TAVERN(more)                                                                         \
    "{\"prompt\":\"Ann: hi\\nBob:\",\"model\":\"demo\",\"max_new_tokens\":300,\"max_tokens\":300," \
    "\"n_predict\":300,\"num_predict\":300,\"num_ctx\":8192,\"n\":1,\"stream\":true,"              \
    "\"temperature\":0.7,\"top_p\":0.5,\"typical_p\":1,\"typical\":1,\"min_p\":0,\"top_k\":40,"    \
    "\"top_a\":0,\"tfs\":1,\"tfs_z\":1,\"repetition_penalty\":1.2,\"repeat_penalty\":1.2,"         \
    "\"rep_pen\":1.2,\"rep_pen_range\":0,\"repeat_last_n\":0,\"frequency_penalty\":0,"             \
    "\"presence_penalty\":0,\"min_tokens\":0,\"min_keep\":0,\"add_bos_token\":true,"               \
    "\"smoothing_factor\":0,\"smoothing_curve\":1,\"dry_allowed_length\":2,\"dry_multiplier\":0,"  \
    "\"dry_base\":1.75,\"dry_penalty_last_n\":0,\"max_tokens_second\":0,\"ban_eos_token\":false,"  \
    "\"ignore_eos\":false,\"skip_special_tokens\":true,\"include_reasoning\":true,"                \
    "\"truncation_length\":8192,\"mirostat\":0,\"mirostat_mode\":0,\"mirostat_tau\":5,"            \
    "\"mirostat_eta\":0.1,\"banned_strings\":[],\"custom_token_bans\":\"\","                       \
    "\"api_type\":\"llamacpp\",\"xtc_threshold\":0.1,\"xtc_probability\":0,\"nsigma\":0,"          \
    "\"top_n_sigma\":0,\"guidance_scale\":1,\"negative_prompt\":\"\",\"rep_pen_slope\":1,"         \
    "\"logit_bias\":[],"                                                                           \
    "\"grammar\":\"\",\"cache_prompt\":true,\"stop\":[\"\\nAnn:\",\"\"]," more "}"

static void test_silly_tavern(void **state)
{
    struct ask a =
        accept(parse_llama_completion,
               SILLY_TAVERN(
                   "\"adaptive_target\":-0.01,\"adaptive_decay\":0.9,\"seed\":42,"
                   "\"sampler_seed\":42,\"dry_sequence_breakers\":[\"\\n\",\":\"],\"samplers\":"
                   "[\"penalties\",\"dry\",\"top_n_sigma\",\"top_k\",\"typ_p\",\"top_p\",\"min_p\","
                   "\"xtc\",\"temperature\",\"adaptive_p\"]"));
    assert_string_equal(ask_sampling(&a).order, "edskypmxt");
    assert_true(a.seeded && a.sampling.seed == 42);
    assert_int_equal(a.stop_count, 1);
    assert_int_equal(a.max_tokens, 300);
    ask_fini(&a);
    a = accept(parse_llama_completion, /* an older one */
               SILLY_TAVERN(
                   "\"seed\":7,\"sampler_seed\":-1,\"dry_sequence_breakers\":"
                   "\"[\\\"\\\\n\\\", \\\":\\\"]\",\"samplers\":[\"top_k\",\"tfs_z\",\"typical_p\","
                   "\"top_p\",\"min_p\",\"temperature\"]"));
    assert_string_equal(ask_sampling(&a).order, "kypmt");
    assert_true(a.seeded && a.sampling.seed == 7);
    assert_int_equal(a.breaker_count, 2);
    assert_memory_equal(a.breakers[0].data, "\n", 1);
    assert_memory_equal(a.breakers[1].data, ":", 1);
    ask_fini(&a);
    a = accept(parse_chat, CHAT(",\"dry_sequence_breakers\":[\"\",\":\",\"\"]"));
    assert_int_equal(a.breaker_count, 1);
    assert_memory_equal(a.breakers[0].data, ":", 1);
    ask_fini(&a);
    a = accept(parse_chat, CHAT(",\"dry_sequence_breakers\":\"\""));
    assert_int_equal(a.breaker_count, 0); /* the usual ones */
    ask_fini(&a);
}

/* What other servers' clients send that moed has by another name, or that would change an answer.
 */
static void test_parameters_of_other_servers(void **state)
{
    struct ask a =
        accept(parse_llama_completion,
               "{\"prompt\":\"a\",\"rep_pen\":1.5,\"rep_pen_range\":64,\"nsigma\":2,"
               "\"ignore_eos\":false,\"ban_eos_token\":true,\"custom_token_bans\":\"5, 7\","
               "\"n_keep\":5,\"n_discard\":9,\"num_keep\":5,\"negative_prompt\":\"x\","
               "\"tfs\":1,\"guidance_scale\":1,\"image_data\":[],\"n\\r\\n: ew\":1}");
    assert_true(a.sampling.repetition_penalty == 1.5f && a.sampling.repetition_window == 64);
    assert_true(a.sampling.top_n_sigma == 2 && a.ignore_end && a.ban_end);
    assert_int_equal(a.bias_count, 2);
    assert_true(a.bias[0].token == 5 && a.bias[1].token == 7 && a.bias[1].bias == -INFINITY);
    struct access_entry log = {0};
    char header[ACCESS_IGNORED];
    memcpy(log.ignored, a.ignored, sizeof log.ignored);
    access_ignored_header(&log, header);
    assert_string_equal(header, "n__:_ew");
    ask_fini(&a);
    static const char *const wrong[][2] = {
        {CHAT(",\"image_data\":[{\"data\":\"x\",\"id\":1}]"), "image_data"},
        {CHAT(",\"banned_strings\":[\"x\"]"), "banned_strings"},
        {CHAT(",\"custom_token_bans\":\"5,x\""), "custom_token_bans"},
        {CHAT(",\"custom_token_bans\":[-1]"), "custom_token_bans"},
        {CHAT(",\"smoothing_factor\":0.2"), "smoothing_factor"},
        {CHAT(",\"top_a\":0.1"), "top_a"},
        {CHAT(",\"tfs\":0.9"), "tfs"},
        {CHAT(",\"guidance_scale\":2"), "guidance_scale"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refuse(parse_chat, wrong[i][0], wrong[i][1]);
    ask_init(&a);
    for (int i = 0; i < 20; i++) /* the list is bounded, and shows that it is cut */
        ask_ignore(&a, "a_name_of_twenty_two_b");
    assert_string_equal(a.ignored + strlen(a.ignored) - 6, "_b,...");
    ask_fini(&a);
}

#define LONG_BREAKER "12345678901234567890123456789012345678901"

static void test_samplers_are_refused_by_name(void **state)
{
    refuse_because(parse_chat, CHAT(",\"dry_sequence_breakers\":[\":\",\"" LONG_BREAKER "\"]"),
                   "dry_sequence_breakers", "item 1 has more than 40 bytes");
    static const char *const wrong[][2] = {
        {CHAT(",\"presence_penalty\":101"), "presence_penalty"},
        {CHAT(",\"mirostat\":1"), "mirostat"},
        {CHAT(",\"samplers\":\"ekdse\""), "samplers"},
        {CHAT(",\"samplers\":[\"typ_p\",\"top_k\",\"typical_p\"]"), "samplers"},
        {CHAT(",\"logit_bias\":{\"1\":\"x\"}"), "logit_bias"},
        {CHAT(",\"logit_bias\":[[1]]"), "logit_bias"},
        {CHAT(",\"logit_bias\":[[-1,1]]"), "logit_bias"},
        {CHAT(",\"samplers\":[1]"), "samplers"},
        {CHAT(",\"adaptive_target\":0.5"), "adaptive_target"},
        {CHAT(",\"dry_sequence_breakers\":[1]"), "dry_sequence_breakers"},
        {CHAT(",\"dry_sequence_breakers\":\"[1]\""), "dry_sequence_breakers"},
        {CHAT(",\"dry_sequence_breakers\":\"x,y\""), "dry_sequence_breakers"},
        {CHAT(",\"top_logprobs\":2"), "top_logprobs"},
        {CHAT(",\"logprobs\":true,\"top_logprobs\":65"), "top_logprobs"},
        {CHAT(",\"stop_token_ids\":[-1]"), "stop_token_ids"},
        {CHAT(",\"use_beam_search\":true"), "use_beam_search"},
        {CHAT(",\"tfs_z\":0.5"), "tfs_z"},
        {CHAT(",\"use_beam_search\":true"), "use_beam_search"},
        {CHAT(",\"chat_template\":\"x\""), "chat_template"},
        {CHAT(",\"chat_template_kwargs\":[]"), "chat_template_kwargs"},
        {CHAT(",\"reasoning_effort\":1"), "reasoning_effort"},
        {CHAT(",\"reasoning_format\":\"x\""), "reasoning_format"},
        {CHAT(",\"thinking\":{\"type\":\"deep\"}"), "thinking"},
        {CHAT(",\"thinking\":true"), "thinking"},
        {CHAT(",\"reasoning\":true"), "reasoning"},
        {CHAT(",\"reasoning\":{\"max_tokens\":\"x\"}"), "reasoning.max_tokens"},
        {CHAT(",\"structured_outputs\":{\"structural_tag\":\"x\"}"),
         "structured_outputs.structural_tag"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refuse(parse_chat, wrong[i][0], wrong[i][1]);
    refuse(parse_ollama_chat, CHAT(",\"options\":{\"logits_all\":true}"), "options.logits_all");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_shown_sampling),
        cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_samplers_arrive),
        cmocka_unit_test(test_silly_tavern),
        cmocka_unit_test(test_parameters_of_other_servers),
        cmocka_unit_test(test_unknown_samplers_are_left_out),
        cmocka_unit_test(test_samplers_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
