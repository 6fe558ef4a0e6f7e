/* The file of trained predictors under construction. First all places are laid out, then threads
 * fill them in any order. */
#ifndef MOED_TRAIN_IMAGE_H
#define MOED_TRAIN_IMAGE_H

#include "train/net.h"
#include "train/pca.h"

struct image {
    struct trained_header header;
    struct trained_layer *layers; /* [n_layers], copied into bytes by image_finish */
    struct trained_group *groups; /* [n_groups] */
    struct trained_network mtp;
    void *memory;         /* of layers and groups */
    uint64_t end;         /* of the places so far */
    unsigned char *bytes; /* [end] */
};

/* header: everything except offsets and checksum. Also makes the place of the activations. False:
 * no memory. */
bool image_init(struct image *m, const struct trained_header *header);
void image_free(struct image *m); /* takes a zeroed one */

/* Bytes of the bodies. */
uint64_t image_network_bytes(const struct net_shape *shape);
uint64_t image_group_bytes(uint32_t d_model, uint32_t n_components);

/* Places, before image_allocate. */
void image_place_residual(struct image *m, uint32_t layer);
void image_place_network(struct image *m, struct trained_network *n, const struct net_shape *shape);
void image_place_group(struct image *m, uint32_t group, uint32_t n_components);
/* image_fill_mtp is for tests: tools/train/mtp.py, which trains this network, writes its own. */
void image_place_mtp(struct image *m, const struct net_shape *shape);
bool image_allocate(struct image *m); /* false: no memory */

/* Contents, after it. */
void image_fill_activations(struct image *m, const uint64_t *counts); /* [n_layers][n_experts] */
void image_fill_residual(struct image *m, uint32_t layer, const float *residual);
void image_fill_network(struct image *m, const struct trained_network *n, const struct net *net);
void image_fill_group(struct image *m, uint32_t group, const struct pca *pca);
void image_fill_mtp(struct image *m, const struct net *net); /* for tests */
void image_finish(struct image *m);                          /* tables, header, checksum */

#endif
