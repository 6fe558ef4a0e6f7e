/* The grammars of calls in the matcher: for each format an answer, worked out by hand from the
 * format's text, that the parser reads as a call; as bytes, and with the marks as control tokens.
 */
#include "grammar_texts.h"
#include "toolcall/answer_grammar.h"
#include "toolcall/tool_grammar.h"
#include "toolcall_run.h"

#define LOOSE "[{\"name\":\"now\"},{\"name\":\"edit\"}]"
#define STRICT                                                                                     \
    "[{\"name\":\"now\"},{\"name\":\"edit\",\"strict\":true,\"parameters\":{\"type\":\"object\","  \
    "\"properties\":{\"path\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"}},"                \
    "\"required\":[\"path\"],\"additionalProperties\":false}}]"
#define DS(word)  "<｜" word "｜>"
#define ARGUMENTS "{\"path\": \"a.c\", \"n\": 7}"
#define OBJECT    "{\"name\": \"edit\", \"arguments\": " ARGUMENTS "}"

static const struct sample {
    const char *format, *answer;
} samples[] = {
    {"hermes", "<tool_call>\n" OBJECT "\n</tool_call>"},
    {"qwen3-coder",
     "<tool_call>\n<function=edit>\n<parameter=path>\na.c\n</parameter>\n<parameter=n>\n7\n"
     "</parameter>\n</function>\n</tool_call>"},
    {"seed", "<seed:tool_call>\n<function=edit>\n<parameter=path>a.c</parameter>\n<parameter=n>7"
             "</parameter>\n</function>\n</seed:tool_call>"},
    {"harmony", "<|channel|>commentary to=functions.edit <|constrain|>json<|message|>" ARGUMENTS},
    {"deepseek-v3",
     DS("tool▁calls▁begin") DS("tool▁call▁begin") "function" DS(
         "tool▁sep") "edit\n```json\n" ARGUMENTS "\n```" DS("tool▁call▁end") DS("tool▁calls▁end")},
    {"deepseek-v3.1", DS("tool▁calls▁begin") DS("tool▁call▁begin") "edit" DS("tool▁sep")
                          ARGUMENTS DS("tool▁call▁end") DS("tool▁calls▁end")},
    {"deepseek-v3.2",
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"edit\">\n<｜DSML｜parameter name=\"path\" "
     "string=\"true\">a.c</｜DSML｜parameter>\n<｜DSML｜parameter name=\"n\" string=\"false\">7"
     "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"},
    {"deepseek-v4",
     "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"edit\">\n<｜DSML｜parameter name=\"path\" "
     "string=\"true\">a.c</｜DSML｜parameter>\n<｜DSML｜parameter name=\"n\" string=\"false\">7"
     "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"},
    {"kimi-k2",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.edit:0"
     "<|tool_call_argument_begin|>" ARGUMENTS "<|tool_call_end|><|tool_calls_section_end|>"},
    {"solar-open",
     "<|tool_calls|><|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>edit<|tool_call:args|>" ARGUMENTS
     "<|tool_call:end|>"},
    {"glm",
     "<tool_call>edit\n<arg_key>path</arg_key>\n<arg_value>a.c</arg_value>\n<arg_key>n</arg_key>\n"
     "<arg_value>7</arg_value>\n</tool_call>"},
    {"hy3", "<tool_calls:opensource>\n<tool_call:opensource>edit<tool_sep:opensource>\n"
            "<arg_key:opensource>path</arg_key:opensource>\n<arg_value:opensource>a.c"
            "</arg_value:opensource>\n<arg_key:opensource>n</arg_key:opensource>\n"
            "<arg_value:opensource>7</arg_value:opensource>\n</tool_call:opensource>\n"
            "</tool_calls:opensource>"},
    {"hy3-preview",
     "<tool_calls>\n<tool_call>edit<tool_sep>\n<arg_key>path</arg_key>\n<arg_value>a.c"
     "</arg_value>\n<arg_key>n</arg_key>\n<arg_value>7</arg_value>\n</tool_call>\n</tool_calls>"},
    {"cohere", "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"edit\", "
               "\"parameters\": " ARGUMENTS "}]<|END_ACTION|>"},
    {"command-a", "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"edit\", "
                  "\"parameters\": " ARGUMENTS "}]<|END_ACTION|>"},
    {"mistral", "[TOOL_CALLS]edit[ARGS]" ARGUMENTS},
    {"mistral-array", "[TOOL_CALLS] [" OBJECT "]"},
    {"llama3", "{\"name\": \"edit\", \"parameters\": " ARGUMENTS "}"},
    {"functionary", "<function=edit>" ARGUMENTS "</function>"},
    {"gigachat3", "<|message_sep|>\n\nfunction call<|role_sep|>\n" OBJECT},
    {"minimax-m2",
     "<minimax:tool_call>\n<invoke name=\"edit\">\n<parameter name=\"path\">a.c</parameter>\n"
     "<parameter name=\"n\">7</parameter>\n</invoke>\n</minimax:tool_call>"},
    {"tool-calls-tag", "<tool_calls>\n" OBJECT "\n</tool_calls>"},
    {"lfm2", "<|tool_call_start|>[" OBJECT "]<|tool_call_end|>"},
    {"gemma4", "<|tool_call>call:edit{path:<|\"|>a.c<|\"|>,n:7}<tool_call|>"},
    {"generic", "{\"tool_calls\": [" OBJECT "]}"},
};
enum { N_SAMPLES = sizeof samples / sizeof samples[0] };

