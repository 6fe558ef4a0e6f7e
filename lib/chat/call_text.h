/* The text that an assistant wrote before its tool calls: some templates do not show it in that
 * message, or no longer once the conversation goes on. */
#ifndef MOED_CHAT_CALL_TEXT_H
#define MOED_CHAT_CALL_TEXT_H

#include "chat/chat_template.h"

/* Puts such texts where the template shows them: into the message's reasoning, or, once the
 * template no longer shows them there, into the answer that ends the turn. Without reasoning each
 * becomes a message of its own in front, if the template shows it there. Each content is in the
 * form that the template takes already. False: no memory. */
bool call_texts_fit(const struct chat_abilities *a, json_t *messages);

#endif
