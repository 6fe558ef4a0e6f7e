/* lib/sched's assigners on random layers, compared with the promise of each one's rule. A
 * simulation of link, device and CPU in this file computes the time of a plan. Also prints how long
 * planning takes. */
#include "assign_costs.h"
#include "random_numbers.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 64 };

/* A random layer. */
struct instance {
    struct sched_costs costs;
    struct sched_layer layer;
    struct sched_expert experts[MOST];
    uint32_t n;
};

static struct instance random_instance(uint32_t most)
{
    struct instance x = {.n = 1 + below(most)};
    x.layer = (struct sched_layer){.n_segments = 1 + below(6), .whole = below(2)};
    x.layer.spare_slots = below(3) ? 100000 : below(most * x.layer.n_segments);
    if (below(2)) {
        x.layer.cpu_busy_s = between(0, 5);
        x.layer.link_busy_s = between(0, 5);
    }
    /* one after the other, because the compiler chooses the order of a call's arguments */
    double load = between(0.5, 8), device = between(0, 0.1), device_token = between(0, 0.02);
    double cpu = between(0.1, 6), cpu_token = between(0, 2);
    x.costs = costs(load, device, device_token, cpu, cpu_token);
    uint32_t deepest = below(4) ? 4 : 200;
    x.layer.n_tokens = deepest;
    x.layer.prompt = deepest > 32;
    for (uint32_t i = 0; i < x.n; i++) {
        struct sched_expert *e = &x.experts[i];
        *e = (struct sched_expert){.expert = i * 3, .workload = 1 + below(deepest)};
        e->last_use = below(5);
        e->device = e->load = 77; /* must be overwritten */
        if (below(2))
            e->resident = below(x.layer.n_segments + 1);
    }
    if (below(2)) { /* at most one copy is in flight */
        struct sched_expert *e = &x.experts[below(x.n)];
        e->in_flight = e->resident < x.layer.n_segments;
    }
    return x;
}

static void slow_down(struct instance *x)
{
    double link = between(1, 2), cpu = between(1, 2);
    x->costs.load_contended_s *= link;
    x->costs.cpu_contended_s *= cpu;
    x->costs.cpu_contended_token_s *= cpu;
}

static uint32_t missing(const struct instance *x, const struct sched_expert *e)
{
    return x->layer.n_segments - e->resident - e->in_flight;
}

/* The number of segments that the plan copies and that were not in flight. */
static uint32_t new_loads(const struct instance *x, const struct sched_expert *e)
{
    uint32_t there = e->resident + e->in_flight, wanted = e->device + e->load;
    return e->load && wanted > there ? wanted - there : 0;
}

static void check_valid(const struct instance *x, enum sched_assigner kind)
{
    uint32_t loads = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        const struct sched_expert *e = &x->experts[i];
        assert_true(e->device <= e->resident);
        assert_true(e->device + e->load <= x->layer.n_segments);
        assert_true(e->load == 0 || e->device == e->resident); /* a copy extends the prefix */
        if (x->layer.whole)
            assert_true(e->device + e->load == x->layer.n_segments || e->device + e->load == 0);
        loads += new_loads(x, e);
    }
    bool streams = (kind == ASSIGN_QSTAR_STREAM && x->layer.prompt) ||
                   (kind == ASSIGN_LAYERWISE_OFFLOAD && x->layer.n_tokens >= 32);
    bool waves = kind == ASSIGN_BALANCE && x->layer.free_slots && x->layer.device_call_s > 0;
    if (kind != ASSIGN_LOAD_ALL && !streams && !waves)
        assert_true(loads <= x->layer.spare_slots);
    if (kind == ASSIGN_LAYERWISE)
        assert_int_equal(loads, 0);
}

/* A segment that the device computes once it has arrived. at_s: if each copy has a slot. */
struct arrival {
    double at_s, device_s;
    bool in_flight;
};