/* ---- Bytes, an end token, and the marks as control tokens ---- */

static struct grammar_vocabulary *marked_vocabulary(const struct tool_grammar *g)
{
    enum { MOST = BYTE_END + 1 + TOOL_GRAMMAR_MARKS_MAX };
    uint8_t bytes[256], kinds[MOST] = {0};
    const uint8_t *texts[MOST];
    uint32_t lengths[MOST], n = BYTE_END + 1;
    struct grammar_vocabulary *v;
    for (unsigned i = 0; i < 256; i++)
        bytes[i] = (uint8_t)i;
    for (unsigned i = 0; i <= BYTE_END; i++) {
        texts[i] = &bytes[i & 255];
        lengths[i] = 1;
    }
    kinds[BYTE_END] = GRAMMAR_TOKEN_END;
    for (size_t i = 0; g->marks[i]; i++, n++) {
        texts[n] = (const uint8_t *)g->marks[i];
        lengths[n] = (uint32_t)strlen(g->marks[i]);
        kinds[n] = GRAMMAR_TOKEN_CONTROL;
    }
    assert_int_equal(grammar_vocabulary_new(n, texts, lengths, kinds, &v, NULL), 0);
    return v;
}

/* The token at the beginning of text, and its bytes. */
static uint32_t token_at(const struct tool_grammar *g, const char *text, bool controls, size_t *n)
{
    for (uint32_t i = 0; controls && g->marks[i]; i++)
        if (strncmp(text, g->marks[i], strlen(g->marks[i])) == 0) {
            *n = strlen(g->marks[i]);
            return BYTE_END + 1 + i;
        }
    *n = 1;
    return (uint8_t)*text;
}

/* The answer takes the text and may end behind it; each token is also in the mask before it. */
static bool follows(const struct tool_grammar *g, const char *text, bool controls)
{
    struct grammar *compiled;
    struct grammar_matcher *m;
    struct error e;
    uint32_t n_marks = 0, mask[16];
    size_t n;
    while (g->marks[n_marks])
        n_marks++;
    if (grammar_compile_marked(g->text, g->len, g->marks, n_marks, NULL, &compiled, &e))
        fail_msg("%s: %s", e.text, g->text);
    struct grammar_vocabulary *v = marked_vocabulary(g);
    struct grammar_start start = {.trigger = g->trigger,
                                  .required = g->required,
                                  .reasoning_begin = g->reasoning_begin,
                                  .reasoning_end = g->reasoning_end};
    assert_int_equal(grammar_matcher_new(compiled, v, &start, &m, &e), 0);
    bool follows = true;
    for (; *text && follows; text += n) {
        uint32_t token = token_at(g, text, controls, &n);
        bool some = grammar_matcher_mask(m, mask);
        bool in_mask = some && mask[token / 32] >> token % 32 & 1;
        follows = grammar_matcher_advance(m, token);
        assert_int_equal(in_mask, follows);
    }
    follows = follows && grammar_matcher_is_complete(m);
    assert_int_equal(grammar_matcher_error(m, &e), ERROR_OK);
    grammar_matcher_free(m);
    grammar_vocabulary_free(v);
    grammar_free(compiled);
    return follows;
}

/* ---- Samples ---- */

static void check(const struct sample *s, struct tool_grammar_request r, const char *tools,
                  const char *before)
{
    struct tool_list *list = tools_of(tools);
    struct tool_grammar g;
    struct error e;
    char text[1024], wrong[1024];
    r.format = tool_format_find(s->format);
    r.tools = list;
    if (tool_grammar_build(&r, &g, &e))
        fail_msg("%s: %s", s->format, e.text);
    snprintf(text, sizeof text, "%s%s", before, s->answer);
    for (int controls = 0; g.text && controls < 2; controls++) {
        if (!follows(&g, text, controls))
            fail_msg("%s, controls %d: not accepted: %s\n%s", s->format, controls, text, g.text);
        /* another tool's name */
        snprintf(wrong, sizeof wrong, "%s", text);
        memcpy(strstr(wrong, "edit"), "exit", 4);
        if (follows(&g, wrong, controls))
            fail_msg("%s: accepted: %s", s->format, wrong);
    }
    if (g.text && strcmp(tools, STRICT) == 0) {
        const char *seven = strchr(strstr(text, "edit") + 5, '7');
        snprintf(wrong, sizeof wrong, "%.*sx7%s", (int)(seven - text), text, seven + 1);
        if (follows(&g, wrong, true))
            fail_msg("%s: accepted: %s", s->format, wrong);
    }
    tool_grammar_fini(&g);
    tool_list_free(list);
}

