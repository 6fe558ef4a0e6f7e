/* What MoEpic's cache configuration records of a layer, for every cache size C at once. One step
 * of the layer is the paper's token. H(C): the share of activated experts among the C of highest
 * priority. P(y): how often the y-th predicted expert was activated. PH(y, C): how often it was
 * among the C of highest priority. */
#ifndef MOED_SCHED_CACHE_MOEPIC_RECORD_H
#define MOED_SCHED_CACHE_MOEPIC_RECORD_H

#include <stdbool.h>
#include <stdint.h>

enum { MOEPIC_MAX_PREDICTED = 32 }; /* of a layer; later ones are ignored */

struct moepic_record {
    uint32_t n_experts;
    /* Counts. A rank r, from 0, is counted at r: it is among the C first for every C > r. */
    uint32_t *hits;      /* [n_experts] activated experts by rank */
    uint32_t *predicted; /* [MOEPIC_MAX_PREDICTED] that came true */
    uint32_t *cached;    /* [MOEPIC_MAX_PREDICTED][n_experts] predicted experts by rank */
    uint32_t steps, activated, n_predicted; /* n_predicted: the most in a step */
    /* The prediction for the coming step. */
    uint16_t *place; /* [n_experts] from 1; 0: not predicted */
    uint32_t n_listed;
    /* The frozen shares, by C. */
    float *h, *p,
        *ph;  /* [n_experts + 1], [MOEPIC_MAX_PREDICTED], [MOEPIC_MAX_PREDICTED][n_experts + 1] */
    double k; /* experts activated in a step */
    uint32_t n_frozen; /* predicted ones */
};

bool moepic_record_init(struct moepic_record *r,
                        uint32_t n_experts); /* false: no memory; fini all the same */
void moepic_record_fini(struct moepic_record *r);

/* A step, in this order. rank: the expert's, by priority before the step. Numbers out of range are
 * ignored. */
void moepic_record_predicted(struct moepic_record *r, uint32_t expert, uint32_t rank);
void moepic_record_activated(struct moepic_record *r, uint32_t expert, uint32_t rank);
void moepic_record_step_over(struct moepic_record *r);

/* Turns the counts into shares for moepic_record_loaded. */
void moepic_record_freeze(struct moepic_record *r);

/* The experts of a step that are there when they are needed (equations 9 to 11):
 *   m = K H(C) theta + sum over y <= Y of (1 - PH(y, C) theta) P(y),
 * Y the most with sum over y <= Y of (1 - PH(y, C) theta) load_s <= window_s. At most K. */
double moepic_record_loaded(const struct moepic_record *r, uint32_t c, double theta, double load_s,
                            double window_s);

#endif
