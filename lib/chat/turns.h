/* Which messages may follow each other: system messages and the user's turns change where a
 * template refuses them, or does not show them. */
#ifndef MOED_CHAT_TURNS_H
#define MOED_CHAT_TURNS_H

#include "chat/chat_template.h"

bool turn_has_role(const json_t *message, const char *role);

/* Appends each of the user's turns that is right behind another to that one. False: no memory. */
bool turns_join_users(json_t *messages);

/* Makes all turns such as the template takes; each content is in the form that it takes already.
 * False: no memory. */
bool turns_fit(const struct chat_abilities *a, json_t *messages);

#endif
