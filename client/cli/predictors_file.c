/* The file of trained predictors; see predictors_file.h. */
#include "predictors_file.h"

#include "ask.h"
#include "model_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void predictors_file_of_model(const char *model, char out[PREDICTORS_PATH])
{
    snprintf(out, PREDICTORS_PATH, "%s.predictors", model);
}

bool predictors_file_find(const char *word, const char *model, char out[PREDICTORS_PATH])
{
    char path[PATH_MAX];
    out[0] = '\0';
    if (!word) {
        predictors_file_of_model(model, out);
        if (access(out, F_OK) != 0)
            out[0] = '\0';
        return true;
    }
    if (strcmp(word, "none") == 0)
        return true;
    if (access(word, R_OK) != 0) {
        cli_complain("--predictors %s: %s", word, strerror(errno));
        return false;
    }
    if (!model_file_absolute(word, path))
        return false;
    snprintf(out, PREDICTORS_PATH, "%s", path);
    return true;
}
