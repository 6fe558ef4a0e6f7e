/* What binds an answer; see structure.h. */
#include "client/http/api/structure.h"

#include "toolcall/gbnf_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANY_OBJECT "{\"type\":\"object\"}"
#define ANSWER     "<|channel|>final<|message|>" /* harmony: what follows is the answer */
#define ROOT       "root ::= "
/* What stands before JSON in harmony's channels. */
#define HARMONY_REASONING                                                                          \
    "( \"<|channel|>analysis<|message|>\" reasoning-0 \"<|start|>assistant\" )? "
#define HARMONY_LEAD "\"<|channel|>final\" ( \" <|constrain|>json\" )? \"<|message|>\" "

/* ---- The request ---- */

/* Takes text; NULL: no memory. */
static bool set_form(struct ask *ask, enum moed_grammar_kind kind, char *text, struct problem *p)
{
    if (!text)
        return problem_set(p, 503, "no memory for the answer's form");
    if (ask->form) {
        free(text);
        return problem_set(p, 400, "the request has another form of the answer already");
    }
    ask->form = kind;
    ask->form_text = text;
    return true;
}

static bool take_schema(struct ask *ask, json_t *value, struct problem *p)
{
    if (!json_is_object(value) && !json_is_boolean(value))
        return problem_set(p, 400, "a JSON schema is expected");
    return set_form(ask, MOED_GRAMMAR_JSON_SCHEMA,
                    json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY), p);
}

/* An object, or the same as text. */
static bool take_schema_or_text(struct ask *ask, json_t *value, struct problem *p)
{
    if (json_is_string(value))
        return set_form(ask, MOED_GRAMMAR_JSON_SCHEMA, strdup(json_string_value(value)), p);
    return take_schema(ask, value, p);
}

static bool take_any_object(struct ask *ask, json_t *value, struct problem *p)
{
    bool on;
    if (!read_bool(value, &on, p))
        return false;
    return !on || set_form(ask, MOED_GRAMMAR_JSON_SCHEMA, strdup(ANY_OBJECT), p);
}

static bool take_text(struct ask *ask, json_t *value, enum moed_grammar_kind kind,
                      struct problem *p)
{
    if (!json_is_string(value))
        return problem_set(p, 400, "a string is expected");
    return json_string_length(value) == 0 ||
           set_form(ask, kind, strdup(json_string_value(value)), p);
}

static bool take_grammar(struct ask *ask, json_t *value, struct problem *p)
{
    return take_text(ask, value, MOED_GRAMMAR_GBNF, p);
}

static bool take_regex(struct ask *ask, json_t *value, struct problem *p)
{
    return take_text(ask, value, MOED_GRAMMAR_REGEX, p);
}

static bool take_choices(struct ask *ask, json_t *value, struct problem *p)
{
    if (!json_is_array(value) || json_array_size(value) == 0)
        return problem_set(p, 400, "an array of strings is expected");
    return set_form(ask, MOED_GRAMMAR_CHOICES, json_dumps(value, JSON_COMPACT), p);
}

/* vLLM's: {"json" | "json_object" | "regex" | "choice" | "grammar": ...}. */
static bool take_structured_outputs(struct ask *ask, json_t *value, struct problem *p)
{
    static const struct parameter table[] = {
        {.name = "json", .take = take_schema_or_text},
        {.name = "json_object", .take = take_any_object},
        {.name = "regex", .take = take_regex},
        {.name = "choice", .take = take_choices},
        {.name = "grammar", .take = take_grammar},
        {.name = "structural_tag", .refused = "use tools"},
        {.name = "whitespace_pattern",
         .refused = "moed's JSON has at most one blank after , and :"},
        {.name = "disable_any_whitespace"},
        {.name = "disable_additional_properties", .refused = "say it in the schema"},
        {.name = "disable_fallback"},
        {.name = "backend"},
        {0},
    };
    if (!json_is_object(value))
        return problem_set(p, 400, "an object is expected");
    return ask_take(ask, table, value, p);
}

const struct parameter structure_parameters[] = {
    {.name = "json_schema", .take = take_schema_or_text},
    {.name = "grammar", .take = take_grammar},
    {.name = "guided_json", .take = take_schema_or_text},
    {.name = "guided_regex", .take = take_regex},
    {.name = "guided_choice", .take = take_choices},
    {.name = "guided_grammar", .take = take_grammar},
    {.name = "structured_outputs", .take = take_structured_outputs},
    {.name = "guided_decoding_backend"},
    {.name = "guided_whitespace_pattern",
     .refused = "moed's JSON has at most one blank after , and :"},
    {.name = "grammar_lazy", .refused = "a grammar binds from the answer's first token"},
    {.name = "grammar_triggers", .refused = "a grammar binds from the answer's first token"},
    {0},
};

