/* lib/chat: what a template takes is found by trial, and conversations are changed to fit. */
#include "chat/chat_template.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Takes everything: parts, system, tools, calls with an object or a string. */
static const char full[] =
    "{{ bos_token }}{% if tools %}tools:{{ tools | tojson }}\n{% endif %}{% for m in messages %}"
    "<{{ m.role }}>{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}+"
    "{% endfor %}{% endif %}{% for c in m.tool_calls %}{{ c.function.name }}"
    "{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson "
    "}}"
    "{% endfor %}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
/* Strings only; no system; arguments an object; trims; a variable. */
static const char strict[] =
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('No system') }}{% endif "
    "%}"
    "[{{ m.role }}]{{ m.content.strip() }}{% for c in m.tool_calls %}"
    "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}{% endfor %};"
    "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}{{ x }}{{ reasoning_effort }}"
    "{{ enable_thinking }}";
/* Parts only. */
static const char parts_only[] =
    "{% for m in messages %}{% for p in m.content %}{{ p['text'] + '.' }}{% endfor %}{% endfor %}";

static struct chat_template *make(const char *text, const char *tools)
{
    struct chat_source source = {.text = text, .tools = tools, .bos = "<s>", .eos = "</s>"};
    struct chat_template *t;
    struct error e;
    if (chat_template_new(&source, &t, &e))
        fail_msg("%s", e.text);
    return t;
}

static enum error_code render(const struct chat_template *t, const char *json,
                              struct chat_request q, struct jinja_output *out, struct error *e)
{
    json_t *conversation = json_loads(json, 0, NULL);
    assert_non_null(conversation);
    q.messages = json_object_get(conversation, "messages");
    q.tools = json_object_get(conversation, "tools");
    q.kwargs = json_object_get(conversation, "kwargs");
    q.now_s = 0;
    enum error_code code = chat_template_render(t, &q, out, NULL, e);
    json_decref(conversation);
    return code;
}

static void expect(const struct chat_template *t, const char *json, struct chat_request q,
                   const char *text)
{
    struct jinja_output out;
    struct error e;
    if (render(t, json, q, &out, &e))
        fail_msg("%s: %s", json, e.text);
    assert_string_equal(out.text, text);
    for (size_t i = 0; i < out.range_count; i++)
        assert_true(out.ranges[i].end <= out.len);
    jinja_output_fini(&out);
}

static void refused(const struct chat_template *t, const char *json, enum error_code code,
                    const char *says)
{
    struct jinja_output out;
    struct error e;
    assert_int_equal(render(t, json, (struct chat_request){0}, &out, &e), code);
    if (!strstr(e.text, says))
        fail_msg("'%s' in '%s'", says, e.text);
}

static const struct chat_request nothing;

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

#define CALL(arguments)                                                                            \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", "         \
    "\"content\": null, \"tool_calls\": [{\"type\": \"function\", \"function\": {\"name\": "       \
    "\"f\", "                                                                                      \
    "\"arguments\": " arguments "}}]}]}"

static void test_arguments(void **state)
{
    struct chat_template *t = make(strict, NULL);
    expect(t, CALL("\"{\\\"a\\\": 1}\""), nothing, "[user]q;[assistant]a=1;[assistant]");
    expect(t, CALL("{\"a\": 1}"), nothing, "[user]q;[assistant]a=1;[assistant]");
    expect(t, CALL("\"\""), nothing, "[user]q;[assistant];[assistant]");
    expect(t, CALL("\"{oops\""), nothing,
           "[user]q;[assistant]arguments={oops;[assistant]"); /* what the model wrote wrongly */
    chat_template_free(t);
    t = make("{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}"
             "{{ '' + c.function.arguments }}{% endfor %}{% endfor %}",
             NULL);
    expect(t, CALL("{\"a\": [1, \"b\"]}"), nothing, "q{\"a\": [1, \"b\"]}");
    expect(t, CALL("{\"a\": 0.1, \"b\": [52.52, 3.0]}"), nothing,
           "q{\"a\": 0.1, \"b\": [52.52, 3.0]}");
    expect(t, CALL("\"{\\\"a\\\":1}\""), nothing, "q{\"a\":1}"); /* as the client wrote it */
    chat_template_free(t);
}

/* Numbers beyond what jansson holds, and halves of surrogate pairs. */
static void test_odd_arguments(void **state)
{
    struct chat_template *t = make(strict, NULL);
    (void)state;
    expect(t, CALL("\"{\\\"a\\\": \\\"x\\\\ud83d\\\"}\""), nothing,
           "[user]q;[assistant]a=x\uFFFD;[assistant]");
    expect(t, CALL("\"{\\\"a\\\": \\\"\\\\ude00\\\\ud83d\\\\ude00\\\\ud83d\\\\u0041\\\"}\""),
           nothing, "[user]q;[assistant]a=\uFFFD\U0001F600\uFFFDA;[assistant]");
    expect(t, CALL("\"{\\\"a\\\": [1e400, -1e400, 1]}\""), nothing,
           "[user]q;[assistant]a=[1.7976931348623157e+308, -1.7976931348623157e+308, 1];"
           "[assistant]");
    /* in a string of its own, and a string that holds none */
    expect(t, CALL("\"\\\"{\\\\\\\"a\\\\\\\": 1}\\\"\""), nothing,
           "[user]q;[assistant]a=1;[assistant]");
    expect(t, CALL("\"\\\"a\\\"\""), nothing, "[user]q;[assistant]arguments=\"a\";[assistant]");
    chat_template_free(t);
}

/* An object where a string would stand in a second pair of braces, as in Gemma 4's. */
static void test_arguments_in_braces(void **state)
{
    struct chat_template *t =
        make("{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}<{{ '{' }}"
             "{% if c.function.arguments is mapping %}{% for k, v in c.function.arguments.items() "
             "%}{{ k }}:{{ v }}{% endfor %}{% else %}{{ c.function.arguments }}{% endif %}}>"
             "{% endfor %}{% endfor %}",
             NULL);
    expect(t, CALL("\"{\\\"a\\\": 1}\""), nothing, "q<{a:1}>");
    expect(t, CALL("{\"a\": 1}"), nothing, "q<{a:1}>");
    chat_template_free(t);
}

/* Refuses text beside reasoning in a message with calls, as gpt-oss' does. */
static const char one_of_both[] =
    "{% for m in messages %}{% if m.tool_calls and m.content and m.thinking %}"
    "{{ raise_exception('both') }}{% endif %}<{{ m.role }}>{% if m.thinking %}({{ m.thinking }})"
    "{% endif %}{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}"
    "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}{% if add_generation_prompt %}"
    "<assistant>{% endif %}";
/* Writes a message's text behind the results of its calls, ends the turn there, and shows reasoning
 * only behind the user's last turn, as Gemma 4's does. */
static const char text_last[] =
    "{% set ns = namespace(asked=0) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.asked = loop.index %}{% endif %}{% endfor %}"
    "{% for m in messages %}{% if m.role != 'tool' %}<{{ m.role }}>"
    "{% if m.reasoning_content and loop.index > ns.asked %}({{ m.reasoning_content }}){% endif %}"
    "{% for c in m.tool_calls %}{{ c.function.name }}"
    "{{ c.function.arguments | tojson }}{% for r in messages if r.role == 'tool' and "
    "r.tool_call_id == c.id %}={{ r.content }}{% endfor %}{% endfor %}{{ m.content }}"
    "{% if m.content %};{% endif %}{% endif %}{% endfor %}";
/* Shows text of a message with calls until an answer follows, as gpt-oss' does. */
static const char until_answered[] =
    "{% for m in messages %}<{{ m.role }}>{% set ns = namespace(answered=false) %}"
    "{% for n in messages[loop.index:] if n.role == 'assistant' and not n.tool_calls %}"
    "{% set ns.answered = true %}{% endfor %}{% if m.tool_calls %}"
    "{% if m.content and m.thinking %}{{ raise_exception('both') }}{% endif %}"
    "{% if not ns.answered %}({{ m.content or m.thinking }}){% endif %}"
    "{{ m.tool_calls[0].function.arguments | tojson }}{% else %}{{ m.content }}{% endif %}"
    "{% endfor %}";

#define MESSAGE(role, content) "{\"role\": \"" role "\", \"content\": \"" content "\"}"
#define USED(id, fields)                                                                           \
    "{\"role\": \"assistant\", " fields ", \"tool_calls\": [{\"id\": \"" id                        \
    "\", \"function\": {\"name\": "                                                                \
    "\"f\", \"arguments\": {\"a\": 1}}}]}, {\"role\": \"tool\", \"tool_call_id\": \"" id           \
    "\", \"content\": \"r\"}"
#define CALLED(role_fields)                                                                        \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": "                        \
    "\"assistant\", " role_fields                                                                  \
    ", \"tool_calls\": [{\"id\": \"c1\", \"function\": {\"name\": \"f\", "                         \
    "\"arguments\": {\"a\": 1}}}]}, {\"role\": \"tool\", \"tool_call_id\": \"c1\", "               \
    "\"content\": \"r\"}]}"

static void test_text_before_calls(void **state)
{
    struct chat_template *t = make(one_of_both, NULL);
    expect(t, CALLED("\"content\": \"s\", \"reasoning_content\": \"t\""), nothing,
           "<user>q<assistant>(t\n\ns)f{\"a\": 1}<tool>r<assistant>");
    expect(t, CALLED("\"content\": [{\"type\": \"text\", \"text\": \"s\"}], \"thinking\": \"t\""),
           nothing, "<user>q<assistant>(t\n\ns)f{\"a\": 1}<tool>r<assistant>");
    expect(t, CALLED("\"content\": \"s\", \"reasoning\": \"\""), nothing,
           "<user>q<assistant>sf{\"a\": 1}<tool>r<assistant>");
    expect(t, CALLED("\"content\": null, \"reasoning\": \"t\""), nothing,
           "<user>q<assistant>(t)f{\"a\": 1}<tool>r<assistant>");
    expect(t,
           "{\"messages\": [{\"role\": \"assistant\", \"content\": \"s\", \"reasoning\": \"t\"}, "
           "{\"role\": \"user\", \"content\": \"q\"}]}",
           nothing, "<assistant>(t)s<user>q<assistant>");
    chat_template_free(t);
    t = make(text_last, NULL);
    expect(t, CALLED("\"content\": \"s\""), nothing, "<user>q;<assistant>(s)f{\"a\": 1}=r");
    expect(t, CALLED("\"content\": \"s\", \"reasoning\": \"t\""), nothing,
           "<user>q;<assistant>(t\n\ns)f{\"a\": 1}=r");
    chat_template_free(t);
    t = make(full, NULL); /* it shows both */
    expect(t, CALLED("\"content\": \"s\", \"reasoning\": \"t\""), nothing,
           "<s><user>q</s><assistant>(t)sf{\"a\": 1}</s><tool>r</s><assistant>");
    chat_template_free(t);
}

/* Where the template no longer shows the text of a message with calls, it begins the turn's answer.
 */
static void test_text_before_calls_later(void **state)
{
    const char *later =
        "{\"messages\": [" MESSAGE("user", "q") ", " USED("1", "\"content\": \"s\"") ", " USED(
            "2",
            "\"content\": \"t\", \"reasoning\": \"R\"") ", " MESSAGE("assistant",
                                                                     "u") ", " MESSAGE("user",
                                                                                       "v") "]}";
    const char *cut_short = "{\"messages\": [" MESSAGE("user", "q") ", " USED(
        "1", "\"content\": \"s\", \"reasoning\": \"R\"") ", " MESSAGE("user", "v") "]}";
    const char *both =
        "{\"messages\": [" MESSAGE("user", "q") ", " USED("1", "\"content\": \"s\"") ", " MESSAGE(
            "user", "v") ", " MESSAGE("assistant",
                                      "w") ", " MESSAGE("user",
                                                        "x") ", " USED("2",
                                                                       "\"content\": \"t\"") "]}";
    const char *begun = "{\"messages\": [" MESSAGE("user", "q") ", " USED(
        "1", "\"content\": \"s\"") ", " MESSAGE("assistant", "") "]}";
    struct chat_template *t = make(text_last, NULL);
    assert_false(chat_template_abilities(t, true)->call_text_asked);
    assert_true(chat_template_abilities(t, true)->call_text_answered);
    expect(
        t, later, nothing,
        "<user>q;<assistant>f{\"a\": 1}=r<assistant>f{\"a\": 1}=r<assistant>s\n\nt\n\nu;<user>v;");
    expect(t, cut_short, nothing, "<user>q;<assistant>f{\"a\": 1}=r<assistant>s;<user>v;");
    expect(t, both, nothing,
           "<user>q;<assistant>f{\"a\": 1}=r<assistant>s;<user>v;<assistant>w;<user>x;<assistant>"
           "(t)f{\"a\": 1}=r");
    expect(t, begun, nothing, "<user>q;<assistant>(s)f{\"a\": 1}=r");
    chat_template_free(t);
    t = make(until_answered, NULL);
    assert_true(chat_template_abilities(t, true)->call_text_asked);
    assert_false(chat_template_abilities(t, true)->call_text_answered);
    expect(t, later, nothing,
           "<user>q<assistant>{\"a\": 1}<tool>r<assistant>{\"a\": 1}<tool>r<assistant>s\n\nt\n\nu"
           "<user>v");
    expect(t, cut_short, nothing, "<user>q<assistant>(R\n\ns){\"a\": 1}<tool>r<user>v");
    expect(t, both, nothing,
           "<user>q<assistant>{\"a\": 1}<tool>r<assistant>s<user>v<assistant>w<user>x<assistant>"
           "(t){\"a\": 1}<tool>r");
    expect(t, begun, nothing, "<user>q<assistant>(s){\"a\": 1}<tool>r");
    chat_template_free(t);
    t = make(full, NULL); /* it shows all in its place */
    assert_true(chat_template_abilities(t, true)->call_text_asked);
    assert_true(chat_template_abilities(t, true)->call_text_answered);
    chat_template_free(t);
}

/* Without reasoning in the template it becomes a message of its own, or it stays. */
static void test_text_before_calls_without_reasoning(void **state)
{
    struct chat_template *t =
        make("{% for m in messages if m.role != 'tool' %}<{{ m.role }}>{% for c in m.tool_calls %}"
             "{{ c.function.arguments | tojson }}{% for r in messages if r.role == 'tool' %}"
             "={{ r.content }}{% endfor %}{% endfor %}{{ m.content }};{% endfor %}",
             NULL);
    expect(t, CALLED("\"content\": \"s\""), nothing,
           "<user>q;<assistant>s;<assistant>{\"a\": 1}=r;");
    chat_template_free(t);
    t = make("{% for m in messages %}{% if m.tool_calls and m.content %}"
             "{{ raise_exception('text and calls') }}{% endif %}<{{ m.role }}>{{ m.content }}"
             "{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}"
             "{% endfor %}",
             NULL);
    expect(t, CALLED("\"content\": \"s\""), nothing,
           "<user>q<assistant>s<assistant>{\"a\": 1}<tool>r");
    expect(t, CALLED("\"content\": \"\""), nothing, "<user>q<assistant>{\"a\": 1}<tool>r");
    chat_template_free(t);
    /* drops it, as Llama 3 does; parts only */
    t = make("{% for m in messages %}<{{ m.role }}>{% if m.tool_calls %}"
             "{{ m.tool_calls[0].function.arguments | tojson }}{% else %}{{ m.content[0]['text'] + "
             "';' }}{% endif %}{% endfor %}",
             NULL);
    assert_true(chat_template_abilities(t, true)->text_then_call);
    expect(t, CALLED("\"content\": \"s\""), nothing,
           "<user>q;<assistant>s;<assistant>{\"a\": 1}<tool>r;");
    chat_template_free(t);
    /* takes no two answers in a row */
    t = make("{% for m in messages %}{% if loop.previtem and m.role == loop.previtem.role %}"
             "{{ raise_exception('again') }}{% endif %}<{{ m.role }}>{% if m.tool_calls %}"
             "{{ m.tool_calls[0].function.arguments | tojson }}{% else %}{{ m.content }}{% endif %}"
             "{% endfor %}",
             NULL);
    expect(t, CALLED("\"content\": \"s\""), nothing, "<user>q<assistant>{\"a\": 1}<tool>r");
    chat_template_free(t);
}

/* A function has a description and parameters with properties, whatever the request lacks. */
static void test_bare_tools(void **state)
{
    struct chat_template *t =
        make("{{ messages[0].content }}{% for t in tools %}//{{ t.function.description + ';' }}"
             "{{ t.function.name }}({{ t.function.parameters.properties.items() | length }})"
             "{{ t.function.parameters.type }}{% endfor %}",
             NULL);
    expect(t,
           "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}], \"tools\": [{\"type\": "
           "\"function\", \"function\": {\"name\": \"f\"}}, {\"function\": {\"name\": \"g\", "
           "\"description\": null, \"parameters\": {\"type\": \"object\"}}}, {\"function\": "
           "{\"name\": \"h\", \"description\": \"D\", \"parameters\": {\"type\": \"object\", "
           "\"properties\": {\"a\": {}}}}}]}",
           nothing, "q//;f(0)object//;g(0)object//D;h(1)object");
    chat_template_free(t);
}

/* Shows the first call of a message, or refuses the second one. */
#define ONE_CALL(more)                                                                             \
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ m.reasoning_content }}"                \
    "{% if m.tool_calls %}" more "{% set c = m.tool_calls[0] %}{{ c.function.name }}"              \
    "{{ c.function.arguments | tojson }}{% endif %}{% endfor %}"

