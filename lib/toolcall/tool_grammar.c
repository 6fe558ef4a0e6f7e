/* Grammars of calls.
 *
 * All formats have one frame: OPEN PREFIX call (BETWEEN PREFIX call)* CLOSE, where a call begins
 * with the tool's name or, in BODY_OBJECTS, with its object. The trigger is a mark in OPEN PREFIX,
 * and the grammar then has the rest. It binds also in reasoning, which thus cannot quote the
 * trigger: a text beside the call would also be what the parser reads as a call, though it differs
 * from the template by a space. */
#include "toolcall/tool_grammar.h"

#include "base/strbuf.h"
#include "toolcall/argument_grammar.h"
#include "toolcall/gbnf_write.h"

#include <stdlib.h>
#include <string.h>

struct frame {
    char open[128], prefix[128], between[128], close[128];
    const char *trigger; /* NULL: the calls have no mark */
};

struct builder {
    const struct tool_grammar_request *r;
    struct strbuf out;
    struct frame frame;
    struct argument_writer arguments;
    size_t states_left; /* of FIXED_STATES */
    struct error *e;
};

static void join(char out[128], const char *a, const char *b, const char *c)
{
    const char *parts[] = {a, b, c};
    size_t n = 0;
    for (size_t i = 0; i < 3; i++)
        for (const char *s = parts[i]; s && *s && n < 127; s++)
            out[n++] = *s;
    out[n] = '\0';
}

/* A message of text, which is empty here, stands before that of the call. */
static bool is_behind_text(const struct tool_format *f)
{
    return f->body == BODY_OBJECTS && f->text_end && !f->text_begin;
}

static void frame_of_objects(const struct tool_format *f, struct frame *x)
{
    if (f->id == ID_NINE || f->body == BODY_PYTHON || f->action_keys) { /* an array */
        join(x->open, f->call_begin, f->id == ID_NINE ? " [" : "[", NULL);
        join(x->between, ", ", NULL, NULL);
        join(x->close, "]", f->call_end, NULL);
    } else if (is_behind_text(f)) {
        join(x->open, f->text_end, NULL, NULL);
        join(x->prefix, f->call_begin, NULL, NULL);
    } else if (f->bare) {
        join(x->between, "; ", NULL, NULL);
    } else if (strcmp(f->call_begin, "<tool_calls>") == 0) { /* one mark around all calls */
        join(x->open, f->call_begin, f->gap, NULL);
        join(x->between, f->gap, NULL, NULL);
        join(x->close, f->gap, f->call_end, NULL);
    } else {
        join(x->prefix, f->call_begin, f->gap, NULL);
        join(x->between, f->gap, NULL, NULL);
    }
    x->trigger = f->bare ? NULL : f->call_begin;
}

static void frame_of(const struct tool_format *f, struct frame *x)
{
    *x = (struct frame){0};
    if (f->body == BODY_OBJECTS || f->body == BODY_PYTHON) {
        frame_of_objects(f, x);
        return;
    }
    if (f->body == BODY_GENERIC) {
        join(x->open, "{\"tool_calls\": [", NULL, NULL);
        join(x->between, ", ", NULL, NULL);
        join(x->close, "]}", NULL, NULL);
        return;
    }
    if (f->body == BODY_HARMONY) {
        join(x->prefix, "<|channel|>commentary to=functions.", NULL, NULL);
        x->trigger = "<|channel|>commentary to=functions.";
        return;
    }
    if (f->section_begin) {
        join(x->open, f->section_begin, f->gap, NULL);
        join(x->close, f->gap, f->section_end_token ? NULL : f->section_end, NULL);
    }
    join(x->between, f->fence ? "\n" : f->gap, NULL, NULL);
    if (f->section_begin && f->newline_values) /* each call has a section */
        join(x->between, x->close, f->gap, x->open);
    join(x->prefix, f->call_begin,
         f->fence                ? "function"
         : f->id == ID_ORDINAL   ? "functions."
         : f->body == BODY_GEMMA ? "call:"
                                 : NULL,
         f->fence ? f->separator : NULL);
    /* Qwen3-Coder often leaves out the section's begin mark */
    bool own_sections = f->section_begin && f->newline_values;
    x->trigger = f->section_begin && !own_sections ? f->section_begin : f->call_begin;
}

