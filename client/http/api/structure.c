/* What binds an answer; see structure.h. */
#include "client/http/api/structure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANY_OBJECT "{\"type\":\"object\"}"

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

/* A schema that is to be followed as far as it can be: loose_schemas.h. */
static bool take_loose_schema(struct ask *ask, json_t *value, struct problem *p)
{
    ask->form_is_loose = take_schema(ask, value, p);
    return ask->form_is_loose;
}

/* A schema, or the same as text. The worker says what is wrong with a text that is no JSON. */
static bool take_schema_or_text(struct ask *ask, json_t *value, struct problem *p)
{
    if (!json_is_string(value))
        return take_loose_schema(ask, value, p);
    json_t *schema = json_loads(json_string_value(value), JSON_REJECT_DUPLICATES, NULL);
    bool taken = json_is_object(schema)
                     ? take_loose_schema(ask, schema, p)
                     : set_form(ask, MOED_GRAMMAR_JSON_SCHEMA, strdup(json_string_value(value)), p);
    json_decref(schema);
    return taken;
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
    {.name = "regex", .take = take_regex}, /* SGLang's */
    /* SGLang's, in XGrammar's notation: that of GBNF, and more, in which the worker finds errors */
    {.name = "ebnf", .take = take_grammar},
    {.name = "structural_tag", .refused = "use tools"},
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
    bool strict = json_is_true(json_object_get(named ? named : value, "strict"));
    bool json = type && (strcmp(type, "json_object") == 0 || strcmp(type, "json_schema") == 0);
    if (type && strcmp(type, "text") == 0)
        return true;
    if (!json)
        return problem_set(p, 400, "the type text, json_object or json_schema is expected");
    if (schema && !json_is_null(schema))
        return strict ? take_schema(ask, schema, p) : take_loose_schema(ask, schema, p);
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
        return take_loose_schema(ask, value, p);
    return problem_set(p, 400, "json or a JSON schema is expected");
}

/* ---- The answer ---- */

static struct answer_request request_of(const struct ask *ask, const struct chat_rendered *chat)
{
    static const enum answer_calls calls[] = {[CALLS_AUTO] = ANSWER_CALLS_AUTO,
                                              [CALLS_NONE] = ANSWER_CALLS_AUTO,
                                              [CALLS_REQUIRED] = ANSWER_CALLS_REQUIRED,
                                              [CALLS_NAMED] = ANSWER_CALLS_NAMED};
    return (struct answer_request){
        .format = chat ? chat->style.format : NULL,
        .reasoning = chat ? chat->style.reasoning : NULL,
        .reasoning_open = chat && chat->reasoning_open,
        .thinking_off = ask_thinking(ask) == CHAT_OFF || (chat && chat->reasoning_closed),
        .tools = ask->tool_list,
        .calls = calls[ask->calls],
        .call_name = ask->call_name,
        .one_call = ask->one_call,
        .endless = ask->ignore_end,
        .form = ask->form == MOED_GRAMMAR_NONE          ? ANSWER_FORM_NONE
                : ask->form == MOED_GRAMMAR_JSON_SCHEMA ? ANSWER_FORM_SCHEMA
                                                        : ANSWER_FORM_OTHER,
        .form_text = ask->form_text,
    };
}

typedef enum error_code build_grammar(const struct answer_request *, struct answer_grammar *,
                                      struct error *);

static enum moed_code init(struct structure *s, build_grammar *build, const struct ask *ask,
                           const struct chat_rendered *chat, struct moed_error *error)
{
    struct answer_request q = request_of(ask, chat);
    struct answer_grammar *g = &s->answer;
    struct error why;
    *s = (struct structure){.grammar = {.size = sizeof s->grammar}};
    if (build(&q, g, &why)) {
        *error = (struct moed_error){.code = (enum moed_code)why.code};
        snprintf(error->message, sizeof error->message, "%s%.400s", ask->tool_list ? "tools: " : "",
                 why.text);
        return error->code;
    }
    if (g->kind == ANSWER_FREE)
        return MOED_OK;
    bool form = g->kind == ANSWER_FORM;
    s->grammar.kind = form ? ask->form : MOED_GRAMMAR_GBNF;
    s->grammar.text = form ? ask->form_text : g->text;
    s->grammar.text_bytes = form ? strlen(ask->form_text) : g->len;
    s->grammar.trigger = g->trigger;
    s->grammar.trigger_required = g->trigger_required;
    s->grammar.reasoning_begin = g->reasoning_begin;
    s->grammar.reasoning_end = g->reasoning_end;
    s->grammar.marks = g->marks;
    s->grammar.mark_count = g->mark_count;
    return MOED_OK;
}

enum moed_code structure_init(struct structure *s, const struct ask *ask,
                              const struct chat_rendered *chat, struct moed_error *error)
{
    return init(s, answer_grammar_build, ask, chat, error);
}

enum moed_code structure_init_behind(struct structure *s, const struct ask *ask,
                                     const struct chat_rendered *chat, struct moed_error *error)
{
    return init(s, answer_grammar_build_behind, ask, chat, error);
}

void structure_fini(struct structure *s)
{
    answer_grammar_fini(&s->answer);
    *s = (struct structure){.grammar = {.kind = MOED_GRAMMAR_NONE}};
}
