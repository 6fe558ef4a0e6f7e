/* The library's entrances, where errors of a run arrive; see jinja.h. */
#include "jinja/jinja.h"

#include "base/utf8.h"
#include "jinja/functions.h"
#include "jinja/json.h"
#include "jinja/parser.h"

#include <stdlib.h>
#include <string.h>

#define TREE_BYTES ((size_t)64 << 20) /* for a template's tree; real ones take some 100 KiB */
#define TREE_STEPS UINT64_C(10000000)

const struct jinja_limits jinja_default_limits = {
    .steps = 10000000, .output_bytes = 64 << 20, .memory_bytes = (size_t)512 << 20, .depth = 600};

struct jinja_template {
    struct arena arena;
    const struct statement *first;
};

static bool is_utf8(const char *text, size_t len)
{
    for (size_t i = 0, n; i < len; i += n) {
        n = utf8_valid_length(text + i, len - i);
        if (n == 0)
            return false;
    }
    return true;
}

/* ---- Compiling ---- */

static bool compile(struct run *r, const char *source, size_t len, const struct statement **first)
{
    if (setjmp(r->failed))
        return false;
    if (!is_utf8(source, len))
        run_fail(r, ERROR_FORMAT, "the template is not UTF-8");
    *first = parser_run(r, lexer_run(r, source, len));
    return true;
}

enum error_code jinja_compile(const char *source, size_t len, struct jinja_template **out,
                              struct error *e)
{
    struct run r = {.steps = TREE_STEPS,
                    .depth = jinja_default_limits.depth,
                    .output_limit = TREE_BYTES,
                    .line = 1,
                    .error = e};
    struct jinja_template *t = calloc(1, sizeof *t);
    if (!t)
        return error_set(e, ERROR_MEMORY, "no memory for a template");
    arena_init(&r.arena, TREE_BYTES);
    bool ok = compile(&r, source, len, &t->first);
    t->arena = r.arena;
    if (!ok) {
        jinja_free(t);
        return r.code;
    }
    *out = t;
    return ERROR_OK;
}

void jinja_free(struct jinja_template *t)
{
    if (t)
        arena_fini(&t->arena);
    free(t);
}

/* ---- Rendering ---- */

static void define(struct run *r, struct scope *s, const json_t *values, bool request)
{
    json_t *object = (json_t *)values; /* jansson's iterator takes no const */
    for (void *i = json_object_iter(object); i; i = json_object_iter_next(object, i))
        scope_set(r, s, text_from(r, json_object_iter_key(i)),
                  value_from_json(r, json_object_iter_value(i), request));
}

static bool render(struct run *r, const struct jinja_template *t, const struct jinja_input *input,
                   const struct text **text)
{
    struct text_builder out;
    if (setjmp(r->failed))
        return false;
    struct scope *globals = scope_new(r, NULL);
    builder_init(&out, r);
    functions_define(r, globals);
    define(r, globals, input->request, true);
    define(r, globals, input->trusted, false);
    execute(r, scope_new(r, globals), t->first, &out);
    *text = builder_text(&out);
    return true;
}

/* Fills ranges, if it is not NULL; returns their number. */
static size_t find_ranges(const struct text *t, struct jinja_range *ranges)
{
    size_t n = 0;
    for (size_t i = 0; i < t->len;) {
        size_t start = i;
        bool request = text_from_request(t, i);
        while (i < t->len && text_from_request(t, i) == request)
            i++;
        if (request && ranges)
            ranges[n] = (struct jinja_range){start, i};
        n += request;
    }
    return n;
}

static enum error_code copy_output(const struct text *t, struct jinja_output *out, struct error *e)
{
    struct jinja_output copy = {.len = t->len, .range_count = find_ranges(t, NULL)};
    copy.text = malloc(t->len + 1);
    copy.ranges = calloc(copy.range_count + 1, sizeof *copy.ranges);
    if (!copy.text || !copy.ranges) {
        jinja_output_fini(&copy);
        return error_set(e, ERROR_MEMORY, "no memory for a prompt");
    }
    memcpy(copy.text, t->data, t->len);
    copy.text[t->len] = '\0';
    find_ranges(t, copy.ranges);
    *out = copy;
    return ERROR_OK;
}

enum error_code jinja_render(const struct jinja_template *t, const struct jinja_input *input,
                             struct jinja_output *out, struct error *e)
{
    const struct jinja_limits *limits = input->limits ? input->limits : &jinja_default_limits;
    struct run r = {.steps = limits->steps,
                    .depth = limits->depth,
                    .output_limit = limits->output_bytes,
                    .now_s = input->now_s,
                    .words = input->words,
                    .line = 1,
                    .error = e};
    const struct text *text = NULL;
    arena_init(&r.arena, limits->memory_bytes);
    enum error_code code = render(&r, t, input, &text) ? copy_output(text, out, e) : r.code;
    json_decref(r.parsed);
    arena_fini(&r.arena);
    return code;
}

void jinja_output_fini(struct jinja_output *out)
{
    free(out->text);
    free(out->ranges);
    *out = (struct jinja_output){0};
}
