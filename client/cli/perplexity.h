/* moed perplexity: what perplexity.c (measures), perplexity_pairs.c (compares) and
 * perplexity_report.c (prints) share. */
#ifndef MOED_CLI_PERPLEXITY_H
#define MOED_CLI_PERPLEXITY_H

#include "client/cli/baseline.h"
#include "client/cli/comparison.h"
#include "client/cli/estimate.h"
#include "client/cli/model_text.h"
#include "client/cli/progress.h"
#include "client/cli/serving.h"
#include "client/cli/windows.h"

struct perplexity {
    /* the options */
    const char *name, *file; /* deployment; text */
    uint64_t context, stride, chunks;
    bool special;               /* parse special tokens' texts */
    bool ids_given;             /* the file is a list of ids */
    bool llama;                 /* llama-perplexity's windows */
    const char *save, *against; /* baselines; NULL: none */
    bool json;
    char model[PATH_MAX]; /* the file */

    /* the text and how it is cut */
    struct model_text text;
    uint64_t text_hash; /* checksum64 of the file */
    struct token_list tokens;
    struct window_plan plan;
    bool replaces_first;                /* each window's first token by a begin token */
    size_t n_windows;                   /* at most --chunks */
    uint64_t n_scored;                  /* tokens that they score */
    uint32_t *ids;                      /* [context]: of one window */
    size_t window_tokens, window_first; /* of that window; those from window_first on are scored */

    struct serving serving;

    /* the result so far */
    struct estimate estimate;
    uint64_t bytes, window_bytes; /* of scored tokens: in finished windows, in the current one */
    double seconds;               /* of computing */
    /* with a baseline */
    struct baseline baseline;
    uint32_t top;                               /* most probable tokens at each place */
    struct baseline_scores scores, base_scores; /* of one window */
    struct comparison comparison;
    struct progress progress;
};

/* Where a baseline is written or read; else they do nothing. False: it has complained. */
bool perplexity_pairs_open(struct perplexity *p);   /* the deployment is known */
bool perplexity_pairs_window(struct perplexity *p); /* the current one is complete */
bool perplexity_pairs_finish(struct perplexity *p);
/* False: the worker gave something else than it was asked for. */
bool perplexity_pairs_take(struct perplexity *p, const struct moed_event *event);
void perplexity_pairs_close(struct perplexity *p);

void perplexity_show_progress(struct perplexity *p);
/* Prints the result so far on standard output. Returns an exit code. */
int perplexity_report(struct perplexity *p);

#endif
