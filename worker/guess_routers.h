/* Routers once more in 8 bits, for guessing alone what layers to come will choose: there the reading of the weights is what takes
 * the time. What a layer really chooses comes from the router as the file has it.
 *
 * For who computes the dense part in host memory. Of a model's size it is little (Qwen3-30B: 13 MB), and counted among the scratch
 * (memory_margin_bytes). */
#ifndef MOED_WORKER_GUESS_ROUTERS_H
#define MOED_WORKER_GUESS_ROUTERS_H

#include "weights.h"

/* Sets guess_router of every layer whose router is of floats and has whole blocks of columns; the others keep what they have.
 * The memory is w's. */
enum error_code guess_routers_make(struct model_weights *w, const struct model_params *p, struct error *e);

#endif
