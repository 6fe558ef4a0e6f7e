/* The options of `moed up` that are of a model, not of the deployment or of HTTP. */
#ifndef MOED_CLI_MODEL_OPTIONS_H
#define MOED_CLI_MODEL_OPTIONS_H

#include "daemon/options.h"

/* For a deployment that has only the models of a folder, each with options of its own. table: the
 * parsed options of `verb`. False: one of a model was given; it has complained. */
bool model_options_absent(const struct option_spec *table, const char *verb);

#endif
