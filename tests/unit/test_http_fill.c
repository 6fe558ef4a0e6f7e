/* Fill-in-the-middle over HTTP: requests of editors, the order of the prompt and where it is cut,
 * and the members that an answer is left with. */
#include "http_ask_cases.h"

#include "client/http/api/fill.h"
#include "client/http/api/infill.h"
#include "client/http/api/ollama.h"
#include "client/http/api/openai.h"
#include "client/http/api/response_fields.h"

#include <stdlib.h>

/* ---- Requests ---- */

/* As llama.vscode and llama.vim send them. */
static void test_editors(void **state)
{
    struct ask a = accept(
        parse_infill,
        "{\"id_slot\":0,\"input_prefix\":\"int a;\\n\",\"input_suffix\":\";\\n}\\n\","
        "\"input_extra\":[{\"text\":\"int f(void);\\n\",\"time\":17,\"filename\":\"f.h\"},"
        "{\"text\":\"x\"}],\"prompt\":\"int b = \",\"n_predict\":128,\"n_cmpl\":1,\"top_k\":40,"
        "\"top_p\":0.99,\"stream\":false,\"samplers\":[\"top_k\",\"top_p\",\"infill\"],"
        "\"cache_prompt\":true,\"n_cache_reuse\":256,\"n_indent\":4,\"t_max_prompt_ms\":500,"
        "\"t_max_predict_ms\":2500,\"response_fields\":[\"content\",\"timings/prompt_n\"]}");
    assert_true(a.fill.wanted && a.fill.infill && !a.prompt_only && !a.stream);
    assert_int_equal(a.fill.prefix.len, 7);
    assert_memory_equal(a.fill.suffix.data, ";\n}\n", 4);
    assert_int_equal(json_array_size(a.fill.extra), 2);
    assert_int_equal(a.prompt_count, 1);
    assert_memory_equal(a.prompts[0].text, "int b = ", 8);
    assert_string_equal(a.order, "kp");
    assert_int_equal(a.max_tokens, 128);
    assert_int_equal(a.predict_ms, 2500);
    assert_string_equal(a.ignored, "samplers:infill,n_cache_reuse,n_indent,t_max_prompt_ms");
    ask_fini(&a);
    a = accept(parse_infill, "{\"input_prefix\":\"\",\"input_suffix\":\"\",\"input_extra\":"
                             "[{\"text\":\"x\",\"filename\":null}]}");
    ask_fini(&a);
    a = accept(parse_infill,
               "{\"input_prefix\":\"\",\"input_suffix\":\"\",\"input_extra\":[],"
               "\"n_predict\":0,\"min_tokens\":5,\"samplers\":[],\"t_max_predict_ms\":1}");
    assert_true(a.fill.wanted && a.prompt_only && a.prompt_count == 1 && a.min_tokens == 0);
    ask_fini(&a);
}

static void test_refused(void **state)
{
#define INFILL(more) "{\"input_prefix\":\"a\",\"input_suffix\":\"b\"" more "}"
    refuse(parse_infill, "{\"input_suffix\":\"a\"}", "input_prefix");
    refuse(parse_infill, "{\"input_prefix\":\"a\"}", "input_suffix");
    refuse(parse_infill, "{\"input_prefix\":[1],\"input_suffix\":\"a\"}", "input_prefix");
    refuse(parse_infill, INFILL(",\"prompt\":[1]"), "prompt");
    refuse(parse_infill, INFILL(",\"input_extra\":{}"), "input_extra");
    refuse(parse_infill, INFILL(",\"input_extra\":[1]"), "input_extra");
    refuse(parse_infill, INFILL(",\"input_extra\":[{\"filename\":\"a\"}]"), "input_extra");
    refuse(parse_infill, INFILL(",\"input_extra\":[{\"text\":\"a\",\"filename\":1}]"),
           "input_extra");
    refuse(parse_infill, INFILL(",\"response_fields\":[1]"), "response_fields");
    refuse(parse_infill, INFILL(",\"t_max_predict_ms\":\"1\""), "t_max_predict_ms");
    refuse(parse_completion, "{\"prompt\":\"a\",\"suffix\":1}", "suffix");
    refuse(parse_completion, "{\"prompt\":\"a\",\"suffix\":\"b\",\"echo\":true,\"logprobs\":1}",
           "suffix");
    refuse(parse_completion, "{\"prompt\":\"\",\"suffix\":\"\"}", "prompt");
#undef INFILL
}

