/* Tool calls and reasoning in a model's answer.
 *
 * A model writes its calls and its reasoning into its answer as text, between marks of its family.
 * A struct tool_parser takes the answer in parts, as it is generated, and gives events: content,
 * reasoning, calls. The events do not depend on where the answer was cut; only the division of a
 * text into deltas does. Parts that hold whole UTF-8 characters give deltas that do.
 *
 * The parser holds back what may begin a mark, and the whitespace before it, and nothing else. A
 * call that is malformed, or that names an unknown tool, becomes content. Without `whole_calls` the
 * arguments of a call are passed on as they arrive, and a call that breaks after that ends with
 * complete = false; its rest becomes content. A call in reasoning is passed on only once it is
 * complete and the reasoning does not go on behind it; else it is reasoning.
 *
 * The library does no I/O and uses no clock. A parser belongs to one thread.
 * docs/tool-calls.md describes the formats. */
#ifndef MOED_TOOLCALL_TOOLCALL_H
#define MOED_TOOLCALL_TOOLCALL_H

#include "base/error.h"
#include "toolcall/formats.h"
#include "toolcall/tools.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TOOL_HELD_BYTES_MAX = 1 << 20, /* held back of one call; a longer one becomes content */
    TOOL_NAME_BYTES_MAX = 256,     /* of a name, a key or a header in an answer */
    TOOL_CALLS_MAX = 128,          /* in one answer; further ones become content */
    TOOL_ID_BYTES = 320,
};

enum tool_event_kind {
    TOOL_CONTENT,    /* text */
    TOOL_REASONING,  /* text */
    TOOL_CALL_BEGIN, /* index, id, name */
    TOOL_ARGUMENTS,  /* index, text: the next part of the JSON text of the arguments */
    TOOL_CALL_END,   /* index, complete */
};

struct tool_event {
    enum tool_event_kind kind;
    uint32_t index; /* of the call in this answer, from 0 */
    const char *id, *name;
    const char *text; /* not NUL-terminated; valid during the callback */
    size_t len;
    bool complete; /* the arguments are a whole JSON object */
};

typedef void tool_event_fn(void *context, const struct tool_event *event);

struct tool_parser_options {
    const struct tool_format *format;
    const struct reasoning_marks
        *reasoning;                /* NULL: the model has no reasoning, or it is content */
    const struct tool_list *tools; /* NULL: no calls. Borrowed while the parser lives */
    bool reasoning_open;           /* the prompt ended inside reasoning */
    bool reasoning_begun;          /* ... behind text of it: white space that follows is kept */
    bool calls_in_reasoning;       /* they count, where it does not go on behind them */
    bool parallel;                 /* false: the answer ends with its first call */
    bool whole_calls;              /* events of a call only once it is complete */
    uint32_t reasoning_budget;     /* tokens; 0: no limit */
    uint64_t id_seed;              /* random: the ids of the calls follow from it */
    tool_event_fn *on_event;
    void *context;
};

struct tool_parser;

/* ERROR_MEMORY. */
enum error_code tool_parser_new(const struct tool_parser_options *options, struct tool_parser **out,
                                struct error *e);
void tool_parser_free(struct tool_parser *p); /* takes NULL */

/* The next bytes of the answer, which are n_tokens whole tokens: where reasoning begins or ends in
 * them, all count as reasoning. ERROR_MEMORY: the parser can only be freed. */
enum error_code tool_parser_feed(struct tool_parser *p, const char *text, size_t len,
                                 uint32_t n_tokens);
/* The next token of the answer, whose text has `bytes` bytes. text: what has come of the answer;
 * *used: how much of it was read, up to the end of the token's own. What is missing, as behind the
 * beginning of a stop string, is at the beginning of the next text. ERROR_MEMORY. */
enum error_code tool_parser_feed_token(struct tool_parser *p, uint32_t bytes, const char *text,
                                       size_t len, size_t *used);
/* The next text of the tokens so far. ERROR_MEMORY. */
enum error_code tool_parser_feed_text(struct tool_parser *p, const char *text, size_t len);
/* The next text, and n tokens. *n_read, *used: how much was read: all, if the parser was not
 * stopped. bytes: of the text of each; NULL: not known. ERROR_MEMORY. */
enum error_code tool_parser_feed_tokens(struct tool_parser *p, const uint32_t *bytes, size_t n,
                                        const char *text, size_t len, size_t *n_read, size_t *used);
/* The answer has ended. */
enum error_code tool_parser_finish(struct tool_parser *p);

uint32_t tool_parser_calls(const struct tool_parser *p); /* that were begun */
uint64_t tool_parser_reasoning_tokens(const struct tool_parser *p);
/* The reasoning is not over and has reached its budget: the caller ends it with the end mark. */
bool tool_parser_over_budget(const struct tool_parser *p);
/* `parallel` is false and a call is complete: nothing more is needed; further bytes are ignored. */
bool tool_parser_stopped(const struct tool_parser *p);
/* How many tokens were fed behind the one at which the parser stopped. */
size_t tool_parser_surplus(const struct tool_parser *p);
/* How many of the last tokens may turn out to be surplus, because the parser has read no text of
 * them: they wait for it, or stand behind the token whose event is being given. */
size_t tool_parser_pending(const struct tool_parser *p);

#endif
