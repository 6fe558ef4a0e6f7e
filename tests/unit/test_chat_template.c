/* lib/chat: what a template takes is found by trial, and conversations are changed to fit. */
#include "chat_template_cases.h"

static void test_abilities(void **state)
{
    struct chat_template *t = make(full, NULL);
    const struct chat_abilities *a = chat_template_abilities(t, false);
    assert_true(a->text && a->parts && a->system && a->tools && a->tool_calls && a->reasoning);
    assert_true(a->object_arguments && a->string_arguments && !a->developer && !a->tools_needed);
    assert_true(a->system_again && a->system_later && a->user_again && a->user_after_result);
    chat_template_free(t);
    t = make(strict, NULL);
    a = chat_template_abilities(t, false);
    assert_true(a->text && !a->parts && !a->system && !a->tools && a->tool_calls);
    assert_true(a->object_arguments && !a->string_arguments && !a->reasoning);
    chat_template_free(t);
    t = make(parts_only, NULL);
    a = chat_template_abilities(t, false);
    assert_true(!a->text && a->parts);
    chat_template_free(t);
    t = make("{{ tools | length }}{% for m in messages %}{{ m.content }}{% endfor %}"
             "{% for t in tools %}{{ t.function.name }}{% endfor %}{{ 1 / 0 if tools is none }}"
             "{{ tools[0].x if tools is not defined }}",
             NULL);
    assert_true(chat_template_abilities(t, true)->tools_needed);
    expect(t, "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}]}", nothing, "0q");
    chat_template_free(t);
}

static void test_content(void **state)
{
    struct chat_template *t = make(full, NULL);
    const char *two = "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", "
                      "\"text\": \"a\"}, {\"type\": \"text\", \"text\": \"b\"}]}, "
                      "{\"role\": \"assistant\", \"content\": null}, {\"role\": \"user\", "
                      "\"content\": \"c\"}]}";
    expect(t, two, nothing, "<s><user>a\nb</s><assistant></s><user>c</s><assistant>");
    expect(t,
           "{\"messages\": [{\"role\": \"assistant\", \"content\": [{\"type\": \"text\", "
           "\"text\": \"a\"}, {\"type\": \"text\", \"text\": \"b\"}]}]}",
           nothing, "<s><assistant>ab");
    refused(t, "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]}",
            ERROR_UNSUPPORTED, "message 1: a part of type 'image_url'");
    refused(t, "{\"messages\": [{\"content\": \"x\"}]}", ERROR_USAGE, "message 1 has no role");
    refused(t, "{\"messages\": [{\"role\": \"user\", \"content\": 5}]}", ERROR_USAGE, "no string");
    refused(t, "{\"messages\": []}", ERROR_USAGE, "no messages");
    refused(t, "{}", ERROR_USAGE, "no messages");
    chat_template_free(t);
    t = make(parts_only, NULL);
    expect(t, two, nothing, "a.b..c.");
    chat_template_free(t);
}

