/* The file with a deployment's options: $XDG_CONFIG_HOME/moed/NAME.conf, otherwise
 * ~/.config/moed/NAME.conf. options.h reads it.
 *
 * Of a model of a folder NAME is its id, or the name of its deployment. Beneath that file are the
 * folder's: RUN/models.conf, which `moed up --models` writes out of its own options, in the runtime
 * directory of the deployment that serves the folder. */
#ifndef MOED_DAEMON_OPTIONS_FILE_H
#define MOED_DAEMON_OPTIONS_FILE_H

#include <limits.h>
#include <stdbool.h>

#define OPTIONS_FILE_OF_FOLDER "models.conf"

/* out: its path, also where there is none: false. */
bool options_file_find(const char *name, char out[PATH_MAX]);

#endif