static void check_read(const struct sample *s)
{
    struct tool_list *list = tools_of(STRICT);
    struct transcript t;
    struct tool_parser_options o = {.format = tool_format_find(s->format), .tools = list};
    transcript_run(&t, o, s->answer, strlen(s->answer), NULL, NULL);
    if (strncmp(transcript_text(&t), "N(edit)A(", 9) != 0)
        fail_msg("%s: read as %s", s->format, transcript_text(&t));
    transcript_fini(&t);
    tool_list_free(list);
}

static void test_every_format(void **state)
{
    struct tool_grammar_request automatic = {.choice = TOOL_CHOICE_AUTO},
                                required = {.choice = TOOL_CHOICE_REQUIRED, .parallel = true},
                                named = {.choice = TOOL_CHOICE_NAMED, .name = "edit"};
    (void)state;
    size_t formats = 0;
    while (tool_format_at(formats))
        formats++;
    assert_int_equal(formats, N_SAMPLES);
    for (size_t i = 0; i < N_SAMPLES; i++) {
        const struct sample *s = &samples[i];
        bool generic = strcmp(s->format, "generic") == 0;
        check_read(s);
        for (int strict = 0; strict < 2; strict++) {
            const char *tools = strict ? STRICT : LOOSE;
            check(s, automatic, tools, generic ? "" : "Let me see. ");
            bool begins = strcmp(s->format, "harmony") == 0 || strcmp(s->format, "gigachat3") == 0;
            check(s, required, tools, begins ? "" : "\n");
            check(s, named, tools, "");
        }
    }
}

/* ---- Orders ---- */

#define GREP(more)                                                                                 \
    "[{\"name\":\"grep\",\"parameters\":{\"type\":\"object\",\"required\":[\"pattern\"],"          \
    "\"properties\":{\"pattern\":{\"type\":\"string\"},\"path\":{\"type\":\"string\"},"            \
    "\"output_mode\":{\"type\":\"string\",\"enum\":[\"content\",\"files\"]},"                      \
    "\"glob\":{\"type\":\"string\"}}" more "}}]"

/* A call of grep as the format writes it: `argument` for each key and value, `between` them. */
static const struct written {
    const char *format, *begin, *argument, *between, *end;
} written[] = {
    {"hermes", "<tool_call>\n{\"name\": \"grep\", \"arguments\": {", "\"%s\": \"%s\"", ", ",
     "}}\n</tool_call>"},
    {"qwen3-coder", "<tool_call>\n<function=grep>\n", "<parameter=%s>\n%s\n</parameter>\n", "",
     "</function>\n</tool_call>"},
    {"glm", "<tool_call>grep\n", "<arg_key>%s</arg_key>\n<arg_value>%s</arg_value>\n", "",
     "</tool_call>"},
    {"harmony", "<|channel|>commentary to=functions.grep <|constrain|>json<|message|>{",
     "\"%s\":\"%s\"", ",", "}"},
    {"gemma4", "<|tool_call>call:grep{", "%s:<|\"|>%s<|\"|>", ",", "}<tool_call|>"},
};

static void check_order(const char *tools, const char *const *keys, bool fits)
{
    struct tool_list *list = tools_of(tools);
    for (size_t i = 0; i < sizeof written / sizeof written[0]; i++) {
        struct tool_grammar_request r = {.choice = TOOL_CHOICE_AUTO, .tools = list};
        const struct written *w = &written[i];
        struct tool_grammar g;
        char text[1024];
        size_t n = (size_t)snprintf(text, sizeof text, "%s", w->begin);
        for (size_t k = 0; keys[k]; k++) {
            n += (size_t)snprintf(text + n, sizeof text - n, "%s", k > 0 ? w->between : "");
            n += (size_t)snprintf(text + n, sizeof text - n, w->argument, keys[k], "content");
        }
        snprintf(text + n, sizeof text - n, "%s", w->end);
        r.format = tool_format_find(w->format);
        assert_int_equal(tool_grammar_build(&r, &g, NULL), ERROR_OK);
        if (follows(&g, text, false) != fits)
            fail_msg("%s: %s: %s", w->format, fits ? "refused" : "accepted", text);
        tool_grammar_fini(&g);
    }
    tool_list_free(list);
}

