/* lib/device/device_plan.c: how memd divides a device's memory, with results worked out by hand.
 * The device is a stand-in with free memory that the test sets, because the simulations have no
 * other users of the device. test_worker_memory.c tests what a worker needs. */
#include "device_formulas.h"

#include "device/batch_plan.h"
#include "device/device_plan.h"

#include "device/link_internal.h"

#include <string.h>

/* 1000 MiB: 100 for the driver, 3 (two allocations) of dense weights, 10 of scratch, 20 of KV
 * cache: 866 are left. */
static struct device_plan sample(void)
{
    return (struct device_plan){.free_bytes = 1000 * MIB,
                                .unit_bytes = 2 * MIB,
                                .driver_bytes = 100 * MIB,
                                .dense_bytes = 3 * MIB,
                                .scratch_bytes = 10 * MIB,
                                .kv_bytes = 20 * MIB,
                                .kv_most_bytes = 30 * MIB,
                                .slot_bytes = MIB,
                                .total_segments = 10000};
}

static void expect(struct device_plan p, enum device_part lacks, uint32_t n_slots)
{
    p.n_slots = 0;
    assert_int_equal(device_share(&p), lacks);
    assert_int_equal(p.n_slots, n_slots);
}

static void test_slots(void **state)
{
    struct device_plan p = sample();
    expect(p, DEVICE_PART_NONE, 866);
    p.scratch_bytes -= MIB / 2; /* 866.5: the half is of no use */
    expect(p, DEVICE_PART_NONE, 866);
    p.scratch_bytes -= 3 * MIB / 2;
    expect(p, DEVICE_PART_NONE, 868);
    p = sample();
    p.scratch_bytes += 1; /* less than 866: 864 */
    expect(p, DEVICE_PART_NONE, 864);
    p = sample();
    p.slot_bytes = 3 * MIB;
    expect(p, DEVICE_PART_NONE, 288); /* 866 / 3 */
    p.total_segments = 7;
    expect(p, DEVICE_PART_NONE, 7); /* no more than there are */
    p = sample();
    p.dense_bytes = 0;
    p.kv_bytes = 0;
    expect(p, DEVICE_PART_NONE, 890);
}

/* 866 MiB of slots of 1 MiB and 20 of KV cache, of which a request takes 5. Extents: 2 slots, then
 * 9998 / 31 = 322.5, so 324 (whole units). */
static void test_resize(void **state)
{
    struct device_plan p = sample();
    struct error e;
    uint32_t n;
    p.kv_least_bytes = 5 * MIB;
    assert_int_equal(device_share(&p), DEVICE_PART_NONE);
    assert_int_equal(p.capacity_bytes, 886 * MIB);
    assert_true(p.layout.first == 2 && p.layout.each == 324);
    assert_int_equal(device_share_kv(&p, 866), 20 * MIB);
    assert_int_equal(device_share_start_kv(&p), 20 * MIB);
    assert_int_equal(device_share_kv(&p, 862), 24 * MIB);
    assert_int_equal(device_share_kv(&p, 10), 30 * MIB); /* never more */
    assert_int_equal(device_share_kv(&p, 872), 14 * MIB);
    assert_int_equal(device_share_kv(&p, 871), 14 * MIB); /* the last extent takes whole units */
    assert_int_equal(device_share_resize(&p, 100 * MIB + 5, &n, &e), ERROR_OK);
    assert_int_equal(n, 100);
    assert_int_equal(device_share_resize(&p, 881 * MIB - 1, &n, &e), ERROR_OK);
    assert_int_equal(n, 880); /* next to 5 MiB */
    assert_int_equal(device_share_resize(&p, 881 * MIB, &n, &e), ERROR_USAGE);
    assert_string_equal(
        e.text, "924 MB are more than the device has for experts next to the KV cache of one "
                "request: at most 923 MB");
    assert_int_equal(device_share_resize(&p, MIB - 1, &n, &e), ERROR_USAGE);
    assert_string_equal(e.text, "1 MB hold no segment of an expert, which has 1 MB");
    p.total_segments = 50;
    assert_int_equal(device_share(&p), DEVICE_PART_NONE);
    assert_int_equal(device_share_resize(&p, UINT64_MAX, &n, &e), ERROR_OK);
    assert_int_equal(n, 50); /* no more than there are */
    /* a request for less than the device has: a resize can get the rest later */
    p = sample();
    p.asked_bytes = 100 * MIB;
    assert_int_equal(device_share(&p), DEVICE_PART_NONE);
    assert_int_equal(device_share_resize(&p, 866 * MIB, &n, &e), ERROR_OK);
    assert_true(n == 866 && device_share_kv(&p, n) == 20 * MIB);
    /* without a KV cache experts share no memory; the emulated device's memory has no limit */
    p.kv_bytes = p.kv_least_bytes = 0;
    assert_true(device_share_kv(&p, 866) == UINT64_MAX);
    p = (struct device_plan){.free_bytes = UINT64_MAX,
                             .unit_bytes = 1,
                             .slot_bytes = MIB,
                             .total_segments = 64,
                             .asked_bytes = 3 * MIB};
    assert_int_equal(device_share(&p), DEVICE_PART_NONE);
    assert_int_equal(device_share_resize(&p, 999 * MIB, &n, &e), ERROR_OK);
    assert_true(n == 64 && device_share_kv(&p, n) == UINT64_MAX);
}

