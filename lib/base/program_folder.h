/* Where the running program is installed: its other parts are found from there. */
#ifndef MOED_BASE_PROGRAM_FOLDER_H
#define MOED_BASE_PROGRAM_FOLDER_H

#include <limits.h>
#include <stdbool.h>

/* The folder of the running program, without links and without a slash at its end. False: it is not
 * known, as errno says; out is empty. */
bool program_folder(char out[PATH_MAX]);

#endif
