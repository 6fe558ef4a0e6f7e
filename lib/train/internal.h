/* What the files of training share: one training under way. */
#ifndef MOED_TRAIN_INTERNAL_H
#define MOED_TRAIN_INTERNAL_H

#include "train/image.h"
#include "train/samples.h"
#include "train/train.h"

#include <stdatomic.h>

enum { TRAIN_PIECE = 512 }; /* rows that are read together */

struct training {
    const struct trace *trace;
    const struct trace_shape *shape;
    struct train_options options;
    struct samples samples;
    struct sample_facts facts;
    struct image image;
    struct sched_learned learned;  /* of the image, finished */
    enum layer_group *groups;      /* [n_layers] */
    uint32_t places[LAYER_GROUPS]; /* of a group in the file */
    uint32_t components[LAYER_GROUPS];
    struct pca pca[LAYER_GROUPS];
    struct train_report report;
    /* progress */
    const char *doing;
    _Atomic uint64_t done, networks_left;
    uint64_t total;
    _Atomic bool stop;
    double until_s; /* 0: no limit */
};

/* The network of a layer. */
/* The rows of a job: inputs, choices, and what they are of. */
struct train_job {
    struct training *t;
    uint32_t layer, from; /* predicted from */
    float *x;
    uint32_t *active;
    double until_s; /* this network's share of the time; 0: no limit */
};

/* Trains it, into its place in the image. The rows stay for the caller to free. */
enum error_code train_mlp(struct train_job *j, struct error *e);
enum error_code train_llapor(struct train_job *j, struct error *e);

struct net_shape train_mlp_shape(const struct training *t);
struct net_shape train_llapor_shape(const struct training *t, uint32_t layer);

static inline uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

#endif
