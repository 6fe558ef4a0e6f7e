/* GET /v1/models, /v1/models/ID. */
#ifndef MOED_HTTP_MODELS_H
#define MOED_HTTP_MODELS_H

#include "client/http/server/exchange.h"

/* Calls `write`, which replies, once it is known which models there are. */
void models_listing(struct exchange *x, void (*write)(struct exchange *x));
/* The same once it is known which of them run. */
void models_running(struct exchange *x, void (*write)(struct exchange *x));

/* Calls `visit` for each model that moed-models can load and that is not loaded. */
struct deployments;
struct demand_model;
void models_each_unloaded(const struct deployments *all,
                          void (*visit)(void *arg, const struct demand_model *m), void *arg);

void handle_models(struct exchange *x);
void handle_model(struct exchange *x);

#endif
