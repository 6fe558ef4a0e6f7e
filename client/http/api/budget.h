/* A budget of reasoning. Once the reasoning of a choice has as many tokens, its request is
 * cancelled, and another one goes on behind these tokens and the end of the reasoning. What the
 * first one has generated beyond them is dropped.
 *
 *     request --(budget reached)--> cancelled --> job: the next request --> events as before
 *
 * The client sees one answer; its usage counts the tokens that end the reasoning. Where max_tokens
 * or the context has no space for them and one more, the answer ends inside its reasoning. */
#ifndef MOED_HTTP_BUDGET_H
#define MOED_HTTP_BUDGET_H

#include "client/http/api/answer_state.h"

/* The choice has a budget that is not reached: its tokens are read one by one. */
bool budget_counts(const struct choice *c);
/* After these tokens were read: cancels the request where the budget is reached. */
void budget_note(struct choice *c, const uint32_t *tokens, uint32_t n);
/* The budget is reached, and the request that goes on is not there yet. */
bool budget_is_reached(const struct choice *c);
/* The request is done. True: the choice goes on with another one; else c->result is set. */
bool budget_resume(struct choice *c, const struct moed_result *result);
void budget_fini(struct budget *b);

#endif
