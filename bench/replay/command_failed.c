/* The exit code of a command that failed; see commands.h. */
#include "bench/replay/commands.h"

#include <stdio.h>

int command_failed(const struct error *e)
{
    fprintf(stderr, "moed-replay: %s\n", e->text);
    return e->code == ERROR_USAGE ? 2 : 1;
}
