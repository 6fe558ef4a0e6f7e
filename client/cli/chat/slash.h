/* The commands of `moed chat`: lines that begin with a slash. */
#ifndef MOED_CLI_CHAT_SLASH_H
#define MOED_CLI_CHAT_SLASH_H

#include "client/cli/chat/talk.h"

enum slash_next {
    SLASH_GO_ON, /* ask for the next line */
    SLASH_END,   /* /bye */
    SLASH_REGEN, /* answer the user's last message again: talk->messages ends with it */
};

/* Whether the line begins with the name of a command. */
bool slash_is_known(const char *line);
/* Runs the command in `line`, and says what came of it. */
enum slash_next slash_run(struct talk *t, const char *line);

#endif