/* A flag of 4 bytes for each slot that there could be, behind the dense weights: 40 kB. */
static void test_flags(void **state)
{
    struct device_plan p = sample();
    p.n_flags = 10000;
    expect(p, DEVICE_PART_NONE, 866); /* the allocation had space for them */
    p.dense_bytes = 4 * MIB;          /* there is none now */
    expect(p, DEVICE_PART_NONE, 864);
    p.dense_bytes = 0;
    expect(p, DEVICE_PART_NONE, 868);
    p.n_flags = 524288; /* 2 MiB */
    expect(p, DEVICE_PART_NONE, 868);
    p.n_flags++;
    expect(p, DEVICE_PART_NONE, 866);
    assert_true(device_slots_offset(3, 0) == 2 * MIB && device_slots_offset(0, 0) == 0);
    assert_true(device_slots_offset(2 * MIB - 256, 64) == 2 * MIB);
    assert_true(device_slots_offset(2 * MIB - 256, 65) == 4 * MIB);
    assert_true(device_slots_offset(2 * MIB - 255, 1) ==
                4 * MIB); /* they begin at a multiple of 256 */
}

static void test_asked_slots(void **state)
{
    struct device_plan p = sample();
    p.asked_bytes = 100 * MIB + 5;
    expect(p, DEVICE_PART_NONE, 100);
    p.asked_bytes = 866 * MIB;
    expect(p, DEVICE_PART_NONE, 866);
    p.asked_bytes = 867 * MIB - 1; /* still 866 slots */
    expect(p, DEVICE_PART_NONE, 866);
    p.asked_bytes = 867 * MIB;
    expect(p, DEVICE_PART_SLOTS, 0);
    p.total_segments = 50; /* the request is for more than all segments */
    expect(p, DEVICE_PART_NONE, 50);
    p.asked_bytes = MIB - 1;
    expect(p, DEVICE_PART_SLOTS, 0);
}

/* Each part up to the last byte, and one more. */
static void test_lacking(void **state)
{
    struct device_plan p = sample();
    p.driver_bytes = 1000 * MIB + 1;
    expect(p, DEVICE_PART_DRIVER, 0);
    p.driver_bytes = 1000 * MIB;
    expect(p, DEVICE_PART_DENSE, 0);
    p = sample();
    p.dense_bytes = 900 * MIB;
    expect(p, DEVICE_PART_SCRATCH, 0);
    p.dense_bytes = 900 * MIB + 1;
    expect(p, DEVICE_PART_DENSE, 0);
    p = sample();
    p.scratch_bytes = 896 * MIB;
    expect(p, DEVICE_PART_KV, 0);
    p.scratch_bytes = 896 * MIB + 1;
    expect(p, DEVICE_PART_SCRATCH, 0);
    p = sample();
    p.kv_bytes = 886 * MIB;
    expect(p, DEVICE_PART_SLOTS, 0);
    p.kv_bytes = 886 * MIB + 1;
    expect(p, DEVICE_PART_KV, 0);
    p.kv_bytes = 884 * MIB;
    expect(p, DEVICE_PART_NONE, 2);
    p.kv_bytes = 884 * MIB + 1; /* less than the driver hands out */
    expect(p, DEVICE_PART_SLOTS, 0);
}

