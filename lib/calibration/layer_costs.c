/* Corrected costs; see layer_costs.h. */
#include "layer_costs.h"

#include <string.h>

#define LAYER_WEIGHT (1.0 / 64)   /* of one layer in the moving averages of device and link */
#define MEANS_WEIGHT (1.0 / 2048) /* in those with and without a copy: both need layers */
#define JOB_LEAST_S  10e-6        /* the least time in which a sleeping thread wakes */
#define PRIOR_WEIGHT 16           /* of the calibrated slowdown, in layers */
#define LEAST        0.05
#define MOST         20.0
#define OFF_MOST     2.0 /* limits a layer that was interrupted */

static double clamp(double value, double least, double most)
{
    return value < least ? least : value > most ? most : value;
}

static double first_slowdown(const struct layer_costs *c)
{
    double uncontended_s = sched_cpu_s(&c->first, 1);
    return uncontended_s > 0 ? clamp(sched_cpu_contended_s(&c->first, 1) / uncontended_s, 1, MOST)
                             : 1;
}

void layer_costs_job(struct layer_costs *c, double took_s)
{
    double most = OFF_MOST * (c->job_s > JOB_LEAST_S ? c->job_s : JOB_LEAST_S);
    c->job_s += LAYER_WEIGHT * (clamp(took_s, 0, most) - c->job_s);
}

/* -- corrections to current costs -- */

static void use_link(struct layer_costs *c)
{
    c->now.load_s = c->first.load_s * c->link;
    c->now.load_contended_s = c->first.load_contended_s * c->link;
}

static void use_device(struct layer_costs *c)
{
    c->now.device_s = c->first.device_s * c->device;
    c->now.device_token_s = c->first.device_token_s * c->device;
}

/* The factor by which a concurrent copy lengthens the time; at least 1. */
static double slower_during_copy(const struct copy_means *m, double prior)
{
    double layers = m->weight[0] < m->weight[1] ? m->weight[0] : m->weight[1], slower = prior;
    if (layers > 0)
        slower = (PRIOR_WEIGHT * prior +
                  layers * (m->sum[1] / m->weight[1]) / (m->sum[0] / m->weight[0])) /
                 (PRIOR_WEIGHT + layers);
    return clamp(slower, 1, MOST);
}

/* Needs layers in at least one of the means. */
static void use_cpu(struct layer_costs *c)
{
    const struct copy_means *m = &c->cpu_means;
    double prior = first_slowdown(c), slower = slower_during_copy(m, prior);
    c->slowdown = slower / prior;
    c->cpu = clamp((m->sum[0] + m->sum[1] / slower) / (m->weight[0] + m->weight[1]), LEAST, MOST);
    c->now.cpu_s = c->first.cpu_s * c->cpu;
    c->now.cpu_token_s = c->first.cpu_token_s * c->cpu;
    c->now.cpu_contended_s = c->now.cpu_s * slower;
    c->now.cpu_contended_token_s = c->now.cpu_token_s * slower;
}

static void use_layer(struct layer_costs *c)
{
    c->now.layer_slowdown = slower_during_copy(&c->layer_means, first_slowdown(c));
}

void layer_costs_init(struct layer_costs *c, const struct sched_costs *first, double job_s)
{
    *c = (struct layer_costs){.now = *first,
                              .first = *first,
                              .device = 1,
                              .cpu = 1,
                              .slowdown = 1,
                              .link = 1,
                              .job_s = job_s};
    use_layer(c);
}

/* -- measured layers to corrections -- */

/* Updates a moving average of real / predicted time. False: a time is 0; *correction is unchanged.
 */
static bool correct(double *correction, double predicted_s, double took_s)
{
    if (!(predicted_s > 0) || !(took_s > 0))
        return false;
    double off = clamp(took_s / predicted_s, 1 / OFF_MOST, OFF_MOST);
    *correction = clamp(*correction * (1 + LAYER_WEIGHT * (off - 1)), LEAST, MOST);
    return true;
}

