/* bench-tools [MODEL.gguf]: what holding calls to the schemas of a large set of tools costs
 * (lib/toolcall, lib/grammar): 60 functions of ten properties each, as agents have them. Of some
 * formats: the bytes of the grammar, its states, the time to compile it, and of one call the check
 * and advance of a byte and the mask before it. "any object": the same functions without schemas.
 * The figures are medians of ROUNDS. */
#include "base/sort_doubles.h"
#include "base/strbuf.h"
#include "bench/grammar_tokens.h"
#include "grammar/matcher.h"
#include "toolcall/tool_grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 11, TOOLS = 60, TOKENS_MAX = 1024 };

static const char *const formats[] = {"hermes", "harmony",       "generic", "qwen3-coder",
                                      "glm",    "deepseek-v3.2", "gemma4"};

static double median(double *values)
{
    sort_doubles(values, ROUNDS);
    return values[ROUNDS / 2];
}

/* ---- The tools ---- */

static const char properties[] =
    "\"path\":{\"type\":\"string\",\"description\":\"The file to work on, from the root\"},"
    "\"text%1$u\":{\"type\":\"string\",\"description\":\"What to write there\"},"
    "\"mode\":{\"type\":\"string\",\"enum\":[\"create\",\"append\",\"replace\"]},"
    "\"limit%1$u\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":1000,\"default\":100},"
    "\"force\":{\"type\":\"boolean\",\"default\":false},"
    "\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"
    "\"cwd\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}],\"default\":null},"
    "\"score\":{\"type\":\"number\"},"
    "\"since\":{\"type\":\"string\",\"format\":\"date\"},"
    "\"range\":{\"type\":\"object\",\"properties\":{\"from\":{\"type\":\"integer\"},\"to\":{"
    "\"type\":\"integer\"}},\"required\":[\"from\",\"to\"]}";

static struct tool_list *make_tools(bool schemas)
{
    struct strbuf b;
    struct tool_list *list;
    struct error e;
    strbuf_init(&b);
    for (unsigned i = 0; i < TOOLS; i++) {
        strbuf_printf(&b, "%s{\"name\":\"work_on_files_%u\"", i ? "," : "[", i);
        if (schemas) {
            strbuf_printf(&b, ",\"parameters\":{\"type\":\"object\",\"properties\":{");
            strbuf_printf(&b, properties, i);
            strbuf_printf(&b, "},\"required\":[\"path\",\"mode\"]}");
        }
        strbuf_printf(&b, "}");
    }
    strbuf_printf(&b, "]");
    json_t *array = b.failed ? NULL : json_loads(b.data, 0, NULL);
    if (!array || tool_list_new(array, &list, &e))
        bench_die("the tools are malformed");
    json_decref(array);
    strbuf_fini(&b);
    return list;
}

/* ---- A grammar ---- */

struct compiled {
    struct tool_grammar text;
    struct grammar *g;
};

static struct compiled compile(const char *format, const struct tool_list *tools)
{
    struct tool_grammar_request r = {.format = tool_format_find(format),
                                     .tools = tools,
                                     .choice = TOOL_CHOICE_REQUIRED,
                                     .parallel = true};
    struct compiled c;
    struct error e;
    uint32_t n_marks = 0;
    if (tool_grammar_build(&r, &c.text, &e))
        bench_die(e.text);
    while (c.text.marks[n_marks])
        n_marks++;
    if (grammar_compile_marked(c.text.text, c.text.len, c.text.marks, n_marks, NULL, &c.g, &e))
        bench_die(e.text);
    return c;
}

static void free_compiled(struct compiled *c)
{
    grammar_free(c->g);
    tool_grammar_fini(&c->text);
}

/* ---- A call of it ---- */

static const char hermes_call[] =
    "<tool_call>\n{\"name\": \"work_on_files_41\", \"arguments\": {\"path\": \"src/main.c\", "
    "\"text41\": \"int main(void)\", \"mode\": \"append\", \"limit41\": 20, \"force\": true, "
    "\"tags\": [\"c\", \"new\"], \"cwd\": null, \"score\": 0.5, \"since\": \"2026-11-27\", "
    "\"range\": {\"from\": 1, \"to\": 9}}}\n</tool_call>";

/* Microseconds a token: check and advance; with `mask`, a mask before each as well. */
static double answer(struct grammar_matcher *m, const uint32_t *tokens, uint32_t n, uint32_t *mask)
{
    struct grammar_start start = {0};
    struct error e;
    double before = bench_cpu_s();
    if (grammar_matcher_restart(m, &start, &e))
        bench_die(e.text);
    for (uint32_t i = 0; i < n; i++)
        if ((mask && !grammar_matcher_mask(m, mask)) || !grammar_matcher_accepts(m, tokens[i]) ||
            !grammar_matcher_advance(m, tokens[i]))
            bench_die("the call is refused");
    return (bench_cpu_s() - before) / n * 1e6;
}

static void measure_call(const char *name, const struct grammar *g,
                         const struct grammar_vocabulary *v)
{
    static uint32_t tokens[TOKENS_MAX];
    double first[ROUNDS], known[ROUNDS], first_masks[ROUNDS], known_masks[ROUNDS];
    uint32_t n = bench_cut(v, hermes_call, tokens, TOKENS_MAX),
             *mask = malloc(grammar_mask_words(v->n_tokens) * sizeof *mask);
    struct error e;
    if (!mask)
        bench_die("out of memory");
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct grammar_matcher *m;
        for (unsigned masks = 0; masks < 2; masks++) {
            if (grammar_matcher_new(g, v, NULL, &m, &e))
                bench_die(e.text);
            (masks ? first_masks : first)[i] = answer(m, tokens, n, masks ? mask : NULL);
            (masks ? known_masks : known)[i] = answer(m, tokens, n, masks ? mask : NULL);
            grammar_matcher_free(m);
        }
    }
    printf("  %-12s a call of %3u tokens, us a token: %6.2f first, %5.2f again; with masks %6.1f, "
           "%5.2f\n",
           name, n, median(first), median(known), median(first_masks), median(known_masks));
    free(mask);
}

static void measure(const char *format, const struct tool_list *tools, const char *name,
                    const struct grammar_vocabulary *v)
{
    double seconds[ROUNDS];
    struct compiled c;
    const char *why;
    for (unsigned i = 0; i < ROUNDS; i++) {
        double start = bench_cpu_s();
        c = compile(format, tools);
        seconds[i] = bench_cpu_s() - start;
        if (i + 1 < ROUNDS)
            free_compiled(&c);
    }
    uint32_t replaced = grammar_replaced(c.g, &why);
    printf("%-14s %-10s %7zu bytes, %6u states, %8.2f ms to build and compile, %u not followed\n",
           format, name, c.text.len, grammar_states(c.g), median(seconds) * 1e3, replaced);
    if (v && strcmp(format, "hermes") == 0)
        measure_call(name, c.g, v);
    free_compiled(&c);
}

int main(int argc, char **argv)
{
    struct tool_list *any = make_tools(false), *schemas = make_tools(true);
    struct grammar_vocabulary *v = argc > 1 ? bench_vocabulary(argv[1]) : NULL;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        measure(formats[i], any, "any object", v);
        measure(formats[i], schemas, "schemas", v);
    }
    grammar_vocabulary_free(v);
    tool_list_free(any);
    tool_list_free(schemas);
    return 0;
}