static void test_overflow(void **state)
{
    struct device_plan p = sample();
    p.kv_bytes = UINT64_MAX;
    expect(p, DEVICE_PART_KV, 0);
    p.scratch_bytes = UINT64_MAX;
    expect(p, DEVICE_PART_SCRATCH, 0);
    p = sample();
    p.total_segments = UINT64_MAX / 2; /* their bytes are more than can be counted */
    expect(p, DEVICE_PART_NONE, 866);
    p.asked_bytes = UINT64_MAX;
    expect(p, DEVICE_PART_SLOTS, 0);
    p = sample();
    p.free_bytes = 1ull << 60;
    p.slot_bytes = 64;
    p.total_segments = 1ull << 50;
    expect(p, DEVICE_PART_NONE, UINT32_MAX);
}

/* ---- The whole plan ---- */

/* A device whose other users leave, one step at each wait. */
struct stand_in {
    struct device_link base;
    uint64_t memory, free[4];
    unsigned waited;
    uint64_t awaited[4];
    bool display;
};

static const struct device_module *stand_in_module(const struct device_link *l)
{
    (void)l;
    return &module;
}

static void stand_in_facts(struct device_link *l, struct device_facts *out)
{
    struct stand_in *s = (struct stand_in *)l;
    *out = (struct device_facts){.name = "GPU",
                                 .memory_bytes = s->memory,
                                 .free_bytes = s->free[s->waited],
                                 .display = s->display};
}

static void stand_in_await(struct device_link *l, uint64_t bytes, struct device_facts *out)
{
    struct stand_in *s = (struct stand_in *)l;
    assert_true(s->waited < 3);
    s->awaited[s->waited++] = bytes;
    stand_in_facts(l, out);
}

static uint32_t kv_requests = 3, kv_heads_dim = 8;

static enum error_code plan_on(struct stand_in *s, const char *device, const char *kv,
                               uint32_t context, struct device_plan *out, struct error *e)
{
    static const struct device_link_kind kind = {
        .module = stand_in_module, .facts = stand_in_facts, .await = stand_in_await};
    struct pool_map map = sample_map();
    struct device_spec spec;
    struct device_plan_options o = {
        .device = &spec, .parallel = 8, .kv_requests = kv_requests, .context = context};
    s->base.kind = &kind;
    set_heads(&map, 2, kv_heads_dim, kv_heads_dim);
    if (device_parse(device, &spec, e) || kv_type_parse(kv, &o.kv_type, e))
        fail_msg("%s", e->text);
    return device_plan_new(&s->base, &map, &o, out, e);
}

static void expect_message(const struct error *e, const char *text)
{
    if (!strstr(e->text, text))
        fail_msg("'%s' lacks '%s'", e->text, text);
    assert_null(strchr(e->text, '\n'));
}

