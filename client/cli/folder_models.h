/* Requests to moed-models, which serves the models of a folder. */
#ifndef MOED_CLI_FOLDER_MODELS_H
#define MOED_CLI_FOLDER_MODELS_H

#include "base/error.h"

#include "control.pb-c.h"

#include <stdbool.h>

/* Calls the moed-models of RUN. model: NULL where the action takes none. The caller frees *reply.
 */
enum error_code folder_models_call(const char *run, Moed__V1__ModelsRequest__Action action,
                                   const char *model, Moed__V1__Reply **reply, struct error *e);
/* Whether a folder that a deployment of this user serves has a model of this id. */
bool folder_models_have(const char *id);

#endif
