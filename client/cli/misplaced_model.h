/* Arguments that name a model, given to a verb that takes a prompt: `moed run MODEL.gguf "Hello"`,
 * as other programs have it. */
#ifndef MOED_CLI_MISPLACED_MODEL_H
#define MOED_CLI_MISPLACED_MODEL_H

#include <stdbool.h>

/* True where the argument is the path of a GGUF file: it has complained. */
bool misplaced_model_file(const char *verb, const char *argument);
/* True where the argument is such a path, or names a deployment that runs, or a model of a folder:
 * it has complained. */
bool misplaced_model(const char *verb, const char *argument);

#endif
