/* Ids of calls, which some clients leave out (Ollama's) and some templates need (Solar-Open), or
 * make themselves (Kimi-K2). */
#ifndef MOED_CHAT_CALL_IDS_H
#define MOED_CHAT_CALL_IDS_H

#include "chat/chat_template.h"

/* Gives an id to each call that has none, and to a result without one that of the call in its
 * place, where the template fails without. Where the template makes the ids of calls, they and
 * those of the results become the template's. False: no memory. */
bool call_ids_fit(const struct chat_abilities *a, json_t *messages);

#endif
