/* What a predictor computed in a run; see recording.h. */
#include "bench/replay/recording.h"

#include <stdlib.h>
#include <string.h>

/* The grid's recordings have up to 100 MiB. */
#define MOST_BYTES ((size_t)512 << 20)

static void free_list(struct recorded_list *l)
{
    free(l->items);
    *l = (struct recorded_list){0};
}

void recording_clear(struct recording *r)
{
    free_list(&r->layers);
    free_list(&r->answers);
    free_list(&r->experts);
    free_list(&r->updated);
    free_list(&r->updates);
    free_list(&r->choices);
    free_list(&r->scores);
    *r = (struct recording){0};
}

static void *refuse(struct recording *r)
{
    recording_clear(r);
    r->state = RECORDING_REFUSED;
    return NULL;
}

/* Makes space for n more items of a list. */
static bool reserve(struct recording *r, struct recorded_list *l, size_t n, size_t size)
{
    if (l->n + n <= l->capacity)
        return true;
    size_t grown = 2 * l->capacity + n;
    void *memory = r->bytes + (grown - l->capacity) * size > MOST_BYTES
                       ? NULL
                       : realloc(l->items, grown * size);
    if (!memory)
        return false;
    r->bytes += (grown - l->capacity) * size;
    l->items = memory;
    l->capacity = grown;
    return true;
}

/* n more items of a list; NULL: refused. */
static void *append(struct recording *r, struct recorded_list *l, size_t n, size_t size)
{
    if (r->state == RECORDING_REFUSED)
        return NULL;
    if (!reserve(r, l, n, size))
        return refuse(r);
    void *first = (char *)l->items + l->n * size;
    l->n += n;
    return first;
}

void recording_add_layer(struct recording *r)
{
    struct recorded_layer *l = append(r, &r->layers, 1, sizeof *l);
    if (l)
        *l = (struct recorded_layer){.first_answer = r->answers.n, .first_update = r->updated.n};
}

static struct recorded_layer *last_layer(struct recording *r)
{
    return (struct recorded_layer *)r->layers.items + r->layers.n - 1;
}

void recording_answer(struct recording *r, const struct predict_target *target,
                      const struct predicted *experts, uint32_t n, uint32_t n_known)
{
    struct recorded_answer *a = append(r, &r->answers, 1, sizeof *a);
    struct predicted *list = append(r, &r->experts, n_known, sizeof *list);
    if (!list)
        return;
    *a = (struct recorded_answer){*target, n, n_known, r->experts.n - n_known};
    memcpy(list, experts, n_known * sizeof *list);
    last_layer(r)->n_answers++;
}

void recording_update(struct recording *r, uint32_t layer, const float *update, uint32_t n_floats)
{
    uint32_t *updated = append(r, &r->updated, 1, sizeof *updated);
    float *floats = append(r, &r->updates, n_floats, sizeof *floats);
    if (!floats)
        return;
    *updated = layer;
    memcpy(floats, update, n_floats * sizeof *floats);
    last_layer(r)->n_updates++;
}

void recording_end(struct recording *r)
{
    if (r->state == RECORDING_EMPTY)
        r->state = RECORDING_COMPLETE;
}

void recording_route(struct recording *r, size_t layer, const uint32_t *choice, uint32_t n_choices,
                     const float *scores, uint32_t n_scores)
{
    if (r->state == RECORDING_REFUSED || !reserve(r, &r->choices, n_choices, sizeof(uint16_t)) ||
        !reserve(r, &r->scores, n_scores, sizeof *scores))
        return;
    struct recorded_layer *l = (struct recorded_layer *)r->layers.items + layer;
    l->has_route = true;
    l->first_choice = r->choices.n;
    l->first_score = r->scores.n;
    uint16_t *to = (uint16_t *)r->choices.items + r->choices.n;
    for (uint32_t i = 0; i < n_choices; i++)
        to[i] = (uint16_t)choice[i];
    if (n_scores)
        memcpy((float *)r->scores.items + r->scores.n, scores, n_scores * sizeof *scores);
    r->choices.n += n_choices;
    r->scores.n += n_scores;
}
