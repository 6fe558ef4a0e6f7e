/* The file of a model's trained predictors: the model's path with .predictors appended. */
#ifndef MOED_CLIENT_CLI_PREDICTORS_FILE_H
#define MOED_CLIENT_CLI_PREDICTORS_FILE_H

#include <limits.h>
#include <stdbool.h>

enum { PREDICTORS_PATH = PATH_MAX + 16 };

void predictors_file_of_model(const char *model, char out[PREDICTORS_PATH]);

/* Finds the file that `--predictors WORD` means for a model (a path of model_file_find). NULL: the
 * file next to the model, if it exists; "none": no file; else a path. out is empty for no file.
 * Complains where the path does not exist. */
bool predictors_file_find(const char *word, const char *model, char out[PREDICTORS_PATH]);

#endif