/* The JSON has ' for ". */
static void expect_quoted(const struct chat_template *t, const char *json, const char *text)
{
    char *quoted = strdup(json);
    assert_non_null(quoted);
    for (char *c = quoted; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    expect(t, quoted, nothing, text);
    free(quoted);
}

/* Each call gets a message, with its results behind it. */
static void test_single_calls(void **state)
{
    static const char *const templates[] = {
        ONE_CALL(""), ONE_CALL("{{ raise_exception('one') if m.tool_calls | length > 1 }}")};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct chat_template *t = make(templates[i], NULL);
        assert_true(chat_template_abilities(t, false)->tool_calls);
        assert_false(chat_template_abilities(t, false)->several_calls);
        expect_quoted(t,
                      "{'messages': [{'role': 'user', 'content': 'q'},"
                      "{'role': 'assistant', 'content': 'T', 'reasoning_content': 'R', "
                      "'tool_calls': [{'id': '1', 'function': {'name': 'f', 'arguments': {}}}, "
                      "{'id': '2', 'function': {'name': 'g', 'arguments': {}}}, "
                      "{'id': '3', 'function': {'name': 'h', 'arguments': {}}}]},"
                      "{'role': 'tool', 'tool_call_id': '3', 'content': 'c'},"
                      "{'role': 'tool', 'tool_call_id': '1', 'content': 'a'},"
                      "{'role': 'tool', 'tool_call_id': '2', 'content': 'b'},"
                      "{'role': 'tool', 'tool_call_id': '1', 'content': 'd'},"
                      "{'role': 'user', 'content': 'u'}]}",
                      "<user>q<assistant>TRf{}<tool>a<tool>d<assistant>g{}<tool>b"
                      "<assistant>h{}<tool>c<user>u");
        /* one id for both calls; no ids; unknown ids; no results */
        expect_quoted(t,
                      "{'messages': [{'role': 'assistant', 'content': null, "
                      "'tool_calls': [{'id': '1', 'function': {'name': 'f', 'arguments': {}}}, "
                      "{'id': '1', 'function': {'name': 'g', 'arguments': {}}}]},"
                      "{'role': 'tool', 'tool_call_id': '1', 'content': 'a'},"
                      "{'role': 'tool', 'tool_call_id': '1', 'content': 'b'},"
                      "{'role': 'assistant', 'content': '', "
                      "'tool_calls': [{'function': {'name': 'f', 'arguments': {}}}, "
                      "{'id': '2', 'function': {'name': 'g', 'arguments': {}}}]},"
                      "{'role': 'tool', 'content': 'c'},"
                      "{'role': 'tool', 'tool_call_id': '5', 'content': 'd'},"
                      "{'role': 'tool', 'tool_call_id': '6', 'content': 'e'},"
                      "{'role': 'assistant', 'content': '', "
                      "'tool_calls': [{'function': {'name': 'f', 'arguments': {}}}, "
                      "{'function': {'name': 'g', 'arguments': {}}}]}]}",
                      "<assistant>f{}<tool>a<assistant>g{}<tool>b<assistant>f{}<tool>c"
                      "<assistant>g{}<tool>d<tool>e<assistant>f{}<assistant>g{}");
        chat_template_free(t);
    }
}