/* Parts stand together as the template would write them. */
static void test_gap_of_parts(void **state)
{
    static const char parts[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": "
        "\"text\", \"text\": \"A\"}, {\"type\": \"text\", \"text\": \"B\"}]}]}";
    static const char *const cases[][2] = {{"{{ p.text }}", "AB"},
                                           {"{{ p.text }} ", "A B"},
                                           {"{{ p.text }}+", "A\nB"},
                                           {"{{ p.text + '\n' }}", "A\nB"},
                                           {"{{ p }}", "A\nB"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "{%% for m in messages %%}{%% if m.content is string %%}{{ m.content }}{%% else "
                 "%%}{%% for p in m.content %%}%s{%% endfor %%}{%% endif %%}{%% endfor %%}",
                 cases[i][0]);
        struct chat_template *t = make(text, NULL);
        expect(t, parts, nothing, cases[i][1]);
        chat_template_free(t);
    }
}

static void test_system(void **state)
{
    struct chat_template *t = make(strict, NULL);
    expect(
        t,
        "{\"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"developer\", "
        "\"content\": \"D\"}, {\"role\": \"user\", \"content\": \"U\"}, {\"role\": \"assistant\", "
        "\"content\": \"A\"}, {\"role\": \"system\", \"content\": \"T\"}]}",
        nothing, "[user]S\n\nD\n\nU;[assistant]A;[user]T;[assistant]");
    chat_template_free(t);
    t = make(full, NULL);
    expect(t, "{\"messages\": [{\"role\": \"developer\", \"content\": \"D\"}]}", nothing,
           "<s><system>D</s><assistant>");
    chat_template_free(t);
}

/* An argument beyond 64 bits is a number still, and the others stay. */
static void test_large_arguments(void **state)
{
    struct chat_template *t = make(strict, NULL);
    expect(t,
           "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", "
           "\"content\": \"\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": "
           "\"{\\\"a\\\": 12345678901234567890, \\\"b\\\": 9223372036854775807}\"}}]}, {\"role\": "
           "\"tool\", \"content\": \"R\"}]}",
           nothing,
           "[user]Q;[assistant]a=1.2345678901234567e+19b=9223372036854775807;[tool]R;[assistant]");
    chat_template_free(t);
}

/* Takes a system message at the begin, and refuses others, as Qwen3.5's does. */
static const char first_system[] =
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be at the beginning.') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}{% endfor %}";
/* Drops all but the first, as gpt-oss' does. */
static const char first_developer[] =
    "{% if messages[0].role == 'developer' or messages[0].role == 'system' %}"
    "({{ messages[0].content }}){% endif %}{% for m in messages %}"
    "{% if m.role in ['user', 'assistant'] %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}";
/* Shows all of them at the begin, as DeepSeek's do. */
static const char all_in_front[] =
    "{% for m in messages if m.role == 'system' %}[{{ m.content }}]{% endfor %}"
    "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endfor %}";
/* Demands that the user and the assistant take turns, as Ministral's does. */
static const char alternating[] =
    "{% set ns = namespace(i=0) %}{% for m in messages %}{% if m.role == 'system' and not "
    "loop.first %}{{ raise_exception('no') }}{% endif %}{% if m.role == 'user' or (m.role == "
    "'assistant' and not m.tool_calls) %}{% if (m.role == 'user') != (ns.i % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% set ns.i = ns.i + 1 %}{% endif %}"
    "<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls %}"
    "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}";
/* The same without system messages, and of parts. */
static const char alternating_parts[] =
    "{% for m in messages %}{% if m.role != ['user', 'assistant'][loop.index0 % 2] %}"
    "{{ raise_exception('no') }}{% endif %}<{{ m.role }}>{% for p in m.content %}"
    "{{ p['text'] + '.' }}{% endfor %}{% endfor %}";

/* A template that takes several system messages gets them as they are. */
static void test_further_system_messages(void **state)
{
    static const struct {
        const char *template, *prompt;
    } cases[] = {
        {full, "<s><system>A</s><system>B</s><user>Q</s><assistant>R</s><system>C</s><user>S</s>"
               "<assistant>"},
        {first_system, "<system>A\n\nB<user>Q<assistant>R<user>C<user>S"},
        {first_developer, "(A\n\nB)<user>Q<assistant>R<user>C<user>S"},
        {all_in_front, "[A][B]<user>Q<assistant>R<user>C<user>S"},
        {alternating, "<system>A\n\nB<user>Q<assistant>R<user>C\n\nS"},
        {alternating_parts, "<user>A.\n\n.B.\n\n.Q.<assistant>R.<user>C.\n\n.S."},
        {strict, "[user]A\n\nB\n\nQ;[assistant]R;[user]C\n\nS;[assistant]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct chat_template *t = make(cases[i].template, NULL);
        expect(t,
               "{\"messages\": [{\"role\": \"system\", \"content\": \"A\"}, {\"role\": "
               "\"developer\", \"content\": \"B\"}, {\"role\": \"user\", \"content\": \"Q\"}, "
               "{\"role\": \"assistant\", \"content\": \"R\"}, {\"role\": \"system\", "
               "\"content\": \"C\"}, {\"role\": \"user\", \"content\": \"S\"}]}",
               nothing, cases[i].prompt);
        chat_template_free(t);
    }
    struct chat_template *t = make(first_developer, NULL);
    expect(t,
           "{\"messages\": [{\"role\": \"developer\", \"content\": \"A\"}, {\"role\": "
           "\"system\", \"content\": \"\"}, {\"role\": \"user\", \"content\": \"Q\"}, {\"role\": "
           "\"developer\", \"content\": \"B\"}]}",
           nothing, "(A)<user>Q<user>B");
    chat_template_free(t);
}

/* Text of the user behind a tool's result, as Anthropic's clients send it. */
static void test_text_behind_a_result(void **state)
{
    const char *turns =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", "
        "\"content\": \"\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": "
        "{\"a\": 1}}}]}, {\"role\": \"tool\", \"content\": \"r\"}, {\"role\": \"user\", "
        "\"content\": \"s\"}, {\"role\": \"user\", \"content\": \"t\"}]}";
    struct chat_template *t = make(alternating, NULL);
    expect(t, turns, nothing, "<user>q<assistant>{\"a\": 1}<tool>r\n\ns\n\nt");
    chat_template_free(t);
    t = make(full, NULL);
    expect(t, turns, nothing,
           "<s><user>q</s><assistant>f{\"a\": 1}</s><tool>r</s><user>s</s><user>t</s><assistant>");
    chat_template_free(t);
}

static void test_variants_and_variables(void **state)
{
    const char *with_tools =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}], \"tools\": "
        "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]}";
    const char *plain = "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}]}";
    struct chat_template *t = make(strict, "T{{ tools[0].function.name }}");
    expect(t, with_tools, nothing, "Tf");
    expect(t, plain, nothing, "[user]q;[assistant]");
    chat_template_free(t);
    t = make(strict, NULL);
    refused(t, with_tools, ERROR_UNSUPPORTED, "does not show tools");
    struct chat_request q = {.reasoning_effort = "high", .thinking = CHAT_OFF};
    expect(t, "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}], \"kwargs\": {\"x\": 1}}",
           q, "[user]q;[assistant]1highFalse");
    expect(t,
           "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}], \"kwargs\": "
           "{\"enable_thinking\": true, \"messages\": [], \"bos_token\": \"x\"}}",
           q, "[user]q;[assistant]highTrue");
    q.defaults = json_pack("{s:i, s:s, s:b}", "x", 2, "reasoning_effort", "low", "enable_thinking",
                           true); /* all else wins */
    expect(t, plain, q, "[user]q;[assistant]2highFalse");
    expect(t, plain, (struct chat_request){.defaults = q.defaults}, "[user]q;[assistant]2lowTrue");
    json_decref((json_t *)q.defaults);
    chat_template_free(t);
    struct chat_source broken = {.text = "{% if %}"};
    struct error e;
    assert_int_equal(chat_template_new(&broken, &t, &e), ERROR_FORMAT);
    assert_non_null(strstr(e.text, "template line 1"));
}

