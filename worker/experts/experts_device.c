/* The device's share of a layer's experts; see experts_internal.h and device_compute.h. */
#include "experts_internal.h"

#include "base/clock.h"
#include "base/log.h"

#include <math.h>
#include <time.h>

#define LOAD_STALL_MS 1000
/* A copy that has begun ends, unless memd dies, which the worker notices, or memd or the device is
 * stopped. */
#define COPY_STALL_MS 10000
/* After memd has gone or the worker was stopped: a segment in flight arrives within this time. */
#define LAST_COPY_MS 250

static double predicted_s(const struct experts *x, uint32_t n_tasks)
{
    double s = 0;
    for (uint32_t i = 0; i < n_tasks; i++)
        s += x->work.tasks[i].n_segments *
             sched_device_s(&x->cost.costs.now, x->work.tasks[i].n_tokens);
    return s;
}

/* An emulated slower device also waits for the rest of its time. */
static enum error_code compute_on_device(struct experts *x, uint32_t n_tasks, struct error *e)
{
    uint64_t started = clock_ns();
    double predicted = x->cost.calibration.device_call_s + predicted_s(x, n_tasks);
    enum error_code code =
        device_compute_run(x->device.compute, x->work.tasks, x->device.fetch, n_tasks, e);
    if (code)
        return code;
    double took = (double)(clock_ns() - started) * 1e-9, slow = took / x->options.device.speed;
    if (slow - took > 1e-6) {
        double rest = slow - took;
        struct timespec t = {(time_t)rest, (long)((rest - floor(rest)) * 1e9)};
        nanosleep(&t, NULL);
    }
    layer_costs_device(&x->cost.costs, predicted, slow);
    counter_add(x->counters.device_ns, (uint64_t)(slow * 1e9));
    return ERROR_OK;
}

/* The places of segments [first, first + n) on the device; within the epoch. */
static const uint8_t *const *find_places(struct experts *x, uint32_t at, uint32_t expert,
                                         uint32_t first, uint32_t n)
{
    const uint8_t **places = x->device.places + (size_t)at * x->n_segments;
    for (uint32_t s = 0; s < n; s++)
        places[s] = device_cache_place(x->device.cache, x->work.layer, expert, first + s);
    return places;
}

/* Whether the rows of the device's part go to host memory: to add the CPU's rows, or for the dense
 * part. */
static bool wants_rows(const struct experts *x, const struct activated *a)
{
    return a->cpu > 0 || !x->options.rows_stay;
}

/* Whether the caller's work overlaps the device's. In a timed step it comes after, so that the
 * device's time corrects the costs. */
static bool overlaps_device(const struct experts *x)
{
    return x->options.rows_stay && x->work.overlap && !cost_model_is_timed(x->work.step);
}

static enum error_code queue_and_call_overlap(struct experts *x, uint32_t n_tasks, struct error *e)
{
    uint64_t started = clock_ns();
    device_compute_queue(x->device.compute, x->work.tasks, x->device.fetch, n_tasks);
    enum error_code code = experts_call_overlap(x, e);
    if (!code)
        code = device_compute_settle(x->device.compute, e);
    counter_add(x->counters.device_ns, clock_ns() - started);
    return code;
}

static enum error_code compute_resident(struct experts *x, struct error *e)
{
    uint32_t n = 0;
    uint64_t segments = 0;
    for (uint32_t i = 0; i < x->work.n_round; i++) {
        const struct activated *a = &x->work.round[i];
        if (!a->device)
            continue;
        x->device.fetch[n] = wants_rows(x, a);
        x->work.tasks[n] = experts_task(x, a, 0, a->device);
        x->work.tasks[n++].places = find_places(x, i, a->expert, 0, a->device);
        segments += a->device;
    }
    enum error_code code = ERROR_OK;
    if (n && overlaps_device(x))
        code = queue_and_call_overlap(x, n, e);
    else if (n)
        code = compute_on_device(x, n, e);
    if (!code)
        counter_add(x->counters.resident, segments);
    return code ? code : experts_call_overlap(x, e);
}

/* A load that the worker waited for gives the time of a load. One that was there before gives only
 * an upper bound. */
static void correct_load_costs(struct experts *x, const struct activated *a, bool waited)
{
    double came_s = (double)(clock_ns() - x->work.round_begun_ns) * 1e-9;
    if (waited || came_s < a->due_s)
        layer_costs_link(&x->cost.costs, x->work.copying_s + a->due_s, x->work.copying_s + came_s);
}

/* A load has stalled: the worker expects no other load of the layer, and none in the next layers.
 */
static void stop_loads(struct experts *x)
{
    if (x->device.breaker.on)
        return;
    circuit_breaker_open(&x->device.breaker, clock_ns());
    x->device.heartbeat = device_cache_heartbeat(x->device.cache);
    log_warn(
        "a load has not arrived for %d ms: the worker requests no loads until memd copies again",
        LOAD_STALL_MS);
}

