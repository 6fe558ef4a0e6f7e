/* The models that a deployment serves from a folder. */
#ifndef MOED_CLI_MODELS_H
#define MOED_CLI_MODELS_H

/* Complains where the folder has no model. */
void models_complain_empty(const char *run, const char *verb);

#endif
