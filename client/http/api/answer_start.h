/* The start of an answer, on its deployment's thread: the prompt, what reads the answer, and the
 * requests. */
#ifndef MOED_HTTP_ANSWER_START_H
#define MOED_HTTP_ANSWER_START_H

#include "client/http/api/answer_state.h"

/* What the first job does once the deployment is known. */
void answer_start_work(struct job *job);
/* What a choice asks the worker for. The options point to *sampling. */
struct moed_generate_options answer_options(const struct answer *a, const struct choice *c,
                                            struct moed_sampling *sampling);

#endif
