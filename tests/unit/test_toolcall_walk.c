/* Random walks through the grammars of calls: in every format, forced or not, strict or not, the
 * parser reads what the grammar allows as calls, whose arguments satisfy the schema of their tool.
 *
 * A walk draws a token of those in the mask. The tokens are the bytes, whole marks as text and as
 * control tokens, and what closes JSON texts; the last ones are likely, so that a walk ends. */
#include "grammar_texts.h"
#include "json_validate.h"
#include "toolcall/tool_grammar.h"
#include "toolcall_run.h"

enum { WALKS = 4, FREE_STEPS = 60, STEPS_MAX = 20000, TOKENS_MAX = 512, CALLS_MAX = 32 };

/* What agents have: each kind of value, definitions, texts with a form, values that may be a string
 * or not, an object within. */
#define EDIT                                                                                       \
    "{\"type\":\"object\",\"$schema\":\"http://json-schema.org/draft-07/"                          \
    "schema#\",\"properties\":{"                                                                   \
    "\"path\":{\"type\":\"string\",\"title\":\"Path\",\"description\":\"a file\"},"                \
    "\"n\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":99},"                                   \
    "\"mode\":{\"enum\":[\"append\",\"replace\",\"\"]},\"fast\":{\"type\":\"boolean\"},"           \
    "\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"maxItems\":3},"                \
    "\"opt\":{\"anyOf\":[{\"type\":\"number\"},{\"type\":\"null\"}],\"default\":null},"            \
    "\"name\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}],\"default\":null},"           \
    "\"either\":{\"type\":[\"string\",\"integer\"]},\"color\":{\"$ref\":\"#/$defs/Color\"},"       \
    "\"shade\":{\"$ref\":\"#/x-defs/Shade\"},"                                                     \
    "\"code\":{\"type\":\"string\",\"pattern\":\"^[A-Z]{2}[0-9]+$\"},"                             \
    "\"born\":{\"type\":\"string\",\"format\":\"date\"},"                                          \
    "\"short\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":5},"                             \
    "\"long\":{\"type\":\"string\",\"minLength\":12,\"maxLength\":4000},"                          \
    "\"lines\":{\"type\":\"array\",\"maxItems\":4,\"items\":{\"type\":\"string\","                 \
    "\"minLength\":20,\"maxLength\":300}},"                                                        \
    "\"list\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"items\":{\"type\":"          \
    "\"integer\"}},{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"integer\"}},"            \
    "\"required\":[\"x\"],\"additionalProperties\":false}]},"                                      \
    "\"range\":{\"anyOf\":[{\"type\":\"integer\",\"minimum\":10},{\"enum\":[\"all\",\"none\"]}]}," \
    "\"inner\":{\"type\":\"object\",\"properties\":{\"a b\":{\"type\":\"string\"},\"c\":{"         \
    "\"const\":\"it's \\\"so\\\"\"},\"more\":{\"$ref\":\"#/$defs/Tree\"}},\"required\":[\"c\"],"   \
    "\"additionalProperties\":false}},\"required\":[\"path\",\"n\",\"color\"],"                    \
    "\"additionalProperties\":false,\"x-note\":\"no schema\","                                     \
    "\"x-defs\":{\"Shade\":{\"enum\":[\"dark\",\"light\"],\"x-note\":1}},"                         \
    "\"$defs\":{\"Color\":{\"enum\":[\"red\",\"green\"],\"type\":"                                 \
    "\"string\"},\"Tree\":{\"type\":\"object\",\"properties\":{\"leaf\":{\"type\":\"number\","     \
    "\"maximum\":0.5},\"down\":{\"$ref\":\"#/$defs/Tree\"}},\"additionalProperties\":false}}}"
/* Properties that the schema does not name are possible. */
#define OPEN                                                                                       \
    "{\"type\":\"object\",\"properties\":{\"query\":{\"type\":\"string\"},\"limit\":{\"type\":"    \
    "\"integer\"}},\"required\":[\"limit\"]}"
#define COUNTS                                                                                     \
    "{\"type\":\"object\",\"properties\":{\"q\":{\"type\":\"boolean\"}},"                          \
    "\"additionalProperties\":{\"type\":\"integer\",\"minimum\":0}}"
