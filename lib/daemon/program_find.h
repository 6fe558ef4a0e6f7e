/* Where moed's other programs are: installed side by side, or in the build tree. */
#ifndef MOED_DAEMON_PROGRAM_FIND_H
#define MOED_DAEMON_PROGRAM_FIND_H

#include "base/error.h"

#include <limits.h>
#include <stdbool.h>

/* The path of the program `name` ("moed-memd"). Looked for in bindir (may be NULL), in the
 * directory of the running executable, in ../libexec/moed beside it, and in the sibling folders
 * ../memd, ../worker,
 * ../cpuexec, ../deploy, ../client of a build tree. */
enum error_code program_find(const char *name, const char *bindir, char out[PATH_MAX],
                             struct error *e);

#endif
