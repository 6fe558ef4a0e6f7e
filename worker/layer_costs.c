/* Corrected costs; see layer_costs.h. */
#include "layer_costs.h"

#define WEIGHT   0.02 /* of one layer in the moving averages */
#define LEAST    0.05
#define MOST     20.0
#define OFF_MOST 2.0 /* a layer's weight in the average, at most */

void layer_costs_init(struct layer_costs *c, const struct sched_costs *first)
{
    *c = (struct layer_costs){.now = *first, .device = 1, .cpu = 1, .cpu_contended = 1};
}

/* Moves `correction` towards real / predicted and scales the two costs by how much it moved. */
static void correct(double *correction, double *segment_s, double *token_s, double predicted_s,
                    double took_s)
{
    if (!(predicted_s > 0) || !(took_s > 0))
        return;
    double before = *correction, off = took_s / predicted_s;
    /* One that was interrupted says little about the others. */
    off = off < 1 / OFF_MOST ? 1 / OFF_MOST : off > OFF_MOST ? OFF_MOST : off;
    double ratio = off * before;
    double after = before + WEIGHT * (ratio - before);
    after = after < LEAST ? LEAST : after > MOST ? MOST : after;
    *segment_s *= after / before;
    *token_s *= after / before;
    *correction = after;
}

void layer_costs_device(struct layer_costs *c, double predicted_s, double took_s)
{
    correct(&c->device, &c->now.device_s, &c->now.device_token_s, predicted_s, took_s);
}

void layer_costs_cpu(struct layer_costs *c, double predicted_s, double took_s, bool contended)
{
    if (contended)
        correct(&c->cpu_contended, &c->now.cpu_contended_s, &c->now.cpu_contended_token_s,
                predicted_s, took_s);
    else
        correct(&c->cpu, &c->now.cpu_s, &c->now.cpu_token_s, predicted_s, took_s);
}
