/* The options of `moed up` that are of a model, where the deployment has only the models of a
 * folder: they are the defaults of each of these, below the model's own file of options. */
#ifndef MOED_CLI_FOLDER_OPTIONS_H
#define MOED_CLI_FOLDER_OPTIONS_H

#include "client/cli/device_choice.h"
#include "client/cli/launch.h"

/* What is of a model beside l->options; NULL: not given. */
struct folder_options {
    struct device_parts parts;
    const char *predictors;
};

/* Takes the options of a model out of l->options, and writes them to RUN/models.conf
 * (daemon/options_file.h), where moed-models finds them. Without any, or with a model of the
 * deployment's own, whose options they are: removes the file. False: it has complained. */
bool folder_options_take(struct launch *l, const struct folder_options *o);

#endif
