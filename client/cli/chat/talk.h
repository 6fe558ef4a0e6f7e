/* A conversation with a deployment: its messages, its session, and answers to it. */
#ifndef MOED_CLI_CHAT_TALK_H
#define MOED_CLI_CHAT_TALK_H

#include "client/cli/chat/settings.h"
#include "client/include/moed.h"

#include <jansson.h>
#include <stdbool.h>

struct talk {
    struct settings *settings;
    const char *deployment; /* for moed_attach; NULL: "default" */
    struct moed_session *session;
    struct chat_model *model; /* the session's; NULL: not asked for yet */
    json_t *messages;
    struct strbuf attached; /* /read: goes in front of the next question */
    bool terminal;          /* standard output is one */
    bool utf8;              /* the locale's characters are UTF-8 */
    bool plain_reported;    /* that the model has no chat template */
    bool full_reported;     /* that the context is nearly full */
    int exit_code;          /* of the last failure */
};

enum talk_end {
    TALK_ANSWERED, /* the answer is the last message; also where Ctrl-C cut it short */
    TALK_NOTHING,  /* Ctrl-C came before any of the answer: the messages are as they were */
    TALK_FAILED,   /* it has complained; the messages are as they were */
    TALK_CLOSED,   /* standard output cannot be written */
};

/* Attaches, and starts with the messages of the settings. False: it has complained, and *exit_code
 * is set. In any case the caller calls talk_fini. */
bool talk_init(struct talk *t, struct settings *s, int *exit_code);
void talk_fini(struct talk *t);

/* Answers the last message, which is the user's, on standard output. */
enum talk_end talk_answer(struct talk *t);

#endif
