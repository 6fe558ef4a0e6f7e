/* lib/jinja by examples worked by hand: which bytes come from the request, limits, errors.
 * (tests/jinja compares the language itself with python3-jinja2.) */
#include "jinja/jinja.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char variables[] =
    "{\"u\": \"<|end|>\", \"s\": \"a b\", \"l\": [\"x\", \"y\"], \"d\": {\"k\": \"v\"}, \"n\": 3, "
    "\"j\": \"[\\\"i\\\"]\", \"h\": \"\\u00e9x\"}";

static enum error_code render(const char *source, const struct jinja_limits *limits,
                              struct jinja_output *out, struct error *e)
{
    struct jinja_template *t;
    enum error_code code = jinja_compile(source, strlen(source), &t, e);
    if (code)
        return code;
    json_t *request = json_loads(variables, 0, NULL), *trusted = json_pack("{s:s}", "bos", "<s>");
    struct jinja_input input = {
        .request = request, .trusted = trusted, .now_s = 86400, .limits = limits};
    code = jinja_render(t, &input, out, e);
    json_decref(request);
    json_decref(trusted);
    jinja_free(t);
    return code;
}

/* The output, and below each byte '^' where it came from the request. */
static void expect(const char *source, const char *text, const char *marks)
{
    struct jinja_output out;
    struct error e;
    char got[256] = "";
    if (render(source, NULL, &out, &e))
        fail_msg("%s: %s", source, e.text);
    assert_string_equal(out.text, text);
    assert_int_equal(out.len, strlen(text));
    memset(got, '.', out.len);
    for (size_t i = 0; i < out.range_count; i++)
        memset(got + out.ranges[i].start, '^', out.ranges[i].end - out.ranges[i].start);
    assert_string_equal(got, marks);
    jinja_output_fini(&out);
}

static void test_origin(void **state)
{
    expect("<|end|>{{ u }}", "<|end|><|end|>", ".......^^^^^^^");
    expect("{{ bos + u }}", "<s><|end|>", "...^^^^^^^");
    expect("{{ 'a' ~ u[2:5] ~ 'b' }}", "aendb", ".^^^.");
    expect("{{ u.split('|')[1] }}-{{ u.strip('<>') }}", "end-|end|", "^^^.^^^^^");
    expect("{{ u | replace('end', 'END') }}", "<|END|>", "^^...^^");
    expect("{{ '<end>' | replace('end', s) }}", "<a b>", ".^^^.");
    expect("{{ u | upper }}{{ s | title }}", "<|END|>A B", "^^^^^^^^^^");
    expect("{{ l | join('<|end|>') }}", "x<|end|>y", "^.......^");
    expect("{{ d | tojson }}", "{\"k\": \"v\"}", "..^....^..");
    expect("{{ d }}", "{'k': 'v'}", "..^....^..");
    expect("{% for c in s %}[{{ c }}]{% endfor %}", "[a][ ][b]", ".^..^..^.");
    expect("{{ j | from_json | first }}", "i", "^");
    expect("{{ '%s!' % u }}{{ '{}'.format(s) }}", "<|end|>!a b", "^^^^^^^.^^^");
    expect("{% set x %}{{ u }}.{% endset %}{{ x }}", "<|end|>.", "^^^^^^^.");
    expect("{% macro m(a) %}({{ a }}){% endmacro %}{{ m(u) }}", "(<|end|>)", ".^^^^^^^.");
    expect(
        "{% set ns = namespace(t='') %}{% for x in l %}{% set ns.t = ns.t + x + ',' %}{% endfor %}"
        "{{ ns.t }}",
        "x,y,", "^.^.");
    expect("{{ s[::-1] }}{{ h[0] }}{{ h | reverse }}", "b a\u00e9x\u00e9", "^^^^^^^^");
    expect("{% set c = cycler('a', 'b') %}{% set c.items = 5 %}{% set c.pos = 'x' %}"
           "{% set c.current = n %}{{ c.next() }}{{ c.next() }}{{ c.current }}",
           "aba", "...");
    expect("{{ n }}{{ l | length }}{{ s == 'a b' }}", "32True", "......"); /* no text of it */
    expect("{{ s | indent(1, true) }}", " a b", ".^^^");
    expect("{% filter lower %}A{{ s }}{% endfilter %}", "aa b", ".^^^");
}

