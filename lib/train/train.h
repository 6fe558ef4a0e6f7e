/* From a trace to what predictors are to know of its model: residual vectors (DALI), networks with a stride (ProMoE), LLaPor
 * with its layer groups (PreScope). docs/training.md says what the papers give, what was chosen, and what the choices are
 * worth. The same trace, options and seed give the same bytes, whatever the number of threads. */
#ifndef MOED_TRAIN_TRAIN_H
#define MOED_TRAIN_TRAIN_H

#include "sched/learned.h"
#include "trace/trace.h"
#include "train/groups.h"

enum { TRAIN_RESIDUAL = 1, TRAIN_MLP = 2, TRAIN_LLAPOR = 4, TRAIN_ALL = 7 };

struct train_options {
    uint32_t what;   /* bits; one that the trace has not enough for is an error */
    uint32_t epochs; /* 0: 30 */
    uint32_t threads;
    uint64_t seed;
    double
        seconds; /* of training networks, about; 0: no limit. Cut short, the bytes depend on the machine */
    uint32_t stride; /* of MLPs; 0: 2 */
    uint32_t hidden; /* values of an MLP; 0: by its layer's size */
    uint32_t
        components; /* of the PCA of input and output groups, the middle has twice as many; 0: by the model's width */
    /* for ablations: the other choice */
    bool random_start; /* networks do not begin as the gate of the layer that they predict */
    bool plain_loss;   /* LLaPor: cross-entropy alone */
    bool whiten;       /* its components have variance 1 each */
    bool one_group;    /* all layers are of the input group */
    /* Now and then, from the calling thread; in parts of the whole, done of total; false: stop, ERROR_CANCELLED. May be
     * NULL. */
    bool (*progress)(void *arg, const char *what, uint64_t done, uint64_t total);
    void *progress_arg;
};

/* Who is judged on the tokens held out. */
enum train_judged {
    JUDGED_NEXT_GATE, /* the layer's gate on the gate input of the layer before */
    JUDGED_FAR_GATE,  /* on that of two layers before: what the networks have to go by */
    JUDGED_RESIDUAL,
    JUDGED_MLP,
    JUDGED_LLAPOR,
};
enum { TRAIN_JUDGED = JUDGED_LLAPOR + 1 };

struct train_score {
    uint64_t n;    /* tokens; 0: not judged */
    double recall; /* of the activated experts, the share among the n_used most probable */
    double
        hot; /* of 32 tokens together: of the 4 experts predicted most, the share among the 6 activated most */
    double log_loss; /* mean over tokens and experts, nats; see judge.h */
};

struct train_report {
    uint32_t n_layers, first_layer;
    uint32_t n_train, n_check, n_held; /* tokens */
    struct train_score *scores;        /* [n_layers][TRAIN_JUDGED], of the predicted layer */
    enum layer_group *groups;          /* [n_layers] */
    double *similarity, *skew;         /* [n_layers]; groups.h */
    double kept[LAYER_GROUPS];         /* by PCA, of the variance */
    uint32_t components[LAYER_GROUPS]; /* 0: no network is of it */
    uint64_t mlp_bytes, llapor_bytes;  /* of the largest network */
};

struct train_result {
    unsigned char *bytes; /* a learned file */
    size_t n;
    struct train_report report;
};

enum error_code train_run(const struct trace *trace, const struct train_options *options,
                          struct train_result *out, struct error *e);
void train_result_free(struct train_result *r);

#endif
