/* Configuration: each program has one table, which reads flags and a file, and prints --help and
 * --config-dump.
 *
 *     --name VALUE, --name=VALUE    an option
 *     --name, --no-name             a boolean, without a value
 *     -n VALUE, -nVALUE             an option with a name of one letter
 *     --                            ends the options
 *     --config FILE                 a file, read before the flags, which win: one `name = value` a
 *                                   line, # starts a comment, quotes around a value are dropped,
 *                                   ~/ at its begin is the home directory; where the table has an
 *                                   OPTION_STRING named "config"
 *     --defaults FILE               the same, read before that file, which wins; where the table
 *                                   has an OPTION_STRING named "defaults"
 *
 * An unknown name is an error that names the nearest one. Where other programs have another name
 * for the same thing (-c for --ctx), it is understood (option_names.c).
 *
 * Integers take suffixes k, M, G (1000s) and Ki, Mi, Gi (1024s), in upper or lower case.
 * ERROR_USAGE: an unknown name, a value of the wrong type or out of range. */
#ifndef MOED_DAEMON_OPTIONS_H
#define MOED_DAEMON_OPTIONS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum option_type {
    OPTION_STRING,
    OPTION_UINT,
    OPTION_FLOAT,
    OPTION_BOOL,
    OPTION_LIST,    /* of strings: may be given several times */
    OPTION_HEADING, /* a line of the help, no option */
};

/* An OPTION_LIST's target. `items` is allocated and lives as long as the process. */
struct option_list {
    const char **items;
    size_t count;
};

struct option_spec {
    const char *name; /* without the dashes */
    enum option_type type;
    /* const char **, uint64_t *, double *, bool *: holds the default; struct option_list * */
    void *target;
    double min, max;        /* for OPTION_UINT and OPTION_FLOAT, where max > min */
    const char *value_name; /* "FILE" in the help */
    const char *help;
};

/* Parse argv[1..]; the table ends with a NULL name. Moves positional arguments ("-" is one) to
 * argv[1..] and counts them in *n_positional; NULL: a positional argument is an error. Strings
 * point into argv; those from the file are allocated and live as long as the process. */
enum error_code options_parse(const struct option_spec *table, int argc, char **argv,
                              int *n_positional, struct error *e);
/* Takes the text of an error, without its end of line. */
typedef void options_report(void *arg, const char *text);
/* The same, and goes on after an error: each is reported as it is found, and *e (may be NULL) has
 * the first. Skips what may be the value of an unknown option. */
enum error_code options_parse_all(const struct option_spec *table, int argc, char **argv,
                                  int *n_positional, options_report *report, void *arg,
                                  struct error *e);
/* Read the options of the table from a file of another program, and skip the others. Strings are
 * allocated and live as long as the process. */
enum error_code options_read_some(const struct option_spec *table, const char *path,
                                  struct error *e);
/* "usage: PROGRAM ARGUMENTS", the purpose, then the table with defaults. A number that is NaN or
 * UINT64_MAX has none. */
void options_print_help(const struct option_spec *table, const char *program, const char *arguments,
                        const char *purpose);
/* Print a line of help in lines of 80 columns: the heading, then the text below itself. */
void options_print_list(const char *heading, const char *text);
/* Print the effective configuration as `name = value` lines. */
void options_print_values(const struct option_spec *table);
/* True where argv has --help or -h. */
bool options_wants_help(int argc, char **argv);
/* Where argv has --version: prints "PROGRAM VERSION", true. */
bool options_print_version(const char *program, int argc, char **argv);

#endif
