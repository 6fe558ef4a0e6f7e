/* The device's share of a layer's experts; see experts_internal.h and device_compute.h. */
#include "experts_internal.h"

#include "base/clock.h"

#include <math.h>
#include <time.h>

#define LOAD_STALL_MS 1000

const struct activations *experts_input(struct experts *x)
{
    const struct pool_slabs *slabs = &x->memory->map.slabs[x->layer];
    bool quantize = exec_quantizes((enum tensor_type)slabs->gate_type) ||
                    exec_quantizes((enum tensor_type)slabs->up_type);
    return exec_prepare(x->own, 1, x->values, x->d_model, x->n_tokens, x->d_model, quantize);
}

/* Segments [first, first + n) of an activated expert, onto its running sum. */
struct expert_task experts_task(struct experts *x, const struct activated *a, uint32_t first,
                                uint32_t n)
{
    return (struct expert_task){.expert = a->expert,
                                .first_segment = first,
                                .n_segments = n,
                                .n_tokens = a->n_rows,
                                .tokens = x->indices + a->first_row,
                                .out = x->rows + (size_t)a->first_row * x->d_model,
                                .output = first ? EXPERT_CONTINUE : EXPERT_SUM,
                                .slab = a->slab};
}

/* Then the rest of the time that a slower device, which is emulated, would take. */
static enum error_code compute_on_device(struct experts *x, uint32_t n_tasks, struct error *e)
{
    uint64_t started = clock_ns();
    double predicted = x->calibration.device_call_s;
    for (uint32_t i = 0; i < n_tasks; i++)
        predicted += x->tasks[i].n_segments * sched_device_s(&x->costs.now, x->tasks[i].n_tokens);
    enum error_code code = device_compute_run(x->compute, x->tasks, x->fetch, n_tasks, e);
    if (code)
        return code;
    double took = (double)(clock_ns() - started) * 1e-9, slow = took / x->options.device.speed;
    if (slow - took > 1e-6) {
        double rest = slow - took;
        struct timespec t = {(time_t)rest, (long)((rest - floor(rest)) * 1e9)};
        nanosleep(&t, NULL);
    }
    layer_costs_device(&x->costs, predicted, slow);
    counter_add(x->counters.device_ns, (uint64_t)(slow * 1e9));
    return ERROR_OK;
}

/* Where segments [first, first + n) lie on the device; within the epoch. */
static const uint8_t *const *find_places(struct experts *x, uint32_t at, uint32_t expert,
                                         uint32_t first, uint32_t n)
{
    const uint8_t **places = x->places + (size_t)at * x->n_segments;
    for (uint32_t s = 0; s < n; s++)
        places[s] = device_cache_place(x->cache, x->layer, expert, first + s);
    return places;
}

/* Whether the rows of the device's part are wanted in host memory: to go on with the CPU's, or for the dense part. */
static bool wants_rows(const struct experts *x, const struct activated *a)
{
    return a->cpu > 0 || !x->options.rows_stay;
}

static enum error_code compute_resident(struct experts *x, struct error *e)
{
    uint32_t n = 0;
    uint64_t segments = 0;
    for (uint32_t i = 0; i < x->n_round; i++) {
        const struct activated *a = &x->round[i];
        if (!a->device)
            continue;
        x->fetch[n] = wants_rows(x, a);
        x->tasks[n] = experts_task(x, a, 0, a->device);
        x->tasks[n++].places = find_places(x, i, a->expert, 0, a->device);
        segments += a->device;
    }
    enum error_code code = n ? compute_on_device(x, n, e) : ERROR_OK;
    if (!code)
        counter_add(x->counters.resident, segments);
    return code;
}

/* What was waited for says how long a load takes; what was there already, only that it is no longer than that. */
static void correct_load_costs(struct experts *x, const struct activated *a, bool waited)
{
    double came_s = (double)(clock_ns() - x->round_begun_ns) * 1e-9;
    if (waited || came_s < a->due_s)
        layer_costs_link(&x->costs, x->copying_s + a->due_s, x->copying_s + came_s);
}

/* Segments that do not come are taken back: our threads compute them. */
static enum error_code take_back(struct experts *x, struct activated *a, uint32_t first, uint32_t n,
                                 struct error *e)
{
    enum error_code code = ERROR_OK;
    if (first && !wants_rows(x, a)) /* else they are there */
        code = device_compute_fetch(x->compute, a->first_row, a->n_rows, e);
    if (code)
        return code;
    a->on_host = true;
    x->tasks[0] = experts_task(x, a, first, n);
    exec_experts(x->own, &x->memory->map, x->layer, experts_input(x), x->tasks, 1);
    counter_add(x->counters.loads_taken_back, n);
    return ERROR_OK;
}

/* Until so many segments of it are there, or something else has come; outside of the epoch. True: they were not there yet. */
static bool wait_for(struct experts *x, const struct activated *a, uint32_t segments)
{
    bool missing = device_cache_read(x->cache, x->layer, a->expert).resident < segments;
    uint64_t before = clock_ns();
    device_cache_wait(x->cache, x->layer, a->expert, segments, x->options.spin_us,
                      LOAD_STALL_MS / 4);
    uint64_t waited_ns = clock_ns() - before;
    counter_add(x->counters.load_wait_ns, waited_ns);
    x->has_waited |= waited_ns > WAITED_NS;
    return missing;
}

