/* What the users of a device's memory want, and what does not fit; see device_plan.h. */
#include "device/device_plan.h"

#include "base/checked.h"
#include "base/log.h"
#include "base/quantity.h"
#include "base/strbuf.h"
#include "device/batch_plan.h"
#include "device/worker_memory.h"
#include "model/kv_type.h"
#include "model/serving_limits.h"

#include <inttypes.h>
#include <stdio.h>

/* A process's context of the driver, with its kernels, grows with the multiprocessors. memd's
 * context is there already when memd reads the free memory; the plan counts it again, for cuBLAS,
 * the driver's rounding and page tables, and the segments that the worker calibrates with. On a
 * small device both together count as at most a quarter of the free memory. */
#define CONTEXT_BYTES        (256ull << 20)
#define MULTIPROCESSOR_BYTES (2ull << 20)
#define DRIVER_PART          4

/* Where a display runs on the device, its programs take memory while moed serves. As much stays
 * free for them, if the user says nothing, and at most this part of the device's memory. A browser
 * with a few pages has some hundreds of MB. (llama.cpp leaves 1 GiB of every device.) */
#define DISPLAY_BYTES (512ull << 20)
#define DISPLAY_PART  8

/* ---- What the users of the device want ---- */

static enum error_code want_slots(const struct pool_map *map, const struct device_spec *s,
                                  struct device_plan *p, struct error *e)
{
    p->total_segments = pool_map_segments(map);
    if (p->total_segments == 0)
        return error_set(e, ERROR_USAGE, "the model has no experts to cache: use --device host");
    p->slot_bytes = round_up(pool_map_largest_segment(map), 64);
    p->n_segments = pool_map_most_segments(map);
    p->asked_bytes = device_arena_bytes(s, map->header->expert_bytes);
    if (p->asked_bytes && p->asked_bytes < p->slot_bytes)
        return error_set(e, ERROR_USAGE,
                         "the device's %" PRIu64
                         " bytes hold no segment of an expert, which has %" PRIu64
                         ": give it more (vram=)",
                         p->asked_bytes, p->slot_bytes);
    return ERROR_OK;
}

/* The parts of fixed size but for the scratch and the KV cache, of a device that is not emulated,
 * and what these depend on. */
static enum error_code want_fixed(const struct device_module *module, const struct pool_map *map,
                                  const struct device_plan_options *o, struct device_plan *p,
                                  struct worker_memory_needs *needs, struct error *e)
{
    bool dense = !o->device->dense_on_host;
    enum error_code code = dense ? kv_type_check(&map->params, o->kv_type, e) : ERROR_OK;
    if (code)
        return code;
    *needs = (struct worker_memory_needs){
        .module = module,
        .map = map,
        .parallel = o->parallel,
        .context = serving_context(&map->params, o->context, UINT32_MAX, true),
        .kv_type = o->kv_type,
        .dense = dense,
        .blas = !o->reproducible};
    p->workers = o->workers ? o->workers : 1;
    p->dense_bytes = dense ? pool_map_dense(map).bytes : 0;
    p->unit_bytes = DEVICE_ALLOCATION_BYTES;
    return ERROR_OK;
}

static uint32_t workers_of(const struct device_plan *p)
{
    return p->workers ? p->workers : 1;
}

/* What stays free for other programs. Without reserve= it is a default, which is dropped where
 * the rest would not suffice (share). */
static void want_reserve(struct device_plan *p, const struct device_facts *facts,
                         const struct device_spec *s)
{
    uint64_t most = facts->memory_bytes / DISPLAY_PART,
             display = DISPLAY_BYTES < most ? DISPLAY_BYTES : most;
    p->reserve_bytes = s->reserve_set ? s->reserve_bytes : facts->display ? display : 0;
}

/* device_share; where the parts do not fit next to a default reserve, without it. */
static enum device_part share(struct device_plan *p, const struct device_spec *s)
{
    enum device_part lacks = device_share(p);
    if (!lacks || s->reserve_set || !p->reserve_bytes)
        return lacks;
    uint64_t reserve = p->reserve_bytes;
    p->reserve_bytes = 0;
    lacks = device_share(p);
    if (lacks)
        p->reserve_bytes = reserve; /* memory that becomes free may be enough for both */
    return lacks;
}

/* A context each of memd and the workers. */
static void look_at(struct device_plan *p, const struct device_facts *facts, uint64_t free_bytes)
{
    uint64_t contexts =
        (1ull + workers_of(p)) * (CONTEXT_BYTES + facts->multiprocessors * MULTIPROCESSOR_BYTES);
    uint64_t most = free_bytes / DRIVER_PART;
    p->free_bytes = free_bytes;
    p->driver_bytes = contexts < most ? contexts : most;
}