#define CHECK_ORDER(tools, fits, ...)                                                              \
    check_order(tools, (const char *const[]){__VA_ARGS__, NULL}, fits)

/* Arguments in another order than the schema's keep their names. */
static void test_orders(void **state)
{
    static const char open[] = GREP(""), closed[] = GREP(",\"additionalProperties\":false");
    (void)state;
    CHECK_ORDER(open, true, "pattern", "path", "output_mode", "glob");
    CHECK_ORDER(open, true, "pattern", "glob", "output_mode", "path");
    CHECK_ORDER(open, true, "glob", "pattern", "path"); /* as a template that sorts shows them */
    CHECK_ORDER(open, true, "pattern", "glob", "more", "path", "more");
    CHECK_ORDER(open, false, "glob", "path");
    CHECK_ORDER(open, false, "pattern", "glob", "glob");
    CHECK_ORDER(open, false, "more", "pattern");
    CHECK_ORDER(closed, true, "output_mode", "path", "pattern");
    CHECK_ORDER(closed, false, "output_mode", "pattern", "more");
}

/* Reasoning before a call that is required: its marks may be control tokens, too. */
static void test_reasoning(void **state)
{
    static const struct reasoning_marks think = {.begin = "<think>", .end = "</think>"};
    struct tool_grammar_request r = {.choice = TOOL_CHOICE_REQUIRED, .reasoning = &think};
    (void)state;
    for (size_t i = 0; i < N_SAMPLES; i++) {
        const struct tool_format *format = tool_format_find(samples[i].format);
        bool harmony = strcmp(samples[i].format, "harmony") == 0;
        bool gemma = strcmp(samples[i].format, "gemma4") == 0;
        bool solar = strcmp(samples[i].format, "solar-open") == 0;
        static const struct reasoning_marks channel = {.begin = "<|channel>thought\n",
                                                       .end = "<channel|>"};
        r.reasoning = harmony ? NULL : gemma ? &channel : solar ? &format->reasoning : &think;
        check(&samples[i], r, LOOSE,
              harmony ? "<|channel|>analysis<|message|>a <b> c<|end|><|start|>assistant"
              : gemma ? "<|channel>thought\na <b> c<channel|>"
              : solar ? "<|think|>a <b> <|en<|end|><|begin|>assistant"
              : strcmp(samples[i].format, "gigachat3") == 0 ? "<think>a <b> </thin</think>"
                                                            : "<think>a <b> </thin</think>\n\n");
    }
    r = (struct tool_grammar_request){
        .choice = TOOL_CHOICE_REQUIRED, .reasoning = &think, .reasoning_open = true};
    check(&samples[0], r, LOOSE, "hm</think>\n\n");
    for (size_t i = 0; i < N_SAMPLES; i++)
        if (strcmp(samples[i].format, "solar-open") == 0) {
            r.reasoning = &tool_format_find("solar-open")->reasoning;
            check(&samples[i], r, LOOSE, "hm<|end|><|begin|>assistant");
        }
}

static void check_bound(const char *tools, const char *format, const char *text, bool fits)
{
    static const struct reasoning_marks think = {.begin = "<think>", .end = "</think>"};
    struct tool_list *list = tools_of(tools);
    struct tool_grammar_request r = {.choice = TOOL_CHOICE_AUTO,
                                     .format = tool_format_find(format),
                                     .tools = list,
                                     .reasoning = &think,
                                     .reasoning_open = true};
    struct tool_grammar g;
    assert_int_equal(tool_grammar_build(&r, &g, NULL), ERROR_OK);
    for (int controls = 0; controls < 2; controls++)
        if (follows(&g, text, controls) != fits)
            fail_msg("%s: %s: %s\n%s", format, fits ? "refused" : "accepted", text, g.text);
    tool_grammar_fini(&g);
    tool_list_free(list);
}

/* Texts that the parser reads as calls though no template writes them, beginning at the mark: they
 * are refused in the reasoning, behind it and where there is none. */
