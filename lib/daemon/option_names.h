/* Names of options that a table does not have: those that other programs use, and typing errors. */
#ifndef MOED_DAEMON_OPTION_NAMES_H
#define MOED_DAEMON_OPTION_NAMES_H

#include "daemon/options.h"

#include <stddef.h>

#define OPTION_NAMES_HINT 240

/* The row with this name; NULL: none. */
const struct option_spec *option_names_find(const struct option_spec *table, const char *name,
                                            size_t len);
/* The row that another program's name means, with its dashes (-c: ctx), where it takes the same
 * values; NULL: none. arg may go on with "=VALUE". */
const struct option_spec *option_names_familiar(const struct option_spec *table, const char *arg);
/* True where other programs have an option of this name that moed does not have by any name. */
bool option_names_foreign(const struct option_spec *table, const char *arg);
/* What to do instead of an unknown option: "; did you mean --ctx?", or "". */
void option_names_hint(const struct option_spec *table, const char *arg,
                       char out[OPTION_NAMES_HINT]);
/* What to give instead of a value that other programs take for a number, as -1 for "automatic";
 * NULL: the value is none of those. */
const char *option_names_value_hint(const struct option_spec *o, const char *value);

#endif
