/* A model file as trained predictors see it. */
#ifndef MOED_CLIENT_CLI_PREDICTORS_MODEL_H
#define MOED_CLIENT_CLI_PREDICTORS_MODEL_H

#include "sched/predict/trained.h"
#include "trace/trace_model.h"

#include <stdbool.h>

struct predictors_model {
    struct gguf *g;
    struct trace_model facts;
    struct trained_model model; /* for trained_fits; the name is of facts */
};

/* path: of model_file_find. Complains. */
bool predictors_model_open(const char *path, struct predictors_model *out);
void predictors_model_close(struct predictors_model *m); /* takes a zeroed one */

#endif
