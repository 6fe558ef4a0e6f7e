/* What `moed chat` was told on its command line and by /set. */
#ifndef MOED_CLI_CHAT_SETTINGS_H
#define MOED_CLI_CHAT_SETTINGS_H

#include "base/error.h"
#include "base/strbuf.h"
#include "client/cli/chat.h"
#include "client/cli/chat/reply.h"
#include "client/cli/grammar_options.h"
#include "client/cli/sampling_options.h"
#include "daemon/options.h"

#include <stdbool.h>
#include <stdint.h>

struct settings {
    const char *name, *system, *messages_file;
    struct chat_options chat; /* its messages are the conversation's, its thinking follows `view` */
    struct sampling_options sampling;
    struct grammar_options grammar;
    uint64_t n;
    enum thinking_view view;
    bool figures, history;
    struct option_list stops, biases, breakers;
    struct moed_bytes *stop_list, *breaker_list;
    struct moed_bias *bias_list;
    char *order; /* /set order: the text that sampling.order points to */
};

/* Reads the command line. False: exit with *exit_code; it has complained where that is an error. In
 * any case the caller calls settings_fini. */
bool settings_take(struct settings *s, int argc, char **argv, int *exit_code);
void settings_fini(struct settings *s);

/* The options of a request, but for its prompt. They point into *s. */
void settings_apply(const struct settings *s, struct moed_generate_options *out,
                    struct moed_sampling *sampling);

/* /set NAME VALUE; the value "default" is the model's. ERROR_USAGE. */
enum error_code settings_set(struct settings *s, const char *name, const char *value,
                             struct error *e);
/* /set: one line a setting that is not the model's default. */
void settings_print(struct settings *s, struct strbuf *out);

#endif
