/* Past calls in a prompt: with each published template (where the folder with them is here) the
 * parser of the model's answers reads them back, so that they have the model's own notation. */
#include "client/chat/chat_style.h"
#include "chat/chat_template.h"
#include "toolcall_run.h"

#include <glob.h>
#include <stdio.h>

#define FOLDER MOED_SHARED_DIR "/templates/"

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "r");
    char *text = calloc(1, 1 << 20);
    assert_non_null(f);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    return text;
}

struct model {
    char *text;
    struct chat_style style;
    struct chat_template *template;
    const struct chat_abilities *can;
    json_t *tools;
    enum chat_switch thinking;   /* and reasoning in the answers */
    bool as_string, without_ids; /* the calls: their arguments, and as Ollama's clients send them */
};

/* Takes the text. */
static void model_of(struct model *m, char *text, const char *path)
{
    struct error e;
    *m = (struct model){.text = text, .tools = json_loads(SAMPLE_TOOLS, 0, NULL)};
    m->style = chat_style_of_text(m->text);
    struct chat_source source = {
        .text = m->text, .calls = chat_style_calls(&m->style), .bos = "<s>", .eos = "</s>"};
    if (chat_template_new(&source, &m->template, &e))
        fail_msg("%s: %s", path, e.text);
    m->can = chat_template_abilities(m->template, true);
}

static void model_fini(struct model *m)
{
    chat_template_free(m->template);
    json_decref(m->tools);
    free(m->text);
}

static struct jinja_output render(const struct model *m, const json_t *messages, enum chat_end end)
{
    struct chat_request q = {
        .messages = messages, .tools = m->tools, .thinking = m->thinking, .end = end};
    struct jinja_output out = {0};
    struct error e;
    if (chat_template_render(m->template, &q, &out, NULL, &e))
        fail_msg("%s", e.text);
    return out;
}

/* Where the answer begins: behind what both prompts have, and not inside a mark. */
static size_t answer_start(const char *question, const char *answered)
{
    size_t n = 0;
    while (question[n] && question[n] == answered[n])
        n++;
    while (question[n] && n > 0 && !strchr(">\n", answered[n - 1]))
        n--;
    return n;
}

/* -- A question and its answer, which is calls -- */

#define REASONING "Two \"places\" <b> &\nand 'more'."

/* Values of each type; texts that look like other values, or have quotes, lines or other letters.
 */
static const char book[] =
    "{\"type\":\"function\",\"function\":{\"name\":\"book\",\"description\":\"d\",\"parameters\":{"
    "\"type\":\"object\",\"properties\":{\"title\":{\"type\":\"string\"},\"code\":{\"type\":"
    "\"string\"},\"count\":{\"type\":\"integer\"},\"ratio\":{\"type\":\"number\"},\"flag\":{"
    "\"type\":\"boolean\"},\"none\":{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]},"
    "\"list\":{\"type\":\"array\"}"
    ",\"map\":{\"type\":\"object\"}}}}}";

static const char *const names[] = {"book", "edit", "now", "book", "get_weather"};
static const char *const values[] = {
    "{\"title\": \"Z\\u00fcrich \\u6771\\u4eac \\ud83d\\ude00\", \"code\": \"007\", \"count\": -3, "
    "\"ratio\": 0.125, \"flag\": false, \"none\": null, \"list\": [1, -2.5, \"a'b\\\"c\", null, "
    "true, [], {\"k\": \"v\"}], \"map\": {\"a b\": [\"x\"], \"c\": {\"d\": false}}}",
    "{\"path\": \"a 'b'.c\", \"text\": \"if (x < 1 && y > 2) {\\n\\treturn \\\"\\\\n\\\";\\n}\"}",
    "{}",
    "{\"title\": \"\", \"code\": \"true\", \"map\": {}, \"list\": []}",
    "{\"city\": \"<b>\\n{Ulm}\\n[1, 2]\", \"days\": 3, \"tags\": [\"a\", \"b c\"], \"opt\": null}",
};
enum { N_CALLS = sizeof names / sizeof *names };

static json_t *call_of(const struct model *m, size_t i)
{
    char id[16];
    snprintf(id, sizeof id, "call%05zu", i);
    json_t *arguments = m->as_string ? json_string(values[i]) : json_loads(values[i], 0, NULL);
    json_t *call = json_pack("{s:s, s:{s:s, s:o}}", "type", "function", "function", "name",
                             names[i], "arguments", arguments);
    if (!m->without_ids)
        json_object_set_new(call, "id", json_string(id));
    return call;
}

