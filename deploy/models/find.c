/* Finds a model by its deployment; see models_internal.h. */
#include "deploy/models/models_internal.h"

#include <string.h>

struct model *models_of_deployment(struct models *m, const char *deployment)
{
    for (size_t i = 0; i < m->count; i++)
        if (strcmp(m->items[i]->deployment, deployment) == 0)
            return m->items[i];
    return NULL;
}