static void test_plan(void **state)
{
    struct device_plan p;
    struct error e;
    struct stand_in s = {.memory = 4096 * MIB, .free = {4000 * MIB, 4000 * MIB, 4000 * MIB}};
    assert_int_equal(plan_on(&s, "cuda", "f16", 100, &p, &e), ERROR_OK);
    assert_int_equal(p.driver_bytes, 512 * MIB);
    assert_int_equal(p.dense_bytes, 64 + 5 * MIB);
    assert_int_equal(p.kv_bytes, 2 * 6 * 64 * 64);
    assert_int_equal(p.slot_bytes, 1024); /* 1000, in multiples of 64 */
    assert_int_equal(p.total_segments, 16);
    assert_int_equal(p.n_segments, 2);
    assert_int_equal(p.n_slots, 16);
    assert_int_equal(s.waited, 0); /* all experts fit */
    /* half of the 16 segments' 16000 bytes: 7 slots */
    assert_int_equal(plan_on(&s, "cuda,vram=50%", "f16", 100, &p, &e), ERROR_OK);
    assert_int_equal(p.n_slots, 7);
    assert_int_equal(s.waited, 0); /* the given size fits */
    uint64_t scratch = p.scratch_bytes;
    s.waited = 0;
    assert_int_equal(plan_on(&s, "cuda,dense=host", "q8_0", 100, &p, &e), ERROR_OK);
    assert_true(p.dense_bytes == 0 && p.kv_bytes == 0 && p.scratch_bytes < scratch);
    /* the model's own context, 2048 */
    s.waited = 0;
    assert_int_equal(plan_on(&s, "cuda", "f16", 0, &p, &e), ERROR_OK);
    assert_int_equal(p.kv_bytes, 2 * 3 * 32 * 64 * 64);
}

/* memd refuses at once what is too much for the whole device. If other processes use the memory, it
 * waits for them first, and then refuses. */
static void test_plan_refused(void **state)
{
    struct device_plan p = {.n_slots = 4711}, before = p;
    struct error e;
    struct stand_in s = {.memory = 4096 * MIB, .free = {4000 * MIB}};
    assert_int_equal(plan_on(&s, "cuda", "q8_0", 100, &p, &e), ERROR_UNSUPPORTED);
    expect_message(
        &e, "--kv-type q8_0 takes heads of a multiple of 32 values: this model's have 8 and 8");
    assert_int_equal(plan_on(&s, "cuda:1", "f32", 1 << 24, &p, &e), ERROR_USAGE);
    expect_message(
        &e, "cuda:1 GPU has 4.3 GB of memory: after 537 MB for the driver, 5 MB dense weights, ");
    expect_message(
        &e, "there is no space for 12.9 GB KV cache (3 requests of 16777216 tokens): lower --ctx, "
            "give --parallel 1 (4.3 GB) or --kv-type f16 (6.4 GB), or give dense=host");
    kv_heads_dim = 32;
    assert_int_equal(plan_on(&s, "cuda", "f16", 1 << 22, &p, &e), ERROR_USAGE);
    expect_message(
        &e, "there is no space for 6.4 GB KV cache (3 requests of 4194304 tokens): lower "
            "--ctx, give --parallel 1 (2.1 GB) or --kv-type q8_0 (4.0 GB), or give dense=host");
    kv_heads_dim = 8;
    s.memory = 7 * MIB;
    assert_int_equal(plan_on(&s, "cuda", "f16", 100, &p, &e), ERROR_USAGE);
    expect_message(&e, "there is no space for 5 MB dense weights: give dense=host");
    s.memory = 18 * MIB;
    assert_int_equal(plan_on(&s, "cuda", "f16", 100, &p, &e), ERROR_USAGE);
    expect_message(&e, "scratch: lower --ctx or --parallel, or give dense=host");
    assert_int_equal(plan_on(&s, "cuda,vram=1000", "f16", 100, &p, &e), ERROR_USAGE);
    expect_message(&e, "1000 bytes hold no segment of an expert, which has 1024");
    assert_int_equal(s.waited, 0);
    /* other processes use the memory: 4 MiB are free at first, then too little, then enough */
    s = (struct stand_in){.memory = 4096 * MIB, .free = {4 * MIB, 8 * MIB}};
    assert_int_equal(plan_on(&s, "cuda,vram=50%", "f16", 100, &p, &e), ERROR_MEMORY);
    expect_message(&e, "has 8 MB of 4.3 GB free: ");
    expect_message(&e, "give dense=host, or stop other processes that use it");
    assert_int_equal(s.waited, 1);
    assert_memory_equal(&p, &before, sizeof p);
    s = (struct stand_in){.memory = 4096 * MIB, .free = {4 * MIB, 8 * MIB, 4000 * MIB}};
    assert_int_equal(plan_on(&s, "cuda", "f16", 100, &p, &e), ERROR_OK);
    assert_int_equal(p.n_slots, 16);
    assert_int_equal(p.free_bytes, 4000 * MIB);
}