#define LABELS "{\"type\":[\"object\",\"null\"],\"additionalProperties\":{\"type\":\"string\"}}"
/* Cannot be followed. */
#define ODD                                                                                        \
    "{\"type\":\"object\",\"properties\":{\"a\":{\"not\":{\"type\":\"string\"}},"                  \
    "\"b\":{\"anyOf\":[{\"type\":\"string\",\"pattern\":\"(?=a)\"},{\"type\":\"integer\"}]}},"     \
    "\"required\":[\"a\",\"b\"]}"

#define TOOL(name, strict, parameters)                                                             \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"strict\":" strict                \
    ",\"parameters\":" parameters "}}"
#define SET(strict)                                                                                \
    TOOL("edit", strict, EDIT)                                                                     \
    "," TOOL("open", strict, OPEN) "," TOOL("counts", strict, COUNTS) "," TOOL("labels", strict,   \
                                                                               LABELS)

static const char loose[] = "[" SET("false") "," TOOL("odd", "false", ODD) ",{\"name\":\"now\"}]",
                  strict[] = "[" SET("true") "]";

/* ---- Calls, as a client receives them ---- */

struct calls {
    struct {
        char name[TOOL_NAME_MAX + 1];
        struct strbuf arguments;
        bool complete;
    } call[CALLS_MAX];
    uint32_t n;
    struct strbuf content;
};

static void take_event(void *context, const struct tool_event *e)
{
    struct calls *c = context;
    if (e->kind == TOOL_CONTENT)
        strbuf_append(&c->content, e->text, e->len);
    if (e->kind < TOOL_CALL_BEGIN || e->index >= CALLS_MAX)
        return;
    if (e->kind == TOOL_CALL_BEGIN) {
        snprintf(c->call[e->index].name, sizeof c->call[e->index].name, "%s", e->name);
        strbuf_init(&c->call[e->index].arguments);
        c->n = e->index + 1;
    } else if (e->kind == TOOL_CALL_END) {
        c->call[e->index].complete = e->complete;
    } else {
        strbuf_append(&c->call[e->index].arguments, e->text, e->len);
    }
}

static void read_calls(struct calls *c, const struct tool_grammar_request *r,
                       const struct strbuf *answer)
{
    struct tool_parser_options o = {
        .format = r->format, .tools = r->tools, .on_event = take_event, .context = c};
    struct tool_parser *p;
    *c = (struct calls){0};
    strbuf_init(&c->content);
    assert_int_equal(tool_parser_new(&o, &p, NULL), ERROR_OK);
    assert_int_equal(tool_parser_feed(p, answer->data, answer->len, 1), ERROR_OK);
    assert_int_equal(tool_parser_finish(p), ERROR_OK);
    tool_parser_free(p);
}

static void free_calls(struct calls *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        strbuf_fini(&c->call[i].arguments);
    strbuf_fini(&c->content);
}

/* ---- The vocabulary ---- */

struct words {
    char texts[TOKENS_MAX][160];
    bool closes[TOKENS_MAX]; /* a likely token */
    uint32_t n;
    struct grammar_vocabulary *v;
};

static void add_word(struct words *w, uint8_t *kinds, const char *a, const char *b, uint8_t kind)
{
    if (!a || !*a)
        return;
    snprintf(w->texts[w->n], sizeof w->texts[0], "%s%s", a, b);
    w->closes[w->n] = true;
    kinds[w->n++] = kind;
}

