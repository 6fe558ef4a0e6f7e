/* The bound; see bound.h. */
#include "bench/replay/bound.h"

#include <math.h>

/* Link and CPU with so much to do, each at its contended pace while both work. The CPU begins at once; in truth it waits for
 * what is outside, during which the link works alone: so that time is given to the link at its own pace. */
static double both_s(const struct sched_costs *c, double loads, double on_cpu, double outside_s,
                     double workload)
{
    double load_s = fmin(c->load_s, c->load_contended_s);
    double cpu_s = c->cpu_s + workload * c->cpu_token_s;
    double slower_s = c->cpu_contended_s + workload * c->cpu_contended_token_s;
    double link_s = loads * load_s - outside_s; /* left when the CPU may begin */
    if (link_s < 0)
        link_s = 0;
    double link_pace = load_s / fmax(load_s, c->load_contended_s);
    double cpu_pace = cpu_s / fmax(cpu_s, slower_s);
    double cpu = on_cpu * cpu_s;
    if (cpu == 0 || link_s == 0)
        return fmax(cpu, link_s);
    double link_first_s = link_s / link_pace, cpu_first_s = cpu / cpu_pace;
    return link_first_s < cpu_first_s ? link_first_s + (cpu - link_first_s * cpu_pace)
                                      : cpu_first_s + (link_s - cpu_first_s * link_pace);
}

double bound_seconds(const struct sched_costs *costs, const struct bound_work *w)
{
    enum { STEPS = 1000 };
    double device_s = costs->device_s + w->workload * costs->device_token_s;
    double cpu_s = costs->cpu_s + w->workload * costs->cpu_token_s;
    double best = INFINITY;
    for (int i = 0; i <= STEPS; i++) {
        double loads = w->misses * i / STEPS, on_cpu = w->misses - loads;
        if (on_cpu > 0 && isinf(costs->cpu_s))
            continue;
        if (!isinf(
                costs
                    ->cpu_s)) /* it may also compute what is on the device, until both finish together */
            on_cpu = fmax(on_cpu, w->uses * device_s / (device_s + cpu_s));
        double experts_s =
            on_cpu > 0 || loads > 0 ? both_s(costs, loads, on_cpu, w->outside_s, w->workload) : 0;
        double on_device_s = (w->uses - on_cpu) * device_s;
        best = fmin(best, w->outside_s + fmax(experts_s, on_device_s));
    }
    return best;
}
