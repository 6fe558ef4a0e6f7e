/* Results of tools beside their calls. Templates show results by position, and some show one call
 * in a message and refuse or drop others. */
#ifndef MOED_CHAT_CALL_RESULTS_H
#define MOED_CHAT_CALL_RESULTS_H

#include "chat/chat_template.h"

/* Sorts the results behind a message with several calls by their calls' places, and writes one for
 * a call without any in front of one that has a result. Where the template shows one call in a
 * message, each call gets a message with its results behind it. Each content is in the form that
 * the template takes already. False: no memory. */
bool call_results_fit(const struct chat_abilities *a, json_t *messages);

#endif
