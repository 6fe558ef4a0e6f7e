/* The parts of a tool_parser, for the sources of this folder.
 *
 *   buf:  [ ... | mark ......... at ......... len )
 *                 raw text of    not yet
 *                 this call      read
 *
 * 1. Bytes before `mark` have been given as events or belong to a complete call.
 * 2. Between `mark` and `at` is what becomes content if the call turns out malformed. Without
 *    whole_calls it is empty after each delta of arguments: they cannot be withdrawn.
 * 3. A step reads from `at`. It decides by the bytes only, never by where the input was cut: if the
 *    bytes to `len` do not decide, and the answer has not ended, it returns STEP_WAIT and leaves
 *    `at` where the next try begins.
 * 4. At STEP_FAIL `at` is the first byte that is scanned as content again; it is at most one mark
 *    or name before the byte that failed, so an answer is read in linear time. What is read twice
 *    of reasoning has a limit of its own.
 *
 * States: parser.c makes the transitions.
 *
 *   CONTENT --reasoning begin--> REASONING --end--> CONTENT
 *   CONTENT --section begin--> SECTION --call begin--> CALL --call over--> SECTION or CONTENT
 *   SECTION --section end--> CONTENT
 *   SECTION, CALL --STEP_FAIL--> CONTENT
 *   REASONING --section begin, call begin--> SECTION, CALL --call over--> BEHIND
 *   BEHIND --text--> REASONING
 *          --section begin, call begin--> SECTION, CALL
 *          --end of reasoning, of the answer--> CONTENT
 *   HARMONY
 *
 * 1. Of a format with ends_reasoning, the marks of calls in REASONING lead to CONTENT.
 * 2. A call from REASONING that fails leads back there, to the byte behind its mark
 *    (from_reasoning, reread). Complete calls before it were reasoning, too (held).
 * 3. HARMONY: an answer in channels (harmony.c) has no other state. */
#ifndef MOED_TOOLCALL_PARSER_H
#define MOED_TOOLCALL_PARSER_H

#include "base/strbuf.h"
#include "toolcall/json_scan.h"
#include "toolcall/surrogates.h"
#include "toolcall/toolcall.h"

enum step {
    STEP_AGAIN,  /* progress */
    STEP_WAIT,   /* more bytes are needed */
    STEP_FAIL,   /* the call is malformed */
    STEP_CLOSED, /* of a body: its calls are over */
};

enum parser_state {
    PARSER_CONTENT,
    PARSER_REASONING,
    PARSER_SECTION,
    PARSER_CALL,
    PARSER_BEHIND, /* complete calls of reasoning */
    PARSER_HARMONY,
};

enum whitespace_rule {
    SPACE_KEEP,
    SPACE_DROP,    /* after a mark of reasoning */
    SPACE_PENDING, /* after a call: dropped before another call and at the end */
    SPACE_SECTION, /* the same, and before the end of a section that had no begin */
};

/* Where the JSON text that json_run reads goes. */
enum json_sink { SINK_NONE, SINK_ARGUMENTS };

/* Complete calls of reasoning: they count only if it does not go on behind them. */
struct held_calls {
    struct held_call {
        const struct tool *tool;
        char id[TOOL_ID_BYTES];
        size_t from, to; /* of args */
    } * calls;           /* [n] */
    uint32_t n, capacity;
    struct strbuf args, text; /* text: of all of them in the answer, with their marks */
};

struct objects_body {
    uint8_t field;
    bool array;   /* inside [ ] */
    bool wrapped; /* inside {"function": ...} */
    bool brace;   /* generic: } follows ] */
    bool first;   /* before the first key of a bare object */
    bool have_arguments;
};

/* The search for a line that ends a value whose end mark is missing (body_tags.c). */
struct line_search {
    size_t from;                   /* of this value; what is before it was searched */
    size_t absent_from, absent_to; /* no line between begins with a mark, in whatever call */
    uint32_t rejected;             /* lines since the last complete call that do, and end no value:
                                      malformed calls in a malformed one read the same ones */
};

/* Tokens whose text has not come yet, or not all of it (tokens.c). */
struct read_tokens {
    struct read_token {
        uint32_t left; /* bytes of its text that have not come */
        bool counted;  /* in reasoning_tokens */
        bool reasons;  /* some of its text is reasoning */
        bool begun;    /* some of its text was read */
    } * items;         /* [first + n] */
    size_t first, n, capacity;
    size_t ahead;   /* bytes of the next tokens that came before them: a character is not cut */
    size_t surplus; /* tokens behind the one that stopped the parser */
};

struct tool_parser {
    struct tool_parser_options o;
    char *buf;
    size_t mark, at, len, capacity;
    size_t searched;    /* bytes from `at` in which the end of a JSON string was not found */
    const char *absent; /* the far mark that was searched last: none begins before absent_to, so a
                           malformed call in a malformed call does not search the same bytes */
    size_t absent_to;
    struct line_search lines;
    bool final, stopped, failed;
    enum parser_state state;
    enum whitespace_rule space;
    bool started;        /* content of the message was given: no reasoning can begin */
    bool in_section;     /* the call stands in a section */
    bool from_reasoning; /* the call's mark stands in reasoning, which may go on behind it */
    size_t mark_len;     /* from_reasoning: of the call's mark, with the whitespace before it */
    struct held_calls held;
    uint64_t before;        /* bytes of the answer before `buf` */
    uint64_t reread;        /* bytes of failed calls that were scanned as reasoning again */
    size_t calls_from;      /* in reasoning no call begins before it: too much was read again */
    bool reasoning_unended; /* a call ended the reasoning: its end mark is no content */
    bool region_done;       /* since the opening mark something was given: the mark is no content */

