/* The KV cache's pages on a device while requests come and go and the pool's size changes
 * (worker/forward/kv_pages.c, dense_cuda_attention.c). Attention gives the same bits as on the
 * host, whose cache has all its memory from the start. */
#include "worker/links/cuda_device.h"
#include "worker/forward/dense.h"
#include "worker/forward/kv_pages.h"

#include "exec/exec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "on_device.h"
#include "tests/unit/random_numbers.h"

enum {
    LAYERS = 4,
    HEADS = 4,
    HEAD_DIM = 64,
    WIDTH = HEADS * HEAD_DIM,
    CONTEXT = 300, /* 5 pages */
    SLOTS = 6,
    MOST_ROWS = 40,
    /* a page of float32: 512 KiB, four to a chunk of 2 MiB, the driver's allocation unit */
    PAGE_BYTES = LAYERS * 2 * DEVICE_PAGE * WIDTH * 4,
    A_SLOT = (CONTEXT + DEVICE_PAGE - 1) / DEVICE_PAGE,
    PAGES = SLOTS * A_SLOT,
};

static struct cuda_device cuda;

static uint32_t pages_for(uint32_t positions)
{
    return (positions + DEVICE_PAGE - 1) / DEVICE_PAGE;
}

static uint64_t free_bytes(void)
{
    struct device_facts facts;
    module->facts(device, &facts);
    return facts.free_bytes;
}

/* ---- The pool without attention ---- */

static struct kv_pages *new_pool(uint64_t bytes)
{
    struct kv_pages *p;
    struct error e;
    cuda = (struct cuda_device){.module = module, .device = device, .stream = stream};
    check_code(kv_pages_new(&cuda, PAGE_BYTES, PAGES, bytes, &p, &e), &e);
    return p;
}

/* Each page has one holder: values that the holder writes to all of the page stay. */
static void test_pages_apart(void **state)
{
    (void)state;
    struct kv_pages *p = new_pool(UINT64_MAX);
    uint64_t pages[PAGES], none;
    uint8_t *got = malloc(PAGE_BYTES);
    assert_int_equal(cuda.used[CUDA_KV], (uint64_t)PAGES * PAGE_BYTES);
    assert_true(kv_pages_reserve(p, PAGES, pages));
    assert_false(kv_pages_reserve(p, 1, &none));
    for (uint32_t i = 0; i < PAGES; i++) {
        assert_int_equal(pages[i] % 16, 0);
        module->fill(stream, (void *)(uintptr_t)pages[i], (uint8_t)(i + 1), PAGE_BYTES);
    }
    for (uint32_t i = 0; i < PAGES; i++) {
        from_device(got, (void *)(uintptr_t)pages[i], PAGE_BYTES);
        for (uint32_t k = 0; k < PAGE_BYTES; k++)
            if (got[k] != (uint8_t)(i + 1))
                fail_msg("byte %u of page %u is %u", k, i, got[k]);
    }
    kv_pages_release(p, pages, 3);
    assert_false(kv_pages_reserve(p, 4, pages));
    assert_true(kv_pages_reserve(p, 3, pages));
    kv_pages_release(p, pages, PAGES);
    kv_pages_free(p);
    assert_int_equal(cuda.used[CUDA_KV], 0);
    free(got);
}

/* The pool releases unused pages at once, exactly; the device has the memory again. */
static void test_gives_back(void **state)
{
    (void)state;
    struct kv_pages *p = new_pool(UINT64_MAX);
    uint64_t before = free_bytes();
    for (uint32_t n = PAGES; n > 0; n--) {
        kv_pages_resize(p, (uint64_t)n * PAGE_BYTES + PAGE_BYTES -
                               1); /* a part of a page adds no page */
        struct kv_pages_use use = kv_pages_use(p);
        assert_int_equal(use.free, n);
        assert_int_equal(use.most, n);
        assert_int_equal(use.bytes, (uint64_t)n * PAGE_BYTES);
        assert_int_equal(cuda.used[CUDA_KV], (uint64_t)n * PAGE_BYTES);
    }
    kv_pages_resize(p, 0);
    assert_true(free_bytes() - before >= (uint64_t)PAGES * PAGE_BYTES);
    for (uint32_t n = 1; n <= PAGES + 2; n++) {
        kv_pages_resize(p, (uint64_t)n * PAGE_BYTES);
        assert_int_equal(kv_pages_use(p).free, n < PAGES ? n : PAGES);
    }
    kv_pages_free(p);
}

