/* Corrected costs; see layer_costs.h. */
#include "layer_costs.h"

#define LAYER_WEIGHT (1.0 / 64)   /* of one layer in the moving averages of device and link */
#define CPU_WEIGHT   (1.0 / 2048) /* in the CPU's: both of its means need layers */
#define JOB_MOST_S   1e-3
#define PRIOR_WEIGHT 16 /* layers that the calibrated slow-down counts as */
#define LEAST        0.05
#define MOST         20.0
#define OFF_MOST     2.0 /* one that was interrupted says little about the others */

static double clamp(double value, double least, double most)
{
    return value < least ? least : value > most ? most : value;
}

static double first_slowdown(const struct layer_costs *c)
{
    double alone_s = sched_cpu_s(&c->first, 1);
    return alone_s > 0 ? clamp(sched_cpu_contended_s(&c->first, 1) / alone_s, 1, MOST) : 1;
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
}

void layer_costs_job(struct layer_costs *c, double took_s)
{
    c->job_s += LAYER_WEIGHT * (clamp(took_s, 0, JOB_MOST_S) - c->job_s);
}

/* -- the corrections, into the costs of now -- */

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

/* From the sums, of which one at least is there. */
static void use_cpu(struct layer_costs *c)
{
    double prior = first_slowdown(c), slower = prior;
    double layers = c->weight[0] < c->weight[1] ? c->weight[0] : c->weight[1];
    if (layers > 0)
        slower = (PRIOR_WEIGHT * prior +
                  layers * (c->sum[1] / c->weight[1]) / (c->sum[0] / c->weight[0])) /
                 (PRIOR_WEIGHT + layers);
    slower = clamp(slower, 1, MOST); /* a copy makes nothing quicker */
    c->slowdown = slower / prior;
    c->cpu = clamp((c->sum[0] + c->sum[1] / slower) / (c->weight[0] + c->weight[1]), LEAST, MOST);
    c->now.cpu_s = c->first.cpu_s * c->cpu;
    c->now.cpu_token_s = c->first.cpu_token_s * c->cpu;
    c->now.cpu_contended_s = c->now.cpu_s * slower;
    c->now.cpu_contended_token_s = c->now.cpu_token_s * slower;
}

/* -- learning -- */

/* A moving average of real / predicted; false: nothing to be learnt. */
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

void layer_costs_cpu(struct layer_costs *c, double predicted_s, double took_s, bool copying)
{
    if (!(predicted_s > 0) || !(took_s > 0))
        return;
    double prior = first_slowdown(c), slower = prior * c->slowdown;
    double expected = copying ? slower : 1;
    double off = expected * clamp(took_s / predicted_s / expected, 1 / OFF_MOST, OFF_MOST);
    for (int i = 0; i < 2; i++) {
        c->weight[i] *= 1 - CPU_WEIGHT;
        c->sum[i] *= 1 - CPU_WEIGHT;
    }
    c->weight[copying] += 1;
    c->sum[copying] += c->cpu * off;
    use_cpu(c);
}

/* -- for the next start -- */

struct layer_costs_learnt layer_costs_learnt(const struct layer_costs *c)
{
    return (struct layer_costs_learnt){
        c->device, c->link, c->job_s, {c->weight[0], c->weight[1]}, {c->sum[0], c->sum[1]}};
}

static bool within(double value, double least, double most)
{
    return value >= least && value <= most; /* no NaN is */
}

bool layer_costs_resume(struct layer_costs *c, const struct layer_costs_learnt *l)
{
    if (!within(l->device, LEAST, MOST) || !within(l->link, LEAST, MOST) || !within(l->job_s, 0, 1))
        return false;
    for (int i = 0; i < 2; i++)
        if (!within(l->weight[i], 0, 1 / CPU_WEIGHT) ||
            !within(l->sum[i], l->weight[i] * LEAST / OFF_MOST,
                    l->weight[i] * MOST * MOST * OFF_MOST))
            return false;
    c->device = l->device;
    c->link = l->link;
    c->job_s = l->job_s;
    for (int i = 0; i < 2; i++) {
        c->weight[i] = l->weight[i];
        c->sum[i] = l->sum[i];
    }
    use_device(c);
    use_link(c);
    if (c->weight[0] + c->weight[1] > 0)
        use_cpu(c);
    return true;
}
