/* Future activations; see future.h. */
#include "bench/replay/future.h"

#include "sched/cache/heap.h"

#include <stdlib.h>
#include <string.h>

/* Calls `visit` once for each expert that a layer of a step activates. False: no memory. */
typedef void visit_use(void *arg, uint64_t step, uint32_t layer, uint32_t expert, bool decoding);

static bool visit_uses(const struct trace *trace, const struct steps_options *options,
                       visit_use *visit, void *arg)
{
    const struct trace_shape *shape = trace_shape(trace);
    struct steps steps = {0};
    uint64_t *seen = calloc(shape->n_experts, sizeof *seen), stamp = 0;
    uint32_t *selected = calloc(shape->n_used, sizeof *selected);
    bool ok = steps_init(&steps, trace, options) && seen && selected;
    bool decoding;
    uint32_t n;
    for (uint64_t step = 1; ok && (n = steps_next(&steps, &decoding)); step++)
        for (uint32_t layer = shape->first_layer; layer < shape->n_layers; layer++) {
            stamp++;
            for (uint32_t t = 0; t < n; t++) {
                trace_selected(trace, steps.tokens[t].sequence, steps.tokens[t].token, layer,
                               selected);
                for (uint32_t k = 0; k < shape->n_used; k++)
                    if (seen[selected[k]] != stamp) {
                        seen[selected[k]] = stamp;
                        visit(arg, step, layer, selected[k], decoding);
                    }
            }
        }
    steps_fini(&steps);
    free(seen);
    free(selected);
    return ok;
}

static void count_use(void *arg, uint64_t step, uint32_t layer, uint32_t expert, bool decoding)
{
    struct future *f = arg;
    f->first[(size_t)layer * f->n_experts + expert + 1]++;
}

static void note_use(void *arg, uint64_t step, uint32_t layer, uint32_t expert, bool decoding)
{
    struct future *f = arg;
    f->times[f->at[(size_t)layer * f->n_experts + expert]++] = step * f->n_layers + layer;
}

void future_rewind(struct future *f)
{
    size_t n = (size_t)f->n_layers * f->n_experts;
    f->now = 0;
    memcpy(f->at, f->first, n * sizeof *f->at);
}

bool future_init(struct future *f, const struct trace *trace, const struct steps_options *options)
{
    const struct trace_shape *shape = trace_shape(trace);
    f->n_layers = shape->n_layers;
    f->n_experts = shape->n_experts;
    size_t n = (size_t)f->n_layers * f->n_experts;
    f->first = calloc(n + 1, sizeof *f->first);
    f->at = calloc(n, sizeof *f->at);
    if (!f->first || !f->at || !visit_uses(trace, options, count_use, f))
        return false;
    for (size_t i = 0; i < n; i++)
        f->first[i + 1] += f->first[i];
    f->times = calloc(f->first[n] + 1, sizeof *f->times);
    if (!f->times)
        return false;
    future_rewind(f);
    bool ok = visit_uses(trace, options, note_use, f);
    future_rewind(f);
    return ok;
}

void future_fini(struct future *f)
{
    free(f->first);
    free(f->at);
    free(f->times);
}

uint64_t future_next_use(struct future *f, uint32_t layer, uint32_t expert, bool after)
{
    size_t i = (size_t)layer * f->n_experts + expert;
    while (f->at[i] < f->first[i + 1] && f->times[f->at[i]] < f->now)
        f->at[i]++;
    uint64_t at = f->at[i];
    if (after && at < f->first[i + 1] && f->times[at] == f->now)
        at++;
    return at < f->first[i + 1] ? f->times[at] : UINT64_MAX;
}

/* Belady's rule with bypass. A heap contains the cached slabs; its first one has the most distant
 * next use. Prompts do not count as uses, but their copies are free. A layer needs all its experts
 * at once: its hits are counted before one of them may replace another. */
struct oracle {
    struct future *future;
    struct heap heap;
    double *next;     /* [slabs] */
    uint32_t *missed; /* [n_experts] slabs that missed in the layer under way */
    uint32_t n_missed;
    uint64_t layer_time; /* of the layer under way */
    uint64_t capacity, misses, uses;
    bool refill; /* a prompt was the last step */
};

/* slab is not in the heap; o->next[slab] is set. */
static void keep_sooner(struct oracle *o, uint32_t slab)
{
    if (o->heap.n < o->capacity) {
        heap_insert(&o->heap, slab);
    } else if (o->heap.n && o->next[o->heap.items[0]] > o->next[slab]) {
        heap_remove(&o->heap, o->heap.items[0]);
        heap_insert(&o->heap, slab);
    }
}

static void refill(struct oracle *o)
{
    struct future *f = o->future;
    for (uint32_t layer = 0; layer < f->n_layers; layer++)
        for (uint32_t expert = 0; expert < f->n_experts; expert++)
            o->next[layer * f->n_experts + expert] =
                (double)future_next_use(f, layer, expert, false);
    heap_rebuild(&o->heap);
    for (uint32_t slab = 0; slab < f->n_layers * f->n_experts; slab++)
        if (!heap_has(&o->heap, slab))
            keep_sooner(o, slab);
    o->refill = false;
}

static void end_layer(struct oracle *o)
{
    for (uint32_t i = 0; i < o->n_missed; i++)
        keep_sooner(o, o->missed[i]);
    o->n_missed = 0;
}

static void oracle_use(void *arg, uint64_t step, uint32_t layer, uint32_t expert, bool decoding)
{
    struct oracle *o = arg;
    uint32_t slab = layer * o->future->n_experts + expert;
    uint64_t time = step * o->future->n_layers + layer;
    if (time != o->layer_time)
        end_layer(o);
    o->layer_time = time;
    if (!decoding) {
        o->refill = true;
        return;
    }
    if (o->refill) {
        future_advance(o->future, step, 0);
        refill(o);
    }
    future_advance(o->future, step, layer);
    bool hit = heap_has(&o->heap, slab);
    o->uses++;
    o->misses += !hit;
    o->next[slab] = (double)future_next_use(o->future, layer, expert, true);
    if (hit)
        heap_moved(&o->heap, slab);
    else
        o->missed[o->n_missed++] = slab;
}

bool future_least_misses(struct future *f, const struct trace *trace,
                         const struct steps_options *options, uint64_t capacity, uint64_t *misses,
                         uint64_t *uses)
{
    uint32_t n = f->n_layers * f->n_experts;
    struct oracle o = {.future = f,
                       .capacity = capacity,
                       .next = calloc(n, sizeof *o.next),
                       .missed = calloc(f->n_experts, sizeof *o.missed)};
    bool ok = o.next && o.missed && heap_init(&o.heap, o.next, n, true);
    future_rewind(f);
    ok = ok && visit_uses(trace, options, oracle_use, &o);
    future_rewind(f);
    heap_fini(&o.heap);
    free(o.next);
    free(o.missed);
    *misses = o.misses;
    *uses = o.uses;
    return ok;
}
