/* Trained predictors (sched/predict/trained.h): memd reads the file once, checks it, and lends it
 * to workers in sealed shared memory. memd serves without trained predictors where there is no
 * file, or one that it cannot use. */
#ifndef MOED_MEMD_LOAD_PREDICTORS_FILE_H
#define MOED_MEMD_LOAD_PREDICTORS_FILE_H

#include "base/error.h"
#include "gguf/gguf.h"
#include "ipc/shm.h"
#include "model/params.h"
#include "sched/predict/trained.h"

struct predictors_file {
    struct shm region;              /* base NULL: no file */
    struct trained_predictors view; /* of it */
};

/* Reads, checks and seals the file. A file that is broken or of another model is an error, which
 * the caller logs and survives; *out is set on success only. */
enum error_code predictors_file_load(const char *path, const struct gguf *g,
                                     const struct model_params *params, struct predictors_file *out,
                                     struct error *e);
void predictors_file_free(struct predictors_file *f); /* takes a zeroed one */

/* ERROR_UNSUPPORTED: the predictor must be trained first; the text names the commands to run. */
enum error_code trained_check_predictor(const struct predictors_file *f,
                                        const struct model_params *params,
                                        enum sched_predictor predictor, struct error *e);

#endif
