/* The MODEL that verbs take: a path, or the word `demo`. */
#ifndef MOED_CLI_MODEL_FILE_H
#define MOED_CLI_MODEL_FILE_H

#include <limits.h>
#include <stdbool.h>

/* Sets the absolute path of MODEL, with symbolic links as they are: a split model's other files
 * are next to the link. It does not check that the file exists. `demo` is the model that comes
 * with moed, unless the current directory has a file of that name. Complains, also where the demo
 * model is missing. */
bool model_file_find(const char *argument, char out[PATH_MAX]);
/* Sets the absolute path of any file, with symbolic links as they are. Complains. */
bool model_file_absolute(const char *path, char out[PATH_MAX]);

#endif
