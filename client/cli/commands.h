/* The verbs of `moed` and their exit codes. argv[0] is the verb; a verb returns an exit code. */
#ifndef MOED_CLI_COMMANDS_H
#define MOED_CLI_COMMANDS_H

enum { CLI_OK = 0, CLI_FAILURE = 1, CLI_USAGE = 2, CLI_NOT_RUNNING = 3, CLI_ALREADY_RUNNING = 4 };

int up_main(int argc, char **argv);
int serve_main(int argc, char **argv);
int down_main(int argc, char **argv);
int models_main(int argc, char **argv);
int cache_main(int argc, char **argv);
int workers_main(int argc, char **argv);
int restart_main(int argc, char **argv);
int reload_main(int argc, char **argv);
int upgrade_main(int argc, char **argv);
int ps_main(int argc, char **argv);
int health_main(int argc, char **argv);
int top_main(int argc, char **argv);
int rm_main(int argc, char **argv);
int logs_main(int argc, char **argv);
int policy_main(int argc, char **argv);
int resize_main(int argc, char **argv);
int devices_main(int argc, char **argv);
int metrics_main(int argc, char **argv);
int run_main(int argc, char **argv);
int chat_main(int argc, char **argv);
int tokenize_main(int argc, char **argv);
int detokenize_main(int argc, char **argv);
int logits_main(int argc, char **argv);
int perplexity_main(int argc, char **argv);
int profile_main(int argc, char **argv);
int inspect_main(int argc, char **argv);
int map_main(int argc, char **argv);
int train_main(int argc, char **argv);
int mkmodel_main(int argc, char **argv);

#endif
