/* What the verbs share: arguments, input, attaching to a deployment, messages. */
#ifndef MOED_CLI_ASK_H
#define MOED_CLI_ASK_H

#include "base/strbuf.h"
#include "client/include/moed.h"
#include "client/cli/complain.h"
#include "daemon/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How long a verb waits for a worker that is starting or being restarted. */
#define ASK_RETRY_S 10
/* How long a cancelled request may take to end: its worker may be silent. */
#define ASK_CANCEL_MS 2000

/* Parses options and min to max positional arguments, and answers --help and
 * --version. `arguments`: how the help
 * shows them ("[OPTIONS] PROMPT"). n_positional may be NULL. False: exit with *exit_code; it has
 * complained where that is an error. */
bool ask_arguments(const struct option_spec *table, const char *verb, const char *arguments,
                   const char *purpose, int argc, char **argv, int min, int max, int *n_positional,
                   int *exit_code);

/* The same of a verb whose one option is --name; *name: NULL where it is not given. */
bool ask_name(const char *verb, const char *arguments, const char *purpose, int argc, char **argv,
              int min, int max, const char **name, int *n_positional, int *exit_code);

/* Called where the command line names a deployment: from then on the name counts, not MOED_RUN,
 * also for the processes that are started. ask_arguments calls it for --name. */
void ask_name_given(void);

/* Appends the argument's bytes; for "-" those of standard input, to its end. Complains. */
bool ask_text(const char *argument, struct strbuf *out);
/* Parses ids separated by commas or white space. The caller frees *ids. Complains. */
bool ask_ids(const char *text, size_t len, uint32_t **ids, size_t *count);

/* Attaches, and waits ASK_RETRY_S for a worker that is being restarted. deployment NULL: "default",
 * or the only one there is. False: it has complained, and *exit_code is set. */
bool ask_attach(const char *deployment, struct moed_session **out, int *exit_code);
/* Decides whether to try once more after `error`, and sleeps 100 ms where so: the error allows it
 * and deadline_s (clock_s) has not come. */
bool ask_again(const struct moed_error *error, double deadline_s);
/* Prints an error of attaching; returns the exit code. */
int ask_attach_failed(const struct moed_error *error);
/* Prints an error of a request; returns the exit code. */
int ask_failed(const struct moed_error *error);

/* Writes all bytes to a descriptor. False: errno tells why; EINTR only where *interrupted is set
 * (may be NULL). */
bool ask_write(int fd, const void *data, size_t len, const volatile int *interrupted);
/* Writes all bytes to standard output, past stdio. False: ask_finish says so at the end. */
bool ask_print(const void *data, size_t len);
/* The same with stdio's standard output, where a verb goes on after it has printed. */
bool ask_flush(void);
/* Notes for ask_finish that a write to standard output failed; returns CLI_FAILURE. */
int ask_write_failed(int write_errno);
/* The end of main: flushes standard output, and complains where any of it could not be written. A
 * pipe without a reader ends the program by SIGPIPE, as it ends filters. Returns exit_code, or that
 * of a failure. */
int ask_finish(int exit_code);

#endif
