/* Failures; see failure.h. */
#include "client/http/api/failure.h"

#include "client/http/model/deployments.h"

#include <string.h>

void problem_no_model(struct problem *p, const char *model)
{
    if (model && *model) {
        problem_fill(p, 404, "there is no model '%.100s': GET /v1/models lists them", model);
        p->code = "model_not_found";
    } else {
        problem_fill(p, 503, "the model is not loaded yet");
        p->retry_s = 2;
    }
}

void problem_not_loaded(struct problem *p, const struct deployments_waiter *w)
{
    bool named = w->model && *w->model;
    if (w->demand.problem.status) {
        *p = w->demand.problem;
    } else if (w->all->demand.enabled && !named) {
        problem_fill(p, 400, "the request names no model: GET /v1/models lists them");
        memcpy(p->parameter, "model", sizeof "model");
    } else {
        problem_no_model(p, w->model);
    }
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