static void literal(struct builder *b, const char *text)
{
    gbnf_literal(&b->out, text, strlen(text));
}

/* -- Calls -- */

/* A call's object up to its arguments. */
static void object_begin(struct builder *b, const struct tool *t)
{
    const struct tool_format *f = b->r->format;
    bool parameters = f->action_keys || (f->bare && f->call_begin);
    if (f->action_keys) {
        literal(b, "{\"tool_call_id\": \"");
        strbuf_printf(&b->out, "[0-9]{1,3} ");
    }
    literal(b, f->action_keys ? "\", \"tool_name\": \"" : "{\"name\": \"");
    literal(b, t->name);
    literal(b, parameters ? "\", \"parameters\": " : "\", \"arguments\": ");
}

static enum error_code call_rule(struct builder *b, const struct tool *t)
{
    const struct tool_format *f = b->r->format;
    enum error_code code;
    switch (f->body) {
    case BODY_OBJECTS:
    case BODY_GENERIC:
    case BODY_PYTHON: /* LFM2 also reads and writes JSON between its marks */
        object_begin(b, t);
        code = arguments_write(&b->arguments, t);
        literal(b, "}");
        if (f->call_end && b->frame.prefix[0]) {
            literal(b, f->gap);
            literal(b, f->call_end);
        }
        return code;
    case BODY_NAMED:
        literal(b, t->name);
        if (f->id == ID_ORDINAL)
            strbuf_printf(&b->out, "\":\" [0-9]{1,3} ");
        literal(b, f->fence ? "\n```json\n" : f->separator);
        code = arguments_write(&b->arguments, t);
        literal(b, f->fence ? "\n```" : "");
        literal(b, f->call_end ? f->call_end : "");
        return code;
    case BODY_HARMONY:
        literal(b, t->name);
        literal(b, " <|constrain|>json<|message|>");
        return arguments_write(&b->arguments, t);
    default: /* BODY_TAGS, BODY_GEMMA */
        literal(b, t->name);
        literal(b, f->body == BODY_TAGS ? f->name_end : "");
        literal(b, f->gap);
        strbuf_printf(&b->out, f->optional_gap ? "? " : "");
        code = arguments_write(&b->arguments, t);
        literal(b, f->call_end);
        return code;
    }
}

/* What may stand before the first call. */
static void lead(struct builder *b)
{
    const struct tool_grammar_request *r = b->r;
    gbnf_reasoning(&b->out, r->format, r->reasoning, r->reasoning_open, "");
    /* behind a text the new lines would be the text's */
    if (r->format->body != BODY_HARMONY && !is_behind_text(r->format))
        strbuf_printf(&b->out, "\"\\n\"{0,2} ");
}

/* Does the grammar bind the whole answer? Else it begins behind the trigger. */
static bool binds_all(const struct tool_grammar_request *r)
{
    return r->choice != TOOL_CHOICE_AUTO || r->format->body == BODY_GENERIC;
}

static bool chosen(const struct tool_grammar_request *r, const struct tool *t)
{
    return r->choice != TOOL_CHOICE_NAMED || strcmp(r->name, t->name) == 0;
}

static void root_rule(struct builder *b)
{
    const struct tool_grammar_request *r = b->r;
    struct frame *x = &b->frame;
    bool one = !r->parallel || r->choice == TOOL_CHOICE_NAMED || r->format->one_call;
    bool response = r->choice == TOOL_CHOICE_AUTO && r->format->body == BODY_GENERIC;
    char first[256], *rest = first;
    strbuf_printf(&b->out, "root ::= ");
    if (binds_all(r))
        lead(b);
    memcpy(first, x->open, sizeof x->open);
    strcpy(first + strlen(first), x->prefix);
    if (response) {
        strbuf_printf(&b->out, "( \"{\\x22response\\x22: \" json-string \"}\" | ");
        b->arguments.json = true;
    }
    if (!binds_all(r))
        rest = strstr(first, x->trigger) + strlen(x->trigger);
    literal(b, rest);
    strbuf_printf(&b->out, "call ");
    if (!one) {
        strbuf_printf(&b->out, "( ");
        literal(b, x->between);
        strbuf_printf(&b->out, r->format->optional_gap ? "? " : "");
        literal(b, x->prefix);
        strbuf_printf(&b->out, "call )* ");
    }
    literal(b, x->close);
    strbuf_printf(&b->out, response ? ")\n" : "\n");
}

