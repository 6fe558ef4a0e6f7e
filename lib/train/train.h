/* Trains the predictors of a model from a routing trace: residual vectors (DALI), networks with a
 * stride (ProMoE), and LLaPor with its layer groups (PreScope). docs/design/training.md lists what
 * the papers give and the choices made here. The same trace, options and seed give the same bytes,
 * whatever the number of threads. */
#ifndef MOED_TRAIN_TRAIN_H
#define MOED_TRAIN_TRAIN_H

#include "sched/predict/trained.h"
#include "trace/trace.h"
#include "train/groups.h"

enum { TRAIN_RESIDUAL = 1, TRAIN_MLP = 2, TRAIN_LLAPOR = 4, TRAIN_ALL = 7 };

struct train_options {
    uint32_t what; /* TRAIN_ bits; it is an error if the trace lacks the data for one */
    /* An earlier file of the same model, checked; its parts that this run does not train go to the
     * new file. NULL: none. */
    const struct trained_predictors *keep;
    /* Of the model that the file is for, where it is another file than the one profiled: its name,
     * and trained_hash of its routers. NULL, 0: the trace's. */
    const char *model;
    uint64_t routers;
    uint32_t epochs; /* 0: 30 */
    uint32_t threads;
    uint64_t seed;
    double seconds;      /* approximate limit for training networks; 0: none. With a limit that
                            comes before the epochs the bytes depend on the machine */
    uint32_t stride;     /* of MLPs; 0: 2 */
    uint32_t hidden;     /* hidden values of an MLP; 0: by its layer's size */
    uint32_t components; /* of the PCA of input and output groups; the middle group has twice as
                            many; 0: by the model's width */
    /* for ablations: the other choice */
    bool random_start; /* networks do not begin as the gate of the predicted layer */
    bool plain_loss;   /* LLaPor: only cross-entropy */
    bool whiten;       /* LLaPor: each component has variance 1 */
    bool one_group;    /* all layers are in the input group */
    /* Called several times a second from the calling thread, with the progress `done` of `total`.
     * False: stop. Where networks are trained by then the file has those, and the report is
     * `interrupted`; otherwise ERROR_CANCELLED. May be NULL. */
    bool (*progress)(void *arg, const char *what, uint64_t done, uint64_t total);
    void *progress_arg;
};

/* The predictors that are judged on the held-out tokens. */
enum train_judged {
    JUDGED_NEXT_GATE, /* the layer's gate on the gate input of the previous layer */
    JUDGED_FAR_GATE,  /* the same on that of two layers before, which the networks read too */
    JUDGED_RESIDUAL,
    JUDGED_MLP,
    JUDGED_LLAPOR,
};
enum { TRAIN_JUDGED = JUDGED_LLAPOR + 1 };

struct train_score {
    uint64_t n;    /* tokens; 0: not judged */
    double recall; /* the share of activated experts that are among the n_used most probable */
    double hot;    /* over windows of 32 tokens: the share of the 4 experts predicted most that are
                      among the 6 activated most; NAN: there is no window */
    double log_loss; /* mean over tokens and experts, in nats; see judge.h */
};

struct train_report {
    uint32_t n_layers, first_layer;
    uint32_t n_train, n_check, n_held; /* tokens */
    struct train_score *scores;        /* [n_layers][TRAIN_JUDGED], of the predicted layer */
    enum layer_group *groups;          /* [n_layers] */
    double *similarity, *skew;         /* [n_layers]; groups.h */
    double kept[LAYER_GROUPS];         /* the share of the variance that the PCA keeps */
    uint32_t components[LAYER_GROUPS]; /* 0: no network is in the group */
    uint64_t mlp_bytes, llapor_bytes;  /* of the largest network */
    uint32_t n_networks, n_trained;    /* to train, in the file */
    bool interrupted;                  /* not all are trained, and nothing is judged */
};

struct train_result {
    unsigned char *bytes; /* the file of trained predictors */
    size_t n;
    struct train_report report;
};

/* What trained_fits compares, of a trace or of a model file (trace_model.h). layers: [n_layers].
 * The name is the shape's. Without TRACE_ROUTERS: routers 0. */
struct trained_model train_model_of(const struct trace_shape *s, const struct trace_layer *layers);

enum error_code train_run(const struct trace *trace, const struct train_options *options,
                          struct train_result *out, struct error *e);
/* The most memory that a thread of this training uses at a time, approximately. It may be
 * allocated for each thread. */
uint64_t train_thread_bytes(const struct trace *trace, const struct train_options *options);
/* As many of the wanted threads as the available memory holds; at least 1. */
uint32_t train_threads(uint32_t wanted, uint64_t thread_bytes, uint64_t available);

void train_result_free(struct train_result *r);

#endif
