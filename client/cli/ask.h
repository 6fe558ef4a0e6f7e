/* What the verbs that ask a deployment share: arguments, input, attaching, messages. */
#ifndef MOED_CLI_ASK_H
#define MOED_CLI_ASK_H

#include "base/strbuf.h"
#include "client/include/moed.h"
#include "daemon/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How long a worker that is starting or being restarted is waited for. */
#define ASK_RETRY_S 10

/* One line "moed: ..." on standard error. */
void ask_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Parse options and positional arguments, answer --help. True: go on. False: exit with *exit_code.
 * `arguments` is the line of the help: "[OPTIONS] PROMPT". */
bool ask_arguments(const struct option_spec *table, const char *verb, const char *arguments,
                   const char *purpose, int argc, char **argv, unsigned positional, int *exit_code);

/* Append the argument's bytes, or for "-" standard input's to its end. Complains. */
bool ask_text(const char *argument, struct strbuf *out);
/* Ids separated by commas or white space. *ids is malloc'ed. Complains. */
bool ask_ids(const char *text, size_t len, uint32_t **ids, size_t *count);

/* Attach, waiting for a worker that is being restarted. *exit_code is set and the reason printed
 * where it fails. deployment NULL: "default". */
bool ask_attach(const char *deployment, struct moed_session **out, int *exit_code);
/* Sleep a little and say whether to try once more: the error says so and it is before `deadline_s`.
 */
bool ask_again(const struct moed_error *error, double deadline_s);
/* Print what attaching failed with; returns the exit code. */
int ask_attach_failed(const struct moed_error *error);
/* Print what a request failed with; returns the exit code. */
int ask_failed(const struct moed_error *error);

/* All bytes to a descriptor. False with errno; EINTR too, where *interrupted (may be NULL) is set.
 */
bool ask_write(int fd, const void *data, size_t len, const volatile int *interrupted);
/* The same to standard output, complaining. */
bool ask_print(const void *data, size_t len);

#endif