/* Of a message with several calls: by their ids, as templates show them by position. */
static void test_order_of_results(void **state)
{
    (void)state;
    struct chat_template *t = make(full, NULL);
    assert_true(chat_template_abilities(t, false)->several_calls);
    expect_quoted(t,
                  "{'messages': [{'role': 'assistant', 'content': 'T', "
                  "'tool_calls': [{'id': '1', 'function': {'name': 'f', 'arguments': {}}}, "
                  "{'id': '2', 'function': {'name': 'g', 'arguments': {}}}]},"
                  "{'role': 'tool', 'tool_call_id': '2', 'content': 'b'},"
                  "{'role': 'tool', 'tool_call_id': '1', 'content': 'a'},"
                  "{'role': 'user', 'content': 'u'}]}",
                  "<s><assistant>Tf{}g{}</s><tool>a</s><tool>b</s><user>u</s><assistant>");
    /* only the last one's; none */
    expect_quoted(t,
                  "{'messages': [{'role': 'assistant', 'content': '', "
                  "'tool_calls': [{'id': '1', 'function': {'name': 'f', 'arguments': {}}}, "
                  "{'id': '2', 'function': {'name': 'g', 'arguments': {}}}]},"
                  "{'role': 'tool', 'tool_call_id': '2', 'content': 'b'},"
                  "{'role': 'assistant', 'content': '', "
                  "'tool_calls': [{'id': '3', 'function': {'name': 'f', 'arguments': {}}}, "
                  "{'id': '4', 'function': {'name': 'g', 'arguments': {}}}]},"
                  "{'role': 'user', 'content': 'u'}]}",
                  "<s><assistant>f{}g{}</s><tool>(no result)</s><tool>b</s><assistant>f{}g{}</s>"
                  "<user>u</s><assistant>");
    chat_template_free(t);
}

