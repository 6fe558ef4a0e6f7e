/* The simulated hardware in virtual time: a device with slots behind a link, and a CPU. Link and
 * CPU share the DRAM. The link copies in the order of lib/sched/prefetch/transfer_scheduler.h, as
 * memd's copy thread does. The CPU works through its queue; a call takes some time before it reads
 * memory. While both read, each runs at its contended pace. Deterministic. */
#ifndef MOED_REPLAY_ENGINE_H
#define MOED_REPLAY_ENGINE_H

#include "sched/prefetch/transfer_scheduler.h"
#include "trace/trace.h"

enum { ENGINE_ARRIVALS = 64 };

struct engine {
    const struct trace_shape *shape;
    const struct sched_costs *costs; /* [n_layers]: of a segment; borrowed */
    struct transfer_scheduler *transfers;
    struct sched_cache *cache;
    struct cache_queue queue; /* of requester 0, the only one */
    uint64_t asked, consumed; /* loads */

    double now_s;
    uint32_t n_slots, reserve, n_free, n_retired;
    bool reading; /* slots freed now stay readable until reading ends */

    bool copying;
    struct copy_job job;
    double job_left_s; /* without contention */
    bool asleep;       /* nothing to copy until a hint or a load arrives */
    bool stuck;  /* the next load finds no slot until loads, predictions or slots change: further
                     polls of memd would find none */
    bool rested; /* the link was idle after the last copy */
    double link_call_s;

    double cpu_call_left_s;          /* before the CPU computes */
    double cpu_left_s, cpu_slowdown; /* cpu_left_s: without contention; cpu_slowdown: contended by
                                        uncontended time */

    double link_busy_s, cpu_busy_s, cpu_computed_s; /* cpu_busy_s: with its calls */
    uint64_t copies_made;
    /* The experts of the last copies, copy n, from 0, at n % ENGINE_ARRIVALS. */
    struct engine_arrival {
        uint16_t layer, expert;
    } arrivals[ENGINE_ARRIVALS];
};

struct engine_options {
    const struct trace *trace;
    const struct sched_costs *costs; /* [n_layers] */
    double attention_s;              /* of a layer without its experts */
    double link_call_s;              /* added to a copy that an idle link begins */
    uint32_t n_slots;
    enum sched_cache_kind cache;
    enum sched_budget budget;
    enum sched_prefetcher prefetcher;
    struct sched_cache_options cache_options; /* without the budget and buffers */
};

/* Zeroed e. False: no memory. */
bool engine_init(struct engine *e, const struct engine_options *options);
void engine_fini(struct engine *e); /* takes a zeroed one */

/* Advances to until_s or to the next event (the end of a copy, of the CPU's call or of its work),
 * whichever is sooner. True: it stopped at an event. */
bool engine_advance(struct engine *e, double until_s);
/* Advances to until_s through all events. */
static inline void engine_advance_to(struct engine *e, double until_s)
{
    while (engine_advance(e, until_s))
        ;
}
void engine_wake(struct engine *e); /* e->transfers has new hints or loads */

/* Adds a call and its work to the CPU, the work in uncontended seconds. slowdown: its factor while
 * the link copies. */
void engine_give_cpu(struct engine *e, double call_s, double uncontended_s, double slowdown);
/* Advances until the CPU has done its work. */
void engine_await_cpu(struct engine *e);

void engine_load(struct engine *e, uint32_t layer, uint32_t expert, uint32_t prefix);
void engine_consumed(struct engine *e); /* the oldest load */
/* Advances until `prefix` segments are resident. False: no copy of them can come. */
bool engine_await(struct engine *e, uint32_t layer, uint32_t expert, uint32_t prefix);
/* Slots that are freed between these two stay readable. */
void engine_begin_reading(struct engine *e);
void engine_end_reading(struct engine *e);

#endif
