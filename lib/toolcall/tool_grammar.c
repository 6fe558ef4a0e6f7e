/* Grammars of calls.
 *
 * All formats have one frame: OPEN PREFIX call (BETWEEN PREFIX call)* CLOSE, where a call begins
 * with the tool's name or, in BODY_OBJECTS, with its object. The trigger is the mark with which
 * OPEN PREFIX begins, and the grammar then has the rest. */
#include "toolcall/tool_grammar.h"

#include "base/strbuf.h"
#include "toolcall/argument_types.h"
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
    bool json, gemma, until_value; /* which rules are used */
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

static void frame_of_objects(const struct tool_format *f, struct frame *x)
{
    if (f->id == ID_NINE || f->body == BODY_PYTHON || f->action_keys) { /* an array */
        join(x->open, f->call_begin, f->id == ID_NINE ? " [" : "[", NULL);
        join(x->between, ", ", NULL, NULL);
        join(x->close, "]", f->call_end, NULL);
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
        join(x->close, f->gap, f->section_end, NULL);
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
    x->trigger = f->section_begin ? f->section_begin : f->call_begin;
}

static void literal(struct builder *b, const char *text)
{
    gbnf_literal(&b->out, text, strlen(text));
}

/* `%json SCHEMA`. root: the document to which the schema's $ref refer. */
static void json_item(struct builder *b, const json_t *root, const json_t *schema)
{
    json_t *document = json_deep_copy(schema);
    static const char *const shared[] = {"$defs", "definitions"};
    for (size_t i = 0; root != schema && i < 2; i++) {
        json_t *definitions = json_object_get(root, shared[i]);
        if (definitions)
            json_object_set(document, shared[i], definitions);
    }
    if (root == schema && !json_object_get(document, "type")) /* arguments are an object */
        json_object_set_new(document, "type", json_string("object"));
    char *text = json_dumps(document, JSON_COMPACT | JSON_ENCODE_ANY);
    json_decref(document);
    if (!text) {
        b->out.failed = true;
        return;
    }
    strbuf_printf(&b->out, "%%json ");
    strbuf_append(&b->out, text, strlen(text));
    strbuf_append(&b->out, " ", 1);
    free(text);
}

static void arguments_item(struct builder *b, const struct tool *t)
{
    if (t->strict && t->parameters) {
        json_item(b, t->parameters, t->parameters);
    } else {
        strbuf_printf(&b->out, "json-object ");
        b->json = true;
    }
}

/* -- Between tags -- */

static enum error_code refuse(struct builder *b, const struct tool *t, const char *key,
                              const char *keyword)
{
    return error_set(
        b->e, ERROR_UNSUPPORTED,
        "tool \"%s\": /properties/%s/%s: the %s format cannot bind a bare string to it", t->name,
        key, keyword, b->r->format->name);
}

static void key_tags(struct builder *b, const char *key, const char *type)
{
    const struct tool_format *f = b->r->format;
    literal(b, f->key_begin);
    if (key)
        literal(b, key);
    else
        strbuf_printf(&b->out, "[a-zA-Z0-9_.-]+ ");
    literal(b, f->key_end);
    if (f->typed_values && type)
        literal(b, type);
    else if (f->typed_values)
        strbuf_printf(&b->out, "( \"true\\x22>\" | \"false\\x22>\" ) ");
    if (f->value_begin) {
        literal(b, f->gap);
        literal(b, f->value_begin);
    }
    literal(b, f->newline_values ? "\n" : "");
}

static void value_end(struct builder *b)
{
    literal(b, b->r->format->newline_values ? "\n" : "");
    literal(b, b->r->format->value_end);
}

static void any_value(struct builder *b)
{
    strbuf_printf(&b->out, "value-0 ");
    b->until_value = true;
}

/* A string of an enum, or any. The end tag is part of it. */
static enum error_code string_value(struct builder *b, const struct tool *t, const char *key,
                                    const json_t *schema)
{
    static const char *const bounds[] = {"pattern", "format", "minLength", "maxLength"};
    const json_t *list = json_object_get(schema, "enum"),
                 *constant = json_object_get(schema, "const");
    for (size_t i = 0; i < 4; i++)
        if (json_object_get(schema, bounds[i]))
            return refuse(b, t, key, bounds[i]);
    if (!list && !constant) {
        any_value(b);
        return ERROR_OK;
    }
    size_t n = constant ? 1 : json_array_size(list);
    strbuf_printf(&b->out, "( ");
    for (size_t i = 0; i < n; i++) {
        const json_t *v = constant ? constant : json_array_get(list, i);
        strbuf_printf(&b->out, i > 0 ? "| " : "");
        if (json_string_length(v) == 0)
            strbuf_printf(&b->out, "\"\" ");
        gbnf_literal(&b->out, json_string_value(v), json_string_length(v));
    }
    strbuf_printf(&b->out, ") ");
    value_end(b);
    return ERROR_OK;
}

static enum error_code strict_value(struct builder *b, const struct tool *t, const char *key,
                                    const json_t *schema)
{
    unsigned types = schema_types(t->parameters, schema);
    key_tags(b, key,
             types == ARGUMENT_STRING  ? "true\">"
             : types & ARGUMENT_STRING ? NULL
                                       : "false\">");
    if (types == ARGUMENT_STRING)
        return string_value(b, t, key, schema);
    if (types & ARGUMENT_STRING) {
        any_value(b); /* a bare string or JSON: not told apart */
        return ERROR_OK;
    }
    json_item(b, t->parameters, schema);
    value_end(b);
    return ERROR_OK;
}

static bool is_required(const struct tool *t, const char *key)
{
    size_t i;
    json_t *name;
    json_array_foreach(json_object_get(t->parameters, "required"), i,
                       name) if (json_is_string(name) &&
                                 strcmp(json_string_value(name), key) == 0) return true;
    return false;
}

/* The arguments between tags, each with the gap after it. */
static enum error_code tagged_arguments(struct builder *b, const struct tool *t)
{
    const char *key;
    json_t *schema;
    if (!t->strict || !t->parameters) {
        strbuf_printf(&b->out, "( ");
        key_tags(b, NULL, NULL);
        any_value(b);
        literal(b, b->r->format->gap);
        strbuf_printf(&b->out, ")* ");
        return ERROR_OK;
    }
    json_object_foreach(json_object_get(t->parameters, "properties"), key, schema)
    {
        strbuf_printf(&b->out, "( ");
        enum error_code code = strict_value(b, t, key, schema);
        if (code)
            return code;
        literal(b, b->r->format->gap);
        strbuf_printf(&b->out, is_required(t, key) ? ") " : ")? ");
    }
    return ERROR_OK;
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
    switch (f->body) {
    case BODY_OBJECTS:
    case BODY_GENERIC:
    case BODY_PYTHON: /* LFM2 also reads and writes JSON between its marks */
        object_begin(b, t);
        arguments_item(b, t);
        literal(b, "}");
        if (f->call_end && b->frame.prefix[0]) {
            literal(b, f->gap);
            literal(b, f->call_end);
        }
        return ERROR_OK;
    case BODY_NAMED:
        literal(b, t->name);
        if (f->id == ID_ORDINAL)
            strbuf_printf(&b->out, "\":\" [0-9]{1,3} ");
        literal(b, f->fence ? "\n```json\n" : f->separator);
        arguments_item(b, t);
        literal(b, f->fence ? "\n```" : "");
        literal(b, f->call_end ? f->call_end : "");
        return ERROR_OK;
    case BODY_HARMONY:
        literal(b, t->name);
        literal(b, " <|constrain|>json<|message|>");
        arguments_item(b, t);
        return ERROR_OK;
    case BODY_GEMMA:
        if (t->strict && t->parameters)
            return error_set(b->e, ERROR_UNSUPPORTED,
                             "tool \"%s\": strict: the gemma4 format cannot follow a schema",
                             t->name);
        literal(b, t->name);
        strbuf_printf(&b->out, "gemma-object ");
        b->gemma = true;
        literal(b, f->call_end);
        return ERROR_OK;
    default:
        break;
    }
    literal(b, t->name);
    literal(b, f->name_end);
    literal(b, f->gap);
    enum error_code code = tagged_arguments(b, t);
    literal(b, f->call_end);
    return code;
}

/* What may stand before the first call. */
static void lead(struct builder *b)
{
    const struct tool_grammar_request *r = b->r;
    if (r->format->body == BODY_HARMONY) {
        strbuf_printf(&b->out, "%s",
                      r->reasoning_open ? ""
                                        : "( \"<|channel|>analysis<|message|>\" reasoning-0 "
                                          "\"<|start|>assistant\" )? ");
        return;
    }
    if (r->reasoning && !r->reasoning_open) {
        strbuf_printf(&b->out, "( ");
        literal(b, r->reasoning->begin);
        strbuf_printf(&b->out, "reasoning-0 )? ");
    }
    strbuf_printf(&b->out, "\"\\n\"{0,2} ");
}

/* Does the grammar bind the whole answer? Else it begins behind the trigger. */
static bool binds_all(const struct tool_grammar_request *r)
{
    return r->choice != TOOL_CHOICE_AUTO || r->format->body == BODY_GENERIC;
}

static void root_rule(struct builder *b)
{
    const struct tool_grammar_request *r = b->r;
    struct frame *x = &b->frame;
    bool one = !r->parallel || r->choice == TOOL_CHOICE_NAMED || r->format->body == BODY_HARMONY;
    bool response = r->choice == TOOL_CHOICE_AUTO && r->format->body == BODY_GENERIC;
    char first[256];
    strbuf_printf(&b->out, "root ::= ");
    if (binds_all(r))
        lead(b);
    memcpy(first, x->open, sizeof x->open);
    strcpy(first + strlen(first), x->prefix);
    if (response) {
        strbuf_printf(&b->out, "( \"{\\x22response\\x22: \" json-string \"}\" | ");
        b->json = true;
    }
    literal(b, binds_all(r) ? first : first + strlen(x->trigger));
    strbuf_printf(&b->out, "call ");
    if (!one) {
        strbuf_printf(&b->out, "( ");
        literal(b, x->between);
        literal(b, x->prefix);
        strbuf_printf(&b->out, "call )* ");
    }
    literal(b, x->close);
    strbuf_printf(&b->out, response ? ")\n" : "\n");
}

static bool chosen(const struct tool_grammar_request *r, const struct tool *t)
{
    return r->choice != TOOL_CHOICE_NAMED || strcmp(r->name, t->name) == 0;
}

static enum error_code call_rules(struct builder *b)
{
    const struct tool_grammar_request *r = b->r;
    const char *bar = "";
    strbuf_printf(&b->out, "call ::= ");
    for (size_t i = 0; i < tool_list_count(r->tools); i++)
        if (chosen(r, tool_list_at(r->tools, i))) {
            strbuf_printf(&b->out, "%scall-%zu", bar, i);
            bar = " | ";
        }
    strbuf_printf(&b->out, "\n");
    for (size_t i = 0; i < tool_list_count(r->tools); i++) {
        if (!chosen(r, tool_list_at(r->tools, i)))
            continue;
        strbuf_printf(&b->out, "call-%zu ::= ", i);
        enum error_code code = call_rule(b, tool_list_at(r->tools, i));
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
    const struct tool_format *f = r->format;
    if (binds_all(r) && f->body == BODY_HARMONY && !r->reasoning_open)
        gbnf_until(&b->out, "reasoning", "<|end|>");
    else if (binds_all(r) && f->body != BODY_HARMONY && r->reasoning && !r->reasoning_open)
        gbnf_until(&b->out, "reasoning", r->reasoning->end);
    if (b->until_value) {
        char end[128];
        join(end, f->newline_values ? "\n" : "", f->value_end, NULL);
        gbnf_until(&b->out, "value", end);
    }
    if (b->gemma) {
        gbnf_until(&b->out, "gemma-text", "<|\"|>");
        strbuf_printf(&b->out,
                      "gemma-object ::= \"{\" ( gemma-member ( \",\" gemma-member )* )? \"}\"\n"
                      "gemma-member ::= ( [a-zA-Z0-9_-]+ | gemma-string ) \":\" gemma-value\n"
                      "gemma-array ::= \"[\" ( gemma-value ( \",\" gemma-value )* )? \"]\"\n"
                      "gemma-string ::= \"<|\\x22|>\" gemma-text-0\n"
                      "gemma-value ::= gemma-string | gemma-object | gemma-array | json-number | "
                      "\"true\" | \"false\" | \"null\"\n");
    }
    if (b->json || b->gemma)
        gbnf_json(&b->out);
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
                         f->section_end,
                         f->call_begin,
                         f->call_end,
                         f->separator,
                         r->reasoning ? r->reasoning->begin : NULL,
                         r->reasoning ? r->reasoning->end : NULL,
                         f->body == BODY_GEMMA ? "<|\"|>" : NULL,
                         f->body == BODY_GEMMA ? "<|channel>" : NULL};
    const char *tags[] = {f->name_end, f->key_begin, f->key_end, f->value_begin, f->value_end};
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
    strbuf_init(&b.out);
    root_rule(&b);
    enum error_code code = call_rules(&b);
    if (!code)
        shared_rules(&b);
    if (!code && b.out.failed)
        code = error_set(e, ERROR_MEMORY, "no memory for a grammar of calls");
    if (code) {
        strbuf_fini(&b.out);
        return code;
    }
    g.text = b.out.data;
    g.len = b.out.len;
    if (!binds_all(request)) {
        g.trigger = b.frame.trigger;
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
