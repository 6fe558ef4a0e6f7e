/* Whether a model is to think, of what a request says about it. Some templates think only when told
 * to, so a request with an effort needs the switch too. */
#ifndef MOED_CHAT_EFFORT_H
#define MOED_CHAT_EFFORT_H

#include "chat/chat_template.h"

/* The switch that an effort stands for: CHAT_OFF for "none", CHAT_UNSET for NULL and "minimal",
 * CHAT_ON for any other. */
enum chat_switch chat_effort_switch(const char *effort);
/* The switch for the template: `own` is the request's, `effort` that of its effort. The request's
 * comes first, also where it stands in `kwargs`: these are the template's then, and the result is
 * CHAT_UNSET. kwargs: an object or NULL. */
enum chat_switch chat_thinking(enum chat_switch own, enum chat_switch effort, const json_t *kwargs);

#endif
