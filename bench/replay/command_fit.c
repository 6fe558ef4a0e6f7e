/* moed-replay --fit: finds parameters of synthetic traces that reproduce published hit rates. */
#include "bench/replay/commands.h"
#include "bench/replay/fit.h"

#include "daemon/options.h"

#include <stdio.h>

int command_fit(int argc, char **argv)
{
    const char *name = NULL;
    uint64_t tokens = 8192;
    struct error e = {0};
    const struct option_spec options[] = {
        {"fit", OPTION_STRING, &name, 0, 0, "TARGET", "the published figures"},
        {"tokens", OPTION_UINT, &tokens, 256, 1 << 20, "T", "tokens of each trial"},
        {0},
    };
    if (options_wants_help(argc, argv)) {
        options_print_help(options, "moed-replay", "--fit TARGET [--tokens T]",
                           "Finds --skew, --locality and --topic-strength that reproduce "
                           "published hit rates.");
        printf("\ntargets: %s\n", fit_target_names());
        return 0;
    }
    enum error_code code = options_parse(options, argc, argv, NULL, &e);
    const struct fit_target *target = code ? NULL : fit_target_find(name);
    if (!code && !target)
        code = error_set(&e, ERROR_USAGE, "--fit: there is no target \"%.60s\"; allowed: %s", name,
                         fit_target_names());
    struct fit_result result;
    if (!code)
        code = fit(target, tokens, &result, &e);
    if (code)
        return command_failed(&e);
    fit_print(target, &result, stdout);
    return 0;
}
