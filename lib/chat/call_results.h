/* Templates that show one call in a message, and refuse or drop others. */
#ifndef MOED_CHAT_SINGLE_CALLS_H
#define MOED_CHAT_SINGLE_CALLS_H

#include "chat/chat_template.h"

/* Makes of a message with several calls one for each, with its results behind it, unless the
 * template shows several. Each content is in the form that the template takes already. False: no
 * memory. */
bool single_calls_fit(const struct chat_abilities *a, json_t *messages);

#endif