static void test_near_calls(void **state)
{
    static const struct reasoning_marks think = {.begin = "<think>", .end = "</think>"};
    static const struct sample near[] = {
        {"hermes", "<tool_call>{\"name\": \"edit\", \"arguments\": {\"n\": \"x\"}}</tool_call>"},
        {"hermes", "<tool_call>\n{\"name\":\"edit\",\"arguments\":{\"n\":\"x\"}}\n</tool_call>"},
        {"hermes", "<tool_call>\n{\"arguments\":{\"n\":\"x\"},\"name\":\"edit\"}\n</tool_call>"},
        {"hermes", "<tool_call>\n[{\"id\":1,\"name\":\"edit\"}]</tool_call>"},
        {"tool-calls-tag", "<tool_calls>{\"name\":\"edit\"}</tool_calls>"},
        {"glm", "<tool_call>edit<arg_key>n</arg_key><arg_value>x</arg_value></tool_call>"},
        {"glm", "<tool_call>\nedit\n<arg_key>n</arg_key>\n<arg_value>x</arg_value>\n</tool_call>"},
        {"hy3-preview", "<tool_calls><tool_call>edit<tool_sep><arg_key>n</arg_key><arg_value>x"
                        "</arg_value></tool_call></tool_calls>"},
        {"qwen3-coder",
         "<tool_call>\n<function=\nedit>\n<parameter=n>\nx\n</parameter>\n</function>\n"
         "</tool_call>"},
        {"qwen3-coder", "<function=edit><parameter=n>x</parameter></function>"},
        {"seed",
         "<seed:tool_call><function=edit><parameter=n>x</parameter></function></seed:tool_call>"},
        {"minimax-m2",
         "<minimax:tool_call><invoke name=\"edit\"><parameter name=\"n\">x</parameter>"
         "</invoke></minimax:tool_call>"},
        {"deepseek-v3.1", DS("tool▁calls▁begin") "\n" DS("tool▁call▁begin") "edit" DS(
                              "tool▁sep") "{\"n\":\"x\"}" DS("tool▁call▁end") DS("tool▁calls▁end")},
        {"deepseek-v3", DS("tool▁calls▁begin") DS("tool▁call▁begin") "edit" DS(
                            "tool▁sep") "{\"n\":\"x\"}" DS("tool▁call▁end") DS("tool▁calls▁end")},
        {"mistral", "[TOOL_CALLS] edit[ARGS]{\"n\":\"x\"}"},
        {"mistral", "[TOOL_CALLS][{\"name\":\"edit\",\"arguments\":{\"n\":\"x\"}}]"},
        {"mistral-array", "[TOOL_CALLS]{\"name\":\"edit\"}"},
        {"lfm2", "<|tool_call_start|>[edit(n=\"x\")]<|tool_call_end|>"},
        {"gemma4", "<|tool_call> call:edit{n:<|\"|>x<|\"|>}<tool_call|>"}};
    static const char *const before[] = {"Hm ", "Hm</think>\n\n", "Hm "};
    struct tool_list *list = tools_of(STRICT);
    (void)state;
    for (size_t i = 0; i < sizeof near / sizeof near[0]; i++)
        for (int where = 0; where < 3; where++) {
            const struct reasoning_marks *reasoning = where < 2 ? &think : NULL;
            const struct tool_format *format = tool_format_find(near[i].format);
            char text[512];
            struct transcript t;
            snprintf(text, sizeof text, "%s%s", before[where], near[i].answer);
            struct tool_parser_options o = {.format = format,
                                            .reasoning = reasoning,
                                            .tools = list,
                                            .reasoning_open = where < 2,
                                            .calls_in_reasoning = true};
            transcript_run(&t, o, text, strlen(text), NULL, NULL);
            if (!strstr(transcript_text(&t), "N(edit)A("))
                fail_msg("%s: read as %s", text, transcript_text(&t));
            transcript_fini(&t);
            struct tool_grammar_request r = {.choice = TOOL_CHOICE_AUTO,
                                             .format = format,
                                             .tools = list,
                                             .reasoning = reasoning,
                                             .reasoning_open = where < 2};
            struct tool_grammar g;
            assert_int_equal(tool_grammar_build(&r, &g, NULL), ERROR_OK);
            for (int controls = 0; controls < 2; controls++)
                if (follows(&g, text, controls))
                    fail_msg("%s: accepted: %s", near[i].format, text);
            tool_grammar_fini(&g);
        }
    tool_list_free(list);
}

/* Reasoning may quote marks; behind it a mark begins a call. Of strict tools it does in reasoning,
 * too. */
static void test_calls_in_reasoning(void **state)
{
    static const char call[] = "<function=now>\n</function>\n</tool_call>";
    static const struct {
        const char *format, *text;
        bool strict, loose; /* fits */
    } cases[] = {
        {"qwen3-coder", "A <function=> b</think>c", false, true},
        {"qwen3-coder", "A <function=> b</think>c<function=> d", false, false},
        {"glm", "A <tool_call> b</think>c", false, true},
        {"glm", "A</think><tool_call>now\n</tool_call>", true, true},
        {"hermes", "A <tool_call>\n{\"name\": \"no\"}</think>", false, true},
        {"hermes", "A <tool_call>\n{\"name\": \"no\"}</think><tool_call>\n{\"name\": \"no\"}",
         false, false},
        {"kimi-k2", "A <|tool_calls_section_begin|> b</think>", false, false}, /* ends it */
    };
    char text[256];
    (void)state;
    for (int strict = 0; strict < 2; strict++) {
        const char *tools = strict ? STRICT : LOOSE;
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            check_bound(tools, cases[i].format, cases[i].text,
                        strict ? cases[i].strict : cases[i].loose);
        snprintf(text, sizeof text, "A <tool_call>\n%s", call);
        check_bound(tools, "qwen3-coder", text, true);
        snprintf(text, sizeof text, "A <tool_call> b</think>\n\n%s", call);
        check_bound(tools, "qwen3-coder", text, true);
    }
    /* as Laguna's template has calls */
    check_bound(LOOSE, "glm",
                "A</think><tool_call>edit<arg_key>n</arg_key><arg_value>7</arg_value></tool_call>",
                true);
}

