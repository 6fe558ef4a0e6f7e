/* Learned files; see learned_file.h. */
#include "client/cli/learned_file.h"

#include "client/cli/ask.h"
#include "client/cli/model_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void learned_file_beside(const char *model, char out[LEARNED_PATH])
{
    snprintf(out, LEARNED_PATH, "%s.learned", model);
}

bool learned_file_find(const char *word, const char *model, char out[LEARNED_PATH])
{
    char path[PATH_MAX];
    out[0] = '\0';
    if (!word) {
        learned_file_beside(model, out);
        if (access(out, F_OK) != 0)
            out[0] = '\0';
        return true;
    }
    if (strcmp(word, "none") == 0)
        return true;
    if (access(word, R_OK) != 0) {
        ask_complain("--learned %s: %s", word, strerror(errno));
        return false;
    }
    if (!model_file_absolute(word, path))
        return false;
    snprintf(out, LEARNED_PATH, "%s", path);
    return true;
}
