/* Copies of the routers in 8 bits, which predict the choices of coming layers: the time of such a
 * prediction is the time of reading the weights. A layer's real choice comes from the file's
 * router.
 *
 * They exist if the dense part is computed in host memory. The copies are small (Qwen3-30B: 13 MB),
 * and count as scratch (memory_margin_bytes). */
#ifndef MOED_WORKER_FORWARD_PREDICTION_ROUTERS_H
#define MOED_WORKER_FORWARD_PREDICTION_ROUTERS_H

#include "weights.h"

/* Sets prediction_router of every layer whose router has float weights and whole blocks of columns;
 * other layers keep theirs. w owns the memory. */
enum error_code prediction_routers_make(struct model_weights *w, const struct model_params *p,
                                        struct error *e);

#endif
