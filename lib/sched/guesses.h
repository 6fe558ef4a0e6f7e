/* What is made of the guesses about a coming layer: which of the experts that a predictor names are copied ahead. Pure. */
#ifndef MOED_SCHED_GUESSES_H
#define MOED_SCHED_GUESSES_H

#include "sched/assign.h"

/* Whether a coming layer's gate is asked at all, which takes guess_s: moed's does where a layer, from one's end to the next one's, takes ten
 * times as long (layer_s; 0: not known). With small experts on a quick device copies ahead bring less than that. early: the predictor
 * says nearly as much without it, and earlier (predict_traits.early); then a gate is worth a third of that. */
bool sched_guess_pays(enum sched_assigner kind, bool early, double guess_s, double layer_s);

enum sched_verdict {
    GUESS_COPY,
    GUESS_DECLINE, /* not worth it */
    GUESS_SKIP,    /* in this step nothing is copied */
};

/* An expert of which segments are missing on the device. */
struct sched_guess {
    double p; /* that it is activated */
    uint32_t missing;
    uint32_t which; /* the caller's, to tell it by */
    enum sched_verdict verdict;
};

/* The verdicts on the first n of the n_known guesses about a layer, in falling order of p; the others are not copied in any case. The
 * policies of the papers copy all n. moed's copies what is worth it: each by itself (sched_prefetch_gain), and more of them, the most
 * probable first, where it takes those until the layer may well do without the CPU, whose call takes call_s more than the device's. But
 * in one step in 32 nothing, and in one everything, so that it stays known how much copies slow the CPU down. */
void sched_judge_guesses(enum sched_assigner kind, const struct sched_costs *costs, double call_s, uint64_t step,
                         struct sched_guess *guesses, uint32_t n, uint32_t n_known);

#endif
