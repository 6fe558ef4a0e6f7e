/* A model's chat template with what it takes, and prompts from conversations.
 *
 * Clients send conversations in one form (OpenAI's messages); templates differ in what they take.
 * chat_template_new finds out by rendering small conversations (probe.c), and chat_template_render
 * changes a copy of the messages to fit (messages.c, turns.c, call_text.c): parts of content become
 * one string, tool arguments a string or an object, a second system message a part of the first.
 *
 * A template never changes after creation: any number of threads may render it. */
#ifndef MOED_CHAT_CHAT_TEMPLATE_H
#define MOED_CHAT_CHAT_TEMPLATE_H

#include "base/error.h"
#include "jinja/jinja.h"

#include <stdbool.h>

struct chat_template;

struct chat_source {
    const char *text;      /* the template; NULL or empty: a plain one (chat_template_is_plain) */
    const char *tools;     /* the variant for conversations with tools; NULL or empty: none */
    const char *calls;     /* Jinja in front of a template that shows tools but no calls: it sets
                              `messages` to such with the calls in their content, and writes
                              nothing, without line ends; NULL: none */
    const char *bos, *eos; /* the texts of these tokens, ""; NULL: "" */
};

/* Borrows nothing. Errors are those of jinja_compile. */
enum error_code chat_template_new(const struct chat_source *source, struct chat_template **out,
                                  struct error *e);
void chat_template_free(struct chat_template *t); /* takes NULL */

/* The model brought no template: turns are written as "User: ...". Tell the user. */
bool chat_template_is_plain(const struct chat_template *t);

/* What the template shows of a conversation, by trial. */
struct chat_abilities {
    bool text;              /* content that is a string */
    bool parts;             /* content that is a list of {"type": "text", "text": ...} */
    char part_gap[4];       /* between two such parts: white space; else a newline */
    bool system;            /* a system message at the begin */
    bool system_again;      /* another right behind it */
    bool system_later;      /* one behind an answer, in its place */
    bool developer;         /* the role "developer", of the first message */
    bool user_again;        /* two of the user's turns in a row */
    bool tools;             /* the list of tools */
    bool tools_needed;      /* it fails without one: it gets an empty list */
    bool tool_calls;        /* an assistant's calls, in one form of arguments at least */
    bool several_calls;     /* two calls in one message */
    bool ids_needed;        /* it fails where a call or a result has no id */
    bool ordinal_ids;       /* it writes functions.NAME:INDEX for a call's id, INDEX in its message,
                               and a result's own id (Kimi-K2) */
    bool object_arguments;  /* a call's arguments as an object */
    bool string_arguments;  /* a call's arguments as a string of JSON */
    bool user_after_result; /* a turn of the user behind a tool's result */
    const char *reasoning;  /* the name of an assistant's reasoning: reasoning_content, `thinking`
                               (gpt-oss) or `reasoning` (Solar-Open); NULL: it is not shown */
    bool reasoning_part;    /* ... as a part {"type": "thinking", "thinking": ...} of the content,
                               if by no name (Mistral) */
    bool call_text;         /* text in a message with calls, unless behind their results */
    bool call_reasoning;    /* both text and reasoning in such a message */
    bool text_then_call;    /* text in a message of its own in front of one with calls */
    /* such a text, or the reasoning that it becomes, is still shown */
    bool call_text_asked;    /* ... once the user has asked again */
    bool call_text_answered; /* ... once an answer without calls follows */
};

/* tools: of the variant for conversations with tools. */
const struct chat_abilities *chat_template_abilities(const struct chat_template *t, bool tools);

enum chat_end {
    CHAT_END_AUTO,     /* continue a last message of the assistant, else begin an answer */
    CHAT_END_ANSWER,   /* the prompt ends with the beginning of the assistant's turn */
    CHAT_END_CONTINUE, /* ... inside the last message, which is the assistant's */
    CHAT_END_CLOSED,   /* ... behind the last message */
};

/* Where the prompt ends. */
enum chat_inside {
    CHAT_OUTSIDE,      /* not inside a message, but maybe of one that is empty */
    CHAT_IN_TEXT,      /* inside the text of the last message that is not empty */
    CHAT_IN_REASONING, /* inside the last message's reasoning; it has no text */
};

enum { CHAT_KWARGS_MAX = 256 }; /* keys */

enum chat_switch { CHAT_UNSET, CHAT_ON, CHAT_OFF };

struct chat_request {
    const json_t *messages;       /* an array of objects with "role" and "content" */
    const json_t *tools;          /* an array or NULL */
    const json_t *kwargs;         /* an object or NULL: further variables of the template, as
                                     chat_template_kwargs, CHAT_KWARGS_MAX at most; they win over
                                     the fields below, not over the messages and tools */
    const json_t *defaults;       /* the same, but all else wins over them */
    const char *reasoning_effort; /* NULL: the template's default */
    enum chat_switch thinking;    /* enable_thinking */
    enum chat_end end;
    bool in_reasoning;                 /* the prompt may end in a last message's reasoning, if the
                                          template shows it: the reader of the answer knows */
    int64_t now_s;                     /* see struct jinja_input; -1: now */
    const struct jinja_limits *limits; /* NULL: chat_limits */
};

/* jinja_default_limits with steps for templates that read the whole conversation at each message:
 * some 50 for each pair of messages, until a render takes some seconds. */
struct jinja_limits chat_limits(size_t messages);

/* The prompt; the caller frees it with jinja_output_fini. Its ranges are the request's text.
 * inside: may be NULL.
 * ERROR_USAGE: malformed messages, or the template refuses them; ERROR_UNSUPPORTED: a part that is
 * no text, or tools for a template that does not show them; ERROR_LIMIT. */
enum error_code chat_template_render(const struct chat_template *t, const struct chat_request *q,
                                     struct jinja_output *out, enum chat_inside *inside,
                                     struct error *e);

#endif