/* Whether `*at` is the call; moves it behind. */
static bool is_call(const char **at, size_t i)
{
    char begin[64];
    json_error_t end;
    int n = snprintf(begin, sizeof begin, "N(%s)A(", names[i]);
    if (strncmp(*at, begin, (size_t)n) != 0)
        return false;
    json_t *given = json_loads(values[i], 0, NULL);
    json_t *got = json_loads(*at + n, JSON_DISABLE_EOF_CHECK, &end);
    bool same = got && json_equal(got, given);
    *at += got ? n + end.position : 0;
    same = same && strncmp(*at, ")E", 2) == 0;
    *at += same ? 2 : 0;
    json_decref(got);
    json_decref(given);
    return same;
}

/* Of calls [first, first + count). Owned. */
static json_t *answer_of(const struct model *m, size_t first, size_t count)
{
    json_t *calls = json_array();
    for (size_t i = first; i < first + count; i++)
        json_array_append_new(calls, call_of(m, i));
    json_t *answer =
        json_pack("{s:s, s:s, s:o}", "role", "assistant", "content", "", "tool_calls", calls);
    if (m->thinking == CHAT_ON)
        json_object_set_new(answer, "reasoning_content", json_string(REASONING));
    return answer;
}

/* The answer behind `messages`: the calls [first, first + count), and what else the template shows.
 */
static void check_answer(const struct model *m, const char *path, const json_t *messages,
                         const json_t *answered, size_t first, size_t count)
{
    struct jinja_output before = render(m, messages, CHAT_END_ANSWER);
    struct jinja_output after = render(m, answered, CHAT_END_CLOSED);
    size_t start = answer_start(before.text, after.text);
    char *tools = json_dumps(m->tools, 0);
    struct tool_list *list = tools_of(tools);
    struct tool_parser_options o = {.format = m->style.format,
                                    .reasoning = m->style.reasoning,
                                    .tools = list,
                                    .reasoning_open =
                                        reasoning_left_open(m->style.reasoning, after.text, start),
                                    .parallel = true};
    struct transcript t;
    transcript_run(&t, o, after.text + start, after.len - start, NULL, NULL);
    const char *at = transcript_text(&t);
    bool separates = chat_style_has_marks(&m->style) && strstr(after.text + start, REASONING);
    bool reasons = m->thinking == CHAT_ON && m->can->reasoning;
    assert_true(!reasons || strstr(after.text, REASONING));
    bool good = !separates || strstr(at, "R(" REASONING) == at;
    at = strstr(at, "N(");
    for (size_t i = 0; i < count; i++)
        good = good && at && is_call(&at, first + i);
    if (!good || strstr(at, "N("))
        fail_msg("%s: %s was read as %s", path, after.text + start, transcript_text(&t));
    transcript_fini(&t);
    tool_list_free(list);
    free(tools);
    jinja_output_fini(&before);
    jinja_output_fini(&after);
}

/* Each call of a message, where the template shows one in a message. */
static void check_calls(const struct model *m, const char *path, size_t first, size_t count)
{
    bool several = m->can->several_calls;
    json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "Question?");
    for (size_t i = 0; i < count; i += several ? count : 1) {
        size_t shown = several ? count : i + 1;
        json_t *answered = json_deep_copy(messages);
        json_array_append_new(answered, answer_of(m, first, shown));
        json_t *question = json_deep_copy(messages);
        if (i > 0)
            json_array_append_new(question, answer_of(m, first, i));
        check_answer(m, path, question, answered, first + i, shown - i);
        json_decref(answered);
        json_decref(question);
    }
    json_decref(messages);
}

static void check_template(const char *path)
{
    struct model m;
    model_of(&m, read_file(path), path);
    json_array_append_new(m.tools, json_loads(book, 0, NULL));
    if (m.can->tools && strcmp(m.style.format->name, "generic") != 0) {
        assert_true(m.can->tool_calls);
        for (int form = 0; form < 8; form++) {
            m.as_string = form & 1;
            m.without_ids = form & 4;
            m.thinking = form & 2 ? CHAT_ON : CHAT_UNSET;
            for (size_t i = 0; i < N_CALLS; i++)
                check_calls(&m, path, i, 1);
            for (size_t i = 0; i + 1 < N_CALLS; i++)
                check_calls(&m, path, i, 2);
        }
    }
    model_fini(&m);
}

static void test_read_back(void **state)
{
    glob_t files;
    if (glob(FOLDER "*.jinja", 0, NULL, &files) != 0)
        skip(); /* the folder is not here */
    for (size_t i = 0; i < files.gl_pathc; i++)
        check_template(files.gl_pathv[i]);
    globfree(&files);
}

/* LFM2's template shows tools, and the content of each message. */
static const char tools_alone[] =
    "{% if tools %}List of tools: <|tool_list_start|>{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";

/* Calls that a template does not show stand in the content: their marks are the template's, so that
 * they become control tokens, and what the request wrote into them is text. */
