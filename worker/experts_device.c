/* The device's share of a layer's experts; see experts_internal.h and device_compute.h. */
#include "experts_internal.h"

#include "base/clock.h"
#include "base/log.h"

#include <math.h>
#include <time.h>

#define LOAD_STALL_MS 1000
/* A copy that has begun ends, unless memd dies, of which we hear, or it or the device is stopped. */
#define COPY_STALL_MS 10000
/* memd has gone, or we are told to end: what is in flight is a segment. */
#define LAST_COPY_MS  250

const struct activations *experts_input(struct experts *x)
{
    bool quantize = exec_experts_quantize(&x->memory->map.slabs[x->layer]);
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

static double predicted_s(const struct experts *x, uint32_t n_tasks)
{
    double s = 0;
    for (uint32_t i = 0; i < n_tasks; i++)
        s += x->tasks[i].n_segments * sched_device_s(&x->costs.now, x->tasks[i].n_tokens);
    return s;
}

/* Then the rest of the time that a slower device, which is emulated, would take. */
static enum error_code compute_on_device(struct experts *x, uint32_t n_tasks, struct error *e)
{
    uint64_t started = clock_ns();
    double predicted = x->calibration.device_call_s + predicted_s(x, n_tasks);
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

/* Whether the caller's part is done while the device computes. In a timed step it comes after, and what the device took is
 * learnt from. */
static bool beside_the_device(const struct experts *x)
{
    return x->options.rows_stay && x->meanwhile && !is_timed_step(x->step);
}

static enum error_code queue_and_call_meanwhile(struct experts *x, uint32_t n_tasks, struct error *e)
{
    uint64_t started = clock_ns();
    device_compute_queue(x->compute, x->tasks, x->fetch, n_tasks);
    enum error_code code = experts_call_meanwhile(x, e);
    if (!code)
        code = device_compute_settle(x->compute, e);
    counter_add(x->counters.device_ns, clock_ns() - started);
    return code;
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
    enum error_code code = ERROR_OK;
    if (n && beside_the_device(x))
        code = queue_and_call_meanwhile(x, n, e);
    else if (n)
        code = compute_on_device(x, n, e);
    if (!code)
        counter_add(x->counters.resident, segments);
    return code ? code : experts_call_meanwhile(x, e);
}

/* What was waited for says how long a load takes; what was there already, only that it is no longer than that. */
static void correct_load_costs(struct experts *x, const struct activated *a, bool waited)
{
    double came_s = (double)(clock_ns() - x->round_begun_ns) * 1e-9;
    if (waited || came_s < a->due_s)
        layer_costs_link(&x->costs, x->copying_s + a->due_s, x->copying_s + came_s);
}

/* A load has not come for so long: the others of the layer will not either, and the next layers do without. */
static void pause_loads(struct experts *x)
{
    if (x->no_loads.on)
        return;
    pause_begin(&x->no_loads, clock_ns());
    x->pulse = device_cache_pulse(x->cache);
    log_warn("a load has not come for %d ms: nothing is copied to the device any more until memd moves", LOAD_STALL_MS);
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

static void count_wait(struct experts *x, uint64_t since_ns)
{
    uint64_t waited_ns = clock_ns() - since_ns;
    counter_add(x->counters.load_wait_ns, waited_ns);
    x->has_waited |= waited_ns > WAITED_NS;
}

/* Until so many segments of it are there, or something else has come; outside of the epoch. Where the device waits by itself, the
 * last one may be on its way. True: they were not there yet. */
static bool wait_for(struct experts *x, const struct activated *a, uint32_t segments)
{
    bool missing = device_cache_read(x->cache, x->layer, a->expert).resident < segments;
    uint64_t before = clock_ns();
    if (missing)
        experts_before_wait(x);
    if (device_compute_awaits(x->compute))
        device_cache_wait_begun(x->cache, x->layer, a->expert, segments, x->options.spin_us, LOAD_STALL_MS / 4);
    else
        device_cache_wait(x->cache, x->layer, a->expert, segments, x->options.spin_us, LOAD_STALL_MS / 4);
    count_wait(x, before);
    return missing;
}

/* ---- Segments that are on their way ----
 *
 * memd says where a segment that it begins to copy will be, and what number its slot's flag has when it is there. The device
 * is told to wait for that number, and what computes with the segment is queued behind it: it begins when the last byte has
 * come, not when memd's thread and then ours have woken up. We stay in the epoch, which keeps the slot as it will be, and
 * wait for memd's word before we wait for the device: memd's can stay out, and the device's would stay out for ever then.
 * What is not begun yet is waited for outside of the epoch, as ever: its room may be what the epoch holds back. */

/* Whether the next segment of it is on its way, and the device can wait for it; within the epoch. */
static bool arrives(struct experts *x, const struct activated *a, uint32_t segment, struct cached_arrival *out)
{
    return device_compute_awaits(x->compute) &&
           device_cache_arriving(x->cache, x->layer, a->expert, segment, out);
}

/* memd's word that it is there, while the device waits for it. An error: it will not come. */
static enum error_code await_arrival(struct experts *x, const struct activated *a, uint32_t segment,
                                     const struct cached_arrival *arrival, struct error *e)
{
    uint64_t since = clock_ns();
    bool missing = !device_cache_wait_arrived(x->cache, x->layer, a->expert, segment, arrival, 0, 0);
    for (bool come = !missing; !come;) {
        bool ending = atomic_load(&x->stopping);
        if (clock_ns() - since > (ending ? LAST_COPY_MS : COPY_STALL_MS) * 1000000ull) {
            error_set(e, ERROR_UNAVAILABLE, "memd %s before a segment was there that it had begun to copy",
                      ending ? "has gone" : "has done nothing for ten seconds");
            x->options.device_hangs(x->options.device_lost_arg, e);
            return e->code;
        }
        come = device_cache_wait_arrived(x->cache, x->layer, a->expert, segment, arrival, x->options.spin_us,
                                         LAST_COPY_MS);
    }
    count_wait(x, since);
    if (segment + 1 == a->device + a->load)
        correct_load_costs(x, a, missing);
    return ERROR_OK;
}

/* The one of it that arrives, behind the device's wait for it; to the end of all that is queued. queued_s: of what is queued before,
 * as predicted. The device is busy with that while it waits, or longer, and with the one that arrived to the end. */
static enum error_code compute_arriving(struct experts *x, const struct activated *a, uint32_t segment,
                                        const struct cached_arrival *arrival, double queued_s, struct error *e)
{
    uint64_t started = clock_ns();
    device_compute_await(x->compute, arrival->slot, arrival->flag);
    x->fetch[0] = wants_rows(x, a);
    x->tasks[0] = experts_task(x, a, segment, 1);
    x->tasks[0].places = &arrival->place;
    device_compute_queue(x->compute, x->tasks, x->fetch, 1);
    enum error_code code = await_arrival(x, a, segment, arrival, e);
    uint64_t arrived = clock_ns();
    if (!code)
        code = device_compute_settle(x->compute, e);
    double waiting_s = (double)(arrived - started) * 1e-9;
    counter_add(x->counters.device_ns,
                clock_ns() - arrived + (uint64_t)((queued_s < waiting_s ? queued_s : waiting_s) * 1e9));
    counter_add(x->counters.awaited, code ? 0 : 1);
    return code;
}

/* The first n tasks, and behind them the segment of a that is on its way, as `next` says; NULL: none is. */
static enum error_code compute_tasks(struct experts *x, uint32_t n, const struct activated *a, uint32_t segment,
                                     const struct cached_arrival *next, struct error *e)
{
    if (!next)
        return n ? compute_on_device(x, n, e) : ERROR_OK;
    double queued_s = predicted_s(x, n);
    if (n)
        device_compute_queue(x->compute, x->tasks, x->fetch, n);
    return compute_arriving(x, a, segment, next, queued_s, e);
}

/* ---- Loads ---- */

/* What there is of segments [*done, target), and the one that is on its way; within the epoch. *done goes on. */
static enum error_code compute_part(struct experts *x, uint32_t at, uint32_t *done, uint32_t target, bool waited,
                                    struct error *e)
{
    const struct activated *a = &x->round[at];
    struct cached_arrival next;
    uint32_t there = device_cache_read(x->cache, x->layer, a->expert).resident;
    there = there < target ? there : target;
    if (there < *done)
        return ERROR_OK;
    bool comes = there < target && arrives(x, a, there, &next);
    uint32_t n = there - *done;
    if (there == target)
        correct_load_costs(x, a, waited);
    if (n) {
        x->fetch[0] = !comes && wants_rows(x, a);
        x->tasks[0] = experts_task(x, a, *done, n);
        x->tasks[0].places = find_places(x, at, a->expert, *done, n);
    }
    enum error_code code = compute_tasks(x, n > 0, a, there, comes ? &next : NULL, e);
    counter_add(x->counters.loaded, code ? 0 : n + comes);
    *done += n + comes;
    return code;
}

/* An expert whose missing segments were asked for: computed as they arrive. */
static enum error_code compute_load(struct experts *x, uint32_t at, struct error *e)
{
    struct activated *a = &x->round[at];
    uint32_t done = a->device, target = a->device + a->load;
    uint64_t since = clock_ns();
    bool waited = false;
    enum error_code code = ERROR_OK;
    while (done < target) {
        uint32_t before = done;
        device_cache_enter(x->cache, x->step, x->layer);
        code = compute_part(x, at, &done, target, waited, e);
        device_cache_leave(x->cache);
        if (code || done == target)
            break;
        if (done > before) { /* the next may have come meanwhile */
            since = clock_ns();
            waited = false;
            continue;
        }
        if (clock_ns() - since > LOAD_STALL_MS * 1000000ull)
            pause_loads(x);
        if (x->no_loads.on) {
            code = take_back(x, a, done, target - done, e);
            break;
        }
        waited = wait_for(x, a, done + 1);
    }
    if (!x->no_loads.on)
        pause_forget(&x->no_loads);
    device_cache_consumed(x->cache);
    return code;
}

/* The one expert that something is loaded of; NULL: there is none. */
static struct activated *loaded_one(struct experts *x)
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
    for (;;) {
        struct cached_expert now = device_cache_read(x->cache, x->layer, a->expert);
        there = now.resident;
        if (there >= target)
            break;
        if (device_compute_awaits(x->compute) && there + now.in_flight >= target)
            return;
        if (there != before)
            since = clock_ns();
        else if (clock_ns() - since > LOAD_STALL_MS * 1000000ull) {
            pause_loads(x);
            return;
        }
        before = there;
        waited = wait_for(x, a, target);
    }
    correct_load_costs(x, a, waited);
}

/* All that the device computes of the round in one call, when the load is there, or on its way for the device to wait for. Not
 * in the epoch while it waits: the room for the load may be what that holds back. So what was resident may have gone
 * meanwhile, where there is next to no room; our threads compute it then. */
static enum error_code compute_at_once(struct experts *x, struct error *e)
{
    struct activated *load = loaded_one(x);
    await_load(x, load);
    uint32_t n = 0;
    uint64_t resident = 0, loaded = 0;
    struct cached_arrival last;
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
    bool comes = load->there.resident + 1 == load->device + load->load &&
                 arrives(x, load, load->there.resident, &last);
    enum error_code code =
        compute_tasks(x, n, load, load->there.resident, comes ? &last : NULL, e);
    load->there.resident += comes;
    loaded += comes;
    device_cache_leave(x->cache);
    device_cache_consumed(x->cache);
    if (code)
        return code;
    counter_add(x->counters.resident, resident);
    counter_add(x->counters.loaded, loaded);
    counter_add(x->counters.at_once, 1);
    if (!x->no_loads.on)
        pause_forget(&x->no_loads);
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
    device_compute_input(x->compute, x->layer, x->values, x->values_there, x->n_tokens);
    for (uint32_t i = 0; i < x->n_round; i++)
        x->round[i].on_host = x->round[i].cpu > 0;
    if (x->device_waits && loaded_one(x)) {
        device_cache_leave(x->cache);
        enum error_code code = experts_call_meanwhile(x, e);
        return code ? code : compute_at_once(x, e);
    }
    enum error_code code = compute_resident(x, e);
    device_cache_leave(x->cache);
    for (uint32_t i = 0; i < x->n_round && !code; i++)
        if (x->round[i].load)
            code = compute_load(x, i, e);
    return code;
}