bool take_response_format(struct ask *ask, json_t *value, struct problem *p)
{
    const char *type = json_string_value(json_object_get(value, "type"));
    const json_t *named = json_object_get(value, "json_schema");
    json_t *schema = json_object_get(named ? named : value, "schema");
    bool json = type && (strcmp(type, "json_object") == 0 || strcmp(type, "json_schema") == 0);
    if (type && strcmp(type, "text") == 0)
        return true;
    if (!json)
        return problem_set(p, 400, "the type text, json_object or json_schema is expected");
    if (schema && !json_is_null(schema))
        return take_schema(ask, schema, p);
    if (strcmp(type, "json_schema") == 0)
        return problem_set(p, 400, "json_schema has no schema");
    return set_form(ask, MOED_GRAMMAR_JSON_SCHEMA, strdup(ANY_OBJECT), p);
}

bool take_json_format(struct ask *ask, json_t *value, struct problem *p)
{
    const char *name = json_string_value(value);
    if (name && !*name)
        return true;
    if (name && strcmp(name, "json") == 0)
        return set_form(ask, MOED_GRAMMAR_JSON_SCHEMA, strdup(ANY_OBJECT), p);
    if (json_is_object(value))
        return take_schema(ask, value, p);
    return problem_set(p, 400, "json or a JSON schema is expected");
}

/* ---- The answer ---- */

static enum moed_code report(struct moed_error *out, const struct error *e)
{
    *out = (struct moed_error){.code = (enum moed_code)e->code};
    snprintf(out->message, sizeof out->message, "tools: %.400s", e->text);
    return out->code;
}

static enum moed_code no_memory(struct moed_error *error)
{
    *error = (struct moed_error){.code = MOED_ERROR_MEMORY};
    snprintf(error->message, sizeof error->message, "no memory for the answer's form");
    return MOED_ERROR_MEMORY;
}

/* The form follows this text, which must come. */
static void bind_behind(struct structure *s, const char *trigger)
{
    s->grammar.trigger = trigger;
    s->grammar.trigger_bytes = strlen(trigger);
    s->grammar.trigger_required = true;
}

static bool is_harmony(const struct chat_rendered *chat)
{
    return chat && chat->style.format->body == BODY_HARMONY;
}

/* Beside a form the model may only choose between calls and the form; behind reasoning of harmony,
 * between calls and the answer: unbound, it could reason again. */
static bool chooses(const struct ask *ask, const struct chat_rendered *chat)
{
    return ask->calls == CALLS_AUTO && (ask->form || (is_harmony(chat) && chat->reasoning_open));
}

static enum tool_choice choice_of(const struct ask *ask, const struct chat_rendered *chat)
{
    if (ask->calls == CALLS_NAMED)
        return TOOL_CHOICE_NAMED;
    return ask->calls == CALLS_REQUIRED || chooses(ask, chat) ? TOOL_CHOICE_REQUIRED
                                                              : TOOL_CHOICE_AUTO;
}

/* Makes of the grammar of calls one of calls or the answer; reasoning-0 is a rule of it. */
static enum moed_code allow_answer(struct structure *s, const struct ask *ask,
                                   const struct chat_rendered *chat, struct moed_error *error)
{
    const struct reasoning_marks *marks = chat->style.reasoning;
    struct strbuf text;
    strbuf_init(&text);
    strbuf_printf(&text,
                  ROOT "calls | answer\ncalls ::= %s\nanswer ::= ", s->calls.text + strlen(ROOT));
    if (is_harmony(chat)) {
        strbuf_printf(&text, "%s" HARMONY_LEAD, chat->reasoning_open ? "" : HARMONY_REASONING);
    } else if (marks && !chat->reasoning_open) {
        strbuf_printf(&text, "( ");
        gbnf_literal(&text, marks->begin, strlen(marks->begin));
        strbuf_printf(&text, "reasoning-0 )? ");
    }
    if (ask->form)
        strbuf_printf(&text, "\"\\n\"{0,2} %%json %s\n", ask->form_text);
    else
        strbuf_printf(&text, "[^\\x00]*\n");
    if (text.failed) {
        strbuf_fini(&text);
        return no_memory(error);
    }
    s->text = text.data;
    s->grammar.text = s->text;
    s->grammar.text_bytes = text.len;
    return MOED_OK;
}

static enum moed_code bind_calls(struct structure *s, const struct ask *ask,
                                 const struct chat_rendered *chat, struct moed_error *error)
{
    struct tool_grammar_request q = {
        .format = chat->style.format,
        .reasoning = chat->style.reasoning,
        .tools = ask->tool_list,
        .choice = choice_of(ask, chat),
        .name = ask->call_name,
        .parallel = !ask->one_call,
        .reasoning_open = chat->reasoning_open,
    };
    struct error why;
    size_t marks = 0;
    if (tool_grammar_build(&q, &s->calls, &why))
        return report(error, &why);
    while (s->calls.marks[marks])
        marks++;
    if (s->calls.text)
        s->grammar = (struct moed_grammar){
            .size = sizeof(struct moed_grammar),
            .kind = MOED_GRAMMAR_GBNF,
            .text = s->calls.text,
            .text_bytes = s->calls.len,
            .trigger = s->calls.trigger,
            .trigger_bytes = s->calls.trigger ? strlen(s->calls.trigger) : 0,
            .trigger_required = s->calls.required,
            .marks = s->calls.marks,
            .mark_count = marks,
        };
    return chooses(ask, chat) ? allow_answer(s, ask, chat, error) : MOED_OK;
}

