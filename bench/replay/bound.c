/* The bound; see bound.h. bound_seconds tries intervals of C. In each interval it takes each side
 * at the end with less work, so the result is a bound for every C of the interval. */
#include "bench/replay/bound.h"

#include <math.h>

enum { STEPS = 20000 };

static double total_uses(const struct bound_work *w)
{
    double n = 0;
    for (uint32_t t = 1; t <= w->most_tokens; t++)
        n += w->uses[t];
    return n;
}

/* Uncontended by contended time, for the number of tokens where this ratio is largest. */
static double best_cpu_pace(const struct sched_costs *c, const struct bound_work *w)
{
    double best = 0;
    for (uint32_t t = 1; t <= w->most_tokens; t++)
        if (w->uses[t] > 0 && sched_cpu_contended_s(c, t) > 0)
            best = fmax(best, sched_cpu_s(c, t) / sched_cpu_contended_s(c, t));
    return best > 0 ? best : 1;
}

/* Takes segments in order of their tokens, upwards from the fewest or downwards from the most, and
 * sums up their costs. */
struct taking {
    uint32_t tokens;
    double of_these, taken, seconds;
};

static void take(struct taking *t, const struct bound_work *w, int direction, double until,
                 double base_s, double token_s)
{
    while (t->taken < until && t->tokens >= 1 && t->tokens <= w->most_tokens) {
        double left = w->uses[t->tokens] - t->of_these, n = fmin(left, until - t->taken);
        t->taken += n;
        t->of_these += n;
        t->seconds += n * (base_s + t->tokens * token_s);
        if (n < left)
            return;
        t->tokens += (uint32_t)direction;
        t->of_these = 0;
    }
}

/* The time of link and CPU, each at its contended pace while both work. Here the CPU begins at
 * once. A real CPU waits until `outside` is over, and only the link works until then. So that part
 * of the link's work is subtracted first, at the uncontended pace. */
static double both_s(double link_s, double cpu_s, double outside_s, double link_pace,
                     double cpu_pace)
{
    link_s = fmax(0, link_s - outside_s); /* left when the CPU may begin */
    if (cpu_s <= 0 || link_s <= 0)
        return fmax(cpu_s, link_s);
    double link_first_s = link_s / link_pace, cpu_first_s = cpu_s / cpu_pace;
    double overlap_s = link_first_s < cpu_first_s
                           ? link_first_s + (cpu_s - link_first_s * cpu_pace)
                           : cpu_first_s + (link_s - cpu_first_s * link_pace);
    return fmin(overlap_s, link_s + cpu_s); /* or one after the other */
}

double bound_seconds(const struct sched_costs *c, const struct bound_work *w)
{
    bool has_cpu = !isinf(c->cpu_s);
    double all = total_uses(w), all_s = 0, best = INFINITY;
    double load_s = fmin(c->load_s, c->load_contended_s);
    double link_pace = load_s / fmax(load_s, c->load_contended_s), cpu_pace = best_cpu_pace(c, w);
    for (uint32_t t = 1; t <= w->most_tokens; t++)
        all_s += w->uses[t] * sched_device_s(c, t);
    struct taking cpu = {.tokens = 1}, spared = {.tokens = w->most_tokens};
    for (int i = 0; i < (has_cpu ? STEPS : 1); i++) { /* C from all i / STEPS to the next */
        double least = all * i / STEPS, most = has_cpu ? all * (i + 1) / STEPS : 0;
        take(&cpu, w, 1, least, c->cpu_s, c->cpu_token_s);
        take(&spared, w, -1, most, c->device_s, c->device_token_s);
        double link_s = fmax(0, w->misses - most) * load_s;
        double experts_s = both_s(link_s, cpu.seconds, w->outside_s, link_pace, cpu_pace);
        best = fmin(best, w->outside_s + fmax(experts_s, all_s - spared.seconds));
    }
    return best;
}
