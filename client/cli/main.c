/* moed, the command line: finds the verb and hands over. Each verb stands in a file of its own. */
#include "client/cli/commands.h"

#include <stdint.h>
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
    {"down", down_main, "[NAME]", "stop a deployment"},
    {"restart", restart_main, "PROCESS", "restart one process of a deployment"},
    {"ps", ps_main, "", "list the processes of every deployment"},
    {"run", run_main, "PROMPT", "stream the answer to a prompt"},
    {"tokenize", tokenize_main, "TEXT", "print the token ids of a text"},
    {"detokenize", detokenize_main, "IDS", "print the text of token ids"},
    {"logits", logits_main, "--tokens IDS -o FILE", "write the logits that follow each token"},
    {"perplexity", perplexity_main, "MODEL -f FILE", "measure how well a model predicts a text"},
    {"profile", profile_main, "MODEL --text FILES -o TRACE",
     "record which experts a model chooses"},
    {"inspect", inspect_main, "MODEL", "print what a model file holds and needs"},
    {"map", map_main, "", "print what lies where in the host pool"},
    {"logs", logs_main, "[PROCESS]", "print a deployment's logs"},
    {"policy", policy_main, "[POLICY]", "show or change which expert is cached and computed where"},
    {"resize", resize_main, "--vram SIZE", "give experts more or less of the device's memory"},
    {"metrics", metrics_main, "[PROCESS]", "print metrics in Prometheus' text format"},
    {"train", train_main, "TRACE", "train what predictors know of a model, from a trace"},
    {"mkmodel", mkmodel_main, "...", "make a small model with random weights"},
};
#define N_VERBS (sizeof verbs / sizeof *verbs)

static const struct verb *find_verb(const char *name)
{
    for (size_t i = 0; i < N_VERBS; i++)
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

#define WORD_MAX 24

/* Letters to add, drop, change or swap with the next one to make b of a (optimal string alignment).
 */
static unsigned edit_distance(const char *a, const char *b)
{
    unsigned rows[WORD_MAX + 1][WORD_MAX + 1];
    size_t n = strlen(a), m = strlen(b);
    if (n > WORD_MAX || m > WORD_MAX)
        return UINT32_MAX;
    for (size_t i = 0; i <= n; i++) {
        for (size_t j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                rows[i][j] = (unsigned)(i + j);
                continue;
            }
            unsigned changed = rows[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            rows[i][j] = least(changed, 1 + least(rows[i - 1][j], rows[i][j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                rows[i][j] = least(rows[i][j], rows[i - 2][j - 2] + 1);
        }
    }
    return rows[n][m];
}

/* The nearest verb, where one is near enough to have been meant. */
static const struct verb *nearest_verb(const char *name)
{
    const struct verb *best = NULL;
    unsigned best_distance = least((unsigned)strlen(name) / 2 + 1, 4);
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
    fprintf(stderr, "moed: there is no command '%.40s'", name);
    if (near)
        fprintf(stderr, "; did you mean 'moed %s'?", near->name);
    fprintf(stderr, " (moed --help lists them)\n");
    return CLI_USAGE;
}

static int print_help(FILE *to)
{
    fprintf(to,
            "usage: moed COMMAND [ARGUMENTS]\n\n"
            "Runs Mixture-of-Experts language models: one deployment holds a model, any number of\n"
            "programs ask it.\n\n");
    for (size_t i = 0; i < N_VERBS; i++) {
        char left[64];
        snprintf(left, sizeof left, "%s %s", verbs[i].name, verbs[i].arguments);
        fprintf(to, "  %-30s %s\n", left, verbs[i].purpose);
    }
    fprintf(to, "\nmoed help COMMAND, or moed COMMAND --help, tells more. moed --version.\n"
                "--name NAME selects a deployment where there are several.\n"
                "Exit codes: 0 done, 1 failed, 2 wrong use, 3 not running, 4 already running.\n");
    if (fflush(to) || ferror(to))
        return CLI_FAILURE;
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

int main(int argc, char **argv)
{
    if (argc < 2)
        return print_help(stderr);
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
        printf("moed %s\n", MOED_VERSION);
        return fflush(stdout) ? CLI_FAILURE : CLI_OK;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return argc > 2 ? help_verb(argv[2]) : print_help(stdout);
    const struct verb *v = find_verb(name);
    return v ? v->main(argc - 1, argv + 1) : unknown_verb(name);
}
