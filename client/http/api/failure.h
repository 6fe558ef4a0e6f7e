/* Failures of libmoed and unknown models, as HTTP shows them. */
#ifndef MOED_HTTP_FAILURE_H
#define MOED_HTTP_FAILURE_H

#include "client/http/server/problem.h"
#include "client/include/moed.h"

struct deployments;
struct deployments_waiter;

/* No running deployment has the model. meant: as for deployments_starting, or "": the default. */
void problem_no_model(struct problem *p, const struct deployments *d, const char *meant);
/* The same for a request that has waited for it (deployments_want). */
void problem_not_loaded(struct problem *p, const struct deployments_waiter *w);
/* The problem that an error of libmoed is to a client. */
void problem_from_moed(struct problem *p, const struct moed_error *error);

#endif
