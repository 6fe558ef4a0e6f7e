/* Layers that the device runs by itself; see experts_alone.h.
 *
 * The device's table of places is this worker's copy of the residency table: looked at again where memd has changed that,
 * within the epoch that lasts until the layers are done, so what it names stays where it is.
 *
 * How many layers are tried at once follows how it went: twice as many after a try that missed nothing, else as many as
 * were done. After none, the host plans, until some plans in a row have found everything there. Where not everything
 * has room they are a few at most: an epoch holds back memd, and with it other workers. */
#include "cuda_device.h"
#include "experts_internal.h"

#include "base/clock.h"
#include "sched/cache.h"

#include <stdlib.h>

/* So many layers in a row, and the next one's experts are likely to be there. */
#define LIKELY_LAYERS 4
#define FEW_LAYERS    8

struct experts_alone {
    const struct device_module *module; /* these two are the CUDA device's */
    struct device_stream *stream;
    struct device *device;
    const void **places;        /* [n_layers][n_experts][n_segments], pinned: as the device has it; */
    const void *const *there;   /* the same, on the device */
    uint64_t *seen;             /* [n_layers]: 1 + the residency table's changes when the layer was looked at; 0: never */
    uint32_t *missed, *was_missed; /* on the device; where it is fetched to, pinned */
    uint32_t *row_of;           /* on the device, [WORKER_ALONE_TOKENS * n_used] */
    void *tables;               /* on the device: experts_chosen's */
    uint32_t most;              /* layers to be tried at once; 0: none */
    uint32_t streak;            /* layers in a row whose plan had everything there */
    int assigner;               /* when that was counted */
    /* under way */
    bool running;
    uint32_t first, n_layers, n_tokens;
};

static size_t layer_places(const struct experts *x)
{
    return (size_t)x->n_experts * x->n_segments;
}

void experts_alone_free(struct experts *x)
{
    struct experts_alone *a = x->alone;
    if (!a)
        return;
    struct error e;
    a->module->finish(a->stream, &e); /* nothing that it reads is freed before */
    a->module->release_pinned(a->device, a->places);
    a->module->release_pinned(a->device, a->was_missed);
    a->module->release(a->device, (void *)(uintptr_t)a->there);
    a->module->release(a->device, a->missed);
    a->module->release(a->device, a->row_of);
    a->module->release(a->device, a->tables);
    free(a->seen);
    free(a);
    x->alone = NULL;
}

static enum error_code make_buffers(struct experts *x, struct experts_alone *a, struct error *e)
{
    struct cuda_device *cuda = x->options.cuda;
    uint32_t n_layers = x->memory->map.params.n_layers, rows = WORKER_ALONE_TOKENS * x->n_used;
    size_t places = n_layers * layer_places(x) * sizeof *a->places;
    enum error_code code = a->module->allocate_pinned(a->device, places, (void **)&a->places, e);
    if (!code)
        code = a->module->allocate_pinned(a->device, sizeof *a->missed, (void **)&a->was_missed, e);
    if (!code)
        code = cuda_device_allocate(cuda, CUDA_SCRATCH, places, (void **)(uintptr_t)&a->there, e);
    if (!code)
        code = cuda_device_allocate(cuda, CUDA_SCRATCH, sizeof *a->missed, (void **)&a->missed, e);
    if (!code)
        code = cuda_device_allocate(cuda, CUDA_SCRATCH, rows * sizeof *a->row_of, (void **)&a->row_of, e);
    if (!code)
        code = cuda_device_allocate(
            cuda, CUDA_SCRATCH,
            a->module->ops.chosen_bytes(WORKER_ALONE_TOKENS, x->n_used, x->n_segments), &a->tables, e);
    a->seen = calloc(n_layers, sizeof *a->seen);
    if (!code && !a->seen)
        code = error_set(e, ERROR_MEMORY, "no memory for the table of places");
    return code;
}

enum error_code experts_alone_new(struct experts *x, struct error *e)
{
    const struct cuda_device *cuda = x->options.cuda;
    if (!x->cache || !cuda || !x->options.rows_stay || x->host)
        return ERROR_OK;
    struct experts_alone *a = calloc(1, sizeof *a);
    if (!a)
        return error_set(e, ERROR_MEMORY, "no memory for the table of places");
    a->module = cuda->module;
    a->device = cuda->device;
    a->stream = cuda->stream;
    x->alone = a;
    return make_buffers(x, a, e);
}

void experts_alone_observe(struct experts *x)
{
    struct experts_alone *a = x->alone;
    if (!a)
        return;
    bool there = x->n_round == x->n_activated;
    for (uint32_t i = 0; i < x->n_round; i++)
        there &= x->round[i].load == 0 && x->round[i].cpu == 0;
    a->streak = there ? a->streak + 1 : 0;
    if (a->streak >= LIKELY_LAYERS && !a->most)
        a->most = 1;
}

/* Somebody wants to see each layer before the next, to say what is copied ahead. Where everything is there nothing is. */
static bool is_watched(const struct experts *x)
{
    return !x->all_there && ((x->prediction && prediction_is_on(x->prediction)) ||
                             (device_cache_reads(x->cache) & CACHE_READS_SCORES));
}

static uint32_t most_layers(const struct experts *x)
{
    return device_cache_holds_all(x->cache) ? x->memory->map.params.n_layers : FEW_LAYERS;
}

