/* What models.c and turn.c share; under the lock. */
#ifndef MOED_DEPLOY_MODELS_INTERNAL_H
#define MOED_DEPLOY_MODELS_INTERNAL_H

#include "deploy/models/models.h"

/* NULL: none. */
struct model *models_of_deployment(struct models *m, const char *deployment);
/* Writes the names of the own deployments for a next process. */
void models_save_started(const struct models *m);

#endif
