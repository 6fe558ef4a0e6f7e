/* The command line of `moed run`; see run.h. */
#include "client/cli/run_command.h"

#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/misplaced_model.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Options that may be given several times ---- */

/* Takes every --NAME TEXT and --NAME=TEXT out of argv: the option table holds one value a name. */
static bool take_repeated(const char *name, int *argc, char **argv, struct repeated *out)
{
    int kept = 1, i = 1;
    size_t len = strlen(name);
    *out = (struct repeated){.values = calloc((size_t)*argc, sizeof *out->values)};
    if (!out->values) {
        cli_complain("no memory for the options");
        return false;
    }
    for (; i < *argc && strcmp(argv[i], "--") != 0; i++) {
        const char *text = NULL;
        if (strncmp(argv[i], name, len) == 0 && argv[i][len] == '=')
            text = argv[i] + len + 1;
        else if (strcmp(argv[i], name) == 0 && i + 1 < *argc)
            text = argv[++i];
        if (!text) {
            argv[kept++] = argv[i];
            continue;
        }
        if (!*text) {
            cli_complain("run: %s needs a text", name);
            return false;
        }
        out->values[out->count++] = text;
    }
    for (; i < *argc; i++)
        argv[kept++] = argv[i];
    *argc = kept;
    argv[kept] = NULL;
    return true;
}

static bool take_all_repeated(struct run_arguments *a, int *argc, char **argv)
{
    return take_repeated("--stop", argc, argv, &a->stops) &&
           take_repeated("--stop-token", argc, argv, &a->stop_tokens) &&
           take_repeated("--bias", argc, argv, &a->biases) &&
           take_repeated("--dry-breaker", argc, argv, &a->breakers) &&
           take_repeated("--choice", argc, argv, &a->choices);
}

static struct moed_bytes *texts_of(const struct repeated *r)
{
    struct moed_bytes *texts = calloc(r->count + 1, sizeof *texts);
    for (size_t i = 0; texts && i < r->count; i++)
        texts[i] = (struct moed_bytes){r->values[i], strlen(r->values[i])};
    return texts;
}

static bool parse_stop_token(const char *text, uint32_t *out)
{
    char *end;
    unsigned long id = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || id > UINT32_MAX) {
        cli_complain("run: --stop-token '%.40s' is not a token id", text);
        return false;
    }
    *out = (uint32_t)id;
    return true;
}

static bool make_lists(struct run_arguments *a)
{
    a->grammar.choices = a->choices.values;
    a->grammar.choice_count = a->choices.count;
    if (!grammar_options_make(&a->grammar))
        return false;
    a->stop_list = texts_of(&a->stops);
    a->breaker_list = texts_of(&a->breakers);
    a->bias_list = calloc(a->biases.count + 1, sizeof *a->bias_list);
    a->stop_token_list = calloc(a->stop_tokens.count + 1, sizeof *a->stop_token_list);
    if (!a->stop_list || !a->breaker_list || !a->bias_list || !a->stop_token_list) {
        cli_complain("no memory for the options");
        return false;
    }
    for (size_t i = 0; i < a->biases.count; i++)
        if (!sampling_options_bias(a->biases.values[i], &a->bias_list[i]))
            return false;
    for (size_t i = 0; i < a->stop_tokens.count; i++)
        if (!parse_stop_token(a->stop_tokens.values[i], &a->stop_token_list[i]))
            return false;
    return true;
}

/* ---- All options ---- */

/* Behind "--" a prompt is a text, whatever it names. */
static bool has_dashes(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--") == 0)
            return true;
    return false;
}