/* In the order of arrival: those in flight, then the new loads, those of falling workload. */
static uint32_t list_arrivals(const struct instance *x, struct arrival *out)
{
    double link = x->layer.link_busy_s;
    uint32_t order[MOST], n_arrivals = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        uint32_t j = i;
        for (; j > 0 && x->experts[order[j - 1]].workload < x->experts[i].workload; j--)
            order[j] = order[j - 1];
        order[j] = i;
    }
    for (int awaited = 1; awaited >= 0; awaited--)
        for (uint32_t i = 0; i < x->n; i++) {
            const struct sched_expert *e = &x->experts[order[i]];
            uint32_t loads = new_loads(x, e), n = awaited ? e->load - loads : loads;
            for (uint32_t s = 0; s < n; s++) {
                link += awaited ? 0 : x->costs.load_s;
                out[n_arrivals++] = (struct arrival){
                    link, x->costs.device_s + e->workload * x->costs.device_token_s, awaited};
            }
        }
    return n_arrivals;
}

/* The link, and when each segment arrives. */
struct copying {
    double link_s, at_s[MOST * 8];
    uint32_t copied, slots;
};

/* Copies as long as there are slots, which came at since_s. */
static void copy(const struct instance *x, const struct arrival *arrivals, uint32_t n,
                 double since_s, struct copying *c)
{
    for (; c->copied < n && (c->slots || arrivals[c->copied].in_flight); c->copied++) {
        if (!arrivals[c->copied].in_flight) {
            c->link_s = fmax(c->link_s, since_s) + x->costs.load_s;
            c->slots--;
        }
        c->at_s[c->copied] = c->link_s;
    }
}

/* When the device is done that computes the resident experts first, and then in each call all that
 * has arrived. free_slots copies have a slot at first, as many more after the resident experts, and
 * as many again after each call. */
static double follow_device(const struct instance *x, double device_s,
                            const struct arrival *arrivals, uint32_t n)
{
    double call = x->layer.device_call_s, now = device_s > 0 ? call + device_s : 0;
    uint32_t free = x->layer.free_slots ? x->layer.free_slots : MOST * 8;
    struct copying c = {.link_s = x->layer.link_busy_s, .slots = free};
    copy(x, arrivals, n, 0, &c);
    for (uint32_t i = 0; i < n;) {
        c.slots += free;
        copy(x, arrivals, n, now, &c);
        double begun = fmax(now, c.at_s[i]);
        now = begun + call;
        for (; i < c.copied && c.at_s[i] <= begun; i++)
            now += arrivals[i].device_s;
    }
    return now;
}

struct simulated {
    double seconds;
    double imprecision; /* how much the stated time may differ */
};

/* A plan without contention, segment by segment. If only one expert is missing, the device may
 * compute all in one call after its arrival. Where calls take time, assign_finish counts loads with
 * their mean time on the device, and follows only the first calls. */
static struct simulated simulate(const struct instance *x)
{
    double resident = 0, loaded = 0, cpu = 0, call = x->layer.device_call_s;
    uint32_t awaited_experts = 0;
    struct arrival arrivals[MOST * 8];
    for (uint32_t i = 0; i < x->n; i++) {
        const struct sched_expert *e = &x->experts[i];
        double device_s = x->costs.device_s + e->workload * x->costs.device_token_s;
        resident += e->device * device_s;
        loaded += e->load * device_s;
        awaited_experts += e->load > 0;
        cpu += (x->layer.n_segments - e->device - e->load) *
               (x->costs.cpu_s + e->workload * x->costs.cpu_token_s);
    }
    uint32_t n = list_arrivals(x, arrivals);
    double link = n ? arrivals[n - 1].at_s : x->layer.link_busy_s;
    double device = follow_device(x, resident, arrivals, n);
    if (awaited_experts == 1)
        device = fmin(device, link + call + resident + loaded);
    bool exact = n <= 8;
    for (uint32_t i = 1; i < n; i++)
        exact &= arrivals[i].device_s == arrivals[0].device_s;
    return (struct simulated){fmax(device, cpu > 0 ? x->layer.cpu_busy_s + cpu : 0),
                              call > 0 && !exact ? call + loaded : 0};
}