static void words_init(struct words *w, const struct tool_grammar *g, const struct tool_format *f,
                       bool controls)
{
    static const char *const closing[] = {"\"", "}", "]", "\"}", "0", ":"};
    const uint8_t *texts[TOKENS_MAX];
    uint32_t lengths[TOKENS_MAX];
    uint8_t kinds[TOKENS_MAX] = {0};
    memset(w, 0, sizeof *w);
    for (w->n = 0; w->n <= BYTE_END; w->n++)
        w->texts[w->n][0] = (char)w->n;
    kinds[BYTE_END] = GRAMMAR_TOKEN_END;
    w->closes[BYTE_END] = true;
    for (size_t i = 0; i < sizeof closing / sizeof closing[0]; i++)
        add_word(w, kinds, closing[i], "", GRAMMAR_TOKEN_TEXT);
    add_word(w, kinds, f->value_end, "", GRAMMAR_TOKEN_TEXT);
    add_word(w, kinds, f->key_end, "", GRAMMAR_TOKEN_TEXT);
    add_word(w, kinds, f->call_end, "", GRAMMAR_TOKEN_TEXT);
    add_word(w, kinds, f->body == BODY_GEMMA ? "<|\"|>" : NULL, "", GRAMMAR_TOKEN_TEXT);
    add_word(w, kinds, f->body == BODY_HARMONY ? "<|end|>" : NULL, "", GRAMMAR_TOKEN_TEXT);
    for (size_t i = 0; controls && g->marks[i]; i++)
        add_word(w, kinds, g->marks[i], "", GRAMMAR_TOKEN_CONTROL);
    for (uint32_t i = 0; i < w->n; i++) {
        texts[i] = (const uint8_t *)w->texts[i];
        lengths[i] = i <= BYTE_END ? 1 : (uint32_t)strlen(w->texts[i]);
    }
    assert_int_equal(grammar_vocabulary_new(w->n, texts, lengths, kinds, &w->v, NULL), 0);
}

/* ---- Walks ---- */

static uint64_t random_state;

static uint32_t below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 32) * n >> 32);
}

/* Letters, digits and what is in JSON are likelier than other bytes; later, what closes. */
static uint32_t weight_of(const struct words *w, uint32_t token, unsigned step)
{
    uint8_t c = (uint8_t)w->texts[token][0];
    if (w->closes[token])
        return step < FREE_STEPS ? 60 : 100000;
    if (strchr("{[", c) && c)
        return step < FREE_STEPS ? 8 : 1;
    if (strchr("<`\n\\ ", c) && c)
        return 4;
    return c < ' ' || c >= 0x7f ? 1 : 8;
}

static uint32_t draw(const struct words *w, const uint32_t *mask, unsigned step)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < w->n; i++)
        sum += mask[i / 32] >> i % 32 & 1 ? weight_of(w, i, step) : 0;
    assert_true(sum > 0 && sum <= UINT32_MAX);
    uint32_t at = below((uint32_t)sum);
    for (uint32_t i = 0;; i++) {
        uint32_t weight = mask[i / 32] >> i % 32 & 1 ? weight_of(w, i, step) : 0;
        if (at < weight)
            return i;
        at -= weight;
    }
}

/* An answer, from the trigger on. */
static void walk(const struct grammar *compiled, const struct tool_grammar *g,
                 const struct words *w, struct strbuf *answer)
{
    struct grammar_start start = {.trigger = g->trigger};
    struct grammar_matcher *m;
    uint32_t mask[TOKENS_MAX / 32];
    struct error e;
    assert_int_equal(grammar_matcher_new(compiled, w->v, &start, &m, &e), 0);
    strbuf_init(answer);
    for (const char *c = g->trigger; c && *c; c++) {
        assert_true(grammar_matcher_advance(m, (uint8_t)*c));
        strbuf_append(answer, c, 1);
    }
    for (unsigned step = 0; step < STEPS_MAX && !grammar_matcher_is_final(m); step++) {
        if (!grammar_matcher_mask(m, mask)) {
            (void)grammar_matcher_error(m, &e);
            fail_msg("%s behind %s", e.text, answer->data);
        }
        uint32_t token = draw(w, mask, step);
        if (token == BYTE_END)
            break;
        assert_true(grammar_matcher_advance(m, token));
        strbuf_append(answer, w->texts[token], token < BYTE_END ? 1 : strlen(w->texts[token]));
    }
    if (!grammar_matcher_is_complete(m))
        fail_msg("the walk does not end: %s", answer->data);
    grammar_matcher_free(m);
}

/* ---- What a walk must be ---- */

static void check_call(const struct tool_grammar_request *r, const struct calls *c, uint32_t i,
                       const struct strbuf *answer)
{
    const char *name = c->call[i].name, *text = c->call[i].arguments.data;
    const struct tool *t = tool_list_find(r->tools, name, strlen(name));
    json_error_t where;
    if (!c->call[i].complete)
        fail_msg("%s: an incomplete call in %s", r->format->name, answer->data);
    assert_non_null(t);
    json_t *arguments = json_loads(text, JSON_ALLOW_NUL, &where);
    if (!arguments && json_error_code(&where) == json_error_null_byte_in_key)
        return; /* valid, but jansson does not take it */
    if (!json_is_object(arguments))
        fail_msg("%s: %s in %s", r->format->name, text, answer->data);
    bool followed = t->parameters && strcmp(name, "odd") != 0;
    if (followed && !json_validate(t->parameters, t->parameters, arguments))
        fail_msg("%s: %s %s in %s", r->format->name, name, text, answer->data);
    json_decref(arguments);
}

