/* An answer on its way to the terminal: its bytes come from libmoed, reasoning and content are told
 * apart, and control characters are hidden, so that nothing that a model writes moves the cursor,
 * sets the title or answers a query. */
#ifndef MOED_CLI_CHAT_REPLY_H
#define MOED_CLI_CHAT_REPLY_H

#include "base/strbuf.h"
#include "client/cli/chat.h"
#include "client/include/moed.h"
#include "toolcall/toolcall.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum thinking_view {
    THINKING_FOLD, /* one line that says how long the model thinks */
    THINKING_SHOW,
    THINKING_OFF, /* the template is told that the model does not think; what comes is not shown */
};

struct reply {
    enum thinking_view view;
    bool terminal;         /* standard output is one: hide control characters */
    bool moves;            /* ... on which a line can be written again */
    struct strbuf content; /* what belongs to the conversation */
    struct strbuf shown;   /* the part that is being printed */
    bool thinks, has_thought;
    bool printed, ends_line; /* something was printed; its last byte was a newline */
    int write_errno;         /* of standard output; 0: none */
    bool failed;             /* no memory */
    double thinks_since_s, drawn_s;
    struct tool_parser *parser; /* NULL: the model's answers have no parts */
};

/* False: no memory. */
bool reply_init(struct reply *r, const struct chat_prompt *prompt, enum thinking_view view,
                bool terminal);
void reply_fini(struct reply *r);
void reply_take(struct reply *r, const struct moed_event *event);
/* The answer has ended: what was held back is printed. */
void reply_end(struct reply *r);

#endif