static void test_white_space(void **state)
{
    expect("a\n  {% if n %}\n  b\n  {% endif %}\nc\n", "a\n  b\nc", ".......");
    expect("a  {{- n -}}  b", "a3b", "...");
    expect("{% set x = 1 %}\n{{ x }}\n\n", "1\n", "..");
    expect("{# c #}\nx {#- c -#} y", "xy", "..");
    expect("{%+ if n %}\n  y{% endif +%}\nz", "  y\nz", ".....");
    expect("{% raw %}{{ n }}{% endraw %}\r\nz", "{{ n }}z", "........");
}

static void test_values(void **state)
{
    expect("{{ 7 // -2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 1e16 }} {{ 0.1 + 0.2 }}",
           "-4 2 3.5 1e+16 0.30000000000000004", "..................................");
    expect("{{ [1, 2.0, none, true, 'a\"b'] }}", "[1, 2.0, None, True, 'a\"b']",
           "...........................");
    expect("{{ strftime_now('%d %b %Y') }}", "02 Jan 1970", "...........");
    expect("{{ missing }}{{ missing is defined }}{{ missing | default('x') }}", "Falsex", "......");
    expect("{% for x in [3, 1, 2] if x > 1 %}{{ loop.index }}{{ x }}{{ loop.last }};{% endfor %}",
           "13False;22True;", "...............");
}

/* Each turn of a loop has names of its own. A macro keeps those of the turn that defined it (in
 * Python it has none). */
static void test_scopes_of_loops(void **state)
{
    expect("{% for x in [1, 2, 3] %}{% if x == 2 %}{% set y = x %}{% endif %}{{ y }};{% endfor %}",
           ";2;;", "....");
    expect("{% set ns = namespace(l=[]) %}{% for x in [1, 2] %}{% for z in [0] %}"
           "{% macro m() %}{{ x }}{{ y }}{% endmacro %}{% set _ = ns.l.append(m) %}{% endfor %}"
           "{% set y = x * 2 %}{% endfor %}{% for f in ns.l %}{{ f() }};{% endfor %}",
           "12;24;", "......");
    expect("{% set ns = namespace(l=none) %}{% for x in [1, 2] %}{% set y = x %}"
           "{% for z in [1, 2, 3] if z >= y %}{% set ns.l = ns.l or loop %}{% endfor %}{% endfor %}"
           "{{ ns.l.last }}{{ ns.l.index }}",
           "True3", ".....");
}

/* What a turn needs is free behind it. */
static void test_memory_of_loops(void **state)
{
    struct jinja_limits limits = jinja_default_limits;
    struct jinja_output out;
    struct error e;
    limits.memory_bytes = 2 << 20;
    const char *nested = "{% for a in range(300) %}{% for b in l %}{% for c in range(40) if c %}"
                         "{% set d = b %}{% endfor %}{% endfor %}{% endfor %}";
    assert_int_equal(render(nested, &limits, &out, &e), ERROR_OK);
    jinja_output_fini(&out);
}

static void refused(const char *source, enum error_code code, const char *text)
{
    struct jinja_output out;
    struct error e;
    assert_int_equal(render(source, NULL, &out, &e), code);
    assert_string_equal(e.text, text);
}

static void test_errors(void **state)
{
    refused("a\n{{ raise_exception('No ' + s) }}", ERROR_USAGE, "template line 2: No a b");
    refused("\n\n{{ missing.x }}", ERROR_USAGE, "template line 3: 'missing' is undefined");
    refused("{{ d.x.y }}", ERROR_USAGE, "template line 1: 'dict object' has no attribute 'x'");
    refused("{% if n %}\nx", ERROR_FORMAT,
            "template line 1: the tag has no end: {% endif %} is missing");
    refused("{{ n", ERROR_FORMAT, "template line 1: a tag has no end: \"}}\" is missing");
    refused("x\n{{ 1 + }}", ERROR_FORMAT,
            "template line 2: expected an expression, but found '}}'");
    refused("{{ s | nothing }}", ERROR_UNSUPPORTED, "template line 1: No filter named 'nothing'.");
    refused("{% include 'x' %}", ERROR_UNSUPPORTED,
            "template line 1: the tag 'include' is not supported");
    refused("{{ 2 ** 63 }}", ERROR_USAGE,
            "template line 1: an integer is too large: the engine has 64 bits");
    refused("\xff", ERROR_FORMAT, "template line 1: the template is not UTF-8");
}

