/* libmoed: answers to a conversation. The prompt comes from client/chat, what binds the answer from
 * lib/toolcall, and chat_reader.c finds the parts of what the model writes. */
#include "client/src/chat.h"

#include "client/src/chat_reader.h"
#include "client/src/error.h"
#include "client/src/options.h"
#include "client/src/request.h"

#include "toolcall/answer_grammar.h"

#include <stdlib.h>
#include <string.h>

static enum moed_code no_memory(struct moed_error *error)
{
    return error_report(error, MOED_ERROR_MEMORY, false, "no memory for the answer");
}

/* What an answer's request borrows while it is started. */
struct answer {
    struct moed_generate_options options;
    struct moed_sampling sampling; /* where the program gives no options */
    struct moed_grammar grammar;
    char *form; /* the program's grammar, NUL-terminated; owned */
    struct answer_grammar bound;
    struct chat_rendered prompt;
};

static void answer_fini(struct answer *a)
{
    answer_grammar_fini(&a->bound);
    free(a->form);
    free(a->prompt.text);
    free(a->prompt.plain);
}

static enum moed_code take_options(struct answer *a, const struct moed_generate_options *options,
                                   struct moed_error *error)
{
    struct moed_generate_options *o = &a->options;
    if (!options) {
        moed_sampling_init(&a->sampling, sizeof a->sampling);
        *o = (struct moed_generate_options){.size = sizeof *o, .sampling = &a->sampling};
        return MOED_OK;
    }
    enum moed_code code = OPTIONS_COPY(options, o, struct moed_generate_options, cache_salt, error);
    o->size = sizeof *o;
    if (!code && (o->prompt || o->token_count || o->plain))
        code = error_report(error, MOED_ERROR_USAGE, false,
                            "the options have a prompt, but a chat's prompt is its messages");
    return code;
}

static enum moed_code take_grammar(struct answer *a, const struct chat_settings *s,
                                   struct moed_error *error)
{
    struct moed_grammar *g = &a->grammar;
    if (!a->options.grammar)
        return MOED_OK;
    enum moed_code code =
        OPTIONS_COPY(a->options.grammar, g, struct moed_grammar, mark_count, error);
    if (code || g->kind == MOED_GRAMMAR_NONE)
        return code;
    if (g->trigger || g->mark_count)
        return error_report(error, MOED_ERROR_USAGE, false,
                            "a chat's grammar binds behind the reasoning: leave out trigger and "
                            "marks");
    if (s->tool_list && s->choice == MOED_TOOLS_AUTO && g->kind != MOED_GRAMMAR_JSON_SCHEMA)
        return error_report(error, MOED_ERROR_USAGE, false,
                            "beside tools the grammar can only be a JSON schema: leave it out, or "
                            "choose required or none");
    a->form = strndup(g->text ? g->text : "", g->text_bytes ? g->text_bytes : SIZE_MAX);
    return a->form ? MOED_OK : no_memory(error);
}

static enum answer_form form_of(enum moed_grammar_kind kind)
{
    return kind == MOED_GRAMMAR_NONE          ? ANSWER_FORM_NONE
           : kind == MOED_GRAMMAR_JSON_SCHEMA ? ANSWER_FORM_SCHEMA
                                              : ANSWER_FORM_OTHER;
}

static enum answer_calls calls_of(enum moed_tool_choice choice)
{
    return choice == MOED_TOOLS_NAMED      ? ANSWER_CALLS_NAMED
           : choice == MOED_TOOLS_REQUIRED ? ANSWER_CALLS_REQUIRED
                                           : ANSWER_CALLS_AUTO;
}