/* An expert whose missing segments were asked for: computed as they arrive. */
static enum error_code compute_load(struct experts *x, uint32_t at, struct error *e)
{
    struct activated *a = &x->round[at];
    uint32_t done = a->device, target = a->device + a->load;
    uint64_t since = clock_ns();
    enum error_code code = ERROR_OK;
    bool waited = false;
    while (done < target) {
        device_cache_enter(x->cache, x->step, x->layer);
        uint32_t there = device_cache_read(x->cache, x->layer, a->expert).resident;
        there = there < target ? there : target;
        if (there == target)
            correct_load_costs(x, a, waited);
        if (there > done) {
            x->fetch[0] = wants_rows(x, a);
            x->tasks[0] = experts_task(x, a, done, there - done);
            x->tasks[0].places = find_places(x, at, a->expert, done, there - done);
            code = compute_on_device(x, 1, e);
            counter_add(x->counters.loaded, code ? 0 : there - done);
            done = there;
            since = clock_ns();
            waited = false; /* the next may have come meanwhile */
        }
        device_cache_leave(x->cache);
        if (code || done == target)
            break;
        if (clock_ns() - since > LOAD_STALL_MS * 1000000ull) {
            code = take_back(x, a, done, target - done, e);
            break;
        }
        waited = wait_for(x, a, done + 1);
    }
    device_cache_consumed(x->cache);
    return code;
}

/* The one expert that something is loaded of; NULL: there is none. */
static const struct activated *loaded_one(const struct experts *x)
{
    for (uint32_t i = 0; i < x->n_round; i++)
        if (x->round[i].load)
            return &x->round[i];
    return NULL;
}

static void await_load(struct experts *x, const struct activated *a)
{
    uint32_t target = a->device + a->load, before = 0, there;
    uint64_t since = clock_ns();
    bool waited = false;
    while ((there = device_cache_read(x->cache, x->layer, a->expert).resident) < target) {
        if (there != before)
            since = clock_ns();
        else if (clock_ns() - since > LOAD_STALL_MS * 1000000ull)
            return;
        before = there;
        waited = wait_for(x, a, target);
    }
    correct_load_costs(x, a, waited);
}

/* All that the device computes of the round in one call, when the load is there. Not in the epoch while it waits: the room for
 * the load may be what that holds back. So what was resident may have gone meanwhile, where there is next to no room; our
 * threads compute it then. */
static enum error_code compute_at_once(struct experts *x, struct error *e)
{
    await_load(x, loaded_one(x));
    uint32_t n = 0;
    uint64_t resident = 0, loaded = 0;
    device_cache_enter(x->cache, x->step, x->layer);
    for (uint32_t i = 0; i < x->n_round; i++) {
        struct activated *a = &x->round[i];
        uint32_t target = a->device + a->load;
        a->there = device_cache_read(x->cache, x->layer, a->expert);
        a->there.resident = a->there.resident < target ? a->there.resident : target;
        if (!a->there.resident)
            continue;
        x->fetch[n] = wants_rows(x, a);
        x->tasks[n] = experts_task(x, a, 0, a->there.resident);
        x->tasks[n++].places = find_places(x, i, a->expert, 0, a->there.resident);
        uint32_t before = a->device < a->there.resident ? a->device : a->there.resident;
        resident += before;
        loaded += a->there.resident - before;
    }
    enum error_code code = n ? compute_on_device(x, n, e) : ERROR_OK;
    device_cache_leave(x->cache);
    device_cache_consumed(x->cache);
    if (code)
        return code;
    counter_add(x->counters.resident, resident);
    counter_add(x->counters.loaded, loaded);
    counter_add(x->counters.at_once, 1);
    for (uint32_t i = 0; i < x->n_round && !code; i++) {
        struct activated *a = &x->round[i];
        uint32_t target = a->device + a->load;
        if (a->there.resident < target)
            code = take_back(x, a, a->there.resident, target - a->there.resident, e);
    }
    return code;
}

enum error_code experts_compute_device(struct experts *x, struct error *e)
{
    bool beside = x->options.rows_stay && x->memory->map.params.d_shared; /* the shared expert */
    device_compute_input(x->compute, x->layer, x->values, x->values_there, x->n_tokens);
    for (uint32_t i = 0; i < x->n_round; i++)
        x->round[i].on_host = x->round[i].cpu > 0;
    enum error_code code = beside ? device_compute_settle(x->compute, e) : ERROR_OK;
    if (!code && x->device_waits && loaded_one(x)) {
        device_cache_leave(x->cache);
        return compute_at_once(x, e);
    }
    if (!code)
        code = compute_resident(x, e);
    device_cache_leave(x->cache);
    for (uint32_t i = 0; i < x->n_round && !code; i++)
        if (x->round[i].load)
            code = compute_load(x, i, e);
    return code;
}
