/* The budget of reasoning as the worker keeps it: how reasoning begins and may end in answers of
 * the chat's style, and the tokens that end it. budget.h has the rest. */
#ifndef MOED_HTTP_WORKER_LIMIT_H
#define MOED_HTTP_WORKER_LIMIT_H

#include "client/http/api/answer_state.h"

/* Fills a->limit, where the answer has a budget and its style marks of reasoning. On the
 * deployment's thread, attached; after the chat was rendered. */
enum moed_code worker_limit_init(struct answer *a, struct moed_error *error);
void worker_limit_fini(struct worker_limit *l);

#endif
