/* The MODEL that verbs take: a path, or the word `demo`. */
#ifndef MOED_CLI_MODEL_FILE_H
#define MOED_CLI_MODEL_FILE_H

#include <limits.h>
#include <stdbool.h>

/* The absolute path of MODEL, symbolic links left as they are (a split model's other files stand
 * beside the link). Whether a model is there is for whoever opens it. `demo`, where the current
 * directory holds nothing of that name, is the model that comes with moed; it complains where that
 * is missing. */
bool model_file_find(const char *argument, char out[PATH_MAX]);
/* The absolute path of any file, likewise. Complains. */
bool model_file_absolute(const char *path, char out[PATH_MAX]);
/* Whether two paths lead to the same file. */
bool model_file_same(const char *a, const char *b);

#endif
