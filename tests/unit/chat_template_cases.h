/* Chat templates for the tests of lib/chat, and what they make of conversations. */
#ifndef MOED_TESTS_CHAT_TEMPLATE_CASES_H
#define MOED_TESTS_CHAT_TEMPLATE_CASES_H

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

static inline struct chat_template *make(const char *text, const char *tools)
{
    struct chat_source source = {.text = text, .tools = tools, .bos = "<s>", .eos = "</s>"};
    struct chat_template *t;
    struct error e;
    if (chat_template_new(&source, &t, &e))
        fail_msg("%s", e.text);
    return t;
}

static inline enum error_code render(const struct chat_template *t, const char *json,
                                     struct chat_request q, struct jinja_output *out,
                                     struct error *e)
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

static inline void expect(const struct chat_template *t, const char *json, struct chat_request q,
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

static inline void refused(const struct chat_template *t, const char *json, enum error_code code,
                           const char *says)
{
    struct jinja_output out;
    struct error e;
    assert_int_equal(render(t, json, (struct chat_request){0}, &out, &e), code);
    if (!strstr(e.text, says))
        fail_msg("'%s' in '%s'", says, e.text);
}

static const struct chat_request nothing;

#endif
