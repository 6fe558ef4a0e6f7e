/* Device-only layers; see device_only.h.
 *
 * The device's table of places is a copy of the residency table. The worker updates a layer's part
 * when memd has changed the residency table, within the epoch that lasts until the layers are done:
 * thus the places stay valid.
 *
 * The number of layers that are queued at once follows the result: twice as many after an attempt
 * that missed no expert, else as many as were done. After an attempt with none, the host plans
 * until LIKELY_LAYERS plans in a row have found every expert resident. Where the device cannot hold
 * all experts, at most FEW_LAYERS are queued: an epoch delays memd, and with it other workers. */
#include "worker/links/cuda_device.h"
#include "experts_internal.h"

#include "base/clock.h"
#include "sched/cache/cache.h"

#include <math.h>
#include <stdlib.h>

#define LIKELY_LAYERS 4
#define FEW_LAYERS    8

struct device_only {
    const struct device_module *module; /* these two are the CUDA device's */
    struct device_stream *stream;
    struct device *device;
    const void **places;      /* [n_layers][n_experts][n_segments], pinned */
    const void *const *there; /* its copy on the device */
    uint64_t *seen; /* [n_layers]: 1 + the residency table's changes when the layer was looked at;
                       0: never */
    uint32_t *missed, *was_missed; /* on the device; its copy in host memory, pinned */
    uint32_t *row_of;              /* on the device, [WORKER_DEVICE_ONLY_TOKENS * n_used] */
    void *tables;                  /* on the device: experts_chosen's */
    struct device_segments layout; /* of the layer of the last device_only_choice */
    uint32_t most;                 /* layers to queue at once; 0: none */
    uint32_t streak;               /* layers in a row whose plan found every expert resident */
    int assigner;                  /* while `streak` was counted */
    /* under way */
    bool running;
    uint32_t first, n_layers, n_tokens;
    struct batch_kind kind;
};

static size_t layer_places(const struct experts *x)
{
    return (size_t)x->n_experts * x->n_segments;
}

void device_only_free(struct experts *x)
{
    struct device_only *a = x->device.only;
    if (!a)
        return;
    struct error e;
    a->module->finish(a->stream, &e); /* its buffers are freed after that */
    a->module->release_pinned(a->device, a->places);
    a->module->release_pinned(a->device, a->was_missed);
    a->module->release(a->device, (void *)(uintptr_t)a->there);
    a->module->release(a->device, a->missed);
    a->module->release(a->device, a->row_of);
    a->module->release(a->device, a->tables);
    free(a->seen);
    free(a);
    x->device.only = NULL;
}

static enum error_code make_buffers(struct experts *x, struct device_only *a, struct error *e)
{
    struct cuda_device *cuda = x->options.cuda;
    uint32_t n_layers = x->memory->map.params.n_layers,
             rows = WORKER_DEVICE_ONLY_TOKENS * x->n_used;
    size_t places = n_layers * layer_places(x) * sizeof *a->places;
    enum error_code code = a->module->allocate_pinned(a->device, places, (void **)&a->places, e);
    if (!code)
        code = a->module->allocate_pinned(a->device, sizeof *a->missed, (void **)&a->was_missed, e);
    if (!code)
        code = cuda_device_allocate(cuda, CUDA_SCRATCH, places, (void **)(uintptr_t)&a->there, e);
    if (!code)
        code = cuda_device_allocate(cuda, CUDA_SCRATCH, sizeof *a->missed, (void **)&a->missed, e);
    if (!code)
        code = cuda_device_allocate(cuda, CUDA_SCRATCH, rows * sizeof *a->row_of,
                                    (void **)&a->row_of, e);
    if (!code)
        code = cuda_device_allocate(
            cuda, CUDA_SCRATCH,
            a->module->ops.chosen_bytes(WORKER_DEVICE_ONLY_TOKENS, x->n_used, x->n_segments),
            &a->tables, e);
    a->seen = calloc(n_layers, sizeof *a->seen);
    if (!code && !a->seen)
        code = error_set(e, ERROR_MEMORY, "no memory for the table of places");
    return code;
}

