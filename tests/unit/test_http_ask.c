/* Requests of the HTTP APIs: what their parameters become, and what is refused by name.
 * test_http_ask_sampling.c has sampling, test_http_content.c contents, test_http_tools.c tools and
 * forms, test_http_reasoning.c what is said of thinking. */
#include "client/http/api/anthropic.h"
#include "client/http/api/llama_completion.h"
#include "client/http/api/ollama.h"
#include "client/http/api/openai.h"
#include "client/http/api/openai_responses.h"
#include "http_ask_cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void test_values_arrive(void **state)
{
    struct ask a = accept(
        parse_chat,
        CHAT(",\"model\":\"m\",\"temperature\":0.25,\"top_p\":0.5,\"top_k\":7,\"min_p\":0.125,"
             "\"seed\":-9223372036854775808,\"max_completion_tokens\":9,\"n\":3,\"stream\":true,"
             "\"stream_options\":{\"include_usage\":true},\"stop\":[\"a\",\"b\\u0000c\"],"
             "\"ignore_eos\":true,\"repetition_penalty\":1.5,\"repeat_last_n\":-1"));
    assert_string_equal(a.model, "m");
    assert_true(a.sampling.temperature == 0.25f && a.sampling.top_p == 0.5f);
    assert_true(a.sampling.min_p == 0.125f && a.sampling.repetition_penalty == 1.5f);
    assert_int_equal(a.sampling.top_k, 7);
    assert_int_equal(a.sampling.repetition_window, UINT32_MAX - 1);
    assert_true(a.sampling.seed == 1ull << 63 && a.seeded);
    assert_int_equal(a.max_tokens, 9);
    assert_int_equal(a.n, 3);
    assert_true(a.stream && a.include_usage && a.ignore_end);
    assert_int_equal(a.stop_count, 2);
    assert_int_equal(a.stops[1].len, 3);
    assert_memory_equal(a.stops[1].data, "b\0c", 3);
    ask_fini(&a);
    assert_int_equal(a.priority, MOED_PRIORITY_INTERACTIVE);
    a = accept(parse_chat, CHAT(",\"priority\":3"));
    assert_int_equal(a.priority, MOED_PRIORITY_BATCH);
    ask_fini(&a);
    a = accept(parse_chat, CHAT(",\"service_tier\":\"flex\",\"priority\":null"));
    assert_int_equal(a.priority, MOED_PRIORITY_BATCH);
    ask_fini(&a);
    a = accept(parse_chat, CHAT(",\"service_tier\":\"auto\",\"priority\":-1"));
    assert_int_equal(a.priority, MOED_PRIORITY_INTERACTIVE);
    ask_fini(&a);
    a = accept(parse_chat, CHAT(",\"repetition_penalty\":1.5,\"presence_penalty\":1,"
                                "\"repeat_last_n\":0"));
    assert_true(ask_sampling(&a).repetition_penalty == 1 && ask_sampling(&a).presence_penalty == 0);
    ask_fini(&a);
    a = accept(parse_chat, CHAT(",\"repetition_penalty\":0"));
    assert_true(ask_sampling(&a).repetition_penalty == 1);
    ask_fini(&a);
}

