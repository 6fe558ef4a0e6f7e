/* What models.c and turn.c share; under the lock. */
#ifndef MOED_DEPLOY_MODELS_INTERNAL_H
#define MOED_DEPLOY_MODELS_INTERNAL_H

#include "deploy/models/models.h"

/* NULL: none. */
struct model *models_of_deployment(struct models *m, const char *deployment);
/* others.c: the deployments that moed-models did not start. A model of the folder whose file one of
 * them has is not loaded a second time. */
/* Looks which others run. On the main thread, without the lock, which it takes. */
void models_look_at_others(struct models *m);
/* Finds which of them serves which model. */
void models_note_served(struct models *m);
/* It is off, and another deployment has its file: it is not started. */
bool models_is_served(const struct model *x);
/* Writes the names of the own deployments for a next process. */
void models_save_started(const struct models *m);

#endif