uint32_t experts_alone_layers(struct experts *x, uint32_t layer, uint32_t n_tokens)
{
    struct experts_alone *a = x->alone;
    if (!a || x->lost || n_tokens > WORKER_ALONE_TOKENS || n_tokens * x->n_used > DEVICE_CHOSEN)
        return 0;
    int assigner = atomic_load(&x->assigner);
    if (a->assigner != assigner) { /* it may want to compute elsewhere what is there */
        a->assigner = assigner;
        a->most = a->streak = 0;
    }
    uint32_t left = x->memory->map.params.n_layers - layer;
    return is_watched(x) ? 0 : a->most < left ? a->most : left;
}

void experts_alone_look(struct experts *x, uint32_t layer)
{
    struct experts_alone *a = x->alone;
    uint32_t n_segments = x->memory->map.slabs[layer].n_segments;
    uint64_t changes = device_cache_changes(x->cache);
    if (a->seen[layer] == changes + 1)
        return;
    const void **places = a->places + layer * layer_places(x);
    bool changed = a->seen[layer] == 0;
    a->seen[layer] = changes + 1;
    for (uint32_t i = 0; i < x->n_experts; i++) {
        uint32_t resident = device_cache_read(x->cache, layer, i).resident;
        for (uint32_t s = 0; s < n_segments; s++) {
            const void *place = s < resident ? device_cache_place(x->cache, layer, i, s) : NULL;
            changed |= places[i * n_segments + s] != place;
            places[i * n_segments + s] = place;
        }
    }
    size_t offset = layer * layer_places(x) * sizeof *places;
    if (changed)
        a->module->upload(a->stream, (uint8_t *)(uintptr_t)a->there + offset, places,
                          layer_places(x) * sizeof *places);
}

void experts_alone_begin(struct experts *x, uint32_t layer, uint32_t n_layers, uint32_t n_tokens)
{
    struct experts_alone *a = x->alone;
    a->running = true;
    a->first = layer;
    a->n_layers = n_layers;
    a->n_tokens = n_tokens;
    experts_layers_begin(x, layer);
    device_cache_enter(x->cache, experts_step_of(x, layer), layer);
    a->module->fill(a->stream, a->missed, 0, sizeof *a->missed);
    a->module->guard(a->stream, a->missed);
}

bool experts_alone_quantize(const struct experts *x, uint32_t layer)
{
    return exec_experts_quantize(&x->memory->map.slabs[layer]);
}

void experts_alone_queue(struct experts *x, uint32_t layer, const void *in, const uint32_t *selected)
{
    struct experts_alone *a = x->alone;
    const struct device_places at = {.places = a->there + layer * layer_places(x),
                                     .n_segments = x->memory->map.slabs[layer].n_segments,
                                     .n_used = x->n_used,
                                     .layer = layer,
                                     .missed = a->missed};
    device_compute_chosen(x->compute, layer, in, &at, selected, a->n_tokens, a->row_of, a->tables);
}

void experts_alone_fetch(struct experts *x)
{
    struct experts_alone *a = x->alone;
    a->module->download(a->stream, a->was_missed, a->missed, sizeof *a->missed);
}

const uint32_t *experts_own_row_of(const struct experts *x)
{
    return x->alone && x->alone->running ? x->alone->row_of : NULL;
}

/* The layer as if it had been planned: who learns from it is told. Seconds that its experts should have taken. */
static double account(struct experts *x, uint32_t layer, const uint32_t *selected)
{
    uint64_t *last_use = x->last_use + (size_t)layer * x->n_experts;
    uint32_t n_segments = x->memory->map.slabs[layer].n_segments;
    double experts_s = x->calibration.device_call_s;
    experts_enter_layer(x, layer, x->alone->n_tokens);
    experts_gather(x, selected);
    experts_tell(x, selected);
    for (uint32_t i = 0; i < x->n_activated; i++) {
        const struct activated *e = &x->activated[i];
        last_use[e->expert] = x->step;
        experts_s += n_segments * sched_device_s(&x->costs.now, e->n_rows);
    }
    counter_add(x->counters.resident, (uint64_t)x->n_activated * n_segments);
    x->all_there = device_cache_holds_all(x->cache);
    x->has_waited = false;
    experts_observe_prediction(x);
    return experts_s;
}

static void leave(struct experts *x)
{
    struct experts_alone *a = x->alone;
    a->module->guard(a->stream, NULL);
    a->running = false;
    device_cache_leave(x->cache);
}

void experts_alone_give_up(struct experts *x)
{
    leave(x);
}

static void follow(struct experts_alone *a, uint32_t done, uint32_t most)
{
    a->streak = 0;
    if (done < a->n_layers)
        a->most = done;
    else
        a->most = 2 * a->most < most ? 2 * a->most : most;
}

uint32_t experts_alone_end(struct experts *x, const uint32_t *selected, uint32_t stride,
                           uint32_t n_replayed)
{
    struct experts_alone *a = x->alone;
    uint32_t done = *a->was_missed ? *a->was_missed - 1 - a->first : a->n_layers;
    double experts_s = 0;
    uint64_t ended_ns = clock_ns();
    if (done) /* what is needed next is behind it */
        device_cache_pass(x->cache, experts_step_of(x, a->first), a->first + done - 1);
    leave(x);
    experts_find_channel(x, ended_ns);
    for (uint32_t i = 0; i < done; i++)
        experts_s += account(x, a->first + i, selected + (size_t)i * stride);
    experts_layers_ended(x, done == a->n_layers ? done : 0, experts_s, ended_ns);
    counter_add(x->counters.alone, done);
    counter_add(x->counters.alone_missed, done < a->n_layers);
    counter_add(x->counters.alone_in_vain, done < a->n_layers ? a->n_layers - done - 1 : 0);
    counter_add(x->counters.replayed, n_replayed);
    follow(a, done, most_layers(x));
    return done;
}
