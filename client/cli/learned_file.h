/* Where what was trained for a model lies: in a file of the model's name with .learned behind it. */
#ifndef MOED_CLI_LEARNED_FILE_H
#define MOED_CLI_LEARNED_FILE_H

#include <limits.h>
#include <stdbool.h>

enum { LEARNED_PATH = PATH_MAX + 16 };

void learned_file_beside(const char *model, char out[LEARNED_PATH]);

/* What `--learned WORD` means for a model (as model_file_find gives it): NULL: the file beside it, where there is one; "none":
 * none; else a path. False: complained, there is no such file. out empty: none. */
bool learned_file_find(const char *word, const char *model, char out[LEARNED_PATH]);

#endif
