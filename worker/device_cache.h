/* The worker's side of the expert cache on a device with memory of its own: which segments are there, where they lie, asking
 * memd for more; and following the arena, whose pieces memd adds and takes back (ipc/arena_follow.h). One thread, the
 * engine's. */
#ifndef MOED_WORKER_DEVICE_CACHE_H
#define MOED_WORKER_DEVICE_CACHE_H

#include "cache_link.h"
#include "device_compute.h"
#include "sched/assign.h"

struct device_cache;

struct cached_expert {
    uint32_t resident, in_flight; /* segments */
};

/* Borrows all. ERROR_MEMORY, or what importing the arena's pieces fails with. */
enum error_code device_cache_new(const struct memory_client *memory, struct device_compute *compute,
                                 struct cache_link *link, struct device_cache **out, struct error *e);
void device_cache_free(struct device_cache *c); /* takes NULL */

/* Do what memd waits for, if anything (each enter does, too): while nothing is computed nobody enters, so now and
 * then. */
void device_cache_follow(struct device_cache *c);
/* What memd lets the KV cache have of the device's memory, and telling it what that has or may take: bytes, as
 * residency_header.kv_bytes and cache_channel_header.kv_bytes. */
uint64_t device_cache_kv_limit(const struct device_cache *c);
void device_cache_tell_kv(struct device_cache *c, uint64_t bytes);

/* Signs of life of memd's copy thread: copies begun and ended, records that it has taken from us. */
struct cache_pulse {
    uint64_t copies;
    uint32_t records;
};
struct cache_pulse device_cache_pulse(const struct device_cache *c);

/* What is read between enter and leave stays where it is. Not nested. */
void device_cache_enter(struct device_cache *c, uint64_t step, uint32_t layer);
/* Within: what is under way is at a later layer. */
void device_cache_pass(struct device_cache *c, uint64_t step, uint32_t layer);
void device_cache_leave(struct device_cache *c);
/* The device has room for every segment. */
bool device_cache_holds_all(const struct device_cache *c);
/* Changes when a copy to the device begins or ends, and is odd while one is under way. */
uint64_t device_cache_copies(const struct device_cache *c);
/* Grows with every change of what `read` says, before what is gone is overwritten. Within. */
uint64_t device_cache_changes(const struct device_cache *c);
/* Copies are slower than they will be: memd still pins what they come from. */
bool device_cache_pinning(const struct device_cache *c);
/* For how long the copy under way has been so. */
double device_cache_copying_s(const struct device_cache *c);
/* Within: what there is of an expert, and where its resident segments lie (on the device). */
struct cached_expert device_cache_read(const struct device_cache *c, uint32_t layer,
                                       uint32_t expert);
const uint8_t *device_cache_place(const struct device_cache *c, uint32_t layer, uint32_t expert,
                                  uint32_t segment);
/* Within: the expert's segment after its first `segment` ones is being copied: where to (on the device), and what its slot's flag
 * becomes when it is there, which it will be unless memd or the device die. */
struct cached_arrival {
    const uint8_t *place;
    uint32_t slot, flag;
};
bool device_cache_arriving(const struct device_cache *c, uint32_t layer, uint32_t expert, uint32_t segment,
                           struct cached_arrival *out);

/* Tell memd, in pieces of a record: what a layer activates; of whom so many leading segments are wanted. False where the ring
 * is full: the rest is not said, and a load that was not said does not come. */
bool device_cache_routed(struct device_cache *c, uint64_t step, uint32_t layer,
                         const struct cache_mention *experts, uint32_t n);
/* value: 65535 times the probability that the layer, one still to come, activates the expert. */
bool device_cache_predicted(struct device_cache *c, uint64_t step, uint32_t layer,
                            const struct cache_mention *experts, uint32_t n);
/* The same of all that is predicted, for memd's cache policy alone. */
bool device_cache_expected(struct device_cache *c, uint64_t step, uint32_t layer,
                           const struct cache_mention *experts, uint32_t n);
/* What memd's cache policy reads beside: bits of sched_cache_reads. */
uint32_t device_cache_reads(const struct device_cache *c);
/* value: 65535 times the mean over the batch of its gate's probability. */
bool device_cache_scores(struct device_cache *c, uint64_t step, uint32_t layer,
                         const struct cache_mention *experts, uint32_t n);
/* What things cost now: of a segment, of a layer without its experts, of a step outside of all layers. */
bool device_cache_costs(struct device_cache *c, const struct sched_costs *costs, double attention_s,
                        double head_s);
/* The loads of no step (0), which a calibration times, are over. */
void device_cache_measured(struct device_cache *c);
bool device_cache_load(struct device_cache *c, uint64_t step, uint32_t layer, uint32_t expert,
                       uint32_t segments);
/* The oldest load that was asked for is used up, or no longer wanted. */
void device_cache_consumed(struct device_cache *c);
/* Ring memd after routed and load. */
void device_cache_notify(struct device_cache *c);

/* Outside: until at least `segments` are resident, or something else arrived, or timeout_ms. */
void device_cache_wait(struct device_cache *c, uint32_t layer, uint32_t expert, uint32_t segments,
                       unsigned spin_us, int timeout_ms);
/* The same, but it is enough that the last of them is in flight. */
void device_cache_wait_begun(struct device_cache *c, uint32_t layer, uint32_t expert, uint32_t segments,
                             unsigned spin_us, int timeout_ms);
/* Until what device_cache_arriving told is there, or timeout_ms; within too: what is in flight needs no room any more. False: it
 * is still in flight. */
bool device_cache_wait_arrived(struct device_cache *c, uint32_t layer, uint32_t expert, uint32_t segment,
                               const struct cached_arrival *arrival, unsigned spin_us, int timeout_ms);

#endif
