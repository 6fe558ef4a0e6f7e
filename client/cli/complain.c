#include "client/cli/complain.h"

#include <stdarg.h>
#include <stdio.h>

void cli_complain(const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fprintf(stderr, "moed: %s\n", line);
}