    /* the call */
    uint8_t body_state;
    const struct tool *tool;
    bool call_open; /* its name is known */
    uint32_t calls;
    uint32_t args_written; /* BODY_TAGS: arguments so far */
    struct strbuf given;   /* BODY_TAGS: their keys, a NUL before and behind each */
    bool value_is_string;  /* BODY_TAGS with typed_values */
    char id[TOOL_ID_BYTES];
    char key[TOOL_NAME_BYTES_MAX + 1];
    struct strbuf args; /* not given yet */
    struct json_scan json;
    struct surrogates surrogates; /* of the arguments that json_run reads */
    struct objects_body objects;
    bool as_objects; /* the body is BODY_OBJECTS, though the format's is another */

    /* harmony */
    bool channel_reasons;  /* the message's kind */
    bool channel_given[2]; /* an earlier message gave content; reasoning */
    bool channel_gap;      /* the message is of a kind that was given: a blank line comes first */

    struct read_tokens tokens;
    uint64_t reasoning_tokens;
    uint64_t id_state;
};

/* -- Reading -- */

enum match { MATCH_NO, MATCH_YES, MATCH_PART };

/* Where the whitespace at `at` ends. */
size_t space_end(const struct tool_parser *p);
/* Moves `at` behind whitespace. */
void read_space(struct tool_parser *p);
/* MATCH_YES moves `at` behind the text; MATCH_PART: the bytes end inside of it. */
enum match read_mark(struct tool_parser *p, const char *text);
/* The answer has ended inside of the text, which begins at `at`: moves `at` to the end. */
bool read_cut_mark(struct tool_parser *p, const char *text);
/* The step for a mark that must come: AGAIN, WAIT or FAIL. */
enum step require_mark(struct tool_parser *p, const char *text);
/* Moves `at` to `text`, which follows within `max` bytes; *found is the length up to it. */
enum step find_mark(struct tool_parser *p, const char *text, size_t max, size_t *found);
/* The run of tool_name_byte bytes at `at`, without moving: AGAIN if it is known to be whole. */
enum step peek_name(struct tool_parser *p, size_t *len);
/* A JSON string from its quote on, of up to max bytes. AGAIN: *out is a new reference. */
enum step read_string(struct tool_parser *p, size_t max, json_t **out);
/* One JSON value, from p->json's state on: CLOSED at its end. */
enum step json_run(struct tool_parser *p, enum json_sink sink);

/* -- The answer's text and tokens -- */

bool parser_in_reasoning(const struct tool_parser *p);
/* Reads the next bytes of the answer. */
void parser_read(struct tool_parser *p, const char *text, size_t len);
/* After reasoning_tokens has changed: a call in reasoning ends at the budget. ERROR_MEMORY. */
enum error_code parser_counted(struct tool_parser *p);

/* -- Giving -- */

void emit_text(struct tool_parser *p, enum tool_event_kind kind, const char *text, size_t len);
/* A call of p->tool begins. id: the model's own, or NULL. False: one call too many. */
bool call_open(struct tool_parser *p, const char *id);
/* Gives p->args as far as the call's begin was given. */
void call_flush(struct tool_parser *p);
void call_close(struct tool_parser *p);
/* The call that was begun, if any, does not become complete. */
void call_fail(struct tool_parser *p);
/* Moves `mark` to `at`: what is between them belongs to a complete call. */
void call_take(struct tool_parser *p);
/* The held calls count, or they are reasoning. */
void held_give(struct tool_parser *p);
void held_drop(struct tool_parser *p);
void held_fini(struct held_calls *h);
/* The events of a call wait until it is complete. */
bool call_waits(const struct tool_parser *p);

/* -- Content -- */

/* Gives what cannot begin one of the marks as `kind`. AGAIN: *which mark begins at `at`, and
 * `mark` is at the whitespace before it. */
enum step scan_text(struct tool_parser *p, enum tool_event_kind kind, const char *const *marks,
                    size_t n, size_t newlines, size_t *which);

/* -- Bodies: what stands after call_begin -- */

static inline enum step body_go(struct tool_parser *p, uint8_t state)
{
    p->body_state = state;
    return STEP_AGAIN;
}

enum step objects_step(struct tool_parser *p);
enum step named_step(struct tool_parser *p);
enum step tags_step(struct tool_parser *p);
enum step literal_step(struct tool_parser *p); /* BODY_PYTHON, BODY_GEMMA */
enum step generic_step(struct tool_parser *p);
void harmony_begin(struct tool_parser *p);
enum step harmony_step(struct tool_parser *p);
void harmony_text(struct tool_parser *p); /* what follows is content */

/* What follows are objects, whatever the format's body. AGAIN. */
enum step objects_begin(struct tool_parser *p, bool bare);

#endif