/* Bytes of a worker's KV cache for so many requests of the whole context. */
static uint64_t kv_of(const struct worker_memory_needs *needs, enum tensor_type type,
                      uint32_t requests)
{
    return needs->dense ? worker_memory_kv(&needs->map->params, type, requests, needs->context,
                                           needs->max_tokens)
                        : 0;
}

/* Chooses the batch by the memory that is free now, and takes its scratch and the KV cache of so
 * many requests. */
static void want_scratch(struct device_plan *p, struct worker_memory_needs *needs, uint32_t batch,
                         uint32_t kv_requests)
{
    struct worker_memory capacity;
    p->kv_requests = needs->kv_requests = kv_requests;
    p->batch = batch ? batch : batch_plan(needs, p);
    needs->max_tokens = serving_batch_tokens(p->batch, needs->parallel);
    worker_memory(needs, &capacity);
    if (!checked_mul(capacity.scratch_bytes, workers_of(p), &p->scratch_bytes) ||
        !checked_mul(capacity.kv_bytes, workers_of(p), &p->kv_bytes) ||
        !checked_mul(kv_of(needs, needs->kv_type, 1), workers_of(p), &p->kv_least_bytes))
        p->scratch_bytes = UINT64_MAX;                     /* which does not fit */
    p->state_bytes = capacity.state_bytes * workers_of(p); /* less than scratch_bytes */
}

#define KV_PART 4 /* of what the KV cache and the experts share */

/* Whether the KV cache leaves the experts enough: they have what the user gave them, or all fit. */
static bool kv_is_fair(const struct device_plan *wanted)
{
    struct device_plan p = *wanted;
    return !device_share(&p) && (p.asked_bytes || p.n_slots == device_share_most_slots(&p) ||
                                 p.kv_bytes <= p.capacity_bytes / KV_PART);
}

/* What stays free, and what depends on the memory that is free now: the requests of the KV cache,
 * the batch, and the bytes of both. */
static void want_free(struct device_plan *p, const struct device_facts *facts,
                      struct worker_memory_needs *needs, const struct device_plan_options *o)
{
    uint32_t requests = o->kv_requests ? o->kv_requests : DEFAULT_KV_REQUESTS;
    want_reserve(p, facts, o->device);
    look_at(p, facts, facts->free_bytes);
    want_scratch(p, needs, o->batch, requests);
    p->kv_most = requests;
    while (!o->kv_requests && requests > 1 && !kv_is_fair(p))
        want_scratch(p, needs, o->batch, requests /= 2);
    if (!checked_mul(kv_of(needs, needs->kv_type, p->kv_most), workers_of(p), &p->kv_most_bytes))
        p->kv_most_bytes = p->kv_bytes;
}

/* ---- The plan as text ---- */

struct words {
    char driver[24], dense[24], scratch[24], states[24], kv[24], slots[24], free[24], memory[24],
        reserve[24];
    char requests[96]; /* of the KV cache */
    char less_kv[96];  /* options with which it is smaller, and its size then; empty: none */
    char device[160];
};

/* The options for a smaller KV cache, each with the size that it gives. */
static void put_less_kv(const struct device_plan *p, const struct worker_memory_needs *needs,
                        struct words *w)
{
    const enum tensor_type small[] = {TENSOR_Q8_0, TENSOR_F16};
    char one[24], bytes[24];
    struct error e;
    int n = 0;
    w->less_kv[0] = 0;
    quantity_format_bytes(p->kv_least_bytes, one);
    if (p->kv_requests > 1)
        n = snprintf(w->less_kv, sizeof w->less_kv, "--parallel 1 (%s)", one);
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        uint64_t each = kv_of(needs, small[i], p->kv_requests);
        if (kv_type_check(&needs->map->params, small[i], &e) || each >= p->kv_bytes / workers_of(p))
            continue;
        quantity_format_bytes(each * workers_of(p), bytes);
        snprintf(w->less_kv + n, sizeof w->less_kv - (size_t)n, "%s--kv-type %s (%s)",
                 n ? " or " : "", small[i] == TENSOR_F16 ? "f16" : "q8_0", bytes);
        return;
    }
}

