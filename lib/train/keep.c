/* Copies the parts of an earlier file that a run does not train; see internal.h. */
#include "train/internal.h"

#include <string.h>

/* The earlier file where it has something of this kind that this run does not train, else NULL. */
static const struct trained_predictors *kept(const struct training *t, uint32_t what)
{
    return train_wants(t, what) ? NULL : t->options.keep;
}

void keep_header(const struct training *t, struct trained_header *h)
{
    if (kept(t, TRAIN_MLP))
        h->stride = t->options.keep->header.stride;
    if (kept(t, TRAIN_LLAPOR))
        h->n_groups = t->options.keep->header.n_groups;
}

static struct net_shape shape_of(const struct trained_network *n, uint32_t n_out)
{
    return (struct net_shape){.n_in = n->n_in,
                              .n_hidden = n->n_hidden,
                              .n_out = n_out,
                              .n_gated = n->n_gated,
                              .activation = (enum trained_activation)n->activation};
}

static void place(struct training *t, struct trained_network *to,
                  const struct trained_network *from)
{
    struct net_shape shape = shape_of(from, t->shape->n_experts);
    if (from->offset)
        image_place_network(&t->image, to, &shape);
}

static void place_mtp(struct training *t, const struct trained_predictors *k)
{
    uint32_t layers = t->shape->n_layers - t->shape->first_layer;
    struct net_shape shape =
        shape_of((const void *)(k->bytes + k->header.mtp), layers * t->shape->n_experts);
    image_place_mtp(&t->image, &shape);
}

void keep_places(struct training *t)
{
    struct image *m = &t->image;
    const struct trained_predictors *k;
    for (uint32_t i = t->shape->first_layer; i < t->shape->n_layers; i++) {
        if ((k = kept(t, TRAIN_RESIDUAL)) && k->layers[i].residual)
            image_place_residual(m, i);
        if ((k = kept(t, TRAIN_MLP)))
            place(t, &m->layers[i].mlp, &k->layers[i].mlp);
        if ((k = kept(t, TRAIN_LLAPOR))) {
            place(t, &m->layers[i].llapor, &k->layers[i].llapor);
            m->layers[i].group = k->layers[i].group;
        }
    }
    for (uint32_t g = 0; (k = kept(t, TRAIN_LLAPOR)) && g < k->header.n_groups; g++)
        image_place_group(m, g, k->groups[g].n_components);
    if ((k = t->options.keep) && k->header.mtp)
        place_mtp(t, k);
}

static void copy(struct image *m, const struct trained_network *to,
                 const struct trained_predictors *k, const struct trained_network *from,
                 uint32_t n_out)
{
    struct net_shape shape = shape_of(from, n_out);
    if (from->offset)
        memcpy(m->bytes + to->offset, k->bytes + from->offset, image_network_bytes(&shape));
}

void keep_bodies(struct training *t)
{
    struct image *m = &t->image;
    uint32_t d = t->shape->d_model, n = t->shape->n_experts;
    const struct trained_predictors *k;
    for (uint32_t i = t->shape->first_layer; i < t->shape->n_layers; i++) {
        if ((k = kept(t, TRAIN_RESIDUAL)) && k->layers[i].residual)
            image_fill_residual(m, i, trained_residual(k, i));
        if ((k = kept(t, TRAIN_MLP)))
            copy(m, &m->layers[i].mlp, k, &k->layers[i].mlp, n);
        if ((k = kept(t, TRAIN_LLAPOR)))
            copy(m, &m->layers[i].llapor, k, &k->layers[i].llapor, n);
    }
    for (uint32_t g = 0; (k = kept(t, TRAIN_LLAPOR)) && g < k->header.n_groups; g++)
        memcpy(m->bytes + m->groups[g].offset, k->bytes + k->groups[g].offset,
               image_group_bytes(d, k->groups[g].n_components));
    if ((k = t->options.keep) && k->header.mtp)
        copy(m, &m->mtp, k, (const void *)(k->bytes + k->header.mtp),
             (t->shape->n_layers - t->shape->first_layer) * n);
}
