/* What the two parts of MoEpic's configuration share: budget_moepic.c keeps the records and starts
 * a search, budget_moepic_search.c searches. */
#ifndef MOED_SCHED_CACHE_BUDGET_MOEPIC_INTERNAL_H
#define MOED_SCHED_CACHE_BUDGET_MOEPIC_INTERNAL_H

#include "sched/cache/budget_moepic.h"
#include "sched/cache/moepic_record.h"

enum moepic_run { AS_IT_IS, MORE, LESS, MOVED, N_RUNS };
enum moepic_phase { IDLE, FREEZE, SPLIT };

struct budget_moepic {
    struct budget_moepic_shape shape;
    uint8_t *layer_segments;
    struct sched_cache_costs costs;
    struct moepic_record *records;  /* [n_layers] */
    uint64_t tokens, tokens_before; /* of the first layer: in all, and at the last configuration */

    enum moepic_phase phase;
    enum moepic_run run;
    uint32_t layer, n_steps;
    double window;                       /* prefetching window of `layer` */
    uint64_t step;                       /* zeta V_e, segments */
    uint64_t *segments, *found_segments; /* [n_layers] V: on trial; of the last configuration */
    uint32_t *experts[N_RUNS], *found_experts; /* [n_layers] C */
    double *exposed[N_RUNS];                   /* [n_layers] */
    uint32_t to, from;                         /* the layers between which a step was moved */
    double found_exposed;
};

/* From IDLE: begins a search. */
void budget_moepic_search_begin(struct budget_moepic *b);
/* Does one work item; not from IDLE. True: it was the last, a configuration is found. */
bool budget_moepic_search_slice(struct budget_moepic *b);

#endif
