/* Finding moed's other programs: installed side by side, or in the build tree. */
#ifndef MOED_DAEMON_PROGRAM_FIND_H
#define MOED_DAEMON_PROGRAM_FIND_H

#include "base/error.h"

#include <limits.h>
#include <stdbool.h>

/* The path of the program `name` ("moed-memd"). Searches bindir (may be NULL), then the directory
 * of the running executable, then, relative to that, ../libexec/moed and the build tree's folders
 * (../memd, ../worker, ../cpuexec, ../deploy, ../client). ERROR_NOT_FOUND. */
enum error_code program_find(const char *name, const char *bindir, char out[PATH_MAX],
                             struct error *e);

#endif