/* Returns the number of calls. */
static uint32_t check_walk(const struct tool_grammar_request *r, const struct strbuf *answer)
{
    struct calls c;
    read_calls(&c, r, answer);
    bool may_answer = r->choice == TOOL_CHOICE_AUTO && r->format->body == BODY_GENERIC;
    if ((c.n == 0 || c.content.len > 0) && !may_answer)
        fail_msg("%s: %u calls, content \"%s\" in %s", r->format->name, c.n,
                 c.content.data ? c.content.data : "", answer->data);
    for (uint32_t i = 0; i < c.n && i < CALLS_MAX; i++)
        check_call(r, &c, i, answer);
    uint32_t n = c.n;
    free_calls(&c);
    return n;
}

static uint32_t walks(struct tool_grammar_request r, const char *tools, bool controls)
{
    struct tool_list *list = tools_of(tools);
    struct tool_grammar g;
    struct grammar *compiled;
    static struct words w;
    struct error e;
    uint32_t n_marks = 0, calls = 0;
    r.tools = list;
    if (tool_grammar_build(&r, &g, &e))
        fail_msg("%s: %s", r.format->name, e.text);
    for (; g.text && g.marks[n_marks];)
        n_marks++;
    if (g.text && grammar_compile_marked(g.text, g.len, g.marks, n_marks, NULL, &compiled, &e))
        fail_msg("%s: %s: %s", r.format->name, e.text, g.text);
    for (unsigned i = 0; g.text && i < WALKS; i++) {
        struct strbuf answer;
        if (i == 0)
            words_init(&w, &g, r.format, controls);
        walk(compiled, &g, &w, &answer);
        calls += check_walk(&r, &answer);
        strbuf_fini(&answer);
    }
    if (g.text) {
        grammar_vocabulary_free(w.v);
        grammar_free(compiled);
    }
    tool_grammar_fini(&g);
    tool_list_free(list);
    return calls;
}

static void test_every_format(void **state)
{
    struct tool_grammar_request automatic = {.choice = TOOL_CHOICE_AUTO, .parallel = true},
                                required = {.choice = TOOL_CHOICE_REQUIRED, .parallel = true},
                                named = {.choice = TOOL_CHOICE_NAMED, .name = "edit"};
    struct tool_grammar_request requests[] = {automatic, required, named};
    (void)state;
    random_state = 1;
    for (size_t f = 0; tool_format_at(f); f++)
        for (unsigned i = 0; i < 3; i++)
            for (unsigned variant = 0; variant < 4; variant++) {
                struct tool_grammar_request r = requests[i];
                r.format = tool_format_at(f);
                uint32_t calls = walks(r, variant & 1 ? strict : loose, variant & 2);
                bool unbound = i == 0 && strcmp(r.format->name, "llama3") == 0;
                bool may_answer = i == 0 && r.format->body == BODY_GENERIC;
                if (!calls && !unbound && !may_answer)
                    fail_msg("%s, %u: no calls", r.format->name, i);
            }
}

/* A longer text behind a shorter one. */
static void test_rising_lengths(void **state)
{
    static const char tools[] =
        "[{\"name\":\"post\",\"parameters\":{\"type\":\"object\",\"properties\":{\"title\":{"
        "\"type\":"
        "\"string\",\"maxLength\":100},\"body\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":"
        "5000}},\"required\":[\"title\",\"body\"],\"additionalProperties\":false}}]";
    static const char *const formats[] = {"qwen3-coder", "gemma4"};
    (void)state;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        struct tool_grammar_request r = {.format = tool_format_find(formats[i]),
                                         .choice = TOOL_CHOICE_REQUIRED};
        assert_int_equal(walks(r, tools, false), WALKS);
    }
}

/* ---- Bare values ---- */

/* A schema of one property in qwen3-coder; a value that the grammar accepts is read as `json`.
 * NULL: it is refused. */
