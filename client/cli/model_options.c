/* Options of a model; see model_options.h. */
#include "client/cli/model_options.h"

#include "client/cli/complain.h"
#include "daemon/option_names.h"
#include "daemon/options_file.h"

#include <string.h>

static const char *const of_model[] = {
    "device",  "vram",      "reserve",      "ctx",       "ram",          "parallel",
    "workers", "threads",   "kv-type",      "kv-cache",  "kv-dir",       "kv-dir-size",
    "queue",   "batch",     "decode-share", "speculate", "reproducible", "cpuexec",
    "mps",     "calibrate", "policy",       "assign",    "cache",        "predictor",
    "budget",  "prefetch",  "predictors",   "fine-tune", "segment-bytes"};

static bool is_of_model(const char *name)
{
    for (size_t i = 0; i < sizeof of_model / sizeof *of_model; i++)
        if (strcmp(of_model[i], name) == 0)
            return true;
    return false;
}

const char *model_options_find(const struct option_spec *table, int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *name = argv[i] + strspn(argv[i], "-");
        if (name == argv[i])
            continue;
        const struct option_spec *o = option_names_find(table, name, strcspn(name, "="));
        if (o && is_of_model(o->name))
            return o->name;
    }
    return NULL;
}

bool model_options_absent(const char *found, const char *verb)
{
    char path[PATH_MAX];
    if (!found)
        return true;
    options_file_find("NAME", path);
    cli_complain("%s: --%s needs MODEL; for a model of the folder write `%s = ...` into %s, where "
                 "NAME is the model's",
                 verb, found, found, path);
    return false;
}