/* Reclaims segments that do not arrive: the worker's own threads compute them. */
static enum error_code reclaim(struct experts *x, struct activated *a, uint32_t first, uint32_t n,
                               struct error *e)
{
    enum error_code code = ERROR_OK;
    if (first && !wants_rows(x, a)) /* else the rows are in host memory already */
        code = device_compute_fetch(x->device.compute, a->first_row, a->n_rows, e);
    if (code)
        return code;
    uint64_t started = clock_ns();
    a->on_host = true;
    x->work.tasks[0] = experts_task(x, a, first, n);
    exec_experts(x->own, &x->memory->map, x->work.layer, experts_input(x), x->work.tasks, 1);
    experts_count_on_cpu(x, n, clock_ns() - started);
    counter_add(x->counters.loads_reclaimed, n);
    return ERROR_OK;
}

static void count_wait(struct experts *x, uint64_t since_ns)
{
    uint64_t waited_ns = clock_ns() - since_ns;
    counter_add(x->counters.load_wait_ns, waited_ns);
    x->work.has_waited |= waited_ns > WAITED_NS;
}

/* Waits until so many segments of an expert are resident, or until another copy ends; outside of
 * the epoch. Where the device waits for segments, the last one may be in flight. Returns whether
 * segments were missing. */
static bool wait_for(struct experts *x, const struct activated *a, uint32_t segments)
{
    bool missing = device_cache_read(x->device.cache, x->work.layer, a->expert).resident < segments;
    uint64_t before = clock_ns();
    if (missing)
        experts_before_wait(x);
    if (device_compute_awaits(x->device.compute))
        device_cache_wait_begun(x->device.cache, x->work.layer, a->expert, segments,
                                &x->copy_spinner, LOAD_STALL_MS / 4);
    else
        device_cache_wait(x->device.cache, x->work.layer, a->expert, segments, &x->copy_spinner,
                          LOAD_STALL_MS / 4);
    count_wait(x, before);
    return missing;
}

/* ---- Segments in flight ----
 *
 * When memd begins to copy a segment, it publishes the segment's place and the number that its
 * slot's flag will have after the copy. The worker queues a wait for that number on the device, and
 * the segment's computation behind it. So the device begins when the last byte has arrived, not
 * when memd's thread and then the worker's have woken up. The worker stays in the epoch, which
 * keeps the slot. It waits for memd's message before it waits for the device: without a message the
 * device's wait would never end. For a copy that has not begun the worker waits outside of the
 * epoch, because the epoch may hold the slot that the copy needs. */

/* Whether the segment is in flight, and the device can wait for it; within the epoch. */
static bool arrives(struct experts *x, const struct activated *a, uint32_t segment,
                    struct cached_arrival *out)
{
    return device_compute_awaits(x->device.compute) &&
           device_cache_arriving(x->device.cache, x->work.layer, a->expert, segment, out);
}

/* Waits for memd's message that the segment has arrived. An error: it will not. */
static enum error_code await_arrival(struct experts *x, const struct activated *a, uint32_t segment,
                                     const struct cached_arrival *arrival, struct error *e)
{
    uint64_t since = clock_ns();
    bool missing = !device_cache_wait_arrived(x->device.cache, x->work.layer, a->expert, segment,
                                              arrival, NULL, 0);
    for (bool come = !missing; !come;) {
        bool ending = atomic_load(&x->stopping);
        if (clock_ns() - since > (ending ? LAST_COPY_MS : COPY_STALL_MS) * 1000000ull) {
            error_set(e, ERROR_UNAVAILABLE, "memd %s before it completed the copy of a segment",
                      ending ? "has gone" : "has done nothing for ten seconds");
            x->options.device_hangs(x->options.device_lost_arg, e);
            return e->code;
        }
        come = device_cache_wait_arrived(x->device.cache, x->work.layer, a->expert, segment,
                                         arrival, &x->copy_spinner, LAST_COPY_MS);
    }
    count_wait(x, since);
    if (segment + 1 == a->device + a->load)
        correct_load_costs(x, a, missing);
    return ERROR_OK;
}

/* Segments [first, first + n) of an expert, of which the last is in flight. Segments arrive in
 * order, so all are there when that one is. */
struct arriving {
    uint32_t first, n;
    struct cached_arrival last;
    const uint8_t *const *places; /* [n] */
};