static void check_bare(const char *schema, bool strict_tool, const char *const (*values)[2])
{
    char tools_text[1024];
    snprintf(tools_text, sizeof tools_text,
             "[{\"name\":\"f\",\"strict\":%s,\"parameters\":{\"type\":\"object\",\"properties\":{"
             "\"a\":%s},\"required\":[\"a\"],\"additionalProperties\":false}}]",
             strict_tool ? "true" : "false", schema);
    struct tool_list *list = tools_of(tools_text);
    struct tool_grammar_request request = {
        .format = tool_format_find("qwen3-coder"), .tools = list, .choice = TOOL_CHOICE_REQUIRED};
    struct tool_grammar text;
    struct error e;
    if (tool_grammar_build(&request, &text, &e))
        fail_msg("%s", e.text);
    struct grammar *g = compile_ok(GRAMMAR_GBNF, text.text);
    for (; (*values)[0]; values++) {
        struct strbuf call;
        struct calls c;
        const char *value = (*values)[0], *json = (*values)[1];
        char expected[200];
        strbuf_init(&call);
        strbuf_printf(&call,
                      "<tool_call>\n<function=f>\n<parameter=a>\n%s\n</parameter>\n</function>"
                      "\n</tool_call>",
                      value);
        if (whole_text(g, call.data, call.len) != (json != NULL))
            fail_msg("%s: %s: %s", schema, value, json ? "refused" : "accepted");
        read_calls(&c, &request, &call);
        snprintf(expected, sizeof expected, "{\"a\":%s}", json ? json : "");
        if (json && strcmp(c.call[0].arguments.data, expected) != 0)
            fail_msg("%s: read as %s", value, c.call[0].arguments.data);
        free_calls(&c);
        strbuf_fini(&call);
    }
    grammar_free(g);
    tool_grammar_fini(&text);
    tool_list_free(list);
}

#define CHECK_BARE(schema, strict_tool, ...)                                                       \
    check_bare(schema, strict_tool, (const char *const[][2]){__VA_ARGS__, {NULL}})

/* A bare string is not one that the parser reads as a value of another allowed type. */
static void test_bare_strings(void **state)
{
    (void)state;
    CHECK_BARE("{\"anyOf\":[{\"type\":\"string\",\"minLength\":2},{\"const\":false},{\"type\":"
               "\"null\",\"enum\":[null]}]}",
               true, {"true", NULL}, {" True\t", NULL}, {"False", NULL}, {"None ", NULL},
               {"false", "false"}, {"null", "null"}, {"truest", "\"truest\""},
               {"a null", "\"a null\""});
    /* where every type is allowed, a Python literal is a string */
    CHECK_BARE("{\"minLength\":2}", true, {"None", "\"None\""}, {"True ", "\"True \""},
               {"False", "\"False\""}, {"(a)", "\"(a)\""}, {"null", "null"}, {"true", "true"},
               {"x", NULL}, {"[1]", "[1]"}, {"[1", NULL}, {"12", "12"});
}

/* An alternative without values is left out, the other one is followed. */
static void test_bare_alternatives(void **state)
{
    (void)state;
    for (int strict_tool = 0; strict_tool < 2; strict_tool++) {
        CHECK_BARE("{\"type\":[\"string\",\"integer\"],\"pattern\":\"^[0-9]+$\"}", strict_tool,
                   {"12", "12"}, {"x", NULL}, {"[1]", NULL});
        CHECK_BARE("{\"anyOf\":[{\"type\":\"string\",\"pattern\":\"^a+$\"},{\"type\":\"array\","
                   "\"minItems\":2,\"maxItems\":1}]}",
                   strict_tool, {"aa", "\"aa\""}, {"x", NULL}, {"12", NULL});
        CHECK_BARE("{\"anyOf\":[{\"type\":\"string\",\"minLength\":2,\"maxLength\":1},{\"type\":"
                   "\"boolean\"}]}",
                   strict_tool, {"true", "true"}, {"x", NULL});
    }
    /* one that cannot be followed frees the value */
    CHECK_BARE("{\"anyOf\":[{\"type\":\"string\",\"pattern\":\"(?=a)\"},{\"type\":\"integer\"}]}",
               false, {"12", "12"}, {"x", "\"x\""});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bare_strings), cmocka_unit_test(test_bare_alternatives),
        cmocka_unit_test(test_rising_lengths), cmocka_unit_test(test_every_format)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
