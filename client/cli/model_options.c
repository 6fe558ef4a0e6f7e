/* Options of a model; see model_options.h. */
#include "client/cli/model_options.h"

#include "client/cli/complain.h"

#include <string.h>

static const char *const of_model[] = {
    "device",    "vram",          "ctx",        "ram",          "parallel",     "workers",
    "threads",   "kv-type",       "kv-cache",   "kv-dir",       "kv-dir-size",  "queue",
    "batch",     "decode-share",  "speculate",  "reproducible", "cpuexec",      "mps",
    "calibrate", "chat-template", "policy",     "assign",       "cache",        "predictor",
    "budget",    "prefetch",      "predictors", "fine-tune",    "segment-bytes"};

static bool is_of_model(const char *name)
{
    for (size_t i = 0; i < sizeof of_model / sizeof *of_model; i++)
        if (strcmp(of_model[i], name) == 0)
            return true;
    return false;
}

/* None of them has another default than nothing. */
static bool is_given(const struct option_spec *o)
{
    return o->type == OPTION_STRING ? *(const char **)o->target != NULL
           : o->type == OPTION_UINT ? *(uint64_t *)o->target != 0
                                    : *(bool *)o->target;
}

bool model_options_absent(const struct option_spec *table, const char *verb)
{
    for (const struct option_spec *o = table; o->name; o++)
        if (is_of_model(o->name) && is_given(o)) {
            cli_complain("%s: --%s needs MODEL; for a model of the folder write `%s = ...` into "
                         "~/.config/moed/NAME.conf, where NAME is the model's",
                         verb, o->name, o->name);
            return false;
        }
    return true;
}