/* The memory that is free at first is enough, although it is less than the sum with the driver's
 * part of the whole device, a quarter of 60 MiB. If it is not enough, memd waits for the memory
 * that the plan needs. If the plan is to use all memory, memd waits until the free memory is
 * stable. */
static void test_plan_waits(void **state)
{
    struct device_plan p;
    struct error e;
    struct stand_in s = {.memory = 4096 * MIB, .free = {60 * MIB}};
    assert_int_equal(plan_on(&s, "cuda,vram=50%", "f16", 100, &p, &e), ERROR_OK);
    assert_true(s.waited == 0 && p.driver_bytes == 15 * MIB && p.n_slots == 7);
    s = (struct stand_in){.memory = 4096 * MIB, .free = {4 * MIB, 4000 * MIB}};
    assert_int_equal(plan_on(&s, "cuda,vram=50%", "f16", 100, &p, &e), ERROR_OK);
    assert_int_equal(s.waited, 1);
    assert_int_equal(s.awaited[0], 512 * MIB + 6 * MIB + p.scratch_bytes + p.kv_bytes + 2 * MIB);
    s = (struct stand_in){.memory = 4096 * MIB, .free = {4 * MIB, 8 * MIB, 4000 * MIB}};
    assert_int_equal(plan_on(&s, "cuda", "f16", 100, &p, &e), ERROR_OK);
    assert_true(s.waited == 2 && s.awaited[0] == 0 && s.awaited[1] > 0);
    /* 8000 segments: not all fit at first, though some do */
    slabs[1].n_experts = 4000;
    slabs[1].segment_bytes = 100000;
    s = (struct stand_in){.memory = 4096 * MIB, .free = {400 * MIB, 4000 * MIB}};
    assert_int_equal(plan_on(&s, "cuda", "f16", 100, &p, &e), ERROR_OK);
    assert_true(s.waited == 1 && s.awaited[0] == 0 && p.n_slots == 8000);
    slabs[1].n_experts = 8;
    slabs[1].segment_bytes = 1000;
}

/* A device whose rest holds not a single slot, or less than the requested memory. */
static void test_plan_refuses_slots(void **state)
{
    struct device_plan p;
    struct error e;
    struct stand_in s = {.memory = 4096 * MIB, .free = {0, 4000 * MIB}};
    assert_int_equal(plan_on(&s, "cuda,vram=50%", "f16", 100, &p, &e), ERROR_OK);
    /* a quarter for the driver: 4/3 of the rest */
    uint64_t fixed = 6 * MIB + p.scratch_bytes + p.kv_bytes, memory = (fixed + MIB) / 3 * 4;
    s = (struct stand_in){.memory = memory};
    assert_int_equal(plan_on(&s, "cuda", "f16", 100, &p, &e), ERROR_USAGE);
    expect_message(
        &e,
        "there is no space for 1 kB of experts, a single segment: lower --ctx, give --parallel 1 "
        "(16 kB), or give dense=host");
    assert_int_equal(plan_on(&s, "cuda,vram=50%", "f16", 100, &p, &e), ERROR_USAGE);
    expect_message(&e,
                   "there is no space for 8 kB of experts: give a smaller vram=, lower --ctx, give "
                   "--parallel 1 (16 kB), or give dense=host");
    s.memory = 13 * MIB;
    assert_int_equal(plan_on(&s, "cuda,dense=host,vram=50%", "f16", 100, &p, &e), ERROR_USAGE);
    expect_message(&e, "there is no space for 8 kB of experts: give a smaller vram=");
    assert_null(strstr(e.text, "--ctx"));
}

