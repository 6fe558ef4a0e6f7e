/* moed-replay --synthesize: writes a synthetic trace. */
#include "bench/replay/commands.h"
#include "bench/replay/synthesize.h"

#include "daemon/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct request {
    struct synthesis of;
    const char *like, *out;
    bool synthesize;
};

enum { N_OPTIONS = 25 };

static void list_options(struct request *r, struct option_spec options[N_OPTIONS])
{
    struct synthesis *s = &r->of;
    const struct option_spec table[] = {
        {"synthesize", OPTION_BOOL, &r->synthesize, 0, 0, NULL, "write a synthetic trace"},
        {"o", OPTION_STRING, &r->out, 0, 0, "TRACE", "the file to write"},
        {"like", OPTION_STRING, &r->like, 0, 0, "MODEL", "shape and bytes of a published model"},
        {"tokens", OPTION_UINT, &s->n_tokens, 0, 0, "T", "tokens of the trace"},
        {"seed", OPTION_UINT, &s->seed, 0, 0, "S", "seed of the random numbers"},
        {"layers", OPTION_UINT, &s->n_layers, 0, 0, "L", "layers of the model"},
        {"first-layer", OPTION_UINT, &s->first_layer, 0, 0, "N", "first layer with experts"},
        {"experts", OPTION_UINT, &s->n_experts, 0, 0, "N", "experts of a layer"},
        {"topk", OPTION_UINT, &s->n_used, 0, 0, "K", "experts a token activates"},
        {"sequence", OPTION_UINT, &s->sequence, 0, 0, "N", "tokens of a sequence"},
        {"first-sequence", OPTION_UINT, &s->first_sequence, 0, 0, "N",
         "number of the first sequence; another one gives other text"},
        {"prompt", OPTION_UINT, &s->prompt, 0, 0, "N",
         "tokens of each sequence that are its prompt"},
        {"hidden", OPTION_UINT, &s->d_model, 0, 0, "D", "dimensions of the gates' input"},
        {"skew", OPTION_FLOAT, &s->skew, 0, 0, "X", "unequal use of experts: 0 none, 1 strong"},
        {"locality", OPTION_FLOAT, &s->locality, 0, 0, "X",
         "correlation of a token with the next, -1 to 1"},
        {"predictability", OPTION_FLOAT, &s->predictability, 0, 0, "X",
         "correlation of a layer with the next, 0 to 1"},
        {"topics", OPTION_UINT, &s->topics, 0, 0, "N", "number of topics; each sequence has one"},
        {"topic-strength", OPTION_FLOAT, &s->topic_strength, 0, 0, "X",
         "share of the topic in what gates read, 0 to 1"},
        {"drift", OPTION_FLOAT, &s->drift, 0, 0, "X",
         "change of the gates' input from layer to layer"},
        {"segment-bytes", OPTION_UINT, &s->segment_bytes, 0, 0, "B", "bytes of a segment"},
        {"segments", OPTION_UINT, &s->n_segments, 0, 0, "S", "segments of an expert"},
        {"dense-bytes", OPTION_UINT, &s->dense_bytes, 0, 0, "B",
         "bytes of weights that every token reads"},
        {0},
    };
    _Static_assert(sizeof table / sizeof *table <= N_OPTIONS, "space for all options");
    memcpy(options, table, sizeof table);
}

/* --like comes first, so that other options override it. */
static enum error_code apply_like(struct request *r, int argc, char **argv, struct error *e)
{
    struct request first = *r;
    struct option_spec options[N_OPTIONS];
    char **copy = calloc((size_t)argc + 1, sizeof *copy);
    if (!copy)
        return error_set(e, ERROR_MEMORY, "out of memory");
    memcpy(copy, argv, (size_t)argc * sizeof *copy);
    list_options(&first, options);
    enum error_code code = options_parse(options, argc, copy, NULL, e);
    free(copy);
    if (!code && first.like && !synthesis_like(first.like, &r->of))
        code = error_set(e, ERROR_USAGE, "--like: there is no model \"%.60s\"; allowed: %s",
                         first.like, synthesis_models());
    return code;
}

int command_synthesize(int argc, char **argv)
{
    struct request r = {.of = synthesis_default()};
    struct option_spec options[N_OPTIONS];
    struct error e = {0};
    list_options(&r, options);
    if (options_wants_help(argc, argv)) {
        options_print_help(options, "moed-replay", "--synthesize [OPTION]... -o TRACE",
                           "Writes a synthetic routing trace of any shape.");
        printf("\nmodels for --like: %s\n", synthesis_models());
        return 0;
    }
    enum error_code code = apply_like(&r, argc, argv, &e);
    if (!code)
        code = options_parse(options, argc, argv, NULL, &e);
    if (!code && !r.out)
        code = error_set(&e, ERROR_USAGE, "-o TRACE is missing: the file to write");
    if (!code)
        code = synthesis_check(&r.of, &e);
    if (!code)
        code = synthesize(&r.of, r.out, &e);
    return code ? command_failed(&e) : 0;
}