/* A pool that cannot grow keeps what it has: 6 pages in chunks of 4 and 2, and memory for one page
 * more. It grows once there is memory. */
static void test_cannot_grow(void **state)
{
    struct device_facts facts;
    char limit[32];
    (void)state;
    if (strcmp(module->name, "cusim") != 0)
        skip();
    struct kv_pages *p = new_pool(6 * PAGE_BYTES);
    assert_int_equal(kv_pages_use(p).free, 6);
    module->facts(device, &facts);
    snprintf(limit, sizeof limit, "%llu",
             (unsigned long long)(facts.memory_bytes - facts.free_bytes + PAGE_BYTES));
    setenv("MOED_CUSIM_MEMORY", limit, 1);
    kv_pages_resize(p, UINT64_MAX);
    assert_true(kv_pages_use(p).lacks_memory);
    assert_int_equal(kv_pages_use(p).free, 6);
    unsetenv("MOED_CUSIM_MEMORY");
    kv_pages_resize(p, UINT64_MAX);
    assert_false(kv_pages_use(p).lacks_memory);
    assert_int_equal(kv_pages_use(p).free, PAGES);
    kv_pages_free(p);
}

/* The pool frees the chunks with the fewest reserved pages: 30 pages in chunks of 4, of which one
 * has 4 reserved and the others 1. */
static void test_what_goes(void **state)
{
    (void)state;
    struct kv_pages *p = new_pool(UINT64_MAX);
    uint64_t pages[PAGES];
    assert_true(kv_pages_reserve(p, PAGES, pages));
    for (uint32_t i = 4; i < PAGES; i++) /* in the order of the chunks */
        if (i % 4 != 0)
            kv_pages_release(p, &pages[i], 1);
    assert_int_equal(kv_pages_use(p).reserved, 4 + 7);
    kv_pages_resize(p, 4 * PAGE_BYTES);
    assert_int_equal(kv_pages_use(p).free, 0); /* the full one stays */
    assert_int_equal(cuda.used[CUDA_KV], (uint64_t)PAGES * PAGE_BYTES);
    assert_int_equal(kv_pages_use(p).bytes, (uint64_t)PAGES * PAGE_BYTES);
    for (uint32_t i = 4; i < PAGES; i += 4) {
        kv_pages_release(p, &pages[i], 1);
        uint32_t left = PAGES - (i + 4 < PAGES ? i + 4 : PAGES);
        assert_int_equal(cuda.used[CUDA_KV], (uint64_t)(4 + left) * PAGE_BYTES);
    }
    kv_pages_release(p, pages, 4);
    assert_int_equal(kv_pages_use(p).free, 4);
    /* the pool grew again before the chunk was empty: the chunk stays */
    kv_pages_resize(p, UINT64_MAX);
    assert_true(kv_pages_reserve(p, PAGES, pages));
    kv_pages_resize(p, PAGE_BYTES);
    kv_pages_resize(p, UINT64_MAX);
    kv_pages_release(p, pages, PAGES);
    assert_int_equal(kv_pages_use(p).free, PAGES);
    kv_pages_free(p);
}

/* ---- Attention in the pool ---- */

/* Layers of several shapes; together their rows are as long as those of LAYERS layers of WIDTH. */
static const struct layer_params layers[LAYERS] = {
    {.n_heads = HEADS,
     .n_kv_heads = HEADS,
     .q_dim = HEAD_DIM,
     .o_dim = HEAD_DIM,
     .k_dim = HEAD_DIM,
     .v_dim = HEAD_DIM},
    {.n_heads = 2, .n_kv_heads = 1, .q_dim = 128, .o_dim = 128, .k_dim = 128, .v_dim = 128},
    {.n_heads = 4, .n_kv_heads = 1, .q_dim = 64, .o_dim = 64, .k_dim = 64, .v_dim = 64},
    {.n_heads = 9, .n_kv_heads = 9, .q_dim = 64, .o_dim = 64, .k_dim = 64, .v_dim = 64},
};
enum { WIDEST = 576 }; /* of a row of one */