/* Without --parallel: 4, 2 or 1 requests of 2^22 tokens, 512 MiB each, of which the device has 4000
 * MiB, 512 for the driver and 6 dense. */
static void test_plan_kv_requests(void **state)
{
    struct device_plan p;
    struct error e;
    struct stand_in s = {.memory = 4096 * MIB, .free = {4000 * MIB, 4000 * MIB, 4000 * MIB}};
    kv_requests = 0;
    assert_int_equal(plan_on(&s, "cuda", "f16", 1 << 22, &p, &e), ERROR_OK);
    assert_true(p.kv_requests == 4 && p.kv_bytes == 2048 * MIB &&
                p.n_slots == 16); /* all experts */
    assert_int_equal(plan_on(&s, "cuda", "f16", 1 << 23, &p, &e), ERROR_OK);
    assert_true(p.kv_requests == 2 && p.kv_bytes == 2048 * MIB);
    /* 4 GB of experts, which do not all fit: at most a quarter of about 3400 MiB */
    slabs[1].n_experts = 20000;
    slabs[1].segment_bytes = 100000;
    s.waited = 0;
    assert_int_equal(plan_on(&s, "cuda", "f16", 1 << 20, &p, &e), ERROR_OK);
    assert_true(p.kv_requests == 4 && p.kv_bytes == 512 * MIB);
    s.waited = 0;
    assert_int_equal(plan_on(&s, "cuda", "f16", 1 << 21, &p, &e), ERROR_OK);
    assert_true(p.kv_requests == 2 && p.kv_bytes == 512 * MIB);
    s.waited = 0;
    assert_int_equal(plan_on(&s, "cuda", "f16", 1 << 22, &p, &e), ERROR_OK);
    assert_true(p.kv_requests == 1 && p.kv_bytes == 512 * MIB);
    assert_int_equal(device_share_start_kv(&p), 512 * MIB);
    assert_int_equal(device_share_kv(&p, 1), 2048 * MIB); /* of 4 requests, after a resize */
    assert_int_equal(p.kv_most, 4);
    s.waited = 0; /* one request's is kept, whatever it leaves */
    assert_int_equal(plan_on(&s, "cuda", "f16", 1 << 24, &p, &e), ERROR_OK);
    assert_true(p.kv_requests == 1 && p.kv_bytes == 2048 * MIB && p.n_slots > 0);
    /* the experts have what the user gave them */
    s.waited = 0;
    assert_int_equal(plan_on(&s, "cuda,vram=500M", "f16", 1 << 22, &p, &e), ERROR_OK);
    assert_true(p.kv_requests == 4);
    /* by the memory that other processes leave in the end */
    s = (struct stand_in){.memory = 4096 * MIB, .free = {1500 * MIB, 4000 * MIB, 4000 * MIB}};
    assert_int_equal(plan_on(&s, "cuda", "f16", 1 << 20, &p, &e), ERROR_OK);
    assert_true(s.waited == 1 && p.kv_requests == 4);
    s = (struct stand_in){.memory = 4096 * MIB, .free = {2000 * MIB, 4000 * MIB, 4000 * MIB}};
    assert_int_equal(plan_on(&s, "cuda,vram=500M", "f16", 1 << 22, &p, &e), ERROR_OK);
    assert_true(s.waited == 1 && p.kv_requests == 4);
    slabs[1].n_experts = 8;
    slabs[1].segment_bytes = 1000;
    kv_requests = 3;
}