/* `several`: the options above, which are in the table only for its help. */
static bool parse(struct run_arguments *a, const char *several[5], int argc, char **argv,
                  int *exit_code)
{
    const struct option_spec table[] = {
        {"n", OPTION_UINT, &a->n, 0, UINT32_MAX, "N",
         "stop after N tokens; 0: when the context is full"},
        {"answers", OPTION_UINT, &a->answers, 1, RUN_MAX_ANSWERS, "N",
         "give N answers, with the seeds S, S + 1, ... (1)"},
        {"chat", OPTION_BOOL, &a->chat, 0, 0, NULL,
         "take PROMPT as the user's turn of a conversation"},
        {"system", OPTION_STRING, &a->chat_options.system, 0, 0, "TEXT",
         "with --chat: put a system message first"},
        {"messages", OPTION_STRING, &a->chat_options.messages_file, 0, 0, "FILE",
         "with --chat: read earlier messages from JSON"},
        {"chat-template", OPTION_STRING, &a->chat_options.template_file, 0, 0, "FILE",
         "with --chat: use another template"},
        {"chat-template-kwargs", OPTION_STRING, &a->chat_options.kwargs, 0, 0, "JSON",
         "with --chat: set its variables"},
        {"name", OPTION_STRING, &a->name, 0, 0, "NAME", "select a deployment (default: default)"},
        SAMPLING_OPTIONS_USUAL(&a->sampling),
        {"json-schema", OPTION_STRING, &a->grammar.json_schema, 0, 0, "FILE|JSON",
         "hold the answer to a JSON schema"},
        {"json-object", OPTION_BOOL, &a->grammar.json_object, 0, 0, NULL,
         "hold the answer to JSON: an object"},
        {"grammar", OPTION_STRING, &a->grammar.grammar_file, 0, 0, "FILE",
         "hold the answer to rules in GBNF"},
        {"regex", OPTION_STRING, &a->grammar.regex, 0, 0, "TEXT",
         "hold the answer to a regular expression"},
        {"choice", OPTION_STRING, &several[4], 0, 0, "TEXT",
         "hold the answer to TEXT or another --choice"},
        {"stop", OPTION_STRING, &several[0], 0, 0, "TEXT",
         "end before TEXT; may be given several times"},
        {"json", OPTION_BOOL, &a->json, 0, 0, NULL, "print one JSON object, at the end"},
        {"stats", OPTION_BOOL, &a->stats, 0, 0, NULL, "print the speeds to standard error"},
        {"Special uses", OPTION_HEADING, NULL, 0, 0, NULL, NULL},
        {"raw", OPTION_BOOL, &a->raw, 0, 0, NULL, "print control characters to a terminal too"},
        {"progress", OPTION_BOOL, &a->progress, 0, 0, NULL, "report how far the prompt is"},
        {"logprobs", OPTION_UINT, &a->logprobs, 0, 64, "N",
         "with --json: probabilities, and the N best, of each token"},
        {"special", OPTION_BOOL, &a->special, 0, 0, NULL,
         "parse the texts of special tokens in PROMPT"},
        {"show-special", OPTION_BOOL, &a->show_special, 0, 0, NULL,
         "show the texts of special tokens in the answer"},
        {"tokens", OPTION_BOOL, &a->tokens, 0, 0, NULL, "take PROMPT as a list of token ids"},
        {"ignore-end", OPTION_BOOL, &a->ignore_end, 0, 0, NULL,
         "go on past end-of-generation tokens"},
        {"min-tokens", OPTION_UINT, &a->min_tokens, 0, UINT32_MAX, "N",
         "do not end before N tokens"},
        {"batch", OPTION_BOOL, &a->batch, 0, 0, NULL, "let interactive requests go first"},
        {"deadline", OPTION_UINT, &a->deadline_ms, 0, UINT32_MAX, "MS",
         "fail if the answer has not begun after MS milliseconds; 0: wait"},
        {"stop-token", OPTION_STRING, &several[1], 0, 0, "ID",
         "end at this token too; may be given several times"},
        {"bias", OPTION_STRING, &several[2], 0, 0, "ID=B",
         "add B to a token's logit (-inf: never); TEXT=B: to its tokens"},
        {"More samplers", OPTION_HEADING, NULL, 0, 0, NULL, NULL},
        SAMPLING_OPTIONS_OTHER(&a->sampling),
        {"dry-breaker", OPTION_STRING, &several[3], 0, 0, "TEXT",
         "end sequences at TEXT; may be given several times"},
        {0},
    };
    int n_positional = 0;
    bool literal = has_dashes(argc, argv);
    if (!ask_arguments(
            table, "run", "[OPTIONS] PROMPT",
            "Streams the answer to PROMPT (- reads standard input) to standard output.\n"
            "Ctrl-C cancels the answer; the deployment goes on. Sampling options that are\n"
            "not given are the model's defaults; a temperature of 0 switches those off.",
            argc, argv, 0, 1, &n_positional, exit_code))
        return false;
    if (!n_positional && !(a->chat && a->chat_options.messages_file)) {
        cli_complain("run: PROMPT is missing");
        return false;
    }
    a->prompt = n_positional ? argv[1] : "";
    if (!literal && misplaced_model_file("run", a->prompt)) {
        *exit_code = CLI_USAGE;
        return false;
    }
    return true;
}