void layer_costs_link(struct layer_costs *c, double predicted_s, double took_s)
{
    if (correct(&c->link, predicted_s, took_s))
        use_link(c);
}

void layer_costs_device(struct layer_costs *c, double predicted_s, double took_s)
{
    if (correct(&c->device, predicted_s, took_s))
        use_device(c);
}

/* Adds a layer's real / predicted time. `unit` converts it to the first figures. The value is
 * limited to a factor of OFF_MOST around the expected one: 1, or `slower` with a copy. */
static void add_to_means(struct copy_means *m, double value, double slower, double unit,
                         bool copying)
{
    double expected = copying ? slower : 1;
    double off = expected * clamp(value / expected, 1 / OFF_MOST, OFF_MOST);
    for (int i = 0; i < 2; i++) {
        m->weight[i] *= 1 - MEANS_WEIGHT;
        m->sum[i] *= 1 - MEANS_WEIGHT;
    }
    m->weight[copying] += 1;
    m->sum[copying] += unit * off;
}

void layer_costs_cpu(struct layer_costs *c, double predicted_s, double took_s, bool copying)
{
    if (!(predicted_s > 0) || !(took_s > 0))
        return;
    add_to_means(&c->cpu_means, took_s / predicted_s, first_slowdown(c) * c->slowdown, c->cpu,
                 copying);
    use_cpu(c);
}

void layer_costs_layer(struct layer_costs *c, double expected_s, double took_s, bool copying)
{
    if (!(expected_s > 0) || !(took_s > 0))
        return;
    use_layer(c);
    add_to_means(&c->layer_means, took_s / expected_s, c->now.layer_slowdown, 1, copying);
    use_layer(c);
}

/* -- for the next start -- */

struct layer_corrections layer_corrections(const struct layer_costs *c)
{
    return (struct layer_corrections){c->device, c->link, c->job_s, c->cpu_means, c->layer_means};
}

static void fade(struct copy_means *m, double most)
{
    for (int i = 0; i < 2; i++)
        if (m->weight[i] > most) {
            m->sum[i] *= most / m->weight[i];
            m->weight[i] = most;
        }
}

struct layer_corrections layer_costs_fade(const struct layer_corrections *l, double most)
{
    struct layer_corrections less = *l;
    fade(&less.cpu_means, most);
    fade(&less.layer_means, most);
    return less;
}

static bool within(double value, double least, double most)
{
    return value >= least && value <= most; /* false for NaN */
}

static bool make_sense(const struct copy_means *m, double least, double most)
{
    for (int i = 0; i < 2; i++)
        if (!within(m->weight[i], 0, 1 / MEANS_WEIGHT) ||
            !within(m->sum[i], m->weight[i] * least, m->weight[i] * most))
            return false;
    return true;
}

bool layer_costs_resume(struct layer_costs *c, const struct layer_corrections *l)
{
    if (!within(l->device, LEAST, MOST) || !within(l->link, LEAST, MOST) ||
        !within(l->job_s, 0, 1) ||
        !make_sense(&l->cpu_means, LEAST / OFF_MOST, MOST * MOST * OFF_MOST) ||
        !make_sense(&l->layer_means, 1 / OFF_MOST, MOST * OFF_MOST))
        return false;
    c->device = l->device;
    c->link = l->link;
    c->job_s = l->job_s;
    c->cpu_means = l->cpu_means;
    c->layer_means = l->layer_means;
    use_device(c);
    use_link(c);
    if (c->cpu_means.weight[0] + c->cpu_means.weight[1] > 0)
        use_cpu(c);
    use_layer(c);
    return true;
}

_Static_assert(sizeof(struct layer_corrections) == sizeof((struct calibration *)0)->corrections,
               "the file has all corrections");

struct layer_corrections layer_costs_stored(const struct calibration *c)
{
    struct layer_corrections l;
    memcpy(&l, c->corrections, sizeof l);
    return l;
}

void layer_costs_keep(const struct layer_corrections *l, struct calibration *c)
{
    memcpy(c->corrections, l, sizeof c->corrections);
}