/* Whether segments [first, target) are in flight, or have arrived by now; within the epoch. */
static bool all_arrive(struct experts *x, uint32_t at, uint32_t first, uint32_t target,
                       struct arriving *out)
{
    const struct activated *a = &x->work.round[at];
    const uint8_t **places = x->device.places + (size_t)at * x->n_segments + first;
    for (uint32_t s = first; s < target; s++) {
        struct cached_arrival arrival;
        bool comes = arrives(x, a, s, &arrival);
        if (!comes && (s + 1 == target ||
                       device_cache_read(x->device.cache, x->work.layer, a->expert).resident <= s))
            return false;
        places[s - first] = comes
                                ? arrival.place
                                : device_cache_place(x->device.cache, x->work.layer, a->expert, s);
        if (comes)
            out->last = arrival;
    }
    out->first = first;
    out->n = target - first;
    out->places = places;
    return target > first;
}

/* Queues the computation of segments in flight behind the device's wait for the last one, and waits
 * for all that is queued. queued_s: predicted time of the tasks queued before. Of the device's wait
 * only that time counts as computation, and all of the time after the arrival. */
static enum error_code compute_arriving(struct experts *x, const struct activated *a,
                                        const struct arriving *what, double queued_s,
                                        struct error *e)
{
    uint64_t started = clock_ns();
    device_compute_await(x->device.compute, what->last.slot, what->last.flag);
    x->device.fetch[0] = wants_rows(x, a);
    x->work.tasks[0] = experts_task(x, a, what->first, what->n);
    x->work.tasks[0].places = what->places;
    device_compute_queue(x->device.compute, x->work.tasks, x->device.fetch, 1);
    enum error_code code = await_arrival(x, a, what->first + what->n - 1, &what->last, e);
    uint64_t arrived = clock_ns();
    if (!code)
        code = device_compute_settle(x->device.compute, e);
    double waiting_s = (double)(arrived - started) * 1e-9;
    counter_add(x->counters.device_ns,
                clock_ns() - arrived +
                    (uint64_t)((queued_s < waiting_s ? queued_s : waiting_s) * 1e9));
    counter_add(x->counters.awaited, code ? 0 : what->n);
    return code;
}

/* Computes the first n tasks, and behind them the segments in flight; next NULL: there are none. */
static enum error_code compute_tasks(struct experts *x, uint32_t n, const struct activated *a,
                                     const struct arriving *next, struct error *e)
{
    if (!next)
        return n ? compute_on_device(x, n, e) : ERROR_OK;
    double queued_s = predicted_s(x, n);
    if (n)
        device_compute_queue(x->device.compute, x->work.tasks, x->device.fetch, n);
    return compute_arriving(x, a, next, queued_s, e);
}

/* ---- Loads ---- */

/* Adds a task for the segments of an expert that have arrived and are not computed. */
static void add_arrived(struct experts *x, uint32_t at, uint32_t there, bool fetch, uint32_t *n)
{
    struct activated *a = &x->work.round[at];
    x->device.fetch[*n] = fetch;
    x->work.tasks[*n] = experts_task(x, a, a->done, there - a->done);
    x->work.tasks[(*n)++].places = find_places(x, at, a->expert, a->done, there - a->done);
    a->done = there;
}

/* In one call: what has arrived of the loads from `at` on, and the next segment if it is in flight;
 * within the epoch. The loads arrive in order, so one segment at most is in flight. */
static enum error_code compute_arrived(struct experts *x, uint32_t at, bool waited, struct error *e)
{
    uint32_t n = 0, loaded = 0;
    const struct activated *incomplete = NULL;
    struct arriving next;
    bool comes = false;
    for (uint32_t i = at; i < x->work.n_round; i++) {
        struct activated *a = &x->work.round[i];
        uint32_t target = a->device + a->load, before = a->done;
        if (a->done >= target)
            continue;
        uint32_t there = device_cache_read(x->device.cache, x->work.layer, a->expert).resident;
        there = there < target ? there : target;
        if (there < target && !incomplete) {
            incomplete = a;
            comes = there >= before && all_arrive(x, i, there, there + 1, &next);
        }
        if (there == target)
            correct_load_costs(x, a, waited && i == at);
        if (there > before)
            add_arrived(x, i, there, wants_rows(x, a) && !(comes && a == incomplete), &n);
        loaded += a->done - before;
    }
    enum error_code code = compute_tasks(x, n, incomplete, comes ? &next : NULL, e);
    if (comes)
        x->work.round[incomplete - x->work.round].done += next.n;
    counter_add(x->counters.loaded, code ? 0 : loaded + comes);
    return code;
}

/* Computes the loaded segments of an expert as they arrive, and those of later ones that are there
 * by then. */
