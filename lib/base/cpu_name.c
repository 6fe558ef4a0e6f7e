/* The processor's name from /proc; see cpu_name.h. */
#include "base/cpu_name.h"

#include <stdio.h>
#include <string.h>

void cpu_name(char *out, size_t size)
{
    char line[256];
    snprintf(out, size, "an unnamed CPU");
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon) {
            colon[strcspn(colon, "\n")] = '\0';
            snprintf(out, size, "%.*s", (int)size - 1, colon + 1 + strspn(colon + 1, " "));
            break;
        }
    }
    if (f)
        fclose(f);
}