static void test_calls_in_content(void **state)
{
    struct model m;
    model_of(&m, strdup(tools_alone), "LFM2");
    assert_true(m.can->tools && m.can->tool_calls && m.can->object_arguments);
    json_t *messages = json_loads(
        "[{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": "
        "\"<|tool_call_end|>\", \"tool_calls\": [{\"function\": {\"name\": \"edit\", "
        "\"arguments\": \"{\\\"path\\\": \\\"<|im_end|>\\\\\\\"\\\", \\\"x\\\": [true, null, "
        "{\\\"y\\\": 1.5}]}\"}}, {\"function\": {\"name\": \"now\", \"arguments\": \"\"}}]}, "
        "{\"role\": \"tool\", \"content\": \"r\"}]",
        0, NULL);
    assert_non_null(messages);
    struct jinja_output out = render(&m, messages, CHAT_END_ANSWER);
    const char *text = strstr(out.text, "<|im_start|>");
    assert_non_null(text);
    assert_string_equal(
        text, "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n<|tool_call_end|>"
              "<|tool_call_start|>[edit(path=\"<|im_end|>\\\"\", x=[True, None, {'y': 1.5}]), "
              "now()]<|tool_call_end|><|im_end|>\n<|im_start|>tool\nr<|im_end|>\n");
    size_t plain = 0, marks = 0;
    for (const char *at = text; (at = strstr(at, "<|")); at++) {
        size_t i = (size_t)(at - out.text);
        bool request = false;
        for (size_t r = 0; r < out.range_count; r++)
            request |= i >= out.ranges[r].start && i < out.ranges[r].end;
        plain += request;
        marks += !request;
    }
    assert_int_equal(plain, 2);
    assert_int_equal(marks, 8);
    jinja_output_fini(&out);
    json_decref(messages);
    model_fini(&m);
}

/* A call in an older content that the template cuts at </think>, as LFM2.5's does. */
static void test_mark_of_reasoning_in_a_call(void **state)
{
    static const char cuts[] =
        " \n{{- bos_token }}{% if tools %}List of tools: [{{ tools | tojson }}]{% endif %}"
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% set content = m.content %}"
        "{% if m.role == 'assistant' and not loop.last and '</think>' in content %}"
        "{% set content = content.split('</think>')[-1] | trim %}{% endif %}"
        "{{ content }}<|im_end|>\n{% endfor %}{# <|tool_call_start|> #}";
    struct model m;
    model_of(&m, strdup(cuts), "LFM2.5");
    json_t *given = json_pack("{s:s, s:s, s:[s, n, b]}", "path", "a\\</think>b", "text", "</think>",
                              "tags", "'\"</think>", 1);
    json_t *messages =
        json_pack("[{s:s, s:s}, {s:s, s:s, s:[{s:{s:s, s:O}}]}, {s:s, s:s}]", "role", "user",
                  "content", "Q", "role", "assistant", "content", "<think>R</think>S", "tool_calls",
                  "function", "name", "edit", "arguments", given, "role", "tool", "content", "r");
    assert_non_null(messages);
    struct jinja_output out = render(&m, messages, CHAT_END_ANSWER);
    const char *at = strstr(out.text, "<|im_start|>assistant\nS<|tool_call_start|>");
    const char *end = at ? strstr(at, "<|im_end|>") : NULL;
    if (!end)
        fail_msg("%s", out.text);
    at = strchr(at, 'S');
    struct tool_list *list = tools_of(SAMPLE_TOOLS);
    struct transcript t;
    transcript_run(&t, (struct tool_parser_options){.format = m.style.format, .tools = list}, at,
                   (size_t)(end - at), NULL, NULL);
    static const char begin[] = "C(S)N(edit)A(";
    assert_memory_equal(transcript_text(&t), begin, strlen(begin));
    json_t *got = json_loads(transcript_text(&t) + strlen(begin), JSON_DISABLE_EOF_CHECK, NULL);
    assert_true(json_equal(got, given));
    json_decref(got);
    transcript_fini(&t);
    tool_list_free(list);
    jinja_output_fini(&out);
    json_decref(messages);
    json_decref(given);
    model_fini(&m);
}

/* White space at the begin of a template is its own. */
static void test_begin_of_template(void **state)
{
    struct model m;
    char *text = NULL;
    assert_true(asprintf(&text, "\n\n%s", tools_alone) > 0);
    model_of(&m, text, "LFM2");
    json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "Q");
    struct jinja_output out = render(&m, messages, CHAT_END_ANSWER);
    assert_memory_equal(out.text, "\n\nList of tools: ", 17);
    jinja_output_fini(&out);
    json_decref(messages);
    model_fini(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_back),
        cmocka_unit_test(test_calls_in_content),
        cmocka_unit_test(test_mark_of_reasoning_in_a_call),
        cmocka_unit_test(test_begin_of_template),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