struct side {
    struct dense *dense;
    struct mirrored_values q, k, v, out;
};

struct slot {
    uint32_t n_pages, positions, filled; /* positions 0: free */
    uint32_t first, end;                 /* windowed pages */
};

static uint8_t *host_pages; /* [2][2][SLOTS][pages of a slot]: of the KV pool */

static uint8_t *host_page(int side, uint32_t slot, struct kv_place place)
{
    size_t slots = ((size_t)side * 2 + place.group) * SLOTS + slot;
    return host_pages + (slots * A_SLOT + place.index) * PAGE_BYTES;
}

static bool put_page(struct side *sides, int side, uint32_t slot, struct kv_place place,
                     uint32_t filled)
{
    struct dense *d = sides[side].dense;
    return d->ops->put_page(d, slot, place, host_page(side, slot, place), filled);
}

/* Pages on the device that a slot has; windowed: at once. */
static uint32_t pages_of(const struct slot *s)
{
    return s->n_pages + s->end - s->first;
}

static void must_allocate(struct side *s)
{
    const size_t bytes = (size_t)MOST_ROWS * WIDEST * sizeof(float);
    struct mirrored_values *all[] = {&s->q, &s->k, &s->v, &s->out};
    for (int i = 0; i < 4; i++)
        assert_true(s->dense->ops->allocate_shared(s->dense, bytes, all[i]));
}

static void give(const struct mirrored_values *v, const float *from, uint32_t n)
{
    memcpy(v->host, from, n * sizeof *from);
    if (v->own != v->host)
        module->upload(stream, v->own, v->host, n * sizeof *from);
}

/* A layer of a batch: the same queries, keys and values on both sides. */
static void attend_layer(struct side *sides, uint32_t layer, uint32_t n)
{
    static const uint8_t some_tiles; /* there is a matrix for values, which are given here */
    static const struct layer_weights no_norms = {.v.tiles = &some_tiles};
    static float q[MOST_ROWS * WIDEST], k[MOST_ROWS * WIDEST], v[MOST_ROWS * WIDEST];
    uint32_t width = n * layers[layer].n_heads * layers[layer].k_dim;
    struct error e;
    for (uint32_t i = 0; i < width; i++) {
        q[i] = (float)between(-1, 1);
        k[i] = (float)between(-1, 1);
        v[i] = (float)between(-1, 1);
    }
    for (int i = 0; i < 2; i++) {
        struct side *s = &sides[i];
        const struct dense_ops *ops = s->dense->ops;
        give(&s->q, q, width);
        give(&s->k, k, width);
        give(&s->v, v, width);
        ops->place_heads(s->dense, layer, &no_norms, s->q.own, s->k.own, s->v.own);
        ops->attend(s->dense, layer, s->q.own, NULL, s->out.own);
        ops->fetch(s->dense, &s->out, width * sizeof(float));
        check_code(ops->wait(s->dense, &e), &e);
    }
    assert_same_floats(sides[1].out.host, sides[0].out.host, width, "attention");
}

/* The next tokens of some slots. */
static void run_batch(struct side *sides, struct slot *slots)
{
    struct batch_token batch[MOST_ROWS];
    float angles[MOST_ROWS * HEAD_DIM];
    uint32_t n = 0;
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        for (uint32_t more = below(20);
             more > 0 && n < MOST_ROWS && slots[slot].filled < slots[slot].positions; more--)
            batch[n++] = (struct batch_token){.slot = slot, .position = slots[slot].filled++};
    for (uint32_t i = 0; i < n * HEAD_DIM; i++)
        angles[i] = (float)between(-1, 1);
    for (int i = 0; n > 0 && i < 2; i++)
        sides[i].dense->ops->begin(sides[i].dense, batch, n, angles, &(struct row_groups){NULL, 0});
    for (uint32_t layer = 0; n > 0 && layer < LAYERS; layer++)
        attend_layer(sides, layer, n);
}