/* A file that has the mark which ends a value between tags. */
static void test_value_end(void **state)
{
    static const struct {
        const char *value;
        bool fits;
    } values[] = {{"1</parameter>\n2</parameter>x", true},
                  {"", true},
                  {"\n", true},
                  {" </parameter>", true},
                  {"</parameter>", false},
                  {"1</parameter>\n<parameter>", true},
                  {"1</parameter>\n<parameter=b", false},
                  {"1</parameter>\n</function>", false},
                  {"1\n</parameter>x", false}};
    static const char *const schemas[] = {"true", "{\"type\":\"string\",\"maxLength\":40}"};
    (void)state;
    for (size_t s = 0; s < 2; s++)
        for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
            char tools[256], text[256];
            struct tool_grammar g;
            snprintf(tools, sizeof tools,
                     "[{\"name\":\"f\",\"parameters\":{\"properties\":{\"a\":%s}}}]", schemas[s]);
            struct tool_list *list = tools_of(tools);
            const struct tool_grammar_request r = {.choice = TOOL_CHOICE_AUTO,
                                                   .format = tool_format_find("qwen3-coder"),
                                                   .tools = list};
            snprintf(text, sizeof text,
                     "<tool_call>\n<function=f>\n<parameter=a>\n%s\n</parameter>\n</function>\n"
                     "</tool_call>",
                     values[i].value);
            assert_int_equal(tool_grammar_build(&r, &g, NULL), ERROR_OK);
            if (follows(&g, text, false) != values[i].fits)
                fail_msg("%s: %s", values[i].fits ? "refused" : "accepted", text);
            tool_grammar_fini(&g);
            tool_list_free(list);
        }
}

/* An end mark of a value may be missing, but not under a strict schema. */
static void test_missing_end_of_value(void **state)
{
    static const struct sample open[] = {
        {"qwen3-coder", "<tool_call>\n<function=edit>\n<parameter=path>\na.c\n<parameter=n>\n7\n"
                        "</parameter>\n</function>\n</tool_call>"},
        {"qwen3-coder", "<tool_call>\n<function=edit>\n<parameter=n>\n7\n<parameter=path>\na.c\n"
                        "</function>\n</tool_call>"},
        {"seed", "<seed:tool_call>\n<function=edit>\n<parameter=path>a.c\n<parameter=n>7"
                 "</parameter>\n</function>\n</seed:tool_call>"},
        {"minimax-m2", "<minimax:tool_call>\n<invoke name=\"edit\">\n<parameter name=\"path\">a.c\n"
                       "<parameter name=\"n\">7</parameter>\n</invoke>\n</minimax:tool_call>"},
        {"glm", "<tool_call>edit\n<arg_key>path</arg_key>\n<arg_value>a.c\n<arg_key>n</arg_key>\n"
                "<arg_value>7</arg_value>\n</tool_call>"}};
    (void)state;
    for (size_t i = 0; i < sizeof open / sizeof open[0]; i++)
        for (int strict = 0; strict < 2; strict++) {
            char tools[256];
            struct tool_grammar g;
            snprintf(
                tools, sizeof tools,
                "[{\"name\":\"edit\",\"strict\":%s,\"parameters\":{\"properties\":{\"path\":{"
                "\"type\":\"string\"},\"n\":{\"type\":\"integer\"}},\"required\":[\"path\",\"n\"]}"
                "}]",
                strict ? "true" : "false");
            struct tool_list *list = tools_of(tools);
            const struct tool_grammar_request r = {.choice = TOOL_CHOICE_AUTO,
                                                   .format = tool_format_find(open[i].format),
                                                   .tools = list};
            assert_int_equal(tool_grammar_build(&r, &g, NULL), ERROR_OK);
            for (int controls = 0; controls < 2; controls++)
                if (follows(&g, open[i].answer, controls) == strict)
                    fail_msg("%s: %s", strict ? "accepted" : "refused", open[i].answer);
            tool_grammar_fini(&g);
            tool_list_free(list);
        }
}