static enum error_code compute_load(struct experts *x, uint32_t at, struct error *e)
{
    struct activated *a = &x->work.round[at];
    uint32_t target = a->device + a->load;
    uint64_t since = clock_ns();
    bool waited = false;
    enum error_code code = ERROR_OK;
    while (a->done < target) {
        uint32_t before = a->done;
        device_cache_enter(x->device.cache, x->work.step, x->work.layer);
        code = compute_arrived(x, at, waited, e);
        device_cache_leave(x->device.cache);
        if (code || a->done == target)
            break;
        if (a->done > before) { /* the next may have arrived in that time */
            since = clock_ns();
            waited = false;
            continue;
        }
        if (clock_ns() - since > LOAD_STALL_MS * 1000000ull)
            stop_loads(x);
        if (x->device.breaker.on) {
            code = reclaim(x, a, a->done, target - a->done, e);
            break;
        }
        waited = wait_for(x, a, a->done + 1);
    }
    if (!x->device.breaker.on)
        circuit_breaker_reset(&x->device.breaker);
    device_cache_consumed(x->device.cache);
    return code;
}

/* The one expert with a load; NULL: none. */
static struct activated *loaded_one(struct experts *x)
{
    for (uint32_t i = 0; i < x->work.n_round; i++)
        if (x->work.round[i].load)
            return &x->work.round[i];
    return NULL;
}

static void await_load(struct experts *x, const struct activated *a)
{
    uint32_t target = a->device + a->load, before = 0, there;
    uint64_t since = clock_ns();
    bool waited = false;
    for (;;) {
        struct cached_expert now = device_cache_read(x->device.cache, x->work.layer, a->expert);
        there = now.resident;
        if (there >= target)
            break;
        if (device_compute_awaits(x->device.compute) && there + now.in_flight >= target)
            return;
        if (there != before)
            since = clock_ns();
        else if (clock_ns() - since > LOAD_STALL_MS * 1000000ull) {
            stop_loads(x);
            return;
        }
        before = there;
        waited = wait_for(x, a, target);
    }
    correct_load_costs(x, a, waited);
}

/* Computes the device's share of the round in one call, after the load has arrived, or is in flight
 * and the device can wait for it. The worker waits outside of the epoch, because the epoch may hold
 * the slot that the load needs. Where slots are scarce, resident segments may be evicted in that
 * time; the worker's own threads compute them. */
static enum error_code compute_at_once(struct experts *x, struct error *e)
{
    struct activated *load = loaded_one(x);
    await_load(x, load);
    uint32_t n = 0;
    uint64_t resident = 0, loaded = 0;
    struct arriving coming = {0};
    device_cache_enter(x->device.cache, x->work.step, x->work.layer);
    for (uint32_t i = 0; i < x->work.n_round; i++) {
        struct activated *a = &x->work.round[i];
        uint32_t target = a->device + a->load;
        a->there = device_cache_read(x->device.cache, x->work.layer, a->expert);
        a->there.resident = a->there.resident < target ? a->there.resident : target;
        if (!a->there.resident)
            continue;
        x->device.fetch[n] = wants_rows(x, a);
        x->work.tasks[n] = experts_task(x, a, 0, a->there.resident);
        x->work.tasks[n++].places = find_places(x, i, a->expert, 0, a->there.resident);
        uint32_t before = a->device < a->there.resident ? a->device : a->there.resident;
        resident += before;
        loaded += a->there.resident - before;
    }
    if (!all_arrive(x, (uint32_t)(load - x->work.round), load->there.resident,
                    load->device + load->load, &coming))
        coming.n = 0;
    enum error_code code = compute_tasks(x, n, load, coming.n ? &coming : NULL, e);
    load->there.resident += coming.n;
    loaded += coming.n;
    device_cache_leave(x->device.cache);
    device_cache_consumed(x->device.cache);
    if (code)
        return code;
    counter_add(x->counters.resident, resident);
    counter_add(x->counters.loaded, loaded);
    counter_add(x->counters.at_once, 1);
    if (!x->device.breaker.on)
        circuit_breaker_reset(&x->device.breaker);
    for (uint32_t i = 0; i < x->work.n_round && !code; i++) {
        struct activated *a = &x->work.round[i];
        uint32_t target = a->device + a->load;
        if (a->there.resident < target)
            code = reclaim(x, a, a->there.resident, target - a->there.resident, e);
    }
    return code;
}

enum error_code experts_compute_device(struct experts *x, struct error *e)
{
    device_compute_input(x->device.compute, x->work.layer, x->work.values, x->work.prepared,
                         x->work.n_tokens);
    for (uint32_t i = 0; i < x->work.n_round; i++) {
        x->work.round[i].on_host = x->work.round[i].cpu > 0;
        x->work.round[i].done = x->work.round[i].device;
    }
    if (x->work.device_waits && loaded_one(x)) {
        device_cache_leave(x->device.cache);
        enum error_code code = experts_call_overlap(x, e);
        return code ? code : compute_at_once(x, e);
    }
    enum error_code code = compute_resident(x, e);
    device_cache_leave(x->device.cache);
    for (uint32_t i = 0; i < x->work.n_round && !code; i++)
        if (x->work.round[i].load)
            code = compute_load(x, i, e);
    return code;
}
