/* A learned file while it is made: all places are laid out first, then filled, each by whoever has its content. */
#ifndef MOED_TRAIN_IMAGE_H
#define MOED_TRAIN_IMAGE_H

#include "train/net.h"
#include "train/pca.h"

struct image {
    struct learned_header header;
    struct learned_layer *layers; /* [n_layers], copied into bytes by image_allocate */
    struct learned_group *groups; /* [n_groups] */
    uint64_t end;                 /* of what is laid out */
    unsigned char *bytes;         /* [end] */
};

/* header: all but the offsets and sums; a place for activations is made, too. False: no memory. */
bool image_init(struct image *m, const struct learned_header *header);
void image_free(struct image *m); /* takes a zeroed one */

/* Places, before image_allocate. */
void image_place_residual(struct image *m, uint32_t layer);
void image_place_network(struct image *m, struct learned_network *n, const struct net_shape *shape);
void image_place_group(struct image *m, uint32_t group, uint32_t n_components);
bool image_allocate(struct image *m); /* false: no memory */

/* Contents, after it. */
void image_fill_activations(struct image *m, const uint64_t *counts); /* [n_layers][n_experts] */
void image_fill_residual(struct image *m, uint32_t layer, const float *residual);
void image_fill_network(struct image *m, const struct learned_network *n, const struct net *net);
void image_fill_group(struct image *m, uint32_t group, const struct pca *pca);
void image_finish(struct image *m); /* the checksum */

#endif
