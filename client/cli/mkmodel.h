/* moed mkmodel: a small MoE GGUF with seeded random weights. */
#ifndef MOED_CLIENT_CLI_MKMODEL_H
#define MOED_CLIENT_CLI_MKMODEL_H

/* argv[0] is "mkmodel". Returns the exit code: 0, 1 for a failure, 2 for wrong use. */
int mkmodel_main(int argc, char **argv);

#endif