/* Of a grammar's 100,000 states the values that can be replaced take 75,000 at most
 * (grammar/gbnf_schema.c). Names, marks and, between tags, keys cannot be replaced: they get most
 * of the rest. */
enum { FIXED_STATES = 22000, CALL_STATES = 90 };

/* About how many states the names and marks of the calls take. */
static size_t states_of_calls(const struct tool_grammar_request *r)
{
    size_t n = 0;
    for (size_t i = 0; i < tool_list_count(r->tools); i++)
        if (chosen(r, tool_list_at(r->tools, i)))
            n += strlen(tool_list_at(r->tools, i)->name) + CALL_STATES;
    return n;
}

/* The same for the keys of a tool, each of which stands twice between tags: as it is, and in the
 * expression of all other keys. */
static size_t states_of_keys(const struct tool_format *f, const struct tool *t)
{
    const char *key;
    json_t *schema;
    size_t n = 0;
    if (f->body != BODY_TAGS)
        return 0;
    json_object_foreach(json_object_get(t->parameters, "properties"), key, schema)
    {
        (void)schema;
        n += 2 * strlen(key) + 16;
    }
    return n;
}

/* The call of a tool; of one whose keys take too much, unless it is strict, with any arguments. */
static enum error_code bounded_call_rule(struct builder *b, const struct tool *t)
{
    size_t bytes = b->arguments.bytes_left, states = states_of_keys(b->r->format, t);
    if (t->strict || states <= b->states_left) {
        b->states_left -= t->strict ? 0 : states;
        return call_rule(b, t);
    }
    b->arguments.bytes_left = 0;
    enum error_code code = call_rule(b, t);
    b->arguments.bytes_left = bytes;
    return code;
}

static enum error_code call_rules(struct builder *b)
{
    const struct tool_grammar_request *r = b->r;
    const char *bar = "";
    strbuf_printf(&b->out, "call ::= ");
    if (r->format->name_begin) {
        strbuf_printf(&b->out, "[a-z0-9]{10} ");
        literal(b, r->format->name_begin);
        strbuf_printf(&b->out, "( ");
    }
    for (size_t i = 0; i < tool_list_count(r->tools); i++)
        if (chosen(r, tool_list_at(r->tools, i))) {
            strbuf_printf(&b->out, "%scall-%zu", bar, i);
            bar = " | ";
        }
    strbuf_printf(&b->out, r->format->name_begin ? " )\n" : "\n");
    for (size_t i = 0; i < tool_list_count(r->tools); i++) {
        if (!chosen(r, tool_list_at(r->tools, i)))
            continue;
        strbuf_printf(&b->out, "call-%zu ::= ", i);
        enum error_code code = bounded_call_rule(b, tool_list_at(r->tools, i));
        if (code)
            return code;
        strbuf_printf(&b->out, "\n");
    }
    return ERROR_OK;
}

/* The rules that the others refer to. */
static void shared_rules(struct builder *b)
{
    const struct tool_grammar_request *r = b->r;
    if (binds_all(r) && !r->reasoning_open)
        gbnf_reasoning_rules(&b->out, r->format, r->reasoning);
    arguments_rules(&b->arguments);
}

/* Could be a token: a tag of its own, and not the beginning of one. */
static bool is_tag(const char *text)
{
    size_t n = text ? strlen(text) : 0;
    return n > 2 && text[0] == '<' && text[n - 1] == '>';
}

