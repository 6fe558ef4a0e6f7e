/* Fuzz target of chat templates: a template, a NUL, and its variables in JSON (an object; else a
 * fixed conversation). A render ends, says in one line why it failed, and the ranges of its output
 * lie in order inside it. */
#include "jinja/jinja.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char conversation[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be <|im_end|>\"}, {\"role\": \"user\", "
    "\"content\": [{\"type\": \"text\", \"text\": \"h\\u00e9llo\"}]}, {\"role\": \"assistant\", "
    "\"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"a\": "
    "[1, 2.5, true]}}}]}], \"n\": 7, \"s\": \"a,b c\", \"l\": [3, 1, 2], \"d\": {\"b\": 1, \"a\": "
    "{\"x\": null}}, \"add_generation_prompt\": true}";

static const struct jinja_limits limits = {
    .steps = 20000, .output_bytes = 1 << 16, .memory_bytes = 8 << 20, .depth = 120};

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void check_error(enum error_code code, const struct error *e)
{
    require(e->code == code && e->text[0] && !strchr(e->text, '\n'));
    require(strncmp(e->text, "template line ", 14) == 0);
}

static void check_output(const struct jinja_output *out)
{
    size_t end = 0;
    require(out->text[out->len] == '\0' && out->len <= limits.output_bytes);
    for (size_t i = 0; i < out->range_count; i++) {
        require(out->ranges[i].start >= end && out->ranges[i].start < out->ranges[i].end);
        end = out->ranges[i].end;
    }
    require(end <= out->len);
}

static json_t *variables(const uint8_t *data, size_t size)
{
    json_t *json = json_loadb((const char *)data, size, JSON_ALLOW_NUL, NULL);
    if (!json_is_object(json)) {
        json_decref(json);
        json = json_loads(conversation, 0, NULL);
    }
    require(json != NULL);
    return json;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t len = nul ? (size_t)(nul - data) : size;
    struct jinja_template *t = NULL;
    struct error e = {0};
    enum error_code code = jinja_compile((const char *)data, len, &t, &e);
    if (code) {
        check_error(code, &e);
        return 0;
    }
    json_t *request = nul ? variables(nul + 1, size - len - 1) : variables(data, 0);
    struct jinja_input input = {.request = request, .now_s = 0, .limits = &limits};
    struct jinja_output out;
    code = jinja_render(t, &input, &out, &e);
    if (code) {
        check_error(code, &e);
    } else {
        check_output(&out);
        jinja_output_fini(&out);
    }
    json_decref(request);
    jinja_free(t);
    return 0;
}