/* Sets options.grammar to what binds the answer. */
static enum moed_code bind_answer(struct answer *a, const struct chat_settings *s,
                                  struct moed_error *error)
{
    const struct chat_rendered *prompt = &a->prompt;
    struct answer_request q = {
        .format = prompt->style.format,
        .reasoning = prompt->style.reasoning,
        .reasoning_open = prompt->reasoning_open,
        .thinking_off = s->thinking == MOED_THINKING_OFF || prompt->reasoning_closed,
        .tools = s->tool_list,
        .calls = calls_of(s->choice),
        .call_name = s->tool_name,
        .one_call = s->one_call,
        .endless = a->options.ignore_end,
        .form = form_of(a->grammar.kind),
        .form_text = a->form,
    };
    struct error why;
    a->options.grammar = NULL;
    if (answer_grammar_build(&q, &a->bound, &why))
        return error_convert(error, &why);
    const struct answer_grammar *bound = &a->bound;
    if (bound->kind == ANSWER_FREE)
        return MOED_OK;
    bool form = bound->kind == ANSWER_FORM;
    a->grammar = (struct moed_grammar){
        .size = sizeof a->grammar,
        .kind = form ? a->grammar.kind : MOED_GRAMMAR_GBNF,
        .text = form ? a->form : bound->text,
        .trigger = bound->trigger,
        .trigger_required = bound->trigger_required,
        .reasoning_begin = bound->reasoning_begin,
        .reasoning_end = bound->reasoning_end,
        .marks = bound->marks,
        .mark_count = bound->mark_count,
    };
    a->options.grammar = &a->grammar;
    return MOED_OK;
}

static enum moed_code answer_init(struct answer *a, struct moed_chat *chat,
                                  const struct moed_generate_options *options,
                                  struct moed_error *error)
{
    const struct chat_settings *s = chat->settings;
    *a = (struct answer){.form = NULL};
    enum moed_code code = take_options(a, options, error);
    if (!code)
        code = take_grammar(a, s, error);
    if (!code)
        code = chat_write(chat, &a->prompt, error);
    if (!code)
        code = bind_answer(a, s, error);
    if (code) {
        answer_fini(a);
        return code;
    }
    a->options.prompt = a->prompt.text;
    a->options.prompt_bytes = a->prompt.text_bytes;
    a->options.plain = a->prompt.plain;
    a->options.plain_count = a->prompt.plain_count;
    a->options.parse_special = true;
    a->options.special_text |= s->tool_list || chat_style_has_marks(&a->prompt.style);
    return MOED_OK;
}

enum moed_code moed_chat_start(struct moed_chat *chat, const struct moed_generate_options *options,
                               struct moed_request **out, struct moed_error *error)
{
    struct answer a;
    struct moed_request *request;
    enum moed_code code = answer_init(&a, chat, options, error);
    if (code)
        return code;
    struct chat_reader *reader = chat_reader_new(chat->settings, &a.prompt);
    code =
        reader ? moed_generate_start(chat->session, &a.options, &request, error) : no_memory(error);
    answer_fini(&a);
    if (code) {
        chat_reader_free(reader);
        return code;
    }
    request_set_reader(request, reader);
    *out = request;
    return MOED_OK;
}

enum moed_code moed_chat_answer(struct moed_chat *chat, const struct moed_generate_options *options,
                                moed_callback *callback, void *arg, struct moed_result *result,
                                struct moed_error *error)
{
    struct moed_request *request;
    const struct moed_event *event = NULL;
    bool cancelled = false;
    enum moed_code code = result ? result_check(result, error) : MOED_OK;
    if (!code)
        code = moed_chat_start(chat, options, &request, error);
    if (code)
        return code;
    while (!code && (!event || event->kind != MOED_EVENT_DONE)) {
        code = moed_request_next(request, -1, &event, error);
        if (code || cancelled || !callback || !callback(arg, event))
            continue;
        cancelled = true;
        moed_request_cancel(request);
    }
    if (!code && result)
        result_copy_out(event->result, result);
    if (!code)
        code = moed_chat_add_answer(chat, request, error);
    moed_request_free(request);
    return code;
}