/* Every plan is feasible, takes the time that it states (exactly, where the device's calls take no
 * time or the loads are few and of one size), and is the same when repeated. */
static void test_plans(void **state)
{
    random_state = 1;
    for (int round = 0; round < 20000; round++) {
        struct instance x = random_instance(12);
        bool contended = below(2);
        if (contended)
            slow_down(&x);
        x.layer.device_call_s = below(2) ? between(0, 5) : 0;
        x.layer.free_slots = x.layer.device_call_s > 0 ? below(5) : 0;
        for (int kind = 0; kind < N_ASSIGNERS; kind++) {
            struct instance y = x, z = x;
            double seconds =
                sched_assign((enum sched_assigner)kind, &y.costs, &y.layer, y.experts, y.n);
            check_valid(&y, (enum sched_assigner)kind);
            struct simulated real = simulate(&y);
            if (!contended && !(fabs(seconds - real.seconds) <= real.imprecision + 1e-9))
                fail_msg("%.12g seconds, not %.12g +- %g", seconds, real.seconds, real.imprecision);
            assert_true(sched_assign((enum sched_assigner)kind, &z.costs, &z.layer, z.experts,
                                     z.n) == seconds);
            assert_memory_equal(&y.experts, &z.experts, sizeof y.experts);
        }
    }
}

/* The rule's comparison for each missing expert. */
static void test_threshold_rule(void **state)
{
    random_state = 2;
    for (int round = 0; round < 5000; round++) {
        struct instance x = random_instance(12);
        x.layer.whole = true;
        x.layer.spare_slots = 100000;
        sched_assign(ASSIGN_THRESHOLD, &x.costs, &x.layer, x.experts, x.n);
        for (uint32_t i = 0; i < x.n; i++) {
            const struct sched_expert *e = &x.experts[i];
            double s = x.layer.n_segments;
            double cpu = s * (x.costs.cpu_s + e->workload * x.costs.cpu_token_s);
            double device = missing(&x, e) * x.costs.load_s +
                            s * (x.costs.device_s + e->workload * x.costs.device_token_s);
            bool on_cpu = missing(&x, e) && cpu < device;
            assert_int_equal(e->device + e->load, on_cpu ? 0 : x.layer.n_segments);
        }
    }
}

/* DALI's own estimate of its plan: never later than a plan with all experts on one side. */
static void test_greedy_bound(void **state)
{
    random_state = 3;
    for (int round = 0; round < 5000; round++) {
        struct instance x = random_instance(MOST);
        x.layer.whole = true;
        x.layer.spare_slots = 100000;
        sched_assign(ASSIGN_GREEDY, &x.costs, &x.layer, x.experts, x.n);
        double cpu = x.layer.cpu_busy_s, device = x.layer.link_busy_s, all_cpu = cpu,
               all_device = device;
        for (uint32_t i = 0; i < x.n; i++) {
            const struct sched_expert *e = &x.experts[i];
            double s = x.layer.n_segments;
            double on_cpu = s * (x.costs.cpu_s + e->workload * x.costs.cpu_token_s);
            double on_device = fmax(missing(&x, e) * x.costs.load_s,
                                    s * (x.costs.device_s + e->workload * x.costs.device_token_s));
            all_cpu += on_cpu;
            all_device += on_device;
            if (e->device + e->load)
                device += on_device;
            else
                cpu += on_cpu;
        }
        assert_true(fmax(cpu, device) <= 1e-9 + fmax(all_cpu, x.layer.link_busy_s));
        assert_true(fmax(cpu, device) <= 1e-9 + fmax(all_device, x.layer.cpu_busy_s));
    }
}

/* The optimum for segments that can be cut at will, in the order of the saved time, with a device
 * that takes no time: the intersection of the link's and the CPU's lines. By bisection over the
 * seconds of link. */
