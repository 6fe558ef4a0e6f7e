/* What MoEpic's cache configuration records of a layer, for every cache size C at once (one step of the layer is the paper's
 * token): H(C), the share of activated experts that the C of highest priority contained; P(y), how often the y-th predicted
 * expert was activated; PH(y, C), how often the C of highest priority contained it. */
#ifndef MOED_SCHED_MOEPIC_RECORD_H
#define MOED_SCHED_MOEPIC_RECORD_H

#include <stdbool.h>
#include <stdint.h>

enum {
    MOEPIC_MAX_PREDICTED = 32
}; /* of a layer; what is predicted after them is not reckoned with */

struct moepic_record {
    uint32_t n_experts;
    /* Counts. A rank r, from 0, is counted at r: it is among the C first for every C > r. */
    uint32_t *hits;      /* [n_experts] activated experts by rank */
    uint32_t *predicted; /* [MOEPIC_MAX_PREDICTED] came true */
    uint32_t *cached;    /* [MOEPIC_MAX_PREDICTED][n_experts] predicted experts by rank */
    uint32_t steps, activated, n_predicted; /* n_predicted: the most in a step */
    /* The prediction for the coming step. */
    uint16_t *place; /* [n_experts] in it, from 1; 0: not predicted */
    uint32_t n_listed;
    /* As they were when they were frozen: shares, by C. */
    float *h, *p,
        *ph;  /* [n_experts + 1], [MOEPIC_MAX_PREDICTED], [MOEPIC_MAX_PREDICTED][n_experts + 1] */
    double k; /* experts activated in a step */
    uint32_t n_frozen; /* predicted ones */
};

bool moepic_record_init(struct moepic_record *r,
                        uint32_t n_experts); /* false: no memory; fini all the same */
void moepic_record_fini(struct moepic_record *r);

/* A step, in this order. rank: of the expert, by priority before the step. Numbers that make no sense are not recorded. */
void moepic_record_predicted(struct moepic_record *r, uint32_t expert, uint32_t rank);
void moepic_record_activated(struct moepic_record *r, uint32_t expert, uint32_t rank);
void moepic_record_step_over(struct moepic_record *r);

/* Makes shares of what is recorded, for moepic_record_loaded to look up. */
void moepic_record_freeze(struct moepic_record *r);

/* Of a step's experts those that are there when they are needed (equations 9 to 11):
 *   m = K H(C) theta + sum over y <= Y of (1 - PH(y, C) theta) P(y),
 * Y the most with sum over y <= Y of (1 - PH(y, C) theta) load_s <= window_s. At most K. */
double moepic_record_loaded(const struct moepic_record *r, uint32_t c, double theta, double load_s,
                            double window_s);

#endif