/* Each ends within its limit, whatever the template tries. */
static void test_limits(void **state)
{
    const struct jinja_limits limits = {
        .steps = 100000, .output_bytes = 10000, .memory_bytes = 4 << 20, .depth = 100};
    const char *const endless[] = {
        "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% set x = namespace(t='a') %}{% for i in range(99) %}{% set x.t = x.t * 2 %}{% endfor %}",
        "{% for i in range(9999) %}{{ 'aaaaaaaaaa' }}{% endfor %}",
        "{% set l = [] %}{% for i in range(99) %}{% set _ = l.append(l) %}{% endfor %}{{ l }}",
        "{{ ('a' * 9000) | replace('', 'b' * 9000) }}",
        "{% set l = [1] %}{% for i in l %}{% set _ = l.append(i) %}{% endfor %}",
        "{{ [0] * 99999999 }}",
        "{{ '%9999999d' % 1 }}{{ 'a'.center(99999999) }}",
    };
    for (size_t i = 0; i < sizeof endless / sizeof *endless; i++) {
        struct jinja_output out;
        struct error e;
        enum error_code code = render(endless[i], &limits, &out, &e);
        if (code != ERROR_LIMIT && code != ERROR_USAGE)
            fail_msg("%s: %d", endless[i], code);
    }
    char *deep = malloc(200001);
    assert_non_null(deep);
    for (size_t i = 0; i < 100000; i++)
        memcpy(deep + 2 * i, i == 0 ? "{{" : " -", 2);
    strcpy(deep + 199996, "1}}");
    refused(deep, ERROR_LIMIT, "template line 1: the template or its data is nested too deeply");
    free(deep);
}

/* To define many variables takes steps. */
static void test_many_variables(void **state)
{
    struct jinja_template *t;
    struct jinja_output out;
    struct error e;
    json_t *request = json_object();
    for (int i = 0; i < 4000; i++) {
        char name[16];
        snprintf(name, sizeof name, "v%d", i);
        json_object_set_new(request, name, json_true());
    }
    assert_int_equal(jinja_compile("x", 1, &t, &e), ERROR_OK);
    struct jinja_limits limits = jinja_default_limits;
    limits.steps = 500000;
    struct jinja_input input = {.request = request, .limits = &limits};
    assert_int_equal(jinja_render(t, &input, &out, &e), ERROR_LIMIT);
    input.limits = NULL;
    assert_int_equal(jinja_render(t, &input, &out, &e), ERROR_OK);
    jinja_output_fini(&out);
    jinja_free(t);
    json_decref(request);
}

/* A template without memory fails, and leaves nothing behind. */
static void test_memory(void **state)
{
    unsigned failed = 0;
    for (size_t bytes = 0; bytes < 200000; bytes += 4096) {
        struct jinja_limits limits = jinja_default_limits;
        struct jinja_output out;
        struct error e;
        limits.memory_bytes = bytes;
        enum error_code code =
            render("{% for i in range(200) %}{{ u }}{{ i }}{% endfor %}", &limits, &out, &e);
        assert_true(code == ERROR_LIMIT || !code);
        if (code)
            failed++;
        else
            jinja_output_fini(&out);
    }
    assert_in_range(failed, 1, 48);
}

int main(void)
{
    setenv("TZ", "UTC", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_origin),          cmocka_unit_test(test_white_space),
        cmocka_unit_test(test_values),          cmocka_unit_test(test_errors),
        cmocka_unit_test(test_limits),          cmocka_unit_test(test_memory),
        cmocka_unit_test(test_many_variables),  cmocka_unit_test(test_scopes_of_loops),
        cmocka_unit_test(test_memory_of_loops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