/* Where the template fails without. */
static void test_ids_of_calls(void **state)
{
    static const char rest
        [] = "{{ m.content }}{% endfor %}",
    begin[] =
        "{% for m in messages %}{{ '<' + m.tool_call_id + '>' if m.role == 'tool' }}"
        "{% for c in m.tool_calls %}[{{ c.id + c.function.name }}{{ c.function.arguments | tojson "
        "}}]{% endfor %}";
    static const char json[] =
        "{'messages': [{'role': 'assistant', 'content': '', "
        "'tool_calls': [{'function': {'name': 'f', 'arguments': {}}}, "
        "{'function': {'name': 'g', 'arguments': {}}}]},"
        "{'role': 'tool', 'content': 'a'}, {'role': 'tool', 'content': 'b'},"
        "{'role': 'tool', 'content': 'c'}, {'role': 'user', 'content': 'q'},"
        "{'role': 'tool', 'content': 'd'}, {'role': 'assistant', 'content': '', "
        "'tool_calls': [{'id': '7', 'function': {'name': 'f', 'arguments': {}}}, "
        "{'function': {'name': 'h', 'arguments': {}}}]},"
        "{'role': 'tool', 'tool_call_id': 'x', 'content': 'e'}, {'role': 'tool', 'content': 'f'}]}";
    char text[512];
    (void)state;
    snprintf(text, sizeof text, "%s%s", begin, rest);
    struct chat_template *t = make(text, NULL);
    assert_true(chat_template_abilities(t, false)->ids_needed);
    expect_quoted(t, json,
                  "[call00001f{}][call00002g{}]<call00001>a<call00002>b<call00002>cq<>d"
                  "[7f{}][call00003h{}]<x>e<call00003>f");
    chat_template_free(t);
    t = make(full, NULL);
    assert_false(chat_template_abilities(t, false)->ids_needed);
    chat_template_free(t);
}

