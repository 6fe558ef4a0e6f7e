/* Expert maps; see map_store.h.
 *
 * Rows lie by layer, then by map, so a layer's pass reads them one after the other. The length of
 * a trajectory so far is a sum of the stored rows' lengths. All tokens of an iteration see the
 * same layers, so they share the maps' sums. */
#include "base/arrays.h"
#include "sched/predict/map_store.h"

#include "sched/predict/eight_bits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct row_size {
    float scale, square; /* square: sum of (row[e] * scale)^2 */
};

struct map_store {
    struct map_store_shape shape;
    uint32_t n_maps;
    uint64_t iteration;
    /* the maps */
    int8_t *rows;           /* [n_layers][capacity][n_experts] */
    struct row_size *sizes; /* [n_layers][capacity] */
    int8_t *embeddings;     /* [capacity][d_model] */
    float *lengths;         /* [capacity]: of the embedding as it is kept */
    uint64_t *stored;       /* [capacity]: iteration */
    /* the iteration: the same for each token, and its products with each map */
    uint32_t n_tokens, n_layers_shown, next_layer;
    bool has_embedding;
    int8_t *own_rows;           /* [max_tokens][n_layers][n_experts] */
    struct row_size *own_sizes; /* [max_tokens][n_layers] */
    int8_t *own_embedding;      /* [max_tokens][d_model] */
    float *own_length;          /* [max_tokens] */
    float *own_square;          /* [max_tokens]: of the layers shown */
    float *semantic;            /* [max_tokens][capacity]: cosines */
    float *product;             /* [max_tokens][capacity]: of the layers shown */
    float *square;              /* [capacity]: of the layers shown */
    int32_t *dots;              /* [capacity]: scratch of one row */
};

size_t map_store_bytes_per_map(const struct map_store_shape *s)
{
    return (size_t)s->n_layers * (s->n_experts + sizeof(struct row_size)) + s->d_model +
           sizeof(float) + sizeof(uint64_t);
}

struct map_store *map_store_new(const struct map_store_shape *shape)
{
    struct map_store *s, new = {.shape = *shape};
    size_t layers = shape->n_layers, n = shape->capacity, t = shape->max_tokens;
    if (!ARRAYS_NEW(ARRAY(s, 1), ARRAY(new.rows, layers * n * shape->n_experts),
                    ARRAY(new.sizes, layers * n), ARRAY(new.embeddings, n * shape->d_model),
                    ARRAY(new.lengths, n), ARRAY(new.stored, n),
                    ARRAY(new.own_rows, t * layers * shape->n_experts),
                    ARRAY(new.own_sizes, t * layers), ARRAY(new.own_embedding, t * shape->d_model),
                    ARRAY(new.own_length, t), ARRAY(new.own_square, t), ARRAY(new.semantic, t * n),
                    ARRAY(new.product, t * n), ARRAY(new.square, n), ARRAY(new.dots, n)))
        return NULL;
    *s = new;
    return s;
}

void map_store_free(struct map_store *s)
{
    free(s);
}

uint32_t map_store_count(const struct map_store *s)
{
    return s->n_maps;
}

/* ---- an iteration ---- */

static struct row_size keep_row(const float *gate, size_t n, int8_t *out)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += gate[i];
    float scale = eight_bits_round(gate, n, out);
    for (size_t i = 0; i < n; i++)
        out[i] = out[i] > 0 ? out[i] : 0; /* a probability has no sign */
    scale = sum > 0 && isfinite(sum) ? scale / sum : 0;
    if (scale == 0)
        memset(out, 0, n);
    return (struct row_size){scale, (float)eight_bits_dot(out, out, n) * scale * scale};
}

void map_store_begin(struct map_store *s, uint32_t n_tokens)
{
    s->iteration++;
    s->n_tokens = n_tokens < s->shape.max_tokens ? n_tokens : s->shape.max_tokens;
    s->n_layers_shown = s->next_layer = 0;
    s->has_embedding = false;
    memset(s->own_square, 0, s->n_tokens * sizeof *s->own_square);
    memset(s->product, 0, (size_t)s->n_tokens * s->shape.capacity * sizeof *s->product);
    memset(s->square, 0, s->n_maps * sizeof *s->square);
}

void map_store_embedding(struct map_store *s, const float *embedding)
{
    size_t d = s->shape.d_model;
    s->has_embedding = true;
    for (uint32_t t = 0; t < s->n_tokens; t++) {
        int8_t *own = s->own_embedding + t * d;
        float *semantic = s->semantic + (size_t)t * s->shape.capacity;
        eight_bits_round(embedding + t * d, d, own); /* the cosine does not depend on the scale */
        float length = s->own_length[t] = sqrtf((float)eight_bits_dot(own, own, d));
        eight_bits_dot_rows(own, s->embeddings, s->n_maps, d, s->dots);
        for (uint32_t m = 0; m < s->n_maps; m++) {
            float both = length * s->lengths[m];
            semantic[m] = both > 0 ? (float)s->dots[m] / both : 0;
        }
    }
}