static void put_in_words(const struct device_plan *p, const struct device_facts *facts,
                         const struct worker_memory_needs *needs,
                         const struct device_plan_options *o, struct words *w)
{
    quantity_format_bytes(p->reserve_bytes, w->reserve);
    quantity_format_bytes(p->driver_bytes, w->driver);
    quantity_format_bytes(p->dense_bytes, w->dense);
    quantity_format_bytes(p->scratch_bytes, w->scratch);
    quantity_format_bytes(p->state_bytes, w->states);
    quantity_format_bytes(p->kv_bytes, w->kv);
    quantity_format_bytes(p->free_bytes, w->free);
    quantity_format_bytes(facts->memory_bytes, w->memory);
    quantity_format_bytes(p->n_slots       ? device_share_slots_bytes(p)
                          : p->asked_bytes ? p->asked_bytes
                                           : p->slot_bytes,
                          w->slots);
    int n = snprintf(w->requests, sizeof w->requests, "%" PRIu32 " request%s of %" PRIu32 " tokens",
                     p->kv_requests, p->kv_requests == 1 ? "" : "s", needs->context);
    if (p->workers > 1)
        snprintf(w->requests + n, sizeof w->requests - (size_t)n,
                 " for each of %" PRIu32 " workers", p->workers);
    snprintf(w->device, sizeof w->device, "cuda:%u %s", o->device->ordinal, facts->name);
    put_less_kv(p, needs, w);
}

/* The parts before `part`, which fit, and `part`, which does not. */
static void report_lack(struct strbuf *b, const struct device_plan *p, enum device_part part,
                        const struct words *w)
{
    if (part == DEVICE_PART_RESERVE) {
        strbuf_printf(b, "there is no space for reserve=%s: give a smaller one", w->reserve);
        return;
    }
    strbuf_printf(b, "after ");
    if (p->reserve_bytes)
        strbuf_printf(b, "%s for other programs (reserve=), ", w->reserve);
    strbuf_printf(b, "%s for the driver", w->driver);
    if (p->dense_bytes && part > DEVICE_PART_DENSE)
        strbuf_printf(b, ", %s dense weights", w->dense);
    if (part > DEVICE_PART_SCRATCH)
        strbuf_printf(b, ", %s scratch", w->scratch);
    if (p->kv_bytes && part > DEVICE_PART_KV)
        strbuf_printf(b, ", %s KV cache (%s)", w->kv, w->requests);
    strbuf_printf(b, ", there is no space for ");
    if (part == DEVICE_PART_DENSE)
        strbuf_printf(b, "%s dense weights: ", w->dense);
    else if (part == DEVICE_PART_SCRATCH)
        strbuf_printf(b, "%s scratch: ", w->scratch);
    else if (part == DEVICE_PART_KV)
        strbuf_printf(b, "%s KV cache (%s): ", w->kv, w->requests);
    else
        strbuf_printf(b, "%s of experts%s: ", w->slots, p->asked_bytes ? "" : ", a single segment");
}

static void report_remedy(struct strbuf *b, const struct device_plan *p, enum device_part part,
                          const struct words *w)
{
    const char *before = "";
    bool dense = p->dense_bytes > 0;
    if (part == DEVICE_PART_RESERVE)
        return;
    if (p->reserve_bytes) {
        strbuf_printf(b, "give a smaller reserve=");
        before = ", ";
    }
    if (part == DEVICE_PART_SLOTS && p->asked_bytes) {
        strbuf_printf(b, "%sgive a smaller vram=", before);
        before = ", ";
    }
    bool batch = p->batch > BATCH_LEAST && part >= DEVICE_PART_SCRATCH;
    if (batch) {
        strbuf_printf(b, "%slower --batch", before);
        before = ", ";
    }
    if (dense && part >= DEVICE_PART_KV) {
        strbuf_printf(b, "%s%s--ctx", before, batch ? "" : "lower ");
        if (w->less_kv[0])
            strbuf_printf(b, ", give %s", w->less_kv);
    } else if (dense && part >= DEVICE_PART_SCRATCH)
        strbuf_printf(b, "%s%s--ctx or --parallel", before, batch ? "" : "lower ");
    else if (!dense && !before[0]) /* the scratch is a batch's experts */
        strbuf_printf(b, "this model needs a larger device");
    if (dense)
        strbuf_printf(b, "%sgive dense=host",
                      part >= DEVICE_PART_SCRATCH || p->reserve_bytes ? ", or " : "");
}

/* never: the device is too small even if no other process uses it. */
static enum error_code refuse(const struct device_plan *p, enum device_part part, bool never,
                              const struct words *w, struct error *e)
{
    struct strbuf b;
    enum error_code code = never ? ERROR_USAGE : ERROR_MEMORY;
    strbuf_init(&b);
    report_lack(&b, p, part, w);
    report_remedy(&b, p, part, w);
    if (b.failed)
        error_set(e, code, "%s has too little memory", w->device);
    else if (never)
        error_set(e, code, "%s has %s of memory: %s", w->device, w->memory, b.data);
    else
        error_set(e, code, "%s has %s of %s free: %s, or stop other processes that use it",
                  w->device, w->free, w->memory, b.data);
    strbuf_fini(&b);
    return code;
}