/* Kimi-K2's template makes the ids of calls; results name them. */
static void test_ids_of_the_template(void **state)
{
    (void)state;
    struct chat_template *t =
        make("{% for m in messages %}{{ '<' + m.tool_call_id + '>' if m.role == 'tool' }}"
             "{% for c in m.tool_calls %}[functions.{{ c.function.name }}:{{ loop.index0 }}"
             "{{ c.function.arguments | tojson }}]{% endfor %}{{ m.content }}{% endfor %}",
             NULL);
    assert_true(chat_template_abilities(t, false)->ordinal_ids);
    expect_quoted(t,
                  "{'messages': [{'role': 'assistant', 'content': '', "
                  "'tool_calls': [{'id': 'c1', 'function': {'name': 'f', 'arguments': {}}}, "
                  "{'id': 'c2', 'function': {'name': 'g', 'arguments': {}}}]},"
                  "{'role': 'tool', 'tool_call_id': 'c2', 'content': 'b'},"
                  "{'role': 'tool', 'tool_call_id': 'c1', 'content': 'a'},"
                  "{'role': 'assistant', 'content': '', "
                  "'tool_calls': [{'id': 'c3', 'function': {'name': 'f', 'arguments': {}}}]},"
                  "{'role': 'tool', 'content': 'c'}]}",
                  "[functions.f:0{}][functions.g:1{}]<functions.f:0>a<functions.g:1>b"
                  "[functions.f:0{}]<functions.f:0>c");
    chat_template_free(t);
    t = make(full, NULL);
    assert_false(chat_template_abilities(t, false)->ordinal_ids);
    chat_template_free(t);
}

