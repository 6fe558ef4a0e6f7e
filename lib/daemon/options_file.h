/* The file with a deployment's options: $XDG_CONFIG_HOME/moed/NAME.conf, otherwise
 * ~/.config/moed/NAME.conf. options.h reads it. */
#ifndef MOED_DAEMON_OPTIONS_FILE_H
#define MOED_DAEMON_OPTIONS_FILE_H

#include <limits.h>
#include <stdbool.h>

/* out: its path, also where there is none: false. */
bool options_file_find(const char *name, char out[PATH_MAX]);

#endif