static void test_end(void **state)
{
    struct chat_template *t = make(strict, NULL);
    const char *begun = "{\"messages\": [{\"role\": \"user\", \"content\": \"A\"}, {\"role\": "
                        "\"assistant\", \"content\": \" A \"}]}";
    expect(t, begun, nothing, "[user]A;[assistant]A");
    expect(t,
           "{\"messages\": [{\"role\": \"user\", \"content\": \"A\"}, {\"role\": \"assistant\", "
           "\"content\": null}]}",
           nothing, "[user]A;[assistant]");
    expect(t, begun, (struct chat_request){.end = CHAT_END_ANSWER},
           "[user]A;[assistant]A;[assistant]");
    expect(t, begun, (struct chat_request){.end = CHAT_END_CLOSED}, "[user]A;[assistant]A;");
    chat_template_free(t);
    t = make(full, NULL);
    expect(t, begun, nothing, "<s><user>A</s><assistant> A "); /* it keeps the space */
    struct jinja_output out;
    struct error e;
    assert_int_equal(render(t, "{\"messages\": [{\"role\": \"user\", \"content\": \"A\"}]}",
                            (struct chat_request){.end = CHAT_END_CONTINUE}, &out, &e),
                     ERROR_USAGE);
    chat_template_free(t);
    t = make("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}", NULL);
    refused(t, "{\"messages\": [{\"role\": \"assistant\", \"content\": \"B\"}]}", ERROR_USAGE,
            "cannot be continued");
    chat_template_free(t);
}

/* An answer that was cut inside its reasoning goes on there, if the reader of the answer can know
 * it and the template shows it. */
