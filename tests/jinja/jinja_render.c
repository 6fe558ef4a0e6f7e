/* jinja-render: renders templates for the comparison with python3-jinja2 (compare.py), and by hand.
 *
 *   jinja-render TEMPLATE JSON   the file's template with the variables of a file (an object)
 *   jinja-render                 one object a line of standard input: template, request, trusted,
 *                                now, and chat if lib/chat changes the messages first; one a line
 *                                of output: text and ranges, or error */
#include "client/chat/chat_style.h"

#include "chat/chat_template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *refusal(const struct error *e)
{
    return json_pack("{s:s, s:s}", "error", e->text, "code", error_name(e->code));
}

static json_t *result(const struct jinja_output *out)
{
    json_t *ranges = json_array();
    for (size_t i = 0; i < out->range_count; i++)
        json_array_append_new(ranges, json_pack("[I, I]", (json_int_t)out->ranges[i].start,
                                                (json_int_t)out->ranges[i].end));
    return json_pack("{s:s%, s:o}", "text", out->text, out->len, "ranges", ranges);
}

static json_t *reply_with(enum error_code code, struct jinja_output *out, const struct error *e)
{
    if (code)
        return refusal(e);
    json_t *reply = result(out);
    jinja_output_fini(out);
    return reply;
}

/* By lib/chat. */
static json_t *answer_chat(const json_t *question)
{
    const json_t *trusted = json_object_get(question, "trusted");
    const json_t *conversation = json_object_get(question, "request");
    const char *text = json_string_value(json_object_get(question, "template"));
    const struct chat_style style = chat_style_of_text(text);
    struct chat_source source = {.text = text,
                                 .calls = chat_style_calls(&style),
                                 .bos = json_string_value(json_object_get(trusted, "bos_token")),
                                 .eos = json_string_value(json_object_get(trusted, "eos_token"))};
    struct chat_request q = {.messages = json_object_get(conversation, "messages"),
                             .tools = json_object_get(conversation, "tools")};
    struct chat_template *t;
    struct jinja_output out;
    struct error e;
    if (chat_template_new(&source, &t, &e))
        return refusal(&e);
    enum error_code code = chat_template_render(t, &q, &out, NULL, &e);
    chat_template_free(t);
    return reply_with(code, &out, &e);
}

static json_t *answer(const json_t *question)
{
    if (json_is_true(json_object_get(question, "chat")))
        return answer_chat(question);
    const json_t *source = json_object_get(question, "template");
    const json_t *now = json_object_get(question, "now");
    struct jinja_input input = {.request = json_object_get(question, "request"),
                                .trusted = json_object_get(question, "trusted"),
                                .now_s = now ? json_integer_value(now) : -1};
    struct jinja_template *t;
    struct jinja_output out;
    struct error e;
    if (jinja_compile(json_string_value(source), json_string_length(source), &t, &e))
        return refusal(&e);
    enum error_code code = jinja_render(t, &input, &out, &e);
    jinja_free(t);
    return reply_with(code, &out, &e);
}

static int run_lines(void)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t len;
    while ((len = getline(&line, &capacity, stdin)) > 0) {
        json_error_t why;
        json_t *question = json_loadb(line, (size_t)len, JSON_ALLOW_NUL, &why);
        if (!question) {
            fprintf(stderr, "jinja-render: %s\n", why.text);
            return 2;
        }
        json_t *reply = answer(question);
        json_dumpf(reply, stdout, JSON_ENSURE_ASCII | JSON_COMPACT);
        putchar('\n');
        json_decref(reply);
        json_decref(question);
    }
    free(line);
    return ferror(stdin) || fflush(stdout) ? 2 : 0;
}

static json_t *read_template(const char *path)
{
    FILE *f = fopen(path, "r");
    char *text = NULL;
    size_t len = 0;
    FILE *copy = open_memstream(&text, &len);
    for (int c; f && copy && (c = getc(f)) != EOF;)
        putc(c, copy);
    if (!f || !copy || fclose(copy))
        return NULL;
    fclose(f);
    json_t *json = json_stringn(text, len);
    free(text);
    return json;
}

static int run_file(const char *template, const char *values)
{
    json_error_t why;
    json_t *request = json_load_file(values, 0, &why), *source = read_template(template);
    if (!request || !source) {
        fprintf(stderr, "jinja-render: %s: %s\n", request ? template : values,
                request ? "cannot read it" : why.text);
        return 2;
    }
    json_t *question = json_pack("{s:o, s:o}", "template", source, "request", request);
    json_t *reply = answer(question);
    const json_t *text = json_object_get(reply, "text");
    if (text)
        fwrite(json_string_value(text), 1, json_string_length(text), stdout);
    else
        fprintf(stderr, "jinja-render: %s\n", json_string_value(json_object_get(reply, "error")));
    int exit_code = text ? 0 : 1;
    json_decref(reply);
    json_decref(question);
    return exit_code;
}

int main(int argc, char **argv)
{
    if (argc == 1)
        return run_lines();
    if (argc == 3)
        return run_file(argv[1], argv[2]);
    fprintf(stderr, "usage: jinja-render [TEMPLATE JSON]\n");
    return 2;
}