/* What stays free for other programs: the user's size always, a display's where all parts fit. */
static void test_reserve(void **state)
{
    struct device_plan p;
    struct error e;
    struct device_plan q = sample();
    q.reserve_bytes = 66 * MIB;
    expect(q, DEVICE_PART_NONE, 800);
    q.reserve_bytes = 1001 * MIB;
    expect(q, DEVICE_PART_RESERVE, 0);
    assert_int_equal(device_share_worker_bytes(&q, 5 * MIB), 15 * MIB);
    assert_int_equal(device_share_worker_bytes(&q, UINT64_MAX), 10 * MIB);
    q.workers = 2;
    assert_int_equal(device_share_worker_bytes(&q, 5 * MIB), 10 * MIB);
    slabs[1].n_experts = 40000; /* more than fit: the slots get the rest */
    slabs[1].segment_bytes = 100000;
    struct stand_in s = {.memory = 4096 * MIB, .free = {4000 * MIB, 4000 * MIB}};
    assert_int_equal(plan_on(&s, "cuda", "f16", 100, &p, &e), ERROR_OK);
    uint64_t all = device_share_slots_bytes(&p);
    assert_true(p.reserve_bytes == 0);
    s = (struct stand_in){.memory = 4096 * MIB, .free = {4000 * MIB, 4000 * MIB}, .display = true};
    assert_int_equal(plan_on(&s, "cuda", "f16", 100, &p, &e), ERROR_OK);
    uint64_t less = all - device_share_slots_bytes(&p);
    assert_true(p.reserve_bytes == 512 * MIB && less >= 509 * MIB && less <= 515 * MIB);
    s = (struct stand_in){.memory = 4096 * MIB, .free = {4000 * MIB, 4000 * MIB}, .display = true};
    assert_int_equal(plan_on(&s, "cuda,reserve=0", "f16", 100, &p, &e), ERROR_OK);
    assert_true(p.reserve_bytes == 0 && device_share_slots_bytes(&p) == all);
    slabs[1].n_experts = 8;
    slabs[1].segment_bytes = 1000;
    /* memory that other processes are about to leave is waited for before a display has no part */
    s = (struct stand_in){.memory = 4096 * MIB, .free = {400 * MIB, 4000 * MIB}, .display = true};
    assert_int_equal(plan_on(&s, "cuda,vram=50%", "f16", 100, &p, &e), ERROR_OK);
    assert_true(s.waited == 1 && s.awaited[0] == 0 && p.reserve_bytes == 512 * MIB);
    s = (struct stand_in){.memory = 4096 * MIB, .free = {400 * MIB, 400 * MIB}, .display = true};
    assert_int_equal(plan_on(&s, "cuda", "f16", 100, &p, &e), ERROR_OK);
    assert_true(s.waited == 1 && p.reserve_bytes == 0 && p.n_slots == 16);
    /* an eighth of a small device; none where the parts need it; the user's is kept */
    s = (struct stand_in){.memory = 80 * MIB, .free = {80 * MIB}, .display = true};
    assert_int_equal(plan_on(&s, "cuda,vram=50%", "f16", 100, &p, &e), ERROR_OK);
    assert_int_equal(p.reserve_bytes, 10 * MIB);
    uint64_t fixed = 6 * MIB + p.scratch_bytes + p.kv_bytes + 2 * MIB, memory = fixed / 3 * 4 + MIB;
    s = (struct stand_in){.memory = memory, .free = {memory}, .display = true};
    assert_int_equal(plan_on(&s, "cuda,vram=50%", "f16", 100, &p, &e), ERROR_OK);
    assert_true(p.reserve_bytes == 0 && s.waited == 0); /* no memory that becomes free is enough */
    assert_int_equal(plan_on(&s, "cuda,vram=50%,reserve=3Mi", "f16", 100, &p, &e), ERROR_USAGE);
    expect_message(&e, "after 3 MB for other programs (reserve=), ");
    expect_message(
        &e, "scratch: give a smaller reserve=, lower --ctx or --parallel, or give dense=host");
    assert_int_equal(plan_on(&s, "cuda,reserve=1G", "f16", 100, &p, &e), ERROR_USAGE);
    expect_message(&e, "of memory: there is no space for reserve=1.0 GB: give a smaller one");
}

/* ---- Memory that is held ---- */

/* A device of which so many units are free, and how many are held by each. */
struct units {
    struct device_link base; /* first */
    uint64_t free, held[4];
    uint32_t n;
};

