/* The answer to a request: one or several choices, generated at once, and the dialect that writes
 * them as its API does.
 *
 *     resolving  which deployment has the model
 *     starting   on the deployment's thread: render, tokenize, submit
 *     running    events of the choices come
 *     over
 *
 * An answer outlives its exchange while a job has it. `x` is NULL once the exchange is gone. */
#ifndef MOED_HTTP_ANSWER_H
#define MOED_HTTP_ANSWER_H

#include "client/http/api/answer_state.h"

/* Starts the answer; takes *ask. The exchange is replied to later. id_prefix: "chatcmpl-". */
void answer_start(struct exchange *x, struct ask *ask, const struct dialect *dialect,
                  const char *id_prefix);

/* It ended by itself, with calls of tools that are all complete. */
bool choice_has_calls(const struct choice *c);
/* The answer ended because no more tokens were allowed, or fit. */
bool choice_is_cut(const struct choice *c);

#endif
