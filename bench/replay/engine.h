/* Virtual time: a device with slots behind a link, and a CPU, that share the DRAM. Copies go over the link as lib/sched/copies.h
 * decides, as memd's copy thread does; the CPU works off what it is given. While both work, each goes at its contended
 * pace. Deterministic. */
#ifndef MOED_REPLAY_ENGINE_H
#define MOED_REPLAY_ENGINE_H

#include "sched/copies.h"
#include "trace/trace.h"

struct engine {
    const struct trace_shape *shape;
    const struct sched_costs *costs; /* [n_layers]: of a segment; borrowed */
    struct sched_copies *copies;
    struct sched_cache *cache;
    struct cache_queue queue; /* of the one asker, number 0 */
    uint64_t asked, consumed; /* loads */

    double now_s;
    uint32_t n_slots, reserve, n_free, n_retired;
    bool reading; /* what is given up now stays until that is over */

    bool copying;
    struct copy_job job;
    double job_left_s; /* of link time alone */
    bool asleep;       /* nothing to be copied until something is told */
    bool rested;       /* there was nothing to be copied since the last copy */
    double link_call_s;

    double cpu_left_s, cpu_slowdown; /* of CPU time alone; contended by alone */

    double link_busy_s, cpu_busy_s;
    uint64_t copies_made;
};

struct engine_options {
    const struct trace *trace;
    const struct sched_costs *costs; /* [n_layers] */
    double attention_s; /* of a layer outside of its experts */
    double link_call_s; /* of a copy that an idle link is asked for, beside its costs */
    uint32_t n_slots;
    enum sched_cache_kind cache;
    enum sched_budget budget;
    enum sched_prefetcher prefetcher;
    struct sched_cache_options cache_options; /* without the budget and buffers */
};

/* Zeroed e. False: no memory. */
bool engine_init(struct engine *e, const struct engine_options *options);
void engine_fini(struct engine *e); /* takes a zeroed one */

/* Until the time has come; or only until something has happened (a copy, the CPU's end) if that is sooner: true. */
bool engine_advance(struct engine *e, double until_s);
void engine_wake(struct engine *e); /* something was told to e->copies */

/* Adds work to the CPU, in seconds alone; slowdown: while the link copies. */
void engine_give_cpu(struct engine *e, double alone_s, double slowdown);

void engine_load(struct engine *e, uint32_t layer, uint32_t expert, uint32_t prefix);
void engine_consumed(struct engine *e); /* the oldest load */
/* Advances until so many segments are there; false: nothing can bring them. */
bool engine_await(struct engine *e, uint32_t layer, uint32_t expert, uint32_t prefix);
/* What is given up between these two stays readable. */
void engine_begin_reading(struct engine *e);
void engine_end_reading(struct engine *e);

#endif