static double continuous_optimum(const struct instance *x, double *segment_s)
{
    double low = 0, high = 0;
    *segment_s = x->costs.load_s;
    for (uint32_t i = 0; i < x->n; i++)
        high += missing(x, &x->experts[i]);
    double all = high;
    bool done[MOST];
    for (int round = 0; round < 100; round++) {
        double loads = (low + high) / 2, left = loads, cpu = 0;
        memset(done, 0, sizeof done);
        for (uint32_t k = 0; k < x->n; k++) {
            uint32_t most = MOST;
            for (uint32_t i = 0; i < x->n; i++)
                if (!done[i] &&
                    (most == MOST || x->experts[i].workload > x->experts[most].workload))
                    most = i;
            done[most] = true;
            const struct sched_expert *e = &x->experts[most];
            double taken = fmin(left, missing(x, e));
            double each = x->costs.cpu_s + e->workload * x->costs.cpu_token_s;
            left -= taken;
            cpu += (missing(x, e) - taken) * each;
            if (missing(x, e))
                *segment_s = fmax(*segment_s, each);
        }
        double link = x->layer.link_busy_s + loads * x->costs.load_s;
        if (x->layer.cpu_busy_s + cpu > link)
            low = loads;
        else
            high = loads;
    }
    if (low >= all - 1e-9) /* the CPU is late even without work */
        return x->layer.link_busy_s + all * x->costs.load_s;
    return x->layer.link_busy_s + high * x->costs.load_s;
}

static void test_balance_continuous(void **state)
{
    random_state = 4;
    for (int round = 0; round < 3000; round++) {
        struct instance x = random_instance(40);
        x.layer.whole = false;
        x.layer.spare_slots = 100000;
        x.costs.device_s = x.costs.device_token_s = 0;
        double segment_s, optimum = continuous_optimum(&x, &segment_s);
        double got = sched_assign(ASSIGN_BALANCE, &x.costs, &x.layer, x.experts, x.n);
        uint32_t loads = 0;
        for (uint32_t i = 0; i < x.n; i++)
            loads += new_loads(&x, &x.experts[i]);
        if (loads && got > optimum + segment_s + 1e-9)
            fail_msg("%g seconds, the optimum is %g, a segment %g", got, optimum, segment_s);
        /* Never better than the optimum; the time of a link that is busy longer than all else does
         * not count. */
        if (x.layer.link_busy_s == 0)
            assert_true(got >= optimum - 1e-6 || loads == 0);
    }
}

/* Every plan of a few experts, by simulation: balance is within one segment of the best, with
 * segments and with whole experts. */
static void enumerate(struct instance *x, uint32_t i, double *best)
{
    if (i == x->n) {
        *best = fmin(*best, simulate(x).seconds);
        return;
    }
    struct sched_expert *e = &x->experts[i];
    uint32_t there = e->resident + e->in_flight;
    for (uint32_t total = there; total <= x->layer.n_segments; total++) {
        if (x->layer.whole && total != x->layer.n_segments)
            continue;
        e->device = e->resident;
        e->load = total - e->device;
        enumerate(x, i + 1, best);
    }
    if (x->layer.whole) {
        e->device = e->load = 0;
        enumerate(x, i + 1, best);
    }
}

static void test_balance_best(void **state)
{
    random_state = 5;
    for (int round = 0; round < 2000; round++) {
        struct instance x = random_instance(5);
        x.layer.n_segments = x.layer.n_segments > 4 ? 4 : x.layer.n_segments;
        for (uint32_t i = 0; i < x.n; i++) {
            struct sched_expert *e = &x.experts[i];
            e->resident = e->resident % (x.layer.n_segments + 1);
            e->in_flight = e->in_flight && e->resident < x.layer.n_segments;
        }
        x.layer.spare_slots = 100000;
        struct instance y = x;
        double best = INFINITY, largest = x.costs.load_s + x.costs.device_s;
        enumerate(&y, 0, &best);
        for (uint32_t i = 0; i < x.n; i++) {
            double each = x.costs.cpu_s + x.experts[i].workload * x.costs.cpu_token_s;
            largest = fmax(largest, each);
        }
        if (x.layer.whole) /* the unit of a move is an expert */
            largest *= x.layer.n_segments;
        double got = sched_assign(ASSIGN_BALANCE, &x.costs, &x.layer, x.experts, x.n);
        if (got > best + largest + 1e-9)
            fail_msg("round %d: %g, the best is %g, a segment %g", round, got, best, largest);
    }
}