static void test_llama_completion(void **state)
{
    struct ask a =
        accept(parse_llama_completion, "{\"prompt\":[1,2],\"cache_prompt\":true,\"n_keep\":-1,"
                                       "\"n_predict\":5,\"stop\":[\"a\"],\"stream\":true}");
    assert_int_equal(a.prompts[0].token_count, 2);
    assert_int_equal(a.max_tokens, 5);
    assert_true(a.stop_count == 1 && a.stream && a.parse_special);
    ask_fini(&a);
    a = accept(parse_llama_completion, "{\"prompt\":\"a\",\"parse_special\":false}");
    assert_int_equal(a.max_tokens, 0); /* no limit */
    assert_false(a.parse_special);
    ask_fini(&a);
    a = accept(parse_llama_completion, "{\"prompt\":\"a\",\"n_predict\":0,\"t_max_predict_ms\":9,"
                                       "\"samplers\":[],\"t_max_prompt_ms\":5,\"n_indent\":4}");
    assert_true(a.prompt_only && a.predict_ms == 9);
    assert_string_equal(ask_sampling(&a).order, ""); /* as llama-server: a plain draw */
    assert_string_equal(a.ignored, "t_max_prompt_ms,n_indent");
    ask_fini(&a);
    refuse(parse_llama_completion, "{}", "prompt");
    static const struct {
        const char *body, *parameter, *why;
    } refused[] = {
        {"{\"prompt\":\"a\",\"logprobs\":2}", "logprobs", "use n_probs"},
        {"{\"prompt\":\"a\",\"post_sampling_probs\":true}", "post_sampling_probs",
         "the probabilities are the model's own"},
        {"{\"prompt\":\"a\",\"echo\":true}", "echo", "/v1/completions has echo"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        refuse_because(parse_llama_completion, refused[i].body, refused[i].parameter,
                       refused[i].why);
    a = accept(parse_llama_completion, "{\"prompt\":\"a\",\"n_probs\":0,\"logprobs\":false,"
                                       "\"echo\":false,\"n_cmpl\":2,"
                                       "\"response_format\":{\"type\":\"json_object\"}}");
    assert_int_equal(a.n, 2);
    assert_int_equal(a.form, MOED_GRAMMAR_JSON_SCHEMA);
    assert_false(a.logprobs || a.return_tokens);
    ask_fini(&a);
    refuse(parse_llama_completion, "{\"prompt\":\"a\",\"n_probs\":65}", "n_probs");
    a = accept(parse_llama_completion, "{\"prompt\":\"a\",\"n_probs\":5}");
    assert_true(a.logprobs && a.top_logprobs == 5 && !a.return_tokens);
    ask_fini(&a);
    a = accept(parse_llama_completion, "{\"prompt\":\"a\",\"ignore_eos\":true}");
    assert_true(a.ban_end && a.ignore_end && ask_ban_token(&a, 7));
    assert_true(a.bias_count == 1 && a.bias[0].token == 7 && isinf(a.bias[0].bias));
    ask_fini(&a);
    a = accept(parse_completion, "{\"prompt\":\"a\",\"ignore_eos\":true}");
    assert_true(a.ignore_end && !a.ban_end); /* as vLLM */
    ask_fini(&a);
    a = accept(parse_llama_completion, "{\"prompt\":\"a\",\"return_tokens\":true}");
    assert_true(a.return_tokens && !a.logprobs);
    ask_fini(&a);
    a = accept(parse_llama_completion, "{\"prompt\":\"a\",\"stream\":true}");
    assert_true(a.return_tokens); /* a stream has them, as llama-server's */
    ask_fini(&a);
}

/* `count` times `item`, with commas, between two texts. Owned. */
static char *body_of(const char *before, const char *item, size_t count, const char *after)
{
    struct strbuf b;
    strbuf_init(&b);
    strbuf_printf(&b, "%s", before);
    for (size_t i = 0; i < count; i++)
        strbuf_printf(&b, "%s%s", i ? "," : "", item);
    strbuf_printf(&b, "%s", after);
    assert_false(b.failed);
    return b.data;
}

/* Some JSON writers have one kind of number alone; others write seeds of 64 bits. */
static void test_integers_written_as_reals(void **state)
{
    struct ask a =
        accept(parse_completion, "{\"prompt\":[1.0,2.0],\"max_tokens\":8.0,\"top_k\":4e1,"
                                 "\"best_of\":1.0,\"logit_bias\":[[7.0,1]]}");
    assert_int_equal(a.prompts[0].tokens[1], 2);
    assert_int_equal(a.max_tokens, 8);
    assert_int_equal(a.sampling.top_k, 40);
    assert_int_equal(a.bias[0].token, 7);
    ask_fini(&a);
    a = accept(parse_ollama_chat, CHAT(",\"options\":{\"num_predict\":-2.0}"));
    assert_true(a.ignore_end);
    ask_fini(&a);
    static const struct {
        const char *text;
        uint64_t seed;
    } seeds[] = {{"4294967296.0", 1ull << 32},         {"-2.0", UINT64_MAX - 1},
                 {"9223372036854775807", INT64_MAX},   {"9223372036854775808", 1ull << 63},
                 {"13835058055282163712", 3ull << 62}, {"18446744073709551615", UINT64_MAX}};
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        char body[96];
        snprintf(body, sizeof body, "{\"prompt\":\"a\",\"seed\":%s}", seeds[i].text);
        a = accept(parse_completion, body);
        assert_true(a.seeded && a.sampling.seed == seeds[i].seed);
        ask_fini(&a);
    }
}

/* Half of a surrogate pair, as a client cuts a text, does not end the conversation. */
static void test_half_surrogates(void **state)
{
    struct ask a = accept(parse_chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\\ud83d"
                                      "\\n\"}],\"temperature\":0.5}");
    const json_t *turn = json_array_get(a.messages, 0);
    assert_string_equal(json_string_value(json_object_get(turn, "content")), "a\uFFFD\n");
    ask_fini(&a);
    refuse(parse_chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\\ud83\"}]}", NULL);
}

/* As many as worker and message hold; an empty one stops nothing. */
static void test_stop_strings(void **state)
{
    char *body = body_of("{\"prompt\":\"a\",\"stop\":[", "\"x\"", ASK_STOPS_MAX, "]}");
    struct ask a = accept(parse_completion, body);
    assert_int_equal(a.stop_count, ASK_STOPS_MAX);
    ask_fini(&a);
    free(body);
    body = body_of("{\"prompt\":\"a\",\"stop\":[", "\"x\"", ASK_STOPS_MAX + 1, "]}");
    refuse(parse_completion, body, "stop");
    free(body);
    a = accept(parse_completion, "{\"prompt\":\"a\",\"stop\":[\"\",\"b\",\"\"]}");
    assert_int_equal(a.stop_count, 1);
    assert_memory_equal(a.stops[0].data, "b", 1);
    ask_fini(&a);
    a = accept(parse_completion, "{\"prompt\":\"a\",\"stop\":\"\"}");
    assert_int_equal(a.stop_count, 0);
    ask_fini(&a);
}

static uint32_t limit_of(parser *parse, const char *body)
{
    struct ask a = accept(parse, body);
    uint32_t limit = a.max_tokens;
    ask_fini(&a);
    return limit;
}

/* Names of one limit: which of them counts does not depend on their order. */
static void test_names_of_the_limit(void **state)
{
    static const struct {
        parser *parse;
        const char *body;
        uint32_t limit;
    } cases[] = {
        {parse_chat, CHAT(",\"max_completion_tokens\":3,\"max_tokens\":9"), 3},
        {parse_chat, CHAT(",\"max_tokens\":9,\"max_completion_tokens\":3"), 3},
        {parse_chat, CHAT(",\"max_completion_tokens\":-1,\"max_tokens\":9"), 0},
        {parse_chat, CHAT(",\"max_completion_tokens\":null,\"max_tokens\":9"), 9},
        {parse_chat, CHAT(",\"max_tokens\":0,\"max_completion_tokens\":3"), 3},
        {parse_chat, CHAT(",\"n_predict\":4"), 4},
        {parse_chat, CHAT(",\"n_predict\":4,\"max_tokens\":9"), 4},
        {parse_chat, CHAT(",\"max_completion_tokens\":3,\"n_predict\":4"), 3},
        {parse_response, "{\"input\":\"a\",\"n_predict\":4}", 4},
        {parse_response, "{\"input\":\"a\",\"max_output_tokens\":3,\"n_predict\":4}", 3},
        {parse_completion, "{\"prompt\":\"a\",\"n_predict\":4,\"max_tokens\":9}", 4},
        {parse_completion, "{\"prompt\":\"a\",\"max_tokens\":9,\"n_predict\":4}", 4},
        {parse_llama_completion, "{\"prompt\":\"a\",\"n_predict\":4,\"max_tokens\":9}", 4},
        {parse_llama_completion, "{\"prompt\":\"a\",\"max_tokens\":9,\"n_predict\":-1}", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (limit_of(cases[i].parse, cases[i].body) != cases[i].limit)
            fail_msg("%s: not %u", cases[i].body, cases[i].limit);
    refuse(parse_chat, CHAT(",\"max_completion_tokens\":3,\"max_tokens\":\"9\""), "max_tokens");
    refuse(parse_chat, CHAT(",\"n_predict\":0"), "n_predict");
    refuse(parse_chat, CHAT(",\"max_tokens\":0"), "max_tokens");
    refuse(parse_chat, CHAT(",\"max_completion_tokens\":0"), "max_completion_tokens");
    refuse(parse_response, "{\"input\":\"a\",\"max_output_tokens\":0}", "max_output_tokens");
}

/* Of so many answers the likeliest n are kept: with n of them that changes nothing. */
static void test_best_of(void **state)
{
    struct ask a = accept(parse_completion, "{\"prompt\":\"a\",\"best_of\":3,\"n\":3}");
    assert_int_equal(a.n, 3);
    ask_fini(&a);
    a = accept(parse_completion, "{\"prompt\":\"a\",\"n\":2,\"best_of\":1}");
    ask_fini(&a);
    refuse(parse_completion, "{\"prompt\":\"a\",\"best_of\":3,\"n\":2}", "best_of");
    refuse(parse_completion, "{\"prompt\":\"a\",\"best_of\":3}", "best_of");
    refuse(parse_completion, "{\"prompt\":\"a\",\"best_of\":\"3\"}", "best_of");
}

static void test_null_is_absent(void **state)
{
    struct ask a = accept(parse_chat, CHAT(",\"temperature\":null,\"stop\":null,\"tools\":null,"
                                           "\"max_tokens\":null,\"stream_options\":null"));
    assert_true(a.sampling.temperature == MOED_DEFAULT_FLOAT);
    assert_int_equal(a.stop_count, 0);
    ask_fini(&a);
}

static void test_refusals_name_the_parameter(void **state)
{
    static const char *const wrong[][2] = {
        {CHAT(",\"temperature\":-1"), "temperature"},
        {CHAT(",\"temperature\":\"1\""), "temperature"},
        {CHAT(",\"top_p\":1.5"), "top_p"},
        {CHAT(",\"n\":0"), "n"},
        {CHAT(",\"n\":1.5"), "n"},
        {CHAT(",\"top_k\":1e30"), "top_k"},
        {CHAT(",\"n\":1000000"), "n"},
        {CHAT(",\"max_tokens\":0"), "max_tokens"},
        {CHAT(",\"max_tokens\":4294967296"), "max_tokens"},
        {CHAT(",\"seed\":1.5"), "seed"},
        {CHAT(",\"seed\":36893488147419103232"), "seed"},
        {CHAT(",\"stop\":[1]"), "stop"},
        {CHAT(",\"stream\":1"), "stream"},
        {CHAT(",\"model\":1"), "model"},
        {CHAT(",\"response_format\":{\"type\":\"xml\"}"), "response_format"},
        {CHAT(",\"prediction\":17"), "prediction"},
        {CHAT(",\"prediction\":{\"type\":\"content\"}"), "prediction"},
        {CHAT(",\"prediction\":{\"type\":\"content\",\"content\":17}"), "prediction"},
        {CHAT(",\"prediction\":{\"type\":\"text\",\"content\":\"a\"}"), "prediction"},
        {CHAT(",\"prediction\":{\"type\":\"content\",\"content\":[{\"type\":\"image_url\"}]}"),
         "prediction"},
        {CHAT(",\"modalities\":[\"audio\"]"), "modalities"},
        {"{}", "messages"},
        {"{\"messages\":[]}", "messages"},
        {"{\"messages\":{}}", "messages"},
        {"{\"messages\":[1]}", "messages"},
        {"{\"messages\":[{\"content\":\"a\"}]}", "messages"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":1}]}", "messages"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", "messages"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refuse(parse_chat, wrong[i][0], wrong[i][1]);
}

static void test_bodies_that_are_not_objects(void **state)
{
    static const char *const wrong[] = {
        "",
        " ",
        "{",
        "[]",
        "1",
        "\"a\"",
        "{\"prompt\":\"a\"} x",
        "{\"a\":1,\"a\":2}",
        "{\"prompt\":\"\xff\"}",
        "{'a':1}",
        "{\"a\":NaN}",
        "{\"a\":1,}",
        "\xef\xbb\xbf{}",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refuse(parse_completion, wrong[i], NULL);
    char deep[400];
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    refuse(parse_completion, deep, NULL);
    /* brackets in strings do not nest */
    char text[400];
    snprintf(text, sizeof text, "{\"prompt\":\"\\\"%.*s\"}", 300, deep);
    struct ask a = accept(parse_completion, text);
    assert_int_equal(a.prompts[0].text_bytes, 301);
    ask_fini(&a);
}

/* What parsing takes of memory, and finding of time, has limits that no client's body reaches. */
static void test_large_bodies(void **state)
{
    char *body = body_of("{\"prompt\":[", "7", 1 << 20, "]}");
    struct ask a = accept(parse_completion, body);
    assert_int_equal(a.prompts[0].token_count, 1 << 20);
    ask_fini(&a);
    free(body);
    static const struct {
        const char *item;
        size_t fits;
    } values[] = {{"[]", 300000}, {"{\"\":\"\"}", 150000}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        body = body_of("{\"prompt\":\"a\",\"x\":[", values[i].item, values[i].fits, "]}");
        a = accept(parse_completion, body);
        ask_fini(&a);
        free(body);
        body = body_of("{\"prompt\":\"a\",\"x\":[", values[i].item, 2 * values[i].fits, "]}");
        refuse(parse_completion, body, "");
        free(body);
    }
    body = body_of("{\"prompt\":\"", "{[:", 1 << 19, "\"}"); /* in a string they are none */
    a = accept(parse_completion, body);
    ask_fini(&a);
    free(body);
    struct strbuf many;
    strbuf_init(&many);
    strbuf_printf(&many, "{\"prompt\":\"a\"");
    for (int i = 0; i < 1000; i++)
        strbuf_printf(&many, ",\"x%d\":1", i);
    strbuf_printf(&many, "}");
    refuse_because(parse_completion, many.data, "",
                   "an object of parameters has 1001 members; at most 1000 are allowed");
    strbuf_fini(&many);
}

/* What has no effect is not kept as long as the answer. */
static void test_ignored_values_are_dropped(void **state)
{
    struct ask a = accept(parse_message,
                          "{\"x\":[[]],\"metadata\":{\"user_id\":\"u\"},\"max_tokens\":1,"
                          "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"model\":\"m\"}");
    assert_null(json_object_get(a.root, "x"));
    assert_null(json_object_get(a.root, "metadata"));
    assert_string_equal(a.ignored, "x");
    assert_string_equal(a.model, "m");
    ask_fini(&a);
    a = accept(parse_response, /* repeated by the response */
               "{\"input\":\"a\",\"user\":\"u\",\"metadata\":{\"a\":\"b\"},\"store\":false}");
    assert_string_equal(json_string_value(json_object_get(a.root, "user")), "u");
    assert_int_equal(json_object_size(json_object_get(a.root, "metadata")), 1);
    ask_fini(&a);
    refuse(parse_ollama_generate, "{\"prompt\":[1]}", "prompt");
}

static void test_prompts(void **state)
{
    struct ask a = accept(parse_completion, "{\"prompt\":[\"ab\",[3,4,5]]}");
    assert_int_equal(a.prompt_count, 2);
    assert_int_equal(a.prompts[0].text_bytes, 2);
    assert_int_equal(a.prompts[1].token_count, 3);
    assert_int_equal(a.prompts[1].tokens[2], 5);
    ask_fini(&a);
    a = accept(parse_completion, "{\"prompt\":[7,4294967295]}");
    assert_int_equal(a.prompt_count, 1);
    assert_int_equal(a.prompts[0].tokens[1], UINT32_MAX);
    ask_fini(&a);
    /* llama-server's: a mixed array is one prompt, whose tokens the session finds */
    a = accept(parse_llama_completion, "{\"prompt\":[1,\"a\",2]}");
    assert_int_equal(a.prompt_count, 1);
    assert_int_equal(json_array_size(a.prompts[0].joined), 3);
    ask_fini(&a);
    a = accept(parse_llama_completion, "{\"prompt\":[\"b\",[\"a\",2],[3],{\"prompt_string\":\"cd\","
                                       "\"multimodal_data\":[]},{\"prompt_string\":\"e\"}]}");
    assert_int_equal(a.prompt_count, 5);
    assert_true(a.prompts[1].joined && !a.prompts[2].joined);
    assert_int_equal(a.prompts[3].text_bytes, 2);
    assert_string_equal(a.prompts[4].text, "e");
    ask_fini(&a);
    a = accept(parse_completion, "{\"prompt\":{\"prompt_string\":\"cd\"}}");
    assert_string_equal(a.prompts[0].text, "cd");
    ask_fini(&a);
    refuse_because(parse_llama_completion,
                   "{\"prompt\":{\"prompt_string\":\"a\",\"multimodal_data\":[\"aGk=\"]}}",
                   "prompt.multimodal_data", "this model reads text only");
    refuse(parse_completion, "{\"prompt\":{}}", "prompt.prompt_string");
    char *many = body_of("{\"prompt\":[7,", "\"x\"", 1025, "]}");
    refuse(parse_llama_completion, many, "prompt");
    free(many);
    static const char *const wrong[] = {
        "{\"prompt\":\"\"}",          "{\"prompt\":[]}",
        "{\"prompt\":[[]]}",          "{\"prompt\":[\"\"]}",
        "{\"prompt\":[1,\"a\",[2]]}", "{\"prompt\":[-1]}",
        "{\"prompt\":[1.5]}",         "{\"prompt\":[4294967296]}",
        "{\"prompt\":[[\"a\",1.5]]}", "{\"prompt\":[[1],[\"a\"]]}",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refuse(parse_completion, wrong[i], "prompt");
}

static const char *content_of(const struct ask *a, size_t i, const char *role)
{
    const json_t *message = json_array_get(a->messages, i);
    assert_string_equal(json_string_value(json_object_get(message, "role")), role);
    return json_string_value(json_object_get(message, "content"));
}

/* A system message among the others, and a turn of nothing, are turns. */
static void test_anthropic_turns(void **state)
{
    struct ask a =
        accept(parse_message, "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[{"
                              "\"type\":\"text\",\"text\":\"\"}]},{\"role\":\"system\",\"content\":"
                              "\"S\"}]}");
    assert_int_equal(json_array_size(a.messages), 2);
    assert_string_equal(content_of(&a, 0, "user"), "");
    assert_string_equal(content_of(&a, 1, "system"), "S");
    ask_fini(&a);
}

/* An earlier answer's refusal is its text. */
static void test_refusal_parts(void **state)
{
    struct ask a =
        accept(parse_chat, "{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":"
                           "\"refusal\",\"refusal\":\"No.\"}]}]}");
    assert_string_equal(content_of(&a, 0, "assistant"), "No.");
    ask_fini(&a);
    refuse(parse_chat,
           "{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"refusal\"}]}]}",
           "messages");
}

/* The same conversation by four APIs. */
static void test_conversations(void **state)
{
    struct ask a =
        accept(parse_chat, "{\"messages\":[{\"role\":\"developer\",\"content\":\"S\"},"
                           "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
                           "{\"type\":\"text\",\"text\":\"b\"}]},"
                           "{\"role\":\"assistant\",\"content\":null}]}");
    assert_string_equal(content_of(&a, 0, "system"), "S");
    const json_t *texts = json_object_get(json_array_get(a.messages, 1), "content");
    assert_int_equal(json_array_size(texts), 2); /* the template joins them */
    assert_string_equal(content_of(&a, 2, "assistant"), "");
    ask_fini(&a);
    a = accept(parse_message,
               "{\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":\"ab\"}],"
               "\"system\":[{\"type\":\"text\",\"text\":\"S\"}]}");
    assert_string_equal(content_of(&a, 0, "system"), "S");
    assert_string_equal(content_of(&a, 1, "user"), "ab");
    ask_fini(&a);
    a = accept(parse_response,
               "{\"input\":[{\"type\":\"message\",\"role\":\"user\",\"content\":["
               "{\"type\":\"input_text\",\"text\":\"ab\"}]},{\"type\":\"reasoning\"}],"
               "\"instructions\":\"S\"}");
    assert_string_equal(content_of(&a, 0, "system"), "S");
    assert_string_equal(content_of(&a, 1, "user"), "ab");
    assert_int_equal(json_array_size(a.messages), 2);
    ask_fini(&a);
    a = accept(parse_ollama_generate, "{\"prompt\":\"ab\",\"system\":\"S\"}");
    assert_string_equal(content_of(&a, 0, "system"), "S");
    assert_string_equal(content_of(&a, 1, "user"), "ab");
    ask_fini(&a);
}

static void test_input_tokens(void **state)
{
    struct ask a = accept(parse_input_tokens, "{\"instructions\":\"a\"}");
    assert_int_equal(json_array_size(a.messages), 1);
    ask_fini(&a);
    refuse(parse_response, "{\"instructions\":\"a\"}", NULL);
    refuse(parse_input_tokens, "{}", NULL);
    refuse(parse_input_tokens, "{\"input\":\"a\",\"conversation\":\"c\"}", "conversation");
}

static void test_other_apis_refuse(void **state)
{
    refuse(parse_message, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", NULL);
    refuse(parse_message, "{\"max_tokens\":1,\"messages\":[{\"role\":\"tool\",\"content\":\"a\"}]}",
           "messages");
    refuse(parse_response, "{\"input\":\"a\",\"previous_response_id\":\"resp_1\"}",
           "previous_response_id");
    refuse(parse_response, "{\"input\":[{\"type\":\"item_reference\"}]}", "input");
    refuse(parse_response, "{\"input\":\"a\",\"truncation\":\"half\"}", "truncation");
    refuse(parse_response, "{\"input\":\"a\",\"metadata\":\"a\"}", "metadata");
    refuse(parse_ollama_chat, CHAT(",\"options\":{\"temperature\":-1}"), "options.temperature");
    refuse(parse_ollama_chat, CHAT(",\"options\":1"), "options");
    refuse(parse_ollama_chat, "{\"messages\":\"hi\"}", "messages"); /* no load */
    refuse(parse_ollama_generate, "{\"prompt\":1}", NULL);
    struct ask a = accept(parse_ollama_generate, "{}"); /* only loads the model */
    assert_int_equal(a.prompt_count, 0);
    ask_fini(&a);
    a = accept(parse_chat, CHAT(",\"max_tokens\":-1")); /* no limit */
    assert_true(a.max_tokens == 0 && !a.max_tokens_given);
    ask_fini(&a);
    refuse(parse_chat, CHAT(",\"max_tokens\":-2"), "max_tokens");
    a = accept(parse_ollama_chat, CHAT(",\"options\":{\"num_predict\":-2}"));
    assert_true(a.ignore_end && a.max_tokens == 0);
    ask_fini(&a);
}

/* How long Ollama's clients keep a model loaded. */
static void test_keep_alive(void **state)
{
    static const struct {
        const char *value;
        double seconds;
    } good[] = {{"30", 30}, {"-1", -1}, {"\"1.5\"", 1.5}, {"\"1m30s\"", 90}, {"\"-1m\"", -1}};
    static const char *const wrong[] = {"nan",   "-nan", "inf", "-inf", "infinity",
                                        "1e999", "infm", "m",   "1x",   ""};
    char body[80];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        snprintf(body, sizeof body, "{\"keep_alive\":%s}", good[i].value);
        struct ask a = accept(parse_ollama_generate, body);
        assert_true(a.has_keep && a.keep_s == good[i].seconds);
        ask_fini(&a);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(body, sizeof body, "{\"keep_alive\":\"%s\"}", wrong[i]);
        refuse(parse_ollama_generate, body, "keep_alive");
    }
}

static void test_refused_parameters_pass_where_they_change_nothing(void **state)
{
    static const struct parameter table[] = {{.name = "r", .refused = "no", .neutral = "none"},
                                             {0}};
    static const struct {
        const char *body;
        bool passes;
    } cases[] = {
        {"{\"r\":null}", true},       {"{\"r\":false}", true},    {"{\"r\":0}", true},
        {"{\"r\":0.0}", true},        {"{\"r\":\"\"}", true},     {"{\"r\":[]}", true},
        {"{\"r\":{}}", true},         {"{\"r\":\"none\"}", true}, {"{\"r\":true}", false},
        {"{\"r\":1}", false},         {"{\"r\":\"x\"}", false},   {"{\"r\":[0]}", false},
        {"{\"r\":{\"a\":1}}", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ask ask;
        struct problem p = {0};
        ask_init(&ask);
        assert_true(ask_parse(&ask, cases[i].body, strlen(cases[i].body), &p));
        if (ask_take(&ask, table, ask.root, &p) != cases[i].passes)
            fail_msg("%s", cases[i].body);
        if (!cases[i].passes)
            assert_string_equal(p.parameter, "r");
        ask_fini(&ask);
    }
}

static void test_unknown_parameters_are_named(void **state)
{
    struct ask a = accept(parse_chat, CHAT(",\"wizardry\":1,\"magic\":null"));
    assert_string_equal(a.ignored, "wizardry,magic");
    ask_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_arrive),
        cmocka_unit_test(test_llama_completion),
        cmocka_unit_test(test_integers_written_as_reals),
        cmocka_unit_test(test_half_surrogates),
        cmocka_unit_test(test_stop_strings),
        cmocka_unit_test(test_names_of_the_limit),
        cmocka_unit_test(test_best_of),
        cmocka_unit_test(test_anthropic_turns),
        cmocka_unit_test(test_refusal_parts),
        cmocka_unit_test(test_null_is_absent),
        cmocka_unit_test(test_refusals_name_the_parameter),
        cmocka_unit_test(test_bodies_that_are_not_objects),
        cmocka_unit_test(test_large_bodies),
        cmocka_unit_test(test_ignored_values_are_dropped),
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_conversations),
        cmocka_unit_test(test_input_tokens),
        cmocka_unit_test(test_other_apis_refuse),
        cmocka_unit_test(test_keep_alive),
        cmocka_unit_test(test_refused_parameters_pass_where_they_change_nothing),
        cmocka_unit_test(test_unknown_parameters_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
