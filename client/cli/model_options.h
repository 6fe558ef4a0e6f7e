/* The options of `moed up` that are of a model, not of the deployment or of HTTP. A deployment that
 * has only the models of a folder takes none on the command line: each model has options of its
 * own. Those of its configuration file are for when it has a model. */
#ifndef MOED_CLI_MODEL_OPTIONS_H
#define MOED_CLI_MODEL_OPTIONS_H

#include "daemon/options.h"

/* The first flag that is of a model, before options_parse orders argv; NULL: there is none. */
const char *model_options_find(const struct option_spec *table, int argc, char **argv);
/* For a deployment without MODEL. found: as model_options_find. False: it has complained to the
 * user of `verb`. */
bool model_options_absent(const char *found, const char *verb);

#endif
