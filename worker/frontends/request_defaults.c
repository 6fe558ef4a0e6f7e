/* Defaults of requests; see request_defaults.h. */
#include "worker/frontends/request_defaults.h"

static void replace(double given, float *value)
{
    if (!isnan(given))
        *value = (float)given;
}

enum error_code request_defaults_apply(const struct request_defaults *d, struct sampling *s,
                                       struct error *e)
{
    replace(d->temp, &s->temperature);
    replace(d->top_p, &s->top_p);
    replace(d->min_p, &s->min_p);
    replace(d->repeat_penalty, &s->repetition_penalty);
    replace(d->presence_penalty, &s->presence_penalty);
    if (!isnan(d->top_k) && d->top_k != floor(d->top_k))
        return error_set(e, ERROR_USAGE, "--top-k: %g is not a whole number", d->top_k);
    if (!isnan(d->top_k))
        s->top_k = (uint32_t)d->top_k;
    return sampling_check(s, e);
}
