/* Failures of libmoed and unknown models, as HTTP shows them. */
#ifndef MOED_HTTP_FAILURE_H
#define MOED_HTTP_FAILURE_H

#include "client/http/server/problem.h"
#include "client/include/moed.h"

/* No running deployment has the model. */
void problem_no_model(struct problem *p, const char *model);
/* The problem that an error of libmoed is to a client. */
void problem_from_moed(struct problem *p, const struct moed_error *error);

#endif
