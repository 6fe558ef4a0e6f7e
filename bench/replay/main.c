/* moed-replay: simulates policies on a routing trace, in virtual time, on the cost model of a
 * machine. Needs no daemon. */
#include "bench/replay/commands.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool has_flag(int argc, char **argv, const char *flag)
{
    size_t n = strlen(flag);
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strncmp(argv[i], flag, n) == 0 && (argv[i][n] == '\0' || argv[i][n] == '='))
            return true;
    return false;
}

int main(int argc, char **argv)
{
    if (has_flag(argc, argv, "--version")) {
        printf("moed-replay " MOED_VERSION "\n");
        return 0;
    }
    if (has_flag(argc, argv, "--synthesize"))
        return command_synthesize(argc, argv);
    if (has_flag(argc, argv, "--report"))
        return command_report(argc, argv);
    if (has_flag(argc, argv, "--accuracy"))
        return command_accuracy(argc, argv);
    if (has_flag(argc, argv, "--fit"))
        return command_fit(argc, argv);
    if (has_flag(argc, argv, "--list"))
        return command_list(argc, argv);
    return command_replay(argc, argv);
}
