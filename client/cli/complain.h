/* Messages of errors. */
#ifndef MOED_CLI_COMPLAIN_H
#define MOED_CLI_COMPLAIN_H

/* Prints one line "moed: ..." on standard error. "Complains" in a comment means a call of this. */
void cli_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
