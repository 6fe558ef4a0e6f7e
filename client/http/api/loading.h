/* Requests that load or unload a model and want nothing of it: Ollama's without a prompt, and
 * llama-server's POST /models/load and /models/unload. */
#ifndef MOED_HTTP_LOADING_H
#define MOED_HTTP_LOADING_H

#include "client/http/api/app.h"

struct loading {
    struct deployments_waiter waiter; /* to load */
    struct demand_wait drop;          /* to unload */
    struct exchange *x;
    bool drops;
    char model[DEMAND_ID_BYTES]; /* that the request means; once it is loaded, its own name */
    void (*write)(struct exchange *x, const struct loading *l); /* replies: it has worked */
};

/* model: NULL or "": the server's own. keep_s: how long it stays loaded without requests; NULL: as
 * it was. */
void loading_load(struct exchange *x, const char *model, const double *keep_s,
                  void (*write)(struct exchange *x, const struct loading *l));
/* Unloads a model that is not in use and that was loaded for a request. */
void loading_unload(struct exchange *x, const char *model,
                    void (*write)(struct exchange *x, const struct loading *l));

void handle_models_load(struct exchange *x);
void handle_models_unload(struct exchange *x);

#endif
