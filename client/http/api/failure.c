/* Failures; see failure.h. */
#include "client/http/api/failure.h"

#include "client/http/model/deployments.h"

#include <string.h>

void problem_no_model(struct problem *p, const struct deployments *d, const char *meant)
{
    if (*meant && !deployments_starting(d, meant)) {
        model_names_unknown(p, meant);
    } else {
        problem_fill(p, 503, "the model is not loaded yet");
        p->retry_s = 2;
    }
}

static void no_default(struct problem *p, const char *model)
{
    if (model && *model)
        problem_fill(p, 400,
                     "'%.100s' stands for the default model, and there is none: GET /v1/models "
                     "lists the models",
                     model);
    else
        problem_fill(p, 400,
                     "the request names no model, and there is no default one: GET /v1/models "
                     "lists them");
    memcpy(p->parameter, "model", sizeof "model");
}

void problem_not_loaded(struct problem *p, const struct deployments_waiter *w)
{
    const struct deployments *all = w->all;
    const struct problem *demand = &w->demand.problem; /* moed-models knows the folder alone */
    const char *meant = deployments_meant(all, w->model);
    if (demand->status && !(demand->status == 404 && deployments_starting(all, meant)))
        *p = *demand;
    else if (deployments_only_on_demand(all) && !*meant)
        no_default(p, w->model);
    else
        problem_no_model(p, all, meant);
}

void problem_from_moed(struct problem *p, const struct moed_error *error)
{
    switch (error->code) {
    case MOED_ERROR_USAGE:
    case MOED_ERROR_UNSUPPORTED:
    case MOED_ERROR_LIMIT:
        problem_fill(p, 400, "%s", error->message);
        break;
    case MOED_ERROR_CONTEXT:
        problem_fill(p, 400, "%s", error->message);
        p->code = "context_length_exceeded"; /* clients shorten the conversation then */
        break;
    case MOED_ERROR_BUSY:
        problem_fill(p, 503, "%s", error->message);
        p->retry_s = 2;
        p->busy = true;
        break;
    case MOED_ERROR_UNAVAILABLE:
    case MOED_ERROR_NOT_FOUND:
    case MOED_ERROR_CANCELLED:
        problem_fill(p, 503, "%s", error->message);
        p->retry_s = 2;
        break;
    case MOED_ERROR_TIMEOUT:
        problem_fill(p, 504, "%s", error->message);
        break;
    default:
        problem_fill(p, 500, "%s", error->message);
        break;
    }
}