/* Gives a free slot pages on both sides, or finds that the device has too few. */
static void put_slot(struct side *sides, struct slot *s, uint32_t slot)
{
    struct dense *d = sides[1].dense;
    struct dense_kv_use before = d->ops->kv_use(d);
    uint32_t positions = 1 + below(CONTEXT), n = pages_for(positions), put = 0;
    uint32_t windowed = kv_layout_window_pages(&d->kv, MOST_ROWS);
    windowed = windowed < n ? windowed : n;
    for (uint32_t i = 0; i < n + windowed; i++) {
        struct kv_place place = {i < n ? i : i - n, i >= n};
        if (!put_page(sides, 1, slot, place, 0)) {
            assert_int_equal(put, before.pages_free);
            d->ops->release_slot(d, slot);
            return;
        }
        put_page(sides, 0, slot, place, 0);
        put++;
    }
    *s = (struct slot){n, positions, 0, 0, windowed};
    /* none of chunks that go */
    assert_int_equal(d->ops->kv_use(d).pages_free, before.pages_free - put);
}

/* Leaves the windowed pages behind that no later position attends to. */
static void pass_slot(struct side *sides, struct slot *s, uint32_t slot, uint32_t window)
{
    uint32_t first = window && s->filled + 1 > window ? (s->filled + 1 - window) / KV_PAGE : 0;
    uint32_t before = s->end;
    if (s->end == 0 || first <= s->first)
        return;
    s->end = s->end + first - s->first < s->n_pages ? s->end + first - s->first : s->n_pages;
    s->first = first;
    for (int i = 0; i < 2; i++) {
        sides[i].dense->ops->pass_pages(sides[i].dense, slot, s->first, s->end);
        for (uint32_t index = before; index < s->end; index++)
            assert_true(put_page(sides, i, slot, (struct kv_place){index, 1}, 0));
    }
}

/* Saves a slot's pages, releases it, and puts the pages into it again: the device has what it had.
 */
static void move_slot(struct side *sides, const struct slot *s, uint32_t slot)
{
    struct dense *d = sides[1].dense;
    struct error e;
    for (uint32_t i = 0; i < s->n_pages; i++)
        d->ops->save_page(d, slot, (struct kv_place){i, 0});
    for (uint32_t i = s->first; i < s->end; i++)
        d->ops->save_page(d, slot, (struct kv_place){i, 1});
    check_code(d->ops->wait(d, &e), &e);
    d->ops->release_slot(d, slot);
    for (uint32_t i = 0; i < s->n_pages; i++)
        if (!put_page(sides, 1, slot, (struct kv_place){i, 0}, s->filled))
            fail_msg("a page that was just released is not free");
    for (uint32_t i = s->first; i < s->end; i++)
        if (!put_page(sides, 1, slot, (struct kv_place){i, 1}, s->filled))
            fail_msg("a windowed page that was just released is not free");
}

static void check_use(const struct side *sides, const struct slot *slots, uint64_t page_bytes,
                      uint64_t aim)
{
    struct dense_kv_use use = sides[1].dense->ops->kv_use(sides[1].dense);
    uint64_t all = SLOTS * kv_layout_pages(&sides[1].dense->kv, CONTEXT, MOST_ROWS);
    uint64_t reserved = 0, pages = aim / page_bytes < all ? aim / page_bytes : all;
    for (uint32_t i = 0; i < SLOTS; i++)
        reserved += pages_of(&slots[i]);
    assert_int_equal(use.pages_reserved, reserved);
    assert_int_equal(use.pages_most, pages);
    assert_true(cuda.used[CUDA_KV] <= use.bytes && use.bytes >= pages * page_bytes);
    assert_true((use.pages_reserved + use.pages_free) * page_bytes <= cuda.used[CUDA_KV]);
    if (reserved == 0) {
        assert_int_equal(cuda.used[CUDA_KV], pages * page_bytes);
        assert_int_equal(use.pages_free, pages);
    }
}

