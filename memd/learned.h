/* What was trained for the model (sched/learned.h): memd reads the file once, checks it, and lends it to workers in sealed shared
 * memory. Without one, or with one that is of no use, it serves without. */
#ifndef MOED_MEMD_LEARNED_H
#define MOED_MEMD_LEARNED_H

#include "base/error.h"
#include "gguf/gguf.h"
#include "ipc/shm.h"
#include "model/params.h"
#include "sched/learned.h"

struct learned_file {
    struct shm region;         /* base NULL: there is none */
    struct sched_learned view; /* of it */
};

/* Reads, checks, seals. A file that is broken or of another model is an error: the caller says so and goes on without. Then
 * *out is as one of nothing. */
enum error_code learned_file_load(const char *path, const struct gguf *g,
                                  const struct model_params *params, struct learned_file *out,
                                  struct error *e);
void learned_file_free(struct learned_file *f); /* takes a zeroed one */

/* ERROR_UNSUPPORTED where the predictor has to be trained first: says what to run. */
enum error_code learned_check_predictor(const struct learned_file *f,
                                        const struct model_params *params,
                                        enum sched_predictor predictor, struct error *e);

#endif
