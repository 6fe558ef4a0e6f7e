/* Fuzz target of conversations: one byte chooses a template, the rest is JSON with messages, tools,
 * kwargs and an end. What a template makes of any messages ends, and its ranges lie inside it. */
#include "chat/chat_template.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const sources[] = {
    NULL, /* the plain one */
    "{{ bos_token }}{% if tools %}{{ tools | tojson(indent=2) }}{% endif %}{% for m in messages %}"
    "<{{ m.role }}>{% if m.content is string %}{{ m.content | trim }}{% else %}{% for p in "
    "m.content %}{{ p.text }}{% endfor %}{% endif %}{% for c in m.tool_calls or [] %}"
    "{{ c.function.name ~ c.function.arguments | tojson }}{% endfor %}{{ m.reasoning_content }}"
    "{% endfor %}{{ x }}{{ '<a>' if add_generation_prompt }}",
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
    "{{ '[' + m.role.split('e', 1)[-1] + ']' + m.content[::-1] }}{% for c in m.tool_calls %}"
    "{% for k, v in c.function.arguments | dictsort %}{{ k | upper }}{{ v }}{% endfor %}"
    "{% endfor %}{% endfor %}",
    "{% for m in messages %}{% for p in m.content %}{{ p['text'] + '.' }}{% endfor %}{% endfor %}",
};
enum { TEMPLATES = sizeof sources / sizeof *sources };

static const struct jinja_limits limits = {
    .steps = 20000, .output_bytes = 1 << 16, .memory_bytes = 8 << 20, .depth = 120};

static void require(bool holds)
{
    if (!holds)
        abort();
}

static const struct chat_template *template_of(uint8_t byte)
{
    static struct chat_template *made[TEMPLATES];
    unsigned i = byte % TEMPLATES;
    const struct chat_source source = {.text = sources[i], .bos = "<s>", .eos = "</s>"};
    require(made[i] || !chat_template_new(&source, &made[i], NULL));
    return made[i];
}

static void check(const struct chat_template *t, const struct chat_request *q)
{
    struct jinja_output out;
    struct error e = {0};
    enum error_code code = chat_template_render(t, q, &out, NULL, &e);
    if (code) {
        require(e.code == code && e.text[0] && !strchr(e.text, '\n'));
        return;
    }
    size_t end = 0;
    for (size_t i = 0; i < out.range_count; i++) {
        require(out.ranges[i].start >= end && out.ranges[i].start < out.ranges[i].end);
        end = out.ranges[i].end;
    }
    require(end <= out.len && out.text[out.len] == '\0');
    jinja_output_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    json_t *json = json_loadb((const char *)data + 1, size - 1, JSON_ALLOW_NUL, NULL);
    struct chat_request q = {.messages = json_object_get(json, "messages"),
                             .tools = json_object_get(json, "tools"),
                             .kwargs = json_object_get(json, "kwargs"),
                             .reasoning_effort = json_string_value(json_object_get(json, "effort")),
                             .thinking = json_object_get(json, "think") ? CHAT_ON : CHAT_UNSET,
                             .end = (enum chat_end)(data[0] / TEMPLATES % 4),
                             .limits = &limits};
    if (json)
        check(template_of(data[0]), &q);
    json_decref(json);
    return 0;
}
