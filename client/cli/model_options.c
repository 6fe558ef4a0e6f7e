/* Options of a model; see model_options.h. */
#include "client/cli/model_options.h"

#include "client/cli/complain.h"
#include "daemon/deployment_options.h"
#include "daemon/option_names.h"
#include "daemon/options_file.h"

#include <string.h>

static bool is_of_model(const char *name)
{
    const struct deployment_option *o = deployment_options_find(name);
    if (o)
        return o->takers & OF_MODEL;
    return strcmp(name, "vram") == 0 || strcmp(name, "reserve") == 0; /* parts of the device */
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