/* Takes the text and the marks in s->marks. */
static enum moed_code bind_gbnf(struct structure *s, struct strbuf *text, size_t marks,
                                struct moed_error *error)
{
    if (text->failed) {
        strbuf_fini(text);
        return no_memory(error);
    }
    s->text = text->data;
    s->grammar = (struct moed_grammar){.size = sizeof(struct moed_grammar),
                                       .kind = MOED_GRAMMAR_GBNF,
                                       .text = s->text,
                                       .text_bytes = text->len,
                                       .marks = s->marks,
                                       .mark_count = marks};
    return MOED_OK;
}

/* The model may reason before the JSON. */
static enum moed_code allow_reasoning(struct structure *s, const char *schema,
                                      const struct reasoning_marks *marks, struct moed_error *error)
{
    struct strbuf text;
    strbuf_init(&text);
    strbuf_printf(&text, ROOT "( ");
    gbnf_literal(&text, marks->begin, strlen(marks->begin));
    strbuf_printf(&text, "reasoning-0 [ \\n]{0,4} )? %%json %s\n", schema);
    gbnf_until(&text, "reasoning", marks->end);
    s->marks[0] = marks->begin;
    s->marks[1] = marks->end;
    return bind_gbnf(s, &text, 2, error);
}

/* The JSON stands in harmony's channel `final`. */
static enum moed_code bind_harmony(struct structure *s, const char *schema, bool reasons,
                                   struct moed_error *error)
{
    static const char *const marks[] = {"<|channel|>", "<|message|>", "<|end|>", "<|start|>",
                                        "<|constrain|>"};
    struct strbuf text;
    strbuf_init(&text);
    strbuf_printf(&text, ROOT "%s" HARMONY_LEAD "%%json %s\n", reasons ? HARMONY_REASONING : "",
                  schema);
    if (reasons)
        gbnf_until(&text, "reasoning", "<|end|>");
    memcpy(s->marks, marks, sizeof marks);
    return bind_gbnf(s, &text, sizeof marks / sizeof *marks, error);
}

static enum moed_code bind_form(struct structure *s, const struct ask *ask,
                                const struct chat_rendered *chat, struct moed_error *error)
{
    const struct reasoning_marks *marks = chat ? chat->style.reasoning : NULL;
    bool harmony = is_harmony(chat);
    bool schema = ask->form == MOED_GRAMMAR_JSON_SCHEMA;
    if (harmony && schema)
        return bind_harmony(s, ask->form_text, !chat->reasoning_open, error);
    if (marks && !chat->reasoning_open && schema && ask->thinking != CHAT_OFF)
        return allow_reasoning(s, ask->form_text, marks, error);
    s->grammar = (struct moed_grammar){.size = sizeof(struct moed_grammar),
                                       .kind = ask->form,
                                       .text = ask->form_text,
                                       .text_bytes = strlen(ask->form_text)};
    if (harmony)
        bind_behind(s, ANSWER);
    else if (marks && chat->reasoning_open)
        bind_behind(s, marks->end);
    return MOED_OK;
}

enum moed_code structure_init(struct structure *s, const struct ask *ask,
                              const struct chat_rendered *chat, struct moed_error *error)
{
    *s = (struct structure){0};
    /* a model that decides by itself is bound only inside a call; that needs an end */
    bool free = ask->calls == CALLS_AUTO && ask->ignore_end && !ask->form;
    if (chat && ask->tool_list && !free)
        return bind_calls(s, ask, chat, error);
    return ask->form ? bind_form(s, ask, chat, error) : MOED_OK;
}

enum moed_code structure_init_behind(struct structure *s, const struct ask *ask,
                                     const struct chat_rendered *chat, struct moed_error *error)
{
    struct chat_rendered over = *chat; /* borrows what it has */
    const char *end = chat->style.reasoning ? chat->style.reasoning->end : ANSWER;
    over.reasoning_open = true;
    enum moed_code code = structure_init(s, ask, &over, error);
    struct moed_grammar *g = &s->grammar;
    if (!code && g->trigger && strcmp(g->trigger, end) == 0) { /* it has just come */
        g->trigger = NULL;
        g->trigger_bytes = 0;
        g->trigger_required = false;
    }
    return code;
}

void structure_fini(struct structure *s)
{
    tool_grammar_fini(&s->calls);
    free(s->text);
    *s = (struct structure){0};
}
