/* Makes the file of trained predictors; see image.h. */
#include "train/image.h"
#include "train/half.h"

#include "base/arrays.h"
#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

static uint64_t place(struct image *m, uint64_t bytes)
{
    uint64_t at = round_up(m->end, TRAINED_ALIGN);
    m->end = at + bytes;
    return at;
}

bool image_init(struct image *m, const struct trained_header *header)
{
    *m = (struct image){.header = *header, .end = sizeof *header};
    m->memory = ARRAYS_NEW(ARRAY(m->layers, header->n_layers), ARRAY(m->groups, header->n_groups));
    m->header.layers = place(m, header->n_layers * sizeof *m->layers);
    if (header->n_groups)
        m->header.groups = place(m, header->n_groups * sizeof *m->groups);
    m->header.activations =
        place(m, (uint64_t)header->n_layers * header->n_experts * sizeof(uint32_t));
    return m->memory != NULL;
}

void image_free(struct image *m)
{
    free(m->memory);
    free(m->bytes);
    *m = (struct image){0};
}

void image_place_residual(struct image *m, uint32_t layer)
{
    m->layers[layer].residual = place(m, m->header.d_model * sizeof(float));
}

uint64_t image_network_bytes(const struct net_shape *shape)
{
    struct net_parts p = net_parts(shape);
    return p.n_biases * 4 + (p.n - p.n_biases) * 2;
}

uint64_t image_group_bytes(uint32_t d_model, uint32_t n_components)
{
    return n_components * sizeof(float) + (uint64_t)d_model * n_components * sizeof(uint16_t);
}

void image_place_network(struct image *m, struct trained_network *n, const struct net_shape *shape)
{
    *n =
        (struct trained_network){shape->n_in, shape->n_hidden, shape->n_gated,
                                 (uint32_t)shape->activation, place(m, image_network_bytes(shape))};
}

void image_place_mtp(struct image *m, const struct net_shape *shape)
{
    m->header.mtp = place(m, sizeof m->mtp);
    image_place_network(m, &m->mtp, shape);
}

void image_place_group(struct image *m, uint32_t group, uint32_t n_components)
{
    m->groups[group] = (struct trained_group){
        n_components, 0, place(m, image_group_bytes(m->header.d_model, n_components))};
}

bool image_allocate(struct image *m)
{
    m->header.bytes = m->end;
    m->bytes = aligned_alloc(TRAINED_ALIGN, round_up(m->end, TRAINED_ALIGN));
    if (!m->bytes)
        return false;
    memset(m->bytes, 0, m->end);
    if (m->header.n_groups)
        memcpy(m->bytes + m->header.groups, m->groups, m->header.n_groups * sizeof *m->groups);
    if (m->header.mtp)
        memcpy(m->bytes + m->header.mtp, &m->mtp, sizeof m->mtp);
    return true;
}

static void fill_halves(unsigned char *at, const float *w, size_t n)
{
    uint16_t *halves = (uint16_t *)at;
    for (size_t i = 0; i < n; i++)
        halves[i] = half_of(w[i]);
}

void image_fill_activations(struct image *m, const uint64_t *counts)
{
    uint32_t *at = (uint32_t *)(m->bytes + m->header.activations);
    for (size_t i = 0; i < (size_t)m->header.n_layers * m->header.n_experts; i++)
        at[i] = counts[i] < UINT32_MAX ? (uint32_t)counts[i] : UINT32_MAX;
}

void image_fill_residual(struct image *m, uint32_t layer, const float *residual)
{
    memcpy(m->bytes + m->layers[layer].residual, residual, m->header.d_model * sizeof *residual);
}

void image_fill_network(struct image *m, const struct trained_network *n, const struct net *net)
{
    const struct net_parts *p = &net->parts;
    unsigned char *at = m->bytes + n->offset;
    memcpy(at, net->w, p->n_biases * sizeof *net->w);
    fill_halves(at + p->n_biases * sizeof *net->w, net->w + p->n_biases, p->n - p->n_biases);
}

void image_fill_mtp(struct image *m, const struct net *net)
{
    image_fill_network(m, &m->mtp, net);
}

void image_fill_group(struct image *m, uint32_t group, const struct pca *pca)
{
    unsigned char *at = m->bytes + m->groups[group].offset;
    memcpy(at, pca->bias, pca->n * sizeof *pca->bias);
    fill_halves(at + pca->n * sizeof *pca->bias, pca->basis, (size_t)pca->d * pca->n);
}

void image_finish(struct image *m)
{
    memcpy(m->bytes + m->header.layers, m->layers, m->header.n_layers * sizeof *m->layers);
    m->header.checksum = trained_hash(0, m->bytes + sizeof m->header, m->end - sizeof m->header);
    memcpy(m->bytes, &m->header, sizeof m->header);
}