enum error_code device_only_new(struct experts *x, struct error *e)
{
    const struct cuda_device *cuda = x->options.cuda;
    if (!x->device.cache || !cuda || !x->options.rows_stay || x->host)
        return ERROR_OK;
    struct device_only *a = calloc(1, sizeof *a);
    if (!a)
        return error_set(e, ERROR_MEMORY, "no memory for the table of places");
    a->module = cuda->module;
    a->device = cuda->device;
    a->stream = cuda->stream;
    x->device.only = a;
    return make_buffers(x, a, e);
}

void device_only_observe(struct experts *x)
{
    struct device_only *a = x->device.only;
    if (!a)
        return;
    bool there = x->work.n_round == x->work.n_activated;
    for (uint32_t i = 0; i < x->work.n_round; i++)
        there &= x->work.round[i].load == 0 && x->work.round[i].cpu == 0;
    a->streak = there ? a->streak + 1 : 0;
    if (a->streak >= LIKELY_LAYERS && !a->most)
        a->most = 1;
}

static uint32_t most_layers(const struct experts *x)
{
    return device_cache_holds_all(x->device.cache) ? x->memory->map.params.n_layers : FEW_LAYERS;
}

uint32_t device_only_layers(struct experts *x, uint32_t layer, uint32_t n_tokens)
{
    struct device_only *a = x->device.only;
    if (!a || x->device.lost || !prefetch_may_use_device(x->prefetch) ||
        n_tokens > WORKER_DEVICE_ONLY_TOKENS || n_tokens * x->n_used > DEVICE_CHOSEN)
        return 0;
    int assigner = atomic_load(&x->assigner);
    if (a->assigner != assigner) { /* another assigner may plan resident experts for the CPU */
        a->assigner = assigner;
        a->most = a->streak = 0;
    }
    uint32_t left = x->memory->map.params.n_layers - layer;
    return prefetch_watches(x->prefetch) ? 0 : a->most < left ? a->most : left;
}

void device_only_look(struct experts *x, uint32_t layer)
{
    struct device_only *a = x->device.only;
    uint32_t n_segments = x->memory->map.slabs[layer].n_segments;
    uint64_t changes = device_cache_changes(x->device.cache);
    if (a->seen[layer] == changes + 1)
        return;
    const void **places = a->places + layer * layer_places(x);
    bool changed = a->seen[layer] == 0;
    a->seen[layer] = changes + 1;
    for (uint32_t i = 0; i < x->n_experts; i++) {
        uint32_t resident = device_cache_read(x->device.cache, layer, i).resident;
        for (uint32_t s = 0; s < n_segments; s++) {
            const void *place =
                s < resident ? device_cache_place(x->device.cache, layer, i, s) : NULL;
            changed |= places[i * n_segments + s] != place;
            places[i * n_segments + s] = place;
        }
    }
    size_t offset = layer * layer_places(x) * sizeof *places;
    if (changed)
        a->module->upload(a->stream, (uint8_t *)(uintptr_t)a->there + offset, places,
                          layer_places(x) * sizeof *places);
}

void device_only_begin(struct experts *x, uint32_t layer, uint32_t n_layers, uint32_t n_tokens,
                       struct batch_kind kind)
{
    struct device_only *a = x->device.only;
    a->running = true;
    a->first = layer;
    a->n_layers = n_layers;
    a->n_tokens = n_tokens;
    a->kind = kind;
    x->work.begun_ns = clock_ns();
    if (experts_step_of(x, layer) !=
        x->work.step) /* else these layers follow the ones before directly */
        cost_model_gate(&x->cost, x->work.begun_ns, layer > x->work.layer);
    device_cache_enter(x->device.cache, experts_step_of(x, layer), layer);
    a->module->fill(a->stream, a->missed, 0, sizeof *a->missed);
    a->module->guard(a->stream, a->missed);
}

struct device_choice device_only_choice(struct experts *x, uint32_t layer)
{
    struct device_only *a = x->device.only;
    a->layout = device_segments_of(&x->memory->map, layer);
    return (struct device_choice){.layout = &a->layout,
                                  .at = {.places = a->there + layer * layer_places(x),
                                         .n_experts = x->n_experts,
                                         .n_segments = x->memory->map.slabs[layer].n_segments,
                                         .n_used = x->n_used,
                                         .layer = layer,
                                         .missed = a->missed},
                                  .row_of = a->row_of,
                                  .tables = a->tables};
}