static enum error_code units_hold(struct device_link *l, uint64_t bytes, void **out,
                                  struct error *e)
{
    struct units *u = (struct units *)l;
    assert_int_equal(bytes % (2 * MIB), 0);
    if (bytes / (2 * MIB) > u->free)
        return error_set(e, ERROR_MEMORY, "no memory");
    u->free -= bytes / (2 * MIB);
    u->held[u->n] = bytes / (2 * MIB);
    *out = &u->held[u->n++];
    return ERROR_OK;
}

static void units_let_go(struct device_link *l, void *held)
{
    struct units *u = (struct units *)l;
    u->free += *(uint64_t *)held;
    u->n--;
}

/* A share of 9 MiB takes five units, or the four that it fills where there are no more. */
static void test_hold(void **state)
{
    static const struct device_link_kind kind = {.hold = units_hold, .let_go = units_let_go};
    struct units u = {.base.kind = &kind, .free = 9};
    struct error e;
    assert_int_equal(device_link_hold(&u.base, 2, 9 * MIB, &e), ERROR_OK);
    assert_true(u.n == 2 && u.held[0] == 5 && u.held[1] == 4 && u.free == 0);
    assert_int_equal(device_link_hold(&u.base, 1, 9 * MIB, &e), ERROR_OK);
    assert_int_equal(u.free, 4);
    u.free = 3;
    assert_int_equal(device_link_hold(&u.base, 2, 9 * MIB, &e), ERROR_MEMORY);
    assert_true(u.n == 1 && u.free == 3);
    assert_int_equal(device_link_hold(&u.base, 0, 9 * MIB, &e), ERROR_OK);
    u.free = 3; /* whole units lack none; less than a unit is held whole or not at all */
    assert_int_equal(device_link_hold(&u.base, 1, 8 * MIB, &e), ERROR_MEMORY);
    assert_int_equal(device_link_hold(&u.base, 1, 6 * MIB, &e), ERROR_OK);
    assert_int_equal(device_link_hold(&u.base, 0, 6 * MIB, &e), ERROR_OK);
    u.free = 0;
    assert_int_equal(device_link_hold(&u.base, 1, MIB, &e), ERROR_MEMORY);
}

/* The emulated device has the requested memory, in addition to any needs of a worker. */
static void test_emulated(void **state)
{
    struct pool_map map = sample_map();
    struct device_spec spec;
    struct device_link *link;
    struct device_plan p;
    struct error e;
    struct device_plan_options o = {.device = &spec, .parallel = 4, .kv_type = TENSOR_Q8_0};
    assert_int_equal(device_parse("emu:vram=5000,link=1G", &spec, &e), ERROR_OK);
    assert_int_equal(device_link_new(&spec, &link, &e), ERROR_OK);
    assert_int_equal(device_plan_new(link, &map, &o, &p, &e), ERROR_OK);
    assert_int_equal(p.n_slots, 4);
    assert_int_equal(batch_plan_known(&spec, &map.params, 0, 0), p.batch);
    assert_int_equal(batch_plan_known(&spec, &map.params, 0, 1000), 1024);
    assert_int_equal(batch_plan_known(&spec, &map.params, 300, 1000), 300);
    spec.kind = DEVICE_CUDA;
    assert_int_equal(batch_plan_known(&spec, &map.params, 0, 1000), 0);
    assert_true(p.dense_bytes == 0 && p.kv_bytes == 0 && p.scratch_bytes == 0 &&
                p.driver_bytes == 0);
    device_link_free(link);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots),        cmocka_unit_test(test_flags),
        cmocka_unit_test(test_asked_slots),  cmocka_unit_test(test_resize),
        cmocka_unit_test(test_lacking),      cmocka_unit_test(test_reserve),
        cmocka_unit_test(test_plan_waits),   cmocka_unit_test(test_plan_kv_requests),
        cmocka_unit_test(test_overflow),     cmocka_unit_test(test_plan),
        cmocka_unit_test(test_plan_refused), cmocka_unit_test(test_plan_refuses_slots),
        cmocka_unit_test(test_hold),         cmocka_unit_test(test_emulated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
