/* The Responses API's truncation `auto`: a conversation that is too long for the context loses
 * whole turns, the oldest first. A turn is a message of the user and what follows it; system
 * messages and the last turn stay. */
#ifndef MOED_HTTP_TRUNCATION_H
#define MOED_HTTP_TRUNCATION_H

#include "client/http/api/answer_state.h"

bool take_truncation(struct ask *ask, json_t *value, struct problem *p);

/* The conversation without its n oldest turns: a new reference; NULL: no memory. */
json_t *truncation_cut(const json_t *messages, size_t n);

/* On the session's thread, where the request allows it: a->chat is the rendering of the whole
 * conversation, if `code` is MOED_OK. Where that is too long, renders it without as few turns as
 * leave space for the prompt and an answer. Returns `code` where no cut helps. */
enum moed_code truncation_render(struct answer *a, enum moed_code code, struct moed_error *error);

#endif