static void find_marks(const struct builder *b, struct tool_grammar *g)
{
    const struct tool_grammar_request *r = b->r;
    const struct tool_format *f = r->format;
    static const char *const harmony[] = {"<|channel|>", "<|message|>", "<|constrain|>",
                                          "<|start|>", "<|end|>"};
    const char *own[] = {f->section_begin,
                         f->section_end_token ? NULL : f->section_end,
                         f->call_begin,
                         f->call_end,
                         f->name_begin,
                         f->separator && f->separator[1] ? f->separator : NULL,
                         r->reasoning ? r->reasoning->begin : NULL,
                         r->reasoning ? r->reasoning->end : NULL,
                         r->reasoning ? r->reasoning->next_mark : NULL,
                         f->call_mark,
                         f->text_end,
                         f->text_begin, /* of an answer beside the calls (answer_grammar.c) */
                         f->body == BODY_GEMMA ? "<|\"|>" : NULL,
                         f->body == BODY_GEMMA ? "<|channel>" : NULL};
    const char *tags[] = {f->name_end, f->key_begin, f->key_end, f->value_begin,
                          f->value_end ? f->value_end + f->newline_values : NULL};
    size_t n = 0;
    if (f->body == BODY_HARMONY)
        for (size_t i = 0; i < sizeof harmony / sizeof harmony[0]; i++)
            g->marks[n++] = harmony[i];
    else
        for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
            if (own[i] && n < TOOL_GRAMMAR_MARKS_MAX)
                g->marks[n++] = own[i];
    for (size_t i = 0; i < sizeof tags / sizeof tags[0] && n < TOOL_GRAMMAR_MARKS_MAX; i++)
        if (is_tag(tags[i]))
            g->marks[n++] = tags[i];
}

/* Writes the grammar's text, in which the schemas of tools that are not strict take at most
 * schema_bytes. */
static enum error_code build(struct builder *b, size_t schema_bytes)
{
    size_t calls = states_of_calls(b->r);
    b->states_left = calls < FIXED_STATES ? FIXED_STATES - calls : 0;
    if (b->states_left == 0)
        schema_bytes = 0;
    strbuf_init(&b->out);
    b->arguments = (struct argument_writer){
        .out = &b->out, .format = b->r->format, .bytes_left = schema_bytes, .e = b->e};
    root_rule(b);
    enum error_code code = call_rules(b);
    if (!code)
        shared_rules(b);
    if (!code && b->out.failed)
        code = error_set(b->e, ERROR_MEMORY, "no memory for a grammar of calls");
    if (code)
        strbuf_fini(&b->out);
    return code;
}

static bool has_strict(const struct tool_list *tools)
{
    bool strict = false;
    for (size_t i = 0; i < tool_list_count(tools); i++)
        strict = strict || tool_list_at(tools, i)->strict;
    return strict;
}

enum error_code tool_grammar_build(const struct tool_grammar_request *request,
                                   struct tool_grammar *out, struct error *e)
{
    struct builder b = {.r = request, .e = e};
    struct tool_grammar g = {0};
    if (tool_list_count(request->tools) == 0)
        return error_set(e, ERROR_USAGE, "a grammar of calls needs tools");
    if (request->choice == TOOL_CHOICE_NAMED &&
        !tool_list_find(request->tools, request->name, strlen(request->name)))
        return error_set(e, ERROR_NOT_FOUND, "tool_choice names \"%.128s\", which is not in tools",
                         request->name);
    frame_of(request->format, &b.frame);
    if (!binds_all(request) && !b.frame.trigger) {
        *out = g;
        return ERROR_OK;
    }
    enum error_code code = build(&b, TOOL_SCHEMAS_BYTES);
    if (!code && b.out.len > TOOL_GRAMMAR_BYTES) { /* names and marks take so much */
        strbuf_fini(&b.out);
        code = build(&b, 0);
    }
    if (code)
        return code;
    g.text = b.out.data;
    g.len = b.out.len;
    if (!binds_all(request)) {
        const struct reasoning_marks *marks = request->reasoning;
        g.trigger = b.frame.trigger;
        if (marks && !request->format->ends_reasoning && !has_strict(request->tools)) {
            g.reasoning_begin = request->reasoning_open ? "" : marks->begin;
            g.reasoning_end = marks->end;
        }
    } else if (request->reasoning && request->reasoning_open) {
        g.trigger = request->reasoning->end;
        g.required = request->choice != TOOL_CHOICE_AUTO;
    }
    find_marks(&b, &g);
    *out = g;
    return ERROR_OK;
}

void tool_grammar_fini(struct tool_grammar *g)
{
    free(g->text);
    *g = (struct tool_grammar){0};
}