static void test_end_in_reasoning(void **state)
{
    static const char cut[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"A\"}, {\"role\": "
        "\"assistant\", \"content\": \"\", \"reasoning_content\": \"A\"}]}";
    const struct chat_request automatic = {.in_reasoning = true},
                              forced = {.in_reasoning = true, .end = CHAT_END_CONTINUE},
                              text_only = {.end = CHAT_END_CONTINUE};
    struct jinja_output out;
    struct error e;
    (void)state;
    struct chat_template *t = make(full, NULL);
    expect(t, cut, automatic, "<s><user>A</s><assistant>(A");
    expect(t, cut, forced, "<s><user>A</s><assistant>(A");
    expect(t, cut, nothing, "<s><user>A</s><assistant>");
    assert_int_equal(render(t, cut, text_only, &out, &e), ERROR_USAGE);
    chat_template_free(t);
    t = make(strict, NULL); /* it does not show it */
    expect(t, cut, automatic, "[user]A;[assistant]");
    assert_int_equal(render(t, cut, forced, &out, &e), ERROR_USAGE);
    chat_template_free(t);
}

/* What the template shows, up to the last place of the assistant's text that begins in a message.
 */
static void expect_cut(const struct chat_template *t, const char *user, const char *assistant,
                       const char *text)
{
    json_t *messages = json_pack("[{s:s, s:s}, {s:s, s:s}]", "role", "user", "content", user,
                                 "role", "assistant", "content", assistant);
    struct chat_request q = {.messages = messages};
    struct jinja_output out;
    struct error e;
    enum error_code code = chat_template_render(t, &q, &out, NULL, &e);
    if (!text) {
        assert_int_equal(code, ERROR_USAGE);
    } else {
        assert_int_equal(code, ERROR_OK);
        assert_string_equal(out.text, text);
        jinja_output_fini(&out);
    }
    json_decref(messages);
}

/* Templates rewrite a text with raw reasoning: only its first byte must be the request's. */
static void test_end_of_raw_reasoning(void **state)
{
    struct chat_template *t =
        make("{% for m in messages %}<{{ m.role }}>{% if '</think>' in m.content %}"
             "{% set parts = m.content.split('</think>') %}{{ parts[0].strip('\n') + "
             "'\n</think>\n\n' + parts[1].lstrip('\n') }}{% else %}{{ m.content }}{% endif %}"
             "{% endfor %}#",
             NULL);
    expect_cut(t, "q", "foo\n</think>\n\nbar", "<user>q<assistant>foo\n</think>\n\nbar");
    expect_cut(t, "q", "foo\n</think>\n\nbar ", "<user>q<assistant>foo\n</think>\n\nbar ");
    expect_cut(t, "q", "foo</think>bar", NULL);
    chat_template_free(t);
    /* a place whose first byte is the template's does not count, one that overlaps it does */
    t = make("{{ messages[0].content }}{{ 'aba' }}", NULL);
    expect_cut(t, "bab", "aba", "baba");
    expect_cut(t, "b", "aba", NULL);
    chat_template_free(t);
}

/* The place is found for all texts of two letters as by trying each. */
static void test_end_is_the_last(void **state)
{
    struct chat_template *t = make("{{ messages[0].content }}ba", NULL);
    uint32_t random = 1;
    for (int i = 0; i < 5000; i++) {
        char user[40] = "", assistant[8] = "", text[44];
        for (size_t n = 0; n < 1 + (random >> 8) % 30; n++)
            user[n] = "ab"[(random = random * 1664525u + 1013904223u) >> 31];
        for (size_t n = 0; n < 1 + (random >> 8) % 6; n++)
            assistant[n] = "ab"[(random = random * 1664525u + 1013904223u) >> 31];
        size_t n = strlen(assistant), at = strlen(user);
        char all[44];
        snprintf(all, sizeof all, "%sba", user);
        while (at-- > 0 && strncmp(all + at, assistant, n) != 0)
            ;
        snprintf(text, sizeof text, "%.*s", (int)(at + n), all);
        expect_cut(t, user, assistant, at == SIZE_MAX ? NULL : text);
    }
    /* a text that nearly repeats takes no more time than another */
    enum { LONG = 1500000 };
    char *long_user = malloc(LONG + 1), *long_assistant = malloc(LONG / 2 + 1);
    memset(long_user, 'a', LONG);
    memset(long_assistant, 'a', LONG / 2);
    long_user[LONG] = long_assistant[LONG / 2] = '\0';
    long_assistant[0] = 'b';
    expect_cut(t, long_user, long_assistant, NULL);
    free(long_user);
    free(long_assistant);
    chat_template_free(t);
}

static void test_many_kwargs(void **state)
{
    struct chat_template *t = make("{{ messages[0].content }}{{ k7 }}", NULL);
    json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "q");
    json_t *kwargs = json_object();
    struct chat_request q = {.messages = messages, .kwargs = kwargs};
    struct jinja_output out;
    struct error e;
    for (int i = 0; i <= CHAT_KWARGS_MAX; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        json_object_set_new(kwargs, key, json_integer(i));
        enum error_code code = chat_template_render(t, &q, &out, NULL, &e);
        assert_int_equal(code, i < CHAT_KWARGS_MAX ? ERROR_OK : ERROR_USAGE);
        if (!code)
            jinja_output_fini(&out);
    }
    assert_string_equal(e.text, "chat_template_kwargs has 257 keys: at most 256 are taken");
    json_decref(messages);
    json_decref(kwargs);
    chat_template_free(t);
}

