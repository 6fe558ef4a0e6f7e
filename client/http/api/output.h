/* What a model has answered, in parts: text, reasoning and calls of tools, in the order in which
 * they came. Where the model writes reasoning or calls, lib/toolcall separates them; else all is
 * text. The dialect hears of each part as it comes, and a whole answer is made of them.
 *
 *     output_start  -->  output_take ...  -->  output_finish
 *                          part_begin, part_text ..., part_end of the dialect */
#ifndef MOED_HTTP_OUTPUT_H
#define MOED_HTTP_OUTPUT_H

#include "client/http/model/chat_render.h"

#include "base/strbuf.h"
#include "toolcall/toolcall.h"

struct ask;
struct choice;

enum part_kind { PART_TEXT, PART_REASONING, PART_CALL };

struct part {
    enum part_kind kind;
    unsigned index;     /* in the output, from 0 */
    struct strbuf text; /* of a call: its arguments, JSON. Of a stream: only where it is kept */
    char *id, *name;    /* of a call; owned */
    unsigned call;      /* which of the calls it is, from 0 */
    bool complete;      /* it ended by itself; of a call: its arguments are a whole object */
};

/* What a dialect hears of a stream's parts, in order; begin and end may be NULL. */
struct part_writer {
    void (*begin)(struct choice *c, const struct part *part);
    void (*text)(struct choice *c, const struct part *part, const char *text, size_t len);
    void (*end)(struct choice *c, const struct part *part);
    bool keeps_text;  /* a stream's end repeats it */
    bool whole_calls; /* a stream has a call only whole */
};

struct output {
    struct part *parts;
    unsigned count, calls;
    bool open;       /* the last part goes on */
    bool streams;    /* the dialect hears of it */
    bool keeps_text; /* of text and reasoning; that of calls is always kept */
    bool hides_reasoning, reasoning_as_text;
    bool failed;                /* no memory */
    bool reasoning_ended;       /* by output_end_reasoning */
    struct tool_parser *parser; /* NULL: all is text */
    struct choice *choice;      /* for the writer */
    const struct part_writer *writer;
};

/* c: the choice, the index-th of its answer. style: NULL: all is text. MOED_ERROR_MEMORY. */
enum moed_code output_start(struct output *o, struct choice *c, unsigned index,
                            const struct ask *ask, const struct chat_rendered *style,
                            const struct part_writer *writer, struct moed_error *error);
void output_fini(struct output *o);

/* The ask's answers need separating, so special tokens' texts must come too. */
bool output_needs_parser(const struct ask *ask, const struct chat_style *style);

/* The next text, of n_tokens tokens, whose lengths are not known. */
void output_take(struct output *o, const char *text, size_t len, uint32_t n_tokens);
/* Where there is a parser: the next token, of so many bytes, and its part of the next text. Returns
 * that part's length. What a stop string or half a character holds back comes with a later text. */
size_t output_take_token(struct output *o, uint32_t bytes, const char *text, size_t len);
/* The text behind the tokens that came with it: of those before them. */
void output_take_rest(struct output *o, const char *text, size_t len);
/* The reasoning has reached its budget: output_end_reasoning must come. */
bool output_is_over_budget(const struct output *o);
/* The text that ends the reasoning, for good. */
void output_end_reasoning(struct output *o, const char *text, uint32_t n_tokens);
/* The choice has its result: a part that is open is complete unless the choice was cut. */
void output_finish(struct output *o, bool cut);
/* Nothing more is needed: the one call that was allowed is complete. */
bool output_is_over(const struct output *o);
/* How many tokens were taken behind the one with which it was over. */
size_t output_surplus(const struct output *o);
/* How many of the last tokens may turn out to be behind it. */
size_t output_pending(const struct output *o);

uint64_t output_reasoning_tokens(const struct output *o);
/* Appends the texts of all parts of a kind. */
void output_text(const struct output *o, enum part_kind kind, struct strbuf *out);
/* The last part that is text; NULL: none. */
const struct part *output_last_text(const struct output *o);
/* There are calls, and each is complete. */
bool output_has_calls(const struct output *o);
/* Appends the member `arguments` of a call: its arguments as text. */
void output_arguments_member(const struct part *call, struct strbuf *out);
/* Appends a call's arguments as one line of JSON, as the model wrote them: an object in every case.
 */
void output_arguments_json(const struct part *call, struct strbuf *out);

#endif