/* An argument whose last mark stands on the value's last line: the parser and the grammar agree on
 * where it ends. Strings that a strict schema restricts need the newline. */
static void test_line_end(void **state)
{
    static const char path[] = "<parameter=path>\na.c</parameter>\n",
                      n[] = "<parameter=n>\n7</parameter>\n",
                      text_form[] = "<tool_call>\n<function=edit>\n%s%s</function>\n</tool_call>";
    static const char *const schemas[] = {"true", "{\"type\":\"string\",\"maxLength\":40}",
                                          "{\"type\":\"string\",\"enum\":[\"a.c\"]}",
                                          "{\"type\":\"string\",\"enum\":[\"a.c\\n\"]}"};
    (void)state;
    for (size_t s = 0; s < 8; s++)
        for (int last = 0; last < 2; last++) {
            char tools[256], text[256];
            struct tool_grammar g;
            struct transcript t;
            bool strict = s / 4, fits = s % 2 == 0;
            bool as_text = s == 1; /* the mark is the end of the string, whose own is missing */
            snprintf(
                tools, sizeof tools,
                "[{\"name\":\"edit\",\"strict\":%s,\"parameters\":{\"properties\":{\"path\":%s,"
                "\"n\":{\"type\":\"integer\"}}}}]",
                strict ? "true" : "false", schemas[s % 4]);
            snprintf(text, sizeof text, text_form, last ? n : path, last ? path : n);
            struct tool_list *list = tools_of(tools);
            const struct tool_grammar_request r = {.choice = TOOL_CHOICE_AUTO,
                                                   .format = tool_format_find("qwen3-coder"),
                                                   .tools = list};
            struct tool_parser_options o = {.format = r.format, .tools = list};
            transcript_run(&t, o, text, strlen(text), NULL, NULL);
            assert_string_equal(transcript_text(&t), last
                                                         ? "N(edit)A({\"n\":7,\"path\":\"a.c\"})E"
                                                         : "N(edit)A({\"path\":\"a.c\",\"n\":7})E");
            assert_cuts_equal(o, text, strlen(text), &t);
            transcript_fini(&t);
            assert_int_equal(tool_grammar_build(&r, &g, NULL), ERROR_OK);
            if (follows(&g, text, false) != (fits || as_text) || follows(&g, text, true) != fits)
                fail_msg("%s: %s", fits ? "refused" : "accepted", text);
            tool_grammar_fini(&g);
            tool_list_free(list);
        }
}

/* Behind reasoning that the prompt has closed, or that was switched off, comes the call. */
static void test_no_reasoning(void **state)
{
    static const struct reasoning_marks think = {.begin = "<think>", .end = "</think>"};
    struct tool_list *list = tools_of(LOOSE);
    (void)state;
    for (int off = 0; off < 2; off++) {
        struct answer_request q = {.format = tool_format_find("hermes"),
                                   .reasoning = &think,
                                   .thinking_off = off,
                                   .tools = list,
                                   .calls = ANSWER_CALLS_REQUIRED};
        struct answer_grammar g;
        assert_int_equal(answer_grammar_build(&q, &g, NULL), ERROR_OK);
        struct tool_grammar bound = {.text = (char *)g.text, .len = g.len};
        assert_true(follows(&bound,
                            "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n"
                            "</tool_call>",
                            false));
        assert_int_equal(follows(&bound,
                                 "<think>Hm</think>\n<tool_call>\n{\"name\": \"now\", "
                                 "\"arguments\": {}}\n</tool_call>",
                                 false),
                         !off);
        answer_grammar_fini(&g);
    }
    tool_list_free(list);
}

/* ---- Marks ---- */

static const char marked_grammar[] = "root ::= \"a<x>b\" ( \"<y>\" | string )\n"
                                     "string ::= \"'\" [a-z<>]* \"'\"\n";
static const char *const marks[] = {"<x>", "<y>"};

/* Tools whose names, marks and keys take more than a grammar may have: they are followed as far as
 * they fit, and the grammar compiles. */
static void check_many(const char *format, size_t n_tools, size_t n_keys, const char *schema)
{
    json_t *tools = json_array();
    for (size_t i = 0; i < n_tools; i++) {
        char name[64];
        json_t *properties = json_object();
        for (size_t k = 0; k < n_keys; k++) {
            snprintf(name, sizeof name, "%06zu_%016zu", i * 37 % 1000003, i * 100 + k);
            json_object_set_new(properties, name, json_loads(schema, 0, NULL));
        }
        snprintf(name, sizeof name, "function_with_a_long_name_number_%07zu", i);
        json_array_append_new(tools, json_pack("{s:s, s:{s:s, s:o}}", "name", name, "parameters",
                                               "type", "object", "properties", properties));
    }
    char *text = json_dumps(tools, 0);
    struct tool_list *list = tools_of(text);
    const struct tool_grammar_request r = {.format = tool_format_find(format),
                                           .tools = list,
                                           .choice = TOOL_CHOICE_REQUIRED,
                                           .parallel = true};
    struct tool_grammar g;
    struct grammar *compiled;
    struct error e;
    size_t n_marks = 0;
    if (tool_grammar_build(&r, &g, &e))
        fail_msg("%s: %s", format, e.text);
    while (g.marks[n_marks])
        n_marks++;
    if (grammar_compile_marked(g.text, g.len, g.marks, n_marks, NULL, &compiled, &e))
        fail_msg("%s, %zu tools: %s", format, n_tools, e.text);
    grammar_free(compiled);
    tool_grammar_fini(&g);
    tool_list_free(list);
    free(text);
    json_decref(tools);
}

