/* Configuration: one table a program, read from flags and from a file, printed by --help and
 * --config-dump.
 *
 * Flags: --name VALUE or --name=VALUE; booleans take no value (--name, --no-name). The file
 * (--config FILE) has one `name = value` a line, # starts a comment; flags win. An unknown name, a
 * value of the wrong type or out of range is one clear line and exit code 2. Integers take suffixes
 * k, M, G (1000s) and Ki, Mi, Gi (1024s). A one-letter name takes one dash: -n VALUE or -nVALUE.
 * "--" ends the options.
 * --config is known where the table has an OPTION_STRING named "config"; its file is read before
 * the flags. */
#ifndef MOED_DAEMON_OPTIONS_H
#define MOED_DAEMON_OPTIONS_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum option_type { OPTION_STRING, OPTION_UINT, OPTION_FLOAT, OPTION_BOOL };

struct option_spec {
    const char *name; /* without the dashes */
    enum option_type type;
    void *target;           /* const char **, uint64_t *, double *, bool *: holds the default */
    double min, max;        /* for OPTION_UINT and OPTION_FLOAT, where max > min */
    const char *value_name; /* "FILE" in the help */
    const char *help;
};

/* Parse argv[1..]; the table ends with a NULL name. Positional arguments ("-" is one) are moved to
 * argv[1..] and counted in *n_positional (NULL: none are taken). Strings point into argv or are
 * malloc'ed from the file and live as long as the process. */
enum error_code options_parse(const struct option_spec *table, int argc, char **argv,
                              int *n_positional, struct error *e);
/* "usage: PROGRAM ARGUMENTS", the purpose, then the table with defaults. */
void options_print_help(const struct option_spec *table, const char *program, const char *arguments,
                        const char *purpose);
/* name = value lines of the effective configuration. */
void options_print_values(const struct option_spec *table);
/* True where argv has --help or -h. */
bool options_wants_help(int argc, char **argv);

#endif