/* By the name that the template reads. */
static void test_names_of_reasoning(void **state)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        char text[200];
        snprintf(text, sizeof text,
                 "{%% for m in messages %%}{{ m.%s }}{{ m.content }}{%% endfor %%}", names[i]);
        struct chat_template *t = make(text, NULL);
        assert_string_equal(chat_template_abilities(t, false)->reasoning, names[i]);
        for (size_t k = 0; k < 3; k++) {
            snprintf(text, sizeof text,
                     "{\"messages\": [{\"role\": \"assistant\", \"%s\": \"R\", \"content\": "
                     "\"A\"}]}",
                     names[k]);
            expect(t, text, nothing, "RA");
        }
        chat_template_free(t);
    }
}

/* Mistral's, as a part of the content. */
static void test_reasoning_as_a_part(void **state)
{
    (void)state;
    struct chat_template *t =
        make("{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}"
             "{% else %}{% for p in m.content %}{{ '(' + p['thinking'] + ')' if p.type == "
             "'thinking' else p['text'] }}{% endfor %}{% endif %}{% for c in m.tool_calls %}"
             "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}",
             NULL);
    assert_true(chat_template_abilities(t, true)->reasoning_part);
    expect(t, CALLED("\"content\": \"s\", \"reasoning\": \"R\""), nothing,
           "<user>q<assistant>(R)s{\"a\": 1}<tool>r");
    expect(t, CALLED("\"content\": \"\", \"reasoning_content\": \"R\""), nothing,
           "<user>q<assistant>(R){\"a\": 1}<tool>r");
    expect(t, CALLED("\"content\": \"s\", \"reasoning\": \"\""), nothing,
           "<user>q<assistant>s{\"a\": 1}<tool>r");
    chat_template_free(t);
    t = make(full, NULL);
    assert_false(chat_template_abilities(t, true)->reasoning_part);
    chat_template_free(t);
    t = make("{% for m in messages %}{{ m.content }}{% endfor %}", NULL);
    assert_false(chat_template_abilities(t, true)->reasoning_part);
    chat_template_free(t);
}

static void test_variants_and_variables(void **state)
{
    const char *with_tools =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}], \"tools\": "
        "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]}";
    struct chat_template *t =
        make(strict, "T{{ tools[0].function.name }}{{ messages[0].content }}");
    expect(t, with_tools, nothing, "Tfq");
    expect(t, "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}]}", nothing,
           "[user]q;[assistant]");
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
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_odd_arguments),
        cmocka_unit_test(test_single_calls),
        cmocka_unit_test(test_order_of_results),
        cmocka_unit_test(test_ids_of_calls),
        cmocka_unit_test(test_ids_of_the_template),
        cmocka_unit_test(test_names_of_reasoning),
        cmocka_unit_test(test_reasoning_as_a_part),
        cmocka_unit_test(test_arguments_in_braces),
        cmocka_unit_test(test_text_before_calls),
        cmocka_unit_test(test_text_before_calls_later),
        cmocka_unit_test(test_text_before_calls_without_reasoning),
        cmocka_unit_test(test_bare_tools),
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
