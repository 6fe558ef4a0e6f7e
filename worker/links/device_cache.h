/* The worker's side of the expert cache on a device with memory of its own. It reads which segments
 * are resident and where they lie, requests more from memd, and follows the arena as memd adds and
 * removes extents (ipc/arena_follow.h). Threads: only the engine's. */
#ifndef MOED_WORKER_LINKS_DEVICE_CACHE_H
#define MOED_WORKER_LINKS_DEVICE_CACHE_H

#include "cache_link.h"
#include "device_compute.h"
#include "sched/assign/assign.h"

struct device_cache;

struct cached_expert {
    uint32_t resident, in_flight; /* segments */
};

/* Borrows all. ERROR_MEMORY, or the error of importing the arena's extents. */
enum error_code device_cache_new(const struct memory_client *memory, struct device_compute *compute,
                                 struct cache_link *link, struct device_cache **out,
                                 struct error *e);
void device_cache_free(struct device_cache *c); /* takes NULL */

/* Follows a change of the arena that memd waits for. Each enter does this too; call it now and then
 * while nothing is computed. False: there was none. */
bool device_cache_follow(struct device_cache *c);
/* The bytes that memd allows the KV cache (residency_header.kv_bytes), and the report to memd of
 * the bytes that it has or may take (cache_channel_header.kv_bytes). */
uint64_t device_cache_kv_limit(const struct device_cache *c);
void device_cache_report_kv(struct device_cache *c, uint64_t bytes);

/* The heartbeat of memd's copy thread: copies begun and ended, and records taken from the ring. */
struct cache_heartbeat {
    uint64_t copies;
    uint32_t records;
};
struct cache_heartbeat device_cache_heartbeat(const struct device_cache *c);

/* Begins and ends an epoch: segments that are read within it stay where they are. Not nested.
 * "Within" and "outside" below mean an epoch. */
void device_cache_enter(struct device_cache *c, uint64_t step, uint32_t layer);
/* Reports that the computation has reached a later layer. */
void device_cache_pass(struct device_cache *c, uint64_t step, uint32_t layer);
void device_cache_leave(struct device_cache *c);
/* True: the device has slots for every segment. */
bool device_cache_holds_all(const struct device_cache *c);
/* A number that changes when a copy to the device begins or ends, and is odd during a copy. */
uint64_t device_cache_copies(const struct device_cache *c);
/* Within: a number that grows with every change of the residency table, before the slot of an
 * evicted segment is overwritten. */
uint64_t device_cache_changes(const struct device_cache *c);
/* True: memd still pins the host pool, so copies are slower than they will be. */
bool device_cache_pinning(const struct device_cache *c);
/* Seconds since the copy under way began. */
double device_cache_copying_s(const struct device_cache *c);
/* Within: an expert's segments, and the device address of a resident one. */
struct cached_expert device_cache_read(const struct device_cache *c, uint32_t layer,
                                       uint32_t expert);
const uint8_t *device_cache_place(const struct device_cache *c, uint32_t layer, uint32_t expert,
                                  uint32_t segment);
/* Within: whether segment number `segment` (from 0) of an expert is being copied. If so, *out has
 * its device address, its slot, and the value that the slot's flag gets when it is there. The flag
 * gets the value unless memd or the device dies. */
struct cached_arrival {
    const uint8_t *place;
    uint32_t slot, flag;
};
bool device_cache_arriving(const struct device_cache *c, uint32_t layer, uint32_t expert,
                           uint32_t segment, struct cached_arrival *out);

/* Messages to memd, several entries to a record. False: the ring is full, and the rest was not
 * written; memd does not perform a load that was not written.
 *
 * routed: the experts that a layer activates. */
bool device_cache_routed(struct device_cache *c, const struct cache_turn *turn,
                         const struct cache_hint *experts, uint32_t n);
/* Prefetch hints for a coming layer. value: 65535 times the probability that it activates the
 * expert.
 */
bool device_cache_predicted(struct device_cache *c, uint64_t step, uint32_t layer,
                            const struct cache_hint *experts, uint32_t n);
/* As device_cache_predicted, for everything that is predicted; only memd's cache policy reads it.
 */
bool device_cache_expected(struct device_cache *c, uint64_t step, uint32_t layer,
                           const struct cache_hint *experts, uint32_t n);
/* The additional inputs that memd's cache policy reads: bits of sched_cache_reads. */
uint32_t device_cache_reads(const struct device_cache *c);
/* value: 65535 times the mean over the batch of its gate's probability. */
bool device_cache_scores(struct device_cache *c, uint64_t step, uint32_t layer,
                         const struct cache_hint *experts, uint32_t n);
/* The present costs: of segments, of a layer without its experts (attention_s), of a step outside
 * of all layers (head_s). */
bool device_cache_costs(struct device_cache *c, const struct sched_costs *costs, double attention_s,
                        double head_s);
/* The calibration's loads, which have step 0, are over. */
void device_cache_measured(struct device_cache *c);
bool device_cache_load(struct device_cache *c, uint64_t step, uint32_t layer, uint32_t expert,
                       uint32_t segments);
/* The oldest requested load has been used, or is no longer wanted. */
void device_cache_consumed(struct device_cache *c);
/* Rings memd: call it after routed and load. */
void device_cache_notify(struct device_cache *c);

/* Outside: waits until at least `segments` are resident, or another segment arrived, or timeout_ms.
 */
void device_cache_wait(struct device_cache *c, uint32_t layer, uint32_t expert, uint32_t segments,
                       struct spinner *spinner, int timeout_ms);
/* As device_cache_wait, but returns when the last of them is in flight. */
void device_cache_wait_begun(struct device_cache *c, uint32_t layer, uint32_t expert,
                             uint32_t segments, struct spinner *spinner, int timeout_ms);
/* Waits until a segment that device_cache_arriving returned is there, or timeout_ms. Allowed within
 * too: a segment in flight has its slot already. False: it is still in flight. */
bool device_cache_wait_arrived(struct device_cache *c, uint32_t layer, uint32_t expert,
                               uint32_t segment, const struct cached_arrival *arrival,
                               struct spinner *spinner, int timeout_ms);

#endif