static void make_sides(struct side *sides, const struct pool_map *map, enum tensor_type type,
                       struct exec *exec)
{
    struct dense_options options = {.map = map,
                                    .max_tokens = MOST_ROWS,
                                    .kv_type = type,
                                    .n_slots = SLOTS,
                                    .kv_requests = SLOTS,
                                    .context = CONTEXT,
                                    .kv_bytes = UINT64_MAX};
    struct error e;
    cuda = (struct cuda_device){.module = module, .device = device, .stream = stream};
    check_code(dense_host_new(&options, exec, &sides[0].dense, &e), &e);
    check_code(dense_cuda_new(&options, &cuda, &sides[1].dense, &e), &e);
    must_allocate(&sides[0]);
    must_allocate(&sides[1]);
}

/* window: of the last layer, whose pages are another group's then; 0: none. */
static void check_life(enum tensor_type type, uint64_t page_bytes, uint32_t window,
                       struct exec *exec)
{
    static const uint32_t most = 3 * PAGES / 2;
    struct pool_map map = {.params = {.arch = architecture_find("qwen3moe", 8),
                                      .n_layers = LAYERS,
                                      .d_model = WIDTH,
                                      .attention_scale = 0.125f,
                                      .rope = {.dims = HEAD_DIM},
                                      .router = {.n_experts = 8, .n_used = 2},
                                      .d_expert = 32,
                                      .vocab = 32}};
    for (int i = 0; i < LAYERS; i++)
        map.params.layers[i] = layers[i];
    map.params.layers[LAYERS - 1].window = window;
    struct side sides[2];
    struct slot slots[SLOTS] = {0};
    uint64_t aim = UINT64_MAX;
    random_state = type;
    host_pages = calloc(2 * 2 * SLOTS * A_SLOT, PAGE_BYTES);
    make_sides(sides, &map, type, exec);
    assert_int_equal(sides[1].dense->kv.page_bytes, page_bytes);
    for (int step = 0; step < 100; step++) {
        uint32_t slot = below(SLOTS);
        if (below(4) == 0 && slots[slot].positions) {
            for (int i = 0; i < 2; i++)
                sides[i].dense->ops->release_slot(sides[i].dense, slot);
            slots[slot] = (struct slot){0};
        } else if (!slots[slot].positions) {
            put_slot(sides, &slots[slot], slot);
        } else if (below(4) == 0 && aim == UINT64_MAX) {
            move_slot(sides, &slots[slot], slot);
        }
        if (below(5) == 0) {
            aim =
                below(8) == 0 ? UINT64_MAX : below(most) * page_bytes + below((uint32_t)page_bytes);
            sides[1].dense->ops->kv_resize(sides[1].dense, aim);
        }
        check_use(sides, slots, page_bytes, aim);
        run_batch(sides, slots);
        for (uint32_t i = 0; i < SLOTS; i++)
            pass_slot(sides, &slots[i], i, window);
    }
    for (uint32_t i = 0; i < SLOTS; i++)
        sides[1].dense->ops->release_slot(sides[1].dense, i);
    memset(slots, 0, sizeof slots);
    check_use(sides, slots, page_bytes, aim);
    dense_free(sides[0].dense);
    dense_free(sides[1].dense);
    free(host_pages);
    assert_int_equal(cuda.used[CUDA_KV], 0);
}

static void test_life(void **state)
{
    (void)state;
    struct exec_limits limits = {MOST_ROWS, WIDTH, MOST_ROWS * 2, 32};
    struct pool *pool;
    struct exec *exec;
    struct error e;
    check_code(pool_new("test", 1, false, 0, &pool, &e), &e);
    check_code(exec_new(pool, &limits, false, &exec, &e), &e);
    check_life(TENSOR_F32, PAGE_BYTES, 0, exec);
    check_life(TENSOR_F16, PAGE_BYTES / 2, 0, exec);
    check_life(TENSOR_Q8_0, PAGE_BYTES / 4 * 34 / 32, 0, exec);
    /* the last layer's rows are the longest: its group has the size of a page */
    check_life(TENSOR_F16, 2 * DEVICE_PAGE * WIDEST * 2, 70, exec);
    check_life(TENSOR_F16, 2 * DEVICE_PAGE * WIDEST * 2, 5, exec);
    exec_free(exec);
    pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages_apart), cmocka_unit_test(test_gives_back),
        cmocka_unit_test(test_what_goes),   cmocka_unit_test(test_cannot_grow),
        cmocka_unit_test(test_life),
    };
    return run_group("cuda_kv_pages", tests, open_all);
}
