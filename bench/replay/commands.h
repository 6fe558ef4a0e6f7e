/* The commands of moed-replay: each takes the program's arguments and returns its exit code. */
#ifndef MOED_REPLAY_COMMANDS_H
#define MOED_REPLAY_COMMANDS_H

#include "base/error.h"

int command_replay(int argc, char **argv);
int command_report(int argc, char **argv);
int command_synthesize(int argc, char **argv);
int command_fit(int argc, char **argv);
int command_accuracy(int argc, char **argv);
int command_list(int argc, char **argv);

/* "moed-replay: TEXT" on standard error; 2 for wrong use, else 1. */
int command_failed(const struct error *e);

#endif