static void test_suffix(void **state)
{
    struct ask a = accept(parse_completion, "{\"prompt\":\"\",\"suffix\":\"b\"}");
    assert_true(a.fill.wanted && !a.fill.infill && a.prompt_count == 1);
    ask_fini(&a);
    a = accept(parse_completion, "{\"prompt\":\"a\",\"suffix\":\"\"}");
    assert_false(a.fill.wanted);
    ask_fini(&a);
    a = accept(parse_ollama_generate, "{\"prompt\":\"a\",\"suffix\":\"b\",\"system\":\"s\"}");
    assert_true(a.fill.wanted && !a.messages && a.prompt_count == 1);
    assert_memory_equal(a.prompts[0].text, "a", 1);
    ask_fini(&a);
    a = accept(parse_ollama_generate, "{\"suffix\":\"b\"}");
    assert_true(a.prompt_count == 1 && a.prompts[0].text_bytes == 0);
    ask_fini(&a);
}

/* ---- The prompt ---- */

#define MARKS                                                                                      \
    {                                                                                              \
        .prefix = 1, .suffix = 2, .middle = 3, .pad = 4, .repository = 5, .file = 6                \
    }

/* n ids from `first` on. */
static struct fill_ids ids(uint32_t first, size_t n)
{
    struct fill_ids part = {malloc((n + 1) * sizeof *part.ids), n};
    assert_non_null(part.ids);
    for (size_t i = 0; i < n; i++)
        part.ids[i] = first + (uint32_t)i;
    return part;
}

static void free_ids(struct fill_parts *parts)
{
    free(parts->prefix.ids);
    free(parts->line.ids);
    free(parts->suffix.ids);
    free(parts->extra.ids);
}

static void test_order(void **state)
{
    struct fill_parts parts = {.marks = MARKS,
                               .begin = 9,
                               .prefix = ids(10, 3),
                               .line = ids(20, 2),
                               .suffix = ids(30, 2),
                               .extra = ids(40, 2)};
    static const uint32_t whole[] = {40, 41, 9, 1, 10, 11, 12, 20, 21, 2, 30, 31, 3};
    uint32_t out[16];
    fill_cut(&parts, 4096);
    assert_int_equal(fill_join(&parts, out), sizeof whole / sizeof *whole);
    assert_memory_equal(out, whole, sizeof whole);
    parts.begin = -1;
    parts.extra.count = parts.line.count = 0;
    static const uint32_t short_one[] = {1, 10, 11, 12, 2, 30, 31, 3};
    assert_int_equal(fill_join(&parts, out), sizeof short_one / sizeof *short_one);
    assert_memory_equal(out, short_one, sizeof short_one);
    free_ids(&parts);
}