/* By the time that assign_finish() states, with contention: no other assigner is better by more
 * than a segment and the device's call for it, and neither extreme is better at all. */
static void test_balance_others(void **state)
{
    random_state = 6;
    for (int round = 0; round < 20000; round++) {
        struct instance x = random_instance(MOST);
        if (below(2))
            slow_down(&x);
        x.layer.device_call_s = below(2) ? between(0, 5) : 0;
        double got[N_ASSIGNERS], segment_s = x.costs.load_contended_s;
        for (int kind = 0; kind < N_ASSIGNERS; kind++) {
            struct instance y = x;
            got[kind] = sched_assign((enum sched_assigner)kind, &y.costs, &y.layer, y.experts, y.n);
        }
        for (uint32_t i = 0; i < x.n; i++)
            segment_s = fmax(segment_s, x.costs.cpu_contended_s +
                                            x.experts[i].workload * x.costs.cpu_contended_token_s);
        if (x.layer.whole)
            segment_s *= x.layer.n_segments;
        segment_s += x.layer.device_call_s;
        double balance = got[ASSIGN_BALANCE];
        for (int kind = 0; kind < ASSIGN_BALANCE; kind++) {
            bool bounded = kind != ASSIGN_LOAD_ALL || x.layer.spare_slots == 100000;
            if (bounded && balance > got[kind] + segment_s + 1e-9)
                fail_msg("round %d: %g, %s has %g, a segment %g", round, balance,
                         sched_assigner_name((enum sched_assigner)kind), got[kind], segment_s);
        }
        if (x.layer.spare_slots == 100000)
            assert_true(balance <= got[ASSIGN_LOAD_ALL] + 1e-9);
        struct sched_layer no_slots = x.layer;
        no_slots.spare_slots = 0;
        assert_true(balance <=
                    1e-9 + sched_assign(ASSIGN_BALANCE, &x.costs, &no_slots, x.experts, x.n));
    }
}

/* Prints how long a plan takes. */
static void test_speed(void **state)
{
    static struct sched_expert experts[SCHED_MAX_EXPERTS];
    static const uint32_t sizes[] = {8, 32, 128, 512, SCHED_MAX_EXPERTS};
    struct sched_costs c = costs(3, 0.1, 0.01, 1, 0.5);
    random_state = 7;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        uint32_t n = sizes[k], rounds = 1 + 20000 / n;
        struct sched_layer layer = {
            .n_segments = 8, .spare_slots = 100000, .device_call_s = 9, .free_slots = 64};
        for (uint32_t i = 0; i < n; i++)
            experts[i] = (struct sched_expert){.expert = i,
                                               .workload = 1 + below(32),
                                               .resident = below(3) * 4,
                                               .last_use = below(1000)};
        char line[160] = "";
        for (int kind = 0; kind < N_ASSIGNERS; kind++) {
            double best = INFINITY;
            for (int batch = 0; batch < 9; batch++) {
                double start = clock_s();
                for (uint32_t r = 0; r < rounds; r++)
                    sched_assign((enum sched_assigner)kind, &c, &layer, experts, n);
                best = fmin(best, (clock_s() - start) * 1e6 / rounds);
            }
            snprintf(line + strlen(line), sizeof line - strlen(line), " %s %.2f",
                     sched_assigner_name((enum sched_assigner)kind), best);
        }
        print_message("%u experts, microseconds:%s\n", n, line);
        for (uint32_t i = 0; i < n; i++)
            assert_true(experts[i].device + experts[i].load <= layer.n_segments);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans),        cmocka_unit_test(test_threshold_rule),
        cmocka_unit_test(test_greedy_bound), cmocka_unit_test(test_balance_continuous),
        cmocka_unit_test(test_balance_best), cmocka_unit_test(test_balance_others),
        cmocka_unit_test(test_speed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
