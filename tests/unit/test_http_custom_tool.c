/* Custom tools of the Responses API: the functions that stand for them, and their inputs. */
#include "client/http/api/custom_tool.h"

#include "base/strbuf.h"
#include "client/http/api/openai_responses.h"
#include "http_ask_cases.h"
#include "toolcall/tools.h"

#define PATCH                                                                                      \
    "{\"type\":\"custom\",\"name\":\"apply_patch\",\"description\":\"Edits files.\","              \
    "\"format\":{\"type\":\"grammar\",\"syntax\":\"lark\",\"definition\":\"start: \\\"a\\\"\"}}"

static void test_functions(void **state)
{
    struct ask a =
        accept(parse_response, "{\"input\":\"a\",\"tools\":[" PATCH ",{\"type\":\"function\","
                               "\"name\":\"now\"}],\"tool_choice\":{\"type\":\"custom\",\"name\":"
                               "\"apply_patch\"}}");
    json_t *wanted = json_loads(
        "[{\"type\":\"function\",\"function\":{\"name\":\"apply_patch\",\"description\":"
        "\"Edits files.\\nThe argument `input` is the tool's whole input, a plain text. It "
        "follows this grammar, in the notation lark:\\nstart: \\\"a\\\"\",\"parameters\":"
        "{\"type\":\"object\",\"properties\":{\"input\":{\"type\":\"string\"}},\"required\":"
        "[\"input\"],\"additionalProperties\":false}}},"
        "{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]",
        0, NULL);
    assert_non_null(wanted);
    assert_true(json_equal(a.tools, wanted));
    assert_int_equal(a.calls, CALLS_NAMED);
    assert_non_null(json_object_get(a.custom_tools, "apply_patch"));
    assert_int_equal(json_object_size(a.custom_tools), 1);
    json_decref(wanted);
    ask_fini(&a);
    refuse(parse_response, "{\"input\":\"a\",\"tools\":[{\"type\":\"custom\"}]}", "tools");
    refuse(parse_response, "{\"input\":\"a\",\"tools\":[" PATCH "," PATCH "]}", "tools");
    refuse_because(parse_response, "{\"input\":\"a\",\"tools\":[{\"type\":\"local_shell\"}]}",
                   "tools",
                   "tools[0]: the type function or custom is expected, not 'local_shell': moed has "
                   "no tools of its own. Describe a tool that the client runs as a function (name, "
                   "description, parameters)");
    refuse_because(
        parse_message,
        CHAT(",\"max_tokens\":1,\"tools\":[{\"type\":\"bash_20250124\",\"name\":\"bash\"}]"),
        "tools",
        "tools[0]: 'bash_20250124' is not known: moed has no tools of its own. Describe a tool "
        "that the client runs by name, description and input_schema, without a type");
    refuse_because(parse_response,
                   "{\"input\":\"a\",\"instructions\":[{\"role\":\"user\",\"content\":\"a\"}]}",
                   "instructions",
                   "a text is expected, not messages: put them before those of input");
}

/* What comes of arguments in two parts. */
static void expect_input(const char *arguments, size_t split, const char *wanted, size_t len)
{
    struct custom_input in = {0};
    struct strbuf out;
    strbuf_init(&out);
    custom_input_take(&in, arguments, split, &out);
    custom_input_take(&in, arguments + split, strlen(arguments) - split, &out);
    if (out.len != len || (len && memcmp(out.data, wanted, len) != 0))
        fail_msg("%s at %zu: %.*s", arguments, split, (int)out.len, out.data);
    strbuf_fini(&out);
}

static void test_inputs(void **state)
{
#define BOTH(arguments, text)                                                                      \
    {                                                                                              \
        arguments, text, sizeof text - 1                                                           \
    }
    static const struct {
        const char *arguments, *text;
        size_t len;
    } cases[] = {
        BOTH("{\"input\":\"\"}", ""),
        BOTH("{ \"input\" :\n\"a b\" }", "a b"),
        BOTH("{\"input\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", "\"\\/\b\f\n\r\t"),
        BOTH("{\"input\":\"K\xc3\xb6ln \\u00f6\\u20AC\\u0000.\"}",
             "K\xc3\xb6ln \xc3\xb6\xe2\x82\xac\0."),
        BOTH("{\"input\":\"\\ud83d\\ude00\"}", "\xf0\x9f\x98\x80"),
        BOTH("{\"input\":\"\\ud83da\\ude00\"}", "\xef\xbf\xbd"
                                                "a\xef\xbf\xbd"),
        BOTH("{\"input\":\"\\ud83d\\n\\ud83d\\ud83d\"}", "\xef\xbf\xbd\n\xef\xbf\xbd\xef\xbf\xbd"),
        /* calls that break off */
        BOTH("{\"inp", ""),
        BOTH("{\"input\":\"a\\n b\\", "a\n b"),
        BOTH("{\"input\":\"a\\u00", "a"),
        BOTH("{\"input\":5}", ""),
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t split = 0; split <= strlen(cases[i].arguments); split++)
            expect_input(cases[i].arguments, split, cases[i].text, cases[i].len);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions),
        cmocka_unit_test(test_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