static void expect_part(const struct fill_ids *part, uint32_t first, size_t count)
{
    assert_int_equal(part->count, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(part->ids[i], first + i);
}

/* A window of 2048 tokens: 1536 before the line, 512 behind it, of which the line and two marks
 * take theirs. 512 are the answer's, the others the extra text's. */
static void test_cut(void **state)
{
    struct fill_parts parts = {.marks = MARKS,
                               .begin = -1,
                               .prefix = ids(10000, 3000),
                               .line = ids(20000, 100),
                               .suffix = ids(30000, 3000),
                               .extra = ids(40000, 6000)};
    fill_cut(&parts, 4096);
    expect_part(&parts.prefix, 10000 + 3000 - 1536, 1536);
    expect_part(&parts.line, 20000, 100);
    expect_part(&parts.suffix, 30000, 512 - 102);
    expect_part(&parts.extra, 40000 + 6000 - 1536, 1536);
    fill_cut(&parts, 512); /* 128 for the answer, 384 around the cursor, none for other files */
    expect_part(&parts.prefix, 13000 - 284, 284);
    expect_part(&parts.line, 20000, 100);
    expect_part(&parts.suffix, 30000, 0);
    expect_part(&parts.extra, 0, 0);
    free_ids(&parts);
}

/* Whatever its parts, a prompt fits with its answer. */
static void test_fits(void **state)
{
    static const size_t counts[] = {0, 1, 500, 2047, 9000};
    enum { N = sizeof counts / sizeof *counts };
    uint32_t *out = malloc((4 * 9000 + 4) * sizeof *out);
    for (uint32_t context = 32; context < 20000; context = context * 3 / 2) {
        for (size_t i = 0; i < (size_t)N * N * N * N; i++) {
            struct fill_parts parts = {.marks = MARKS,
                                       .begin = 0,
                                       .prefix = ids(0, counts[i % N]),
                                       .line = ids(0, counts[i / N % N]),
                                       .suffix = ids(0, counts[i / N / N % N]),
                                       .extra = ids(0, counts[i / N / N / N])};
            fill_cut(&parts, context);
            assert_true(fill_join(&parts, out) < context);
            free_ids(&parts);
        }
    }
    free(out);
}

static void expect_ends(const char *text, size_t n, const char *last, const char *first)
{
    struct moed_bytes all = {text, strlen(text)};
    struct moed_bytes ends[] = {fill_last_bytes(all, n), fill_first_bytes(all, n)};
    assert_int_equal(ends[0].len, strlen(last));
    assert_memory_equal(ends[0].data, last, strlen(last));
    assert_int_equal(ends[1].len, strlen(first));
    assert_memory_equal(ends[1].data, first, strlen(first));
}

static void test_ends(void **state)
{
    expect_ends("abc", 3, "abc", "abc");
    expect_ends("abc", 2, "bc", "ab");
    expect_ends("a\303\266\303\266b", 2, "b", "a");
    expect_ends("\303\266\303\266", 3, "\303\266", "\303\266");
    expect_ends("abcd\nefg\nhijk", 12, "efg\nhijk", "abcd\nefg\n");
    expect_ends("\200\200\200", 2, "", ""); /* not UTF-8 */
}

/* ---- The answer's members ---- */

static void test_response_fields(void **state)
{
    static const char json[] = "{\"content\":\"a\\u0000b\\\"}\",\"list\":[{\"x\":1},[2]],"
                               "\"timings\":{\"prompt_n\":3,\"x\":{},\"ms\":0.2630},\"stop\":true}";
    struct ask a = accept(parse_infill, "{\"input_prefix\":\"\",\"input_suffix\":\"\","
                                        "\"response_fields\":[\"timings/prompt_n\",\"content\","
                                        "\"timings/none\",\"stop/x\",\"/\",\"timings/x/y\","
                                        "\"timings/ms\",\"content\",\"list\",\"\",\"stop\\u0000\","
                                        "\"timings/\",\"stop\"]}");
    struct strbuf from, out;
    strbuf_init(&from);
    strbuf_init(&out);
    strbuf_append(&from, json, strlen(json));
    response_fields_json(&a, &from, &out);
    assert_false(out.failed);
    assert_string_equal(out.data, "{\"timings/prompt_n\":3,\"content\":\"a\\u0000b\\\"}\","
                                  "\"timings/ms\":0.2630,\"list\":[{\"x\":1},[2]],\"stop\":true}");
    assert_true(response_fields_want(&a, "timings") && response_fields_want(&a, "list"));
    assert_false(response_fields_want(&a, "time") || response_fields_want(&a, "tokens"));
    strbuf_fini(&from);
    strbuf_fini(&out);
    ask_fini(&a);
    a = accept(parse_infill, "{\"input_prefix\":\"\",\"input_suffix\":\"\"}");
    assert_true(response_fields_want(&a, "tokens"));
    ask_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_editors), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_suffix),  cmocka_unit_test(test_order),
        cmocka_unit_test(test_cut),     cmocka_unit_test(test_fits),
        cmocka_unit_test(test_ends),    cmocka_unit_test(test_response_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
