/* The metrics of slots; see slots_metrics.h. */
#include "slots_metrics.h"

double *slots_metrics_values(const struct slots_state *s, double *values)
{
    *values++ = (double)s->free;
    *values++ = (double)s->resident;
    *values++ = (double)s->filling;
    *values++ = (double)s->retired;
    return values;
}