/* Adds the products of one token's row of a layer with every map's. */
static void compare_row(struct map_store *s, uint32_t token, uint32_t layer)
{
    size_t n = s->shape.n_experts, place = (size_t)token * s->shape.n_layers + layer;
    const struct row_size *sizes = s->sizes + (size_t)layer * s->shape.capacity;
    float *product = s->product + (size_t)token * s->shape.capacity;
    float scale = s->own_sizes[place].scale;
    eight_bits_dot_rows(s->own_rows + place * n, s->rows + (size_t)layer * s->shape.capacity * n,
                        s->n_maps, n, s->dots);
    for (uint32_t m = 0; m < s->n_maps; m++)
        product[m] += (float)s->dots[m] * scale * sizes[m].scale;
    s->own_square[token] += s->own_sizes[place].square;
}

void map_store_layer(struct map_store *s, uint32_t layer, const float *gate)
{
    size_t n = s->shape.n_experts;
    if (layer < s->next_layer || layer >= s->shape.n_layers)
        return;
    const struct row_size *sizes = s->sizes + (size_t)layer * s->shape.capacity;
    for (uint32_t m = 0; m < s->n_maps; m++)
        s->square[m] += sizes[m].square;
    for (uint32_t t = 0; t < s->n_tokens; t++) {
        size_t place = (size_t)t * s->shape.n_layers + layer;
        s->own_sizes[place] = keep_row(gate + t * n, n, s->own_rows + place * n);
        compare_row(s, t, layer);
    }
    s->n_layers_shown++;
    s->next_layer = layer + 1;
}

/* ---- similarity to a map ---- */

double map_store_semantic(const struct map_store *s, uint32_t token, uint32_t map)
{
    return s->has_embedding ? s->semantic[(size_t)token * s->shape.capacity + map] : 0;
}

double map_store_trajectory(const struct map_store *s, uint32_t token, uint32_t map)
{
    double both = (double)s->own_square[token] * s->square[map];
    double product = s->product[(size_t)token * s->shape.capacity + map];
    return both > 0 ? product / sqrt(both) : 0;
}

typedef double likeness(const struct map_store *s, uint32_t token, uint32_t map);

static double redundancy(const struct map_store *s, uint32_t token, uint32_t map)
{
    double part = (double)s->shape.distance / s->shape.n_layers;
    return part * map_store_semantic(s, token, map) +
           (1 - part) * map_store_trajectory(s, token, map);
}

/* The map with the highest score, of equal ones the newest, among those of iterations before
 * `before`. */
static bool find(const struct map_store *s, likeness *like, uint32_t token, uint64_t before,
                 struct map_found *out)
{
    bool found = false;
    for (uint32_t m = 0; m < s->n_maps; m++) {
        if (s->stored[m] >= before)
            continue;
        double score = like(s, token, m);
        if (found && !(score > out->score) &&
            !(score == out->score && s->stored[m] > s->stored[out->map]))
            continue;
        *out = (struct map_found){m, score};
        found = true;
    }
    return found;
}

bool map_store_find_semantic(const struct map_store *s, uint32_t token, struct map_found *out)
{
    return token < s->n_tokens && s->has_embedding &&
           find(s, map_store_semantic, token, UINT64_MAX, out);
}

bool map_store_find_trajectory(const struct map_store *s, uint32_t token, struct map_found *out)
{
    return token < s->n_tokens && s->n_layers_shown &&
           find(s, map_store_trajectory, token, UINT64_MAX, out);
}

const int8_t *map_store_row(const struct map_store *s, uint32_t map, uint32_t layer, float *scale)
{
    size_t place = (size_t)layer * s->shape.capacity + map;
    *scale = s->sizes[place].scale;
    return s->rows + place * s->shape.n_experts;
}

/* ---- its end ---- */

static void put(struct map_store *s, uint32_t token, uint32_t map)
{
    const struct map_store_shape *h = &s->shape;
    size_t n = h->n_experts, d = h->d_model;
    for (uint32_t layer = 0; layer < h->n_layers; layer++) {
        size_t from = (size_t)token * h->n_layers + layer, to = (size_t)layer * h->capacity + map;
        memcpy(s->rows + to * n, s->own_rows + from * n, n);
        s->sizes[to] = s->own_sizes[from];
    }
    memcpy(s->embeddings + map * d, s->own_embedding + token * d, d);
    s->lengths[map] = s->own_length[token];
    s->stored[map] = s->iteration;
}

void map_store_end(struct map_store *s)
{
    bool complete = s->has_embedding && s->n_layers_shown == s->shape.n_layers;
    for (uint32_t t = 0; complete && t < s->n_tokens; t++) {
        struct map_found found = {0};
        if (s->n_maps < s->shape.capacity)
            put(s, t, s->n_maps++);
        else if (find(s, redundancy, t, s->iteration, &found))
            put(s, t, found.map);
    }
    s->n_tokens = s->n_layers_shown = 0;
    s->has_embedding = false;
}
