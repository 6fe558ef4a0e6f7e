/* A budget of reasoning. The worker ends the reasoning of a choice once it has as many tokens
 * (worker_limit.h), and the request goes on.
 *
 * Where the worker does not, the request is cancelled, and another one goes on behind the prompt,
 * the tokens up to the budget and the end of the reasoning. What the first one has generated beyond
 * them is dropped. That costs the computing of tokens that the prefix cache does not have, all of
 * the reasoning in a model with recurrent layers. These cases are left:
 *   - harmony (gpt-oss): its reasoning ends with a channel, in one of several ways;
 *   - a call that was begun inside the reasoning is not complete at the budget, or was none;
 *   - the caller's grammar, from the first token on, does not allow the end of reasoning there.
 *
 *     request --(budget reached)--> cancelled --> job: the next request --> events as before
 *
 * The client sees one answer; its usage counts the tokens that end the reasoning, and they have no
 * log-probabilities. Where max_tokens or the context has no space for them and one more, the answer
 * ends inside its reasoning. */
#ifndef MOED_HTTP_BUDGET_H
#define MOED_HTTP_BUDGET_H

#include "client/http/api/answer_state.h"

/* The choice has a budget, and its reasoning was not ended: its tokens are read one by one. */
bool budget_counts(const struct choice *c);
/* The next tokens are not to be read: cancels the request where the worker does not end the
 * reasoning. */
bool budget_stops_before(struct choice *c, const struct moed_event *e);
/* After the first n tokens of e were read: cancels the request where the budget is reached, and the
 * worker does not end the reasoning. */
void budget_note(struct choice *c, const struct moed_event *e, uint32_t n);
/* The budget is reached, and the request that goes on is not there yet. */
bool budget_is_reached(const struct choice *c);
/* The request is done. True: the choice goes on with another one; else c->result is set. One that
 * ended with a token which the worker forces and the caller wants as an end does not go on. */
bool budget_resume(struct choice *c, const struct moed_result *result);
void budget_fini(struct budget *b);

#endif