/* A template that reads the conversation at each message gets more steps for a longer one. */
static void test_long_conversations(void **state)
{
    assert_int_equal(chat_limits(0).steps, jinja_default_limits.steps);
    assert_int_equal(chat_limits(1000).steps, jinja_default_limits.steps + 50000000);
    assert_int_equal(chat_limits(16384).steps, 100000000);
    assert_int_equal(chat_limits(SIZE_MAX).steps, 100000000);
    enum { MESSAGES = 1500 };
    struct chat_template *t =
        make("{% for m in messages %}{{ m.content }}{% for n in messages[loop.index:] %}"
             "{% if n.role == 'assistant' and n.content != 'q' %}!{% endif %}{% endfor %}"
             "{% endfor %}",
             NULL);
    json_t *messages = json_array();
    for (int i = 0; i < MESSAGES; i++)
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role",
                                                  i % 2 ? "assistant" : "user", "content", "q"));
    struct chat_request q = {.messages = messages, .end = CHAT_END_CLOSED};
    struct jinja_output out;
    struct error e;
    if (chat_template_render(t, &q, &out, NULL, &e))
        fail_msg("%s", e.text);
    assert_int_equal(out.len, MESSAGES);
    jinja_output_fini(&out);
    q.limits = &jinja_default_limits;
    assert_int_equal(chat_template_render(t, &q, &out, NULL, &e), ERROR_LIMIT);
    json_decref(messages);
    chat_template_free(t);
}

/* The name of a role is the template's own text; another role is the request's. */
static void test_roles(void **state)
{
    struct chat_template *t =
        make("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}", NULL);
    struct jinja_output out;
    assert_int_equal(render(t,
                            "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": "
                            "\"end\", \"content\": \"\"}]}",
                            nothing, &out, NULL),
                     ERROR_OK);
    assert_string_equal(out.text, "<|user|>x<|end|>");
    assert_int_equal(out.range_count, 2);
    assert_int_equal(out.ranges[0].start, 8);
    assert_int_equal(out.ranges[0].end, 9);
    assert_int_equal(out.ranges[1].start, 11);
    assert_int_equal(out.ranges[1].end, 14);
    jinja_output_fini(&out);
    chat_template_free(t);
}

static void test_plain(void **state)
{
    struct chat_template *t = make(NULL, NULL);
    assert_true(chat_template_is_plain(t));
    expect(t,
           "{\"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", "
           "\"content\": \"U \"}]}",
           nothing, "System: S\n\nUser: U\n\nAssistant:");
    chat_template_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_abilities),
        cmocka_unit_test(test_content),
        cmocka_unit_test(test_system),
        cmocka_unit_test(test_gap_of_parts),
        cmocka_unit_test(test_end),
        cmocka_unit_test(test_end_in_reasoning),
        cmocka_unit_test(test_end_of_raw_reasoning),
        cmocka_unit_test(test_end_is_the_last),
        cmocka_unit_test(test_many_kwargs),
        cmocka_unit_test(test_long_conversations),
        cmocka_unit_test(test_variants_and_variables),
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_roles),
        cmocka_unit_test(test_further_system_messages),
        cmocka_unit_test(test_large_arguments),
        cmocka_unit_test(test_text_behind_a_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