static void report_plan(const struct device_plan *p, const struct words *w)
{
    struct strbuf b;
    strbuf_init(&b);
    if (p->dense_bytes)
        strbuf_printf(&b, "%s dense weights, %s KV cache (%s), ", w->dense, w->kv, w->requests);
    strbuf_printf(&b, "%s scratch (batches of %" PRIu32 " tokens", w->scratch, p->batch);
    if (p->state_bytes)
        strbuf_printf(&b, "; %s of it states of requests", w->states);
    strbuf_printf(&b, "), %s for the driver; %s for experts, %.0f %% of them", w->driver, w->slots,
                  100 * (double)p->n_slots / (double)p->total_segments);
    if (p->reserve_bytes)
        strbuf_printf(&b, "; %s stay free for other programs", w->reserve);
    if (!p->dense_bytes)
        strbuf_printf(&b, "; the dense weights stay in host memory");
    if (!b.failed)
        log_info("%s, %s free: %s", w->device, w->free, b.data);
    strbuf_fini(&b);
}

/* ---- All of it ---- */

/* Shares the memory that is free now. Where the parts do not fit, the KV cache is smaller than it
 * may be, a default reserve that an empty device has space for is dropped, or the slots get the
 * rest and that is not enough for all experts, waits for memory that other processes may leave, and
 * plans again. p: of the empty device. */
static enum device_part share_free(struct device_link *link, struct device_plan *p,
                                   struct device_facts *facts, struct worker_memory_needs *needs,
                                   const struct device_plan_options *o)
{
    uint64_t reserve = p->reserve_bytes;
    want_reserve(p, facts, o->device);
    uint64_t least = device_share_least_bytes(p); /* with the driver's part of an empty device */
    look_at(p, facts, facts->free_bytes);
    enum device_part lacks = share(p, o->device);
    bool fewer = (p->kv_requests < p->kv_most && p->kv_bytes) || p->reserve_bytes < reserve;
    if (!lacks && !fewer && (p->asked_bytes || p->n_slots == device_share_most_slots(p)))
        return lacks;
    if (!p->asked_bytes || fewer)
        device_link_await(link, 0, facts);
    if (lacks)
        device_link_await(link, least, facts);
    want_free(p, facts, needs, o);
    return share(p, o->device);
}

enum error_code device_plan_new(struct device_link *link, const struct pool_map *map,
                                const struct device_plan_options *o, struct device_plan *out,
                                struct error *e)
{
    struct device_plan p = {.unit_bytes = 1};
    struct worker_memory_needs needs;
    struct device_facts facts;
    struct words words;
    const struct device_module *module = device_link_module(link);
    enum error_code code = want_slots(map, o->device, &p, e);
    if (!code && module)
        code = want_fixed(module, map, o, &p, &needs, e);
    if (code)
        return code;
    p.n_flags = device_link_signals(link) ? p.total_segments : 0;
    device_link_facts(link, &facts);
    if (!module) {
        p.batch = batch_plan_known(o->device, &map->params, o->batch, o->context);
        p.free_bytes = facts.free_bytes;
        device_share(&p); /* always fits: memory is as large as asked */
        *out = p;
        return ERROR_OK;
    }
    if (!facts.memory_bytes)
        return error_set(e, ERROR_IO, "device cuda:%u does not report its memory",
                         o->device->ordinal);
    want_free(&p, &facts, &needs, o);
    look_at(&p, &facts, facts.memory_bytes);
    enum device_part lacks = share(&p, o->device);
    bool never = lacks != DEVICE_PART_NONE;
    if (!never) {
        p.n_slots = 0;
        lacks = share_free(link, &p, &facts, &needs, o);
    }
    put_in_words(&p, &facts, &needs, o, &words);
    if (lacks)
        return refuse(&p, lacks, never, &words, e);
    report_plan(&p, &words);
    *out = p;
    return ERROR_OK;
}

enum error_code device_plan_look(const struct device_module *module,
                                 const struct device_facts *facts, const struct pool_map *map,
                                 const struct device_plan_options *o, struct device_plan *out,
                                 struct error *e)
{
    struct device_plan p = {.unit_bytes = 1};
    struct worker_memory_needs needs;
    struct words words;
    enum error_code code = want_slots(map, o->device, &p, e);
    if (!code)
        code = want_fixed(module, map, o, &p, &needs, e);
    if (code)
        return code;
    p.n_flags = facts->signals ? p.total_segments : 0;
    want_free(&p, facts, &needs, o);
    enum device_part lacks = share(&p, o->device);
    put_in_words(&p, facts, &needs, o, &words);
    if (lacks)
        return refuse(&p, lacks, false, &words, e);
    *out = p;
    return ERROR_OK;
}