/* A form that is no schema is the answer's text: where that is a message of its own, it stands
 * behind the message's mark, whether the prompt leaves reasoning open or not. */
static void test_form_behind_mark(void **state)
{
    static const struct reasoning_marks solar = {.begin = "<|think|>",
                                                 .end = "<|end|>",
                                                 .next = "<|begin|>assistant",
                                                 .next_mark = "<|begin|>"};
    (void)state;
    for (int open = 0; open < 2; open++) {
        struct answer_request q = {.format = tool_format_find("solar-open"),
                                   .reasoning = &solar,
                                   .reasoning_open = open,
                                   .form = ANSWER_FORM_OTHER};
        struct answer_grammar g;
        assert_int_equal(answer_grammar_build(&q, &g, NULL), ERROR_OK);
        assert_int_equal(g.kind, ANSWER_FORM);
        assert_string_equal(g.trigger, "<|content|>");
        assert_true(g.trigger_required);
        answer_grammar_fini(&g);
        assert_int_equal(answer_grammar_build_behind(&q, &g, NULL), ERROR_OK);
        assert_string_equal(g.trigger, "<|content|>");
        answer_grammar_fini(&g);
    }
}

static void test_many_tools(void **state)
{
    static const char integer[] = "{\"type\":\"integer\",\"minimum\":0,\"maximum\":100}";
    check_many("hermes", 512, 20, integer);
    check_many("hermes", 150, 20, integer);
    check_many("glm", 512, 20, integer);
    check_many("glm", 150, 20, integer);
    check_many("qwen3-coder", 128, 30, "{\"type\":\"string\"}");
}

static void test_marks_only_in_literals(void **state)
{
    struct tool_grammar g = {.text = (char *)marked_grammar,
                             .len = strlen(marked_grammar),
                             .marks = {marks[0], marks[1]}};
    (void)state;
    assert_true(follows(&g, "a<x>b<y>", true));
    assert_true(follows(&g, "a<x>b<y>", false));
    assert_true(follows(&g, "a<x>b'<y>'", false));
    assert_false(follows(&g, "a<x>b'<y>'", true)); /* the token in a string */
    assert_false(follows(&g, "a<x>b<x>", true));
    assert_false(follows(&g, "<x>", true));
    /* bytes that stand for marks inside are no text */
    assert_false(follows(&g,
                         "a\xf5"
                         "b<y>",
                         false));
}

static void test_marks_refused(void **state)
{
    const char *many[GRAMMAR_MARKS_MAX + 1], *broken[] = {"\xff"};
    char text[GRAMMAR_MARK_BYTES + 2] = "";
    const char *large[] = {text};
    struct grammar *g;
    struct error e;
    (void)state;
    for (size_t i = 0; i <= GRAMMAR_MARKS_MAX; i++)
        many[i] = "x";
    assert_int_equal(grammar_compile_marked(marked_grammar, strlen(marked_grammar), many,
                                            GRAMMAR_MARKS_MAX + 1, NULL, &g, &e),
                     ERROR_LIMIT);
    memset(text, 'x', sizeof text - 1);
    assert_int_equal(
        grammar_compile_marked(marked_grammar, strlen(marked_grammar), large, 1, NULL, &g, &e),
        ERROR_LIMIT);
    assert_int_equal(
        grammar_compile_marked(marked_grammar, strlen(marked_grammar), broken, 1, NULL, &g, &e),
        ERROR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_format),
        cmocka_unit_test(test_reasoning),
        cmocka_unit_test(test_no_reasoning),
        cmocka_unit_test(test_many_tools),
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_calls_in_reasoning),
        cmocka_unit_test(test_near_calls),
        cmocka_unit_test(test_value_end),
        cmocka_unit_test(test_missing_end_of_value),
        cmocka_unit_test(test_line_end),
        cmocka_unit_test(test_marks_only_in_literals),
        cmocka_unit_test(test_marks_refused),
        cmocka_unit_test(test_form_behind_mark),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