void device_only_queue(struct experts *x, const struct device_choice *choice, const void *in,
                       struct device_shared *shared)
{
    device_compute_chosen(x->device.compute, choice, in, shared);
}

void device_only_fetch(struct experts *x)
{
    struct device_only *a = x->device.only;
    a->module->download(a->stream, a->was_missed, a->missed, sizeof *a->missed);
}

const uint32_t *experts_own_row_of(const struct experts *x)
{
    return x->device.only && x->device.only->running ? x->device.only->row_of : NULL;
}

/* Accounts for a layer as if the host had planned it: reports it to memd and to the predictor.
 * Returns the seconds that its experts should have taken. */
static double account(struct experts *x, uint32_t layer, const uint32_t *selected)
{
    uint32_t n_segments = x->memory->map.slabs[layer].n_segments;
    double experts_s = x->cost.calibration.device_call_s;
    experts_enter_layer(x, layer, x->device.only->n_tokens, x->device.only->kind);
    experts_gather(x, selected);
    experts_report(x, selected);
    for (uint32_t i = 0; i < x->work.n_activated; i++) {
        const struct activated *e = &x->work.activated[i];
        layer_used(x->layer, x->work.step, layer, e->expert);
        experts_s += n_segments * sched_device_s(&x->cost.costs.now, e->n_rows);
    }
    prefetch_cpu_only(x->prefetch, experts_cpu_only_s(x) - experts_s);
    counter_add(x->counters.resident, (uint64_t)x->work.n_activated * n_segments);
    counter_add(x->counters.found_on_device, (uint64_t)x->work.n_activated * n_segments);
    prefetch_set_all_resident(x->prefetch, device_cache_holds_all(x->device.cache));
    x->work.has_waited = false;
    prefetch_done(x->prefetch, x->work.step, false);
    return experts_s;
}

static void leave(struct experts *x)
{
    struct device_only *a = x->device.only;
    a->module->guard(a->stream, NULL);
    a->running = false;
    device_cache_leave(x->device.cache);
}

void device_only_give_up(struct experts *x)
{
    leave(x);
}

/* Nothing times the experts apart from the rest of their layers: they count with the predicted
 * time. */
static void count_busy(struct experts *x, double experts_s, double run_s)
{
    uint64_t ns = (uint64_t)(fmin(experts_s, run_s) * 1e9);
    counter_add(x->counters.device_ns, ns);
    counter_add(x->counters.device_only_ns, ns);
}

static void follow(struct device_only *a, uint32_t done, uint32_t most)
{
    a->streak = 0;
    if (done < a->n_layers)
        a->most = done;
    else
        a->most = 2 * a->most < most ? 2 * a->most : most;
}

uint32_t device_only_end(struct experts *x, const uint32_t *selected, uint32_t stride)
{
    struct device_only *a = x->device.only;
    uint32_t done = *a->was_missed ? *a->was_missed - 1 - a->first : a->n_layers;
    uint64_t ended_ns = clock_ns();
    double experts_s = 0, run_s = (double)(ended_ns - x->work.begun_ns) * 1e-9;
    if (done) /* the next use of experts is behind them */
        device_cache_pass(x->device.cache, experts_step_of(x, a->first), a->first + done - 1);
    leave(x);
    experts_find_channel(x, ended_ns);
    for (uint32_t i = 0; i < done; i++)
        experts_s += account(x, a->first + i, selected + (size_t)i * stride);
    cost_model_unplanned(&x->cost, done == a->n_layers ? done : 0, run_s, experts_s);
    count_busy(x, experts_s, run_s);
    counter_add(x->counters.device_only, done);
    counter_add(x->counters.device_only_missed, done < a->n_layers);
    counter_add(x->counters.device_only_discarded, done < a->n_layers ? a->n_layers - done - 1 : 0);
    follow(a, done, most_layers(x));
    return done;
}
