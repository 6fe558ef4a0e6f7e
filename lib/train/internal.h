/* Private to lib/train: one training run.
 *
 *     train.c -> networks.c (one network), lay_out.c (sizes, places), keep.c (parts of an earlier
 *                file), judge.c */
#ifndef MOED_TRAIN_INTERNAL_H
#define MOED_TRAIN_INTERNAL_H

#include "train/image.h"
#include "train/samples.h"
#include "train/train.h"

#include <stdatomic.h>

enum { TRAIN_CHUNK = 512 }; /* rows read at a time */

struct training {
    const struct trace *trace;
    const struct trace_shape *shape;
    struct train_options options;
    struct samples samples;
    struct sample_facts facts;
    struct image image;
    struct trained_predictors predictors; /* of the image, finished */
    enum layer_group *groups;             /* [n_layers] */
    uint32_t places[LAYER_GROUPS];        /* index of the group in the file */
    uint32_t components[LAYER_GROUPS];
    struct pca pca[LAYER_GROUPS];
    struct train_report report;
    /* progress */
    const char *doing;
    _Atomic uint64_t done, networks_left;
    uint64_t total;
    bool *trained; /* [2 layers with experts]: by the number of the job, networks in the image */
    _Atomic bool stop;
    double until_s; /* 0: no limit */
};

/* The training of one layer's network. */
struct train_job {
    struct training *t;
    uint32_t layer, from;    /* the predicted layer, the layer whose gate input it reads */
    float *x;                /* [n_train + n_check][n_in]: inputs */
    uint32_t *active;        /* [n_train + n_check][n_used]: activated experts */
    double began_s, until_s; /* this network's share of the time; until_s 0: no limit */
    bool stopped;            /* before its training was done; nothing is in the image */
};

/* keep.c: copies the parts of options.keep that this run does not train. keep_header: before
 * image_init; keep_places, before image_allocate; keep_bodies, after it. */
void keep_header(const struct training *t, struct trained_header *h);
void keep_places(struct training *t);
void keep_bodies(struct training *t);

/* networks.c: train the network into its place in t->image, unless it is stopped. The caller frees
 * j->x and j->active. */
enum error_code train_mlp(struct train_job *j, struct error *e);
enum error_code train_llapor(struct train_job *j, struct error *e);

/* lay_out.c: the sizes of the networks. */
struct net_shape train_mlp_shape(const struct training *t);
struct net_shape train_llapor_shape(const struct training *t, uint32_t layer);
/* Gives every part of the trained predictors its place in t->image and allocates the image. */
enum error_code train_lay_out(struct training *t, struct error *e);

/* what: one of the TRAIN_ bits. */
static inline bool train_wants(const struct training *t, uint32_t what)
{
    return t->options.what & what;
}

static inline uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

#endif