static bool check(const struct run_arguments *a, const char *const several[5])
{
    static const char *const names[] = {"--stop", "--stop-token", "--bias", "--dry-breaker",
                                        "--choice"};
    for (int i = 0; i < 5; i++)
        if (several[i]) { /* take_repeated left it: it has no value */
            cli_complain("run: %s needs a value", names[i]);
            return false;
        }
    if (a->chat && (a->special || a->tokens)) {
        cli_complain("run: --chat takes PROMPT as plain text: leave out --%s",
                     a->special ? "special" : "tokens");
        return false;
    }
    const struct chat_options *o = &a->chat_options;
    if (!a->chat && (o->system || o->messages_file || o->template_file || o->kwargs)) {
        cli_complain("run: --system, --messages and --chat-template go with --chat");
        return false;
    }
    if (a->logprobs != UINT64_MAX && !a->json) {
        cli_complain("run: --logprobs has its place in --json: give both");
        return false;
    }
    return true;
}

static bool check_grammar(const struct run_arguments *a)
{
    if (a->grammar.grammar.kind == MOED_GRAMMAR_NONE || !a->ignore_end)
        return true;
    cli_complain("run: the answer ends where its grammar does: leave out --ignore-end");
    return false;
}

bool run_arguments_take(struct run_arguments *a, int argc, char **argv, int *exit_code)
{
    const char *several[5] = {NULL};
    *a = (struct run_arguments){
        .answers = 1, .logprobs = UINT64_MAX, .sampling = sampling_options_unset()};
    *exit_code = CLI_USAGE;
    if (!take_all_repeated(a, &argc, argv) || !parse(a, several, argc, argv, exit_code))
        return false;
    *exit_code = CLI_USAGE;
    return check(a, several) && make_lists(a) && check_grammar(a);
}

void run_arguments_apply(const struct run_arguments *a, struct run *run)
{
    struct moed_generate_options *o = &run->options;
    o->size = sizeof *o;
    run->deployment = a->name;
    run->n_answers = (unsigned)a->answers;
    run->chat = a->chat;
    run->chat_options = a->chat_options;
    run->json = a->json;
    run->stats = a->stats;
    run->filters = !a->json && !a->raw && isatty(STDOUT_FILENO);
    o->parse_special = a->special;
    o->special_text = a->show_special;
    o->ignore_end = a->ignore_end;
    o->max_tokens = (uint32_t)a->n;
    o->min_tokens = (uint32_t)a->min_tokens;
    o->progress = a->progress;
    o->priority = a->batch ? MOED_PRIORITY_BATCH : MOED_PRIORITY_INTERACTIVE;
    o->deadline_ms = (uint32_t)a->deadline_ms;
    o->logprobs = a->logprobs != UINT64_MAX;
    o->top_logprobs = o->logprobs ? (uint32_t)a->logprobs : 0;
    o->stop = a->stop_list;
    o->stop_count = a->stops.count;
    o->stop_tokens = a->stop_token_list;
    o->stop_token_count = a->stop_tokens.count;
    run->sampling = sampling_options_apply(&a->sampling);
    run->sampling.bias = a->bias_list;
    run->sampling.bias_count = a->biases.count;
    run->sampling.dry_breakers = a->breaker_list;
    run->sampling.dry_breaker_count = a->breakers.count;
    o->sampling = &run->sampling;
    o->grammar = &a->grammar.grammar;
}

void run_arguments_fini(struct run_arguments *a)
{
    free(a->stops.values);
    free(a->stop_tokens.values);
    free(a->biases.values);
    free(a->breakers.values);
    free(a->choices.values);
    grammar_options_fini(&a->grammar);
    free(a->stop_list);
    free(a->breaker_list);
    free(a->bias_list);
    free(a->stop_token_list);
}
