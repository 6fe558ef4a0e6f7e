/* lib/chat: calls, results and reasoning as a template takes them. */
#include "chat_template_cases.h"

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
    /* the same id twice: the results stand in the order of the calls */
    expect_quoted(t,
                  "{'messages': [{'role': 'assistant', 'content': '', "
                  "'tool_calls': [{'id': '', 'function': {'name': 'f', 'arguments': {}}}, "
                  "{'id': '', 'function': {'name': 'g', 'arguments': {}}}]},"
                  "{'role': 'tool', 'tool_call_id': '', 'content': 'a'},"
                  "{'role': 'tool', 'tool_call_id': '', 'content': 'b'}]}",
                  "[functions.f:0{}][functions.g:1{}]<functions.f:0>a<functions.g:1>b");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_odd_arguments),
        cmocka_unit_test(test_arguments_in_braces),
        cmocka_unit_test(test_text_before_calls),
        cmocka_unit_test(test_text_before_calls_later),
        cmocka_unit_test(test_text_before_calls_without_reasoning),
        cmocka_unit_test(test_bare_tools),
        cmocka_unit_test(test_single_calls),
        cmocka_unit_test(test_order_of_results),
        cmocka_unit_test(test_ids_of_calls),
        cmocka_unit_test(test_ids_of_the_template),
        cmocka_unit_test(test_names_of_reasoning),
        cmocka_unit_test(test_reasoning_as_a_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
