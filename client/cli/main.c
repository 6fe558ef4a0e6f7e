/* moed, the command line: finds the verb and calls it. Each verb has a file of its own. */
#include "base/edit_distance.h"
#include "client/cli/ask.h"
#include "client/cli/commands.h"

#include <stdio.h>
#include <string.h>

struct verb {
    const char *name;
    int (*main)(int argc, char **argv);
    const char *arguments;
    const char *purpose;
};

static const struct verb verbs[] = {
    {"up", up_main, "MODEL", "start a deployment, return when it answers"},
    {"serve", serve_main, "MODEL", "start one with HTTP, stay until Ctrl-C"},
    {"run", run_main, "PROMPT", "stream the answer to a prompt"},
    {"chat", chat_main, "", "talk with a model: turns, commands, history"},
    {"ps", ps_main, "", "list the processes of every deployment"},
    {"health", health_main, "", "tell by the exit code whether it answers"},
    {"top", top_main, "", "watch a deployment on the whole terminal"},
    {"logs", logs_main, "[PROCESS]", "print a deployment's logs"},
    {"workers", workers_main, "[N]", "show the workers, or change their number"},
    {"restart", restart_main, "PROCESS", "restart one process of a deployment"},
    {"reload", reload_main, "MODEL", "load another model while this one serves"},
    {"upgrade", upgrade_main, "", "replace processes whose programs are newer"},
    {"down", down_main, "[NAME]", "stop a deployment"},
    {"rm", rm_main, "NAME", "remove the logs of a stopped deployment"},
    {"models", models_main, "", "list the models that are loaded on demand"},
    {"cache", cache_main, "", "list or drop the conversations kept in memory"},
    {"inspect", inspect_main, "MODEL", "print what a model file holds and needs"},
    {"tokenize", tokenize_main, "TEXT", "print the token ids of a text"},
    {"detokenize", detokenize_main, "IDS", "print the text of token ids"},
    {"logits", logits_main, "--tokens IDS -o FILE", "write the logits that follow each token"},
    {"perplexity", perplexity_main, "MODEL -f FILE", "measure how well a model predicts a text"},
    {"policy", policy_main, "[POLICY]", "show or change where experts are computed"},
    {"resize", resize_main, "--vram SIZE", "change the device memory of experts"},
    {"devices", devices_main, "[MODEL]", "list GPUs, and what would fit on each"},
    {"map", map_main, "", "print what lies where in the host pool"},
    {"metrics", metrics_main, "[PROCESS]", "print metrics in Prometheus' text format"},
    {"profile", profile_main, "MODEL --text F -o TRACE", "record which experts a model chooses"},
    {"train", train_main, "TRACE", "train predictors on a trace"},
    {"mkmodel", mkmodel_main, "...", "make a small model with random weights"},
};
#define N_VERBS (sizeof verbs / sizeof *verbs)

/* What other programs call a command, or what is a program of its own here. */
static const struct {
    const char *familiar, *hint;
} others[] = {
    {"start", "; did you mean 'moed up'?"},
    {"load", "; did you mean 'moed up'?"},
    {"server", "; did you mean 'moed serve'?"},
    {"stop", "; did you mean 'moed down'?"},
    {"unload", "; did you mean 'moed down'?"},
    {"list", "; did you mean 'moed models'? 'moed ps' lists what runs"},
    {"ls", "; did you mean 'moed models'? 'moed ps' lists what runs"},
    {"status", "; did you mean 'moed ps'?"},
    {"show", "; did you mean 'moed inspect'?"},
    {"log", "; did you mean 'moed logs'?"},
    {"bench", "; did you mean 'moed-bench'?"},
    {"replay", "; did you mean 'moed-replay'?"},
    {"-v", "; did you mean 'moed --version'?"},
    {"-V", "; did you mean 'moed --version'?"},
    {"pull", ": moed downloads no models; 'moed up' takes a GGUF file"},
    {"get", ": moed downloads no models; 'moed up' takes a GGUF file"},
    {"push", ": moed has no registry of models"},
    {"create", ": moed has no Modelfiles; 'moed up' takes a GGUF file, and options from "
               "~/.config/moed/NAME.conf"},
    {"cp", ": models are files; 'moed up --alias NAME' gives one another name"},
    {"import", ": models are files; 'moed serve --models DIR' serves a folder of them"},
};

static const struct verb *find_verb(const char *name)
{
    for (size_t i = 0; i < N_VERBS; i++)
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}

/* The nearest verb, if it is near enough to be a suggestion. */
static const struct verb *nearest_verb(const char *name)
{
    const struct verb *best = NULL;
    unsigned best_distance = edit_distance_limit(name);
    for (size_t i = 0; i < N_VERBS; i++) {
        unsigned d = edit_distance(name, verbs[i].name);
        if (d < best_distance) {
            best_distance = d;
            best = &verbs[i];
        }
    }
    return best;
}

static int unknown_verb(const char *name)
{
    const struct verb *near = nearest_verb(name);
    const char *hint = NULL;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i].familiar, name) == 0)
            hint = others[i].hint;
    fprintf(stderr, "moed: there is no command '%.40s'", name);
    if (hint)
        fprintf(stderr, "%s", hint);
    else if (near)
        fprintf(stderr, "; did you mean 'moed %s'?", near->name);
    fprintf(stderr, " (moed --help lists them)\n");
    return CLI_USAGE;
}

static int print_help(FILE *to)
{
    fprintf(to, "usage: moed COMMAND [ARGUMENTS]\n\n"
                "Runs Mixture-of-Experts language models. A deployment holds one model; any\n"
                "number of programs use it at once.\n\n");
    for (size_t i = 0; i < N_VERBS; i++) {
        char left[64];
        snprintf(left, sizeof left, "%s %s", verbs[i].name, verbs[i].arguments);
        fprintf(to, "  %-31s %s\n", left, verbs[i].purpose);
    }
    fprintf(to, "\nmoed help COMMAND and moed COMMAND --help describe a command. moed --version.\n"
                "moed-bench measures a model's speed, moed-replay compares policies.\n"
                "--name NAME selects a deployment where several run.\n"
                "Exit codes: 0 done, 1 failed, 2 wrong use, 3 not running, 4 already running.\n");
    return to == stdout ? CLI_OK : CLI_USAGE;
}

static int help_verb(const char *name)
{
    const struct verb *v = find_verb(name);
    if (!v)
        return unknown_verb(name);
    char help[] = "--help";
    char *arguments[] = {(char *)v->name, help, NULL};
    return v->main(2, arguments);
}

static int run(int argc, char **argv)
{
    if (argc < 2)
        return print_help(stderr);
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
        printf("moed %s\n", MOED_VERSION);
        return CLI_OK;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return argc > 2 ? help_verb(argv[2]) : print_help(stdout);
    const struct verb *v = find_verb(name);
    return v ? v->main(argc - 1, argv + 1) : unknown_verb(name);
}

int main(int argc, char **argv)
{
    return ask_finish(run(argc, argv));
}
