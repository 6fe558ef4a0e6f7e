/* A worker's layers when not all experts are in memory. The worker computes in rounds, while a real
 * tier reads experts from the file. The truth: the same experts computed at once from the model
 * loaded whole, to the bit. */
#include "tier_bench.h"

#include "exec/exec.h"
#include "ipc/lease.h"
#include "worker/links/mirrored_values.h"
#include "worker/experts/experts_internal.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    SLOTS = 8,
    USED = 4,
    EXPERTS = 16,
    LAYERS = 3,
    HIDDEN = 256,
    MOST_TOKENS = 48,
    STALL_MS = 250,
    READ_STALL_MS = 1000 /* the piece that ends it may be late by so much on a busy machine */
};

/* A worker's experts, connected to the bench's tier like a worker to memd. */
struct side {
    struct bench bench;
    uint8_t *pool;
    struct memory_client memory;
    int memd_fd;
    struct pool *threads;
    struct exec *own, *truth;
    struct experts_counters counters;
    struct counter all[16];
    struct experts *experts;
    float values[MOST_TOKENS * HIDDEN];
    uint32_t selected[MOST_TOKENS * USED];
    uint32_t seed;
};

/* Accepts an offer like memd's lease socket, but without the mapping. */
static void *take_offer(void *arg)
{
    struct side *s = arg;
    struct lease_message m;
    struct error e;
    int fds[LEASE_MAX_FDS];
    unsigned n_fds = 0;
    must(lease_receive(s->memd_fd, &m, fds, LEASE_MAX_FDS, &n_fds, 5000, &e), &e);
    if (m.kind != CACHE_OFFER || n_fds != 1)
        abort();
    close(fds[0]);
    m.kind = CACHE_ACCEPT;
    must(lease_send(s->memd_fd, &m, NULL, 0, &e), &e);
    return NULL;
}

static void attach(struct side *s)
{
    struct error e;
    struct bench *b = &s->bench;
    s->pool = aligned_alloc(4096, b->plan.header.bytes);
    memset(s->pool, 0, b->plan.header.bytes);
    must(pool_plan_write(&b->plan, b->g, BENCH_GENERATION, s->pool, &e), &e);
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    s->memd_fd = pair[1];
    s->memory = (struct memory_client){
        .lease_fd = pair[0], .generation = BENCH_GENERATION, .tier = b->tier->table};
    must(pool_map_attach(s->pool, b->plan.header.bytes, &s->memory.map, &e), &e);
    assert_int_equal(s->memory.map.header->tiered, 1);
}

static void side_open(struct side *s)
{
    struct mkmodel_options o;
    struct error e;
    memset(s, 0, sizeof *s);
    s->seed = 1;
    bench_options(&o);
    o.top_k = USED;
    bench_open(&s->bench, &o, SLOTS);
    attach(s);
    struct exec_limits limits = {MOST_TOKENS, HIDDEN, MOST_TOKENS * USED, 256};
    must(pool_new("test", 2, false, 0, &s->threads, &e), &e);
    must(exec_new(s->threads, &limits, false, &s->own, &e), &e);
    must(exec_new(s->threads, &limits, false, &s->truth, &e), &e);
    struct counter *c = s->all;
    s->counters = (struct experts_counters){.sent = c,
                                            .local = c + 1,
                                            .local_ns = c + 10,
                                            .local_bytes = c + 11,
                                            .reclaimed = c + 2,
                                            .wait_ns = c + 3,
                                            .found_in_memory = c + 6,
                                            .found_on_disk = c + 7,
                                            .disk_wait_decode_ns = c + 8,
                                            .disk_wait_prefill_ns = c + 9};
    struct experts_options options = {.max_tokens = MOST_TOKENS, .predictor = PREDICT_NEXT_GATE};
    options.prediction_counters.predictions[PREDICT_NEXT_GATE] = c + 4;
    options.prediction_counters.right[PREDICT_NEXT_GATE] = c + 5;
    pthread_t memd;
    assert_int_equal(pthread_create(&memd, NULL, take_offer, s), 0);
    must(experts_new("/proc/nonexistent", &s->memory, s->own, &options, &s->counters, &s->experts,
                     &e),
         &e);
    pthread_join(memd, NULL);
    /* from here on the tier uses the worker's own mapping, so that ThreadSanitizer sees both sides
     * at one address */
    must(tier_add_worker(s->bench.tier, 1, &s->experts->cache_link.region, &e), &e);
    s->experts->cache_link.region = (struct shm){.fd = -1};
}

static void side_close(struct side *s)
{
    experts_free(s->experts);
    exec_free(s->own);
    exec_free(s->truth);
    pool_free(s->threads);
    close(s->memory.lease_fd);
    close(s->memd_fd);
    free(s->pool);
    bench_close(&s->bench);
}

static void draw_layer(struct side *s, uint32_t n_tokens)
{
    for (uint32_t i = 0; i < n_tokens * HIDDEN; i++)
        s->values[i] = (float)bench_draw(&s->seed, 2000) / 1000 - 1;
    for (uint32_t t = 0; t < n_tokens; t++) {
        uint32_t first = bench_draw(&s->seed, EXPERTS);
        for (uint32_t k = 0; k < USED; k++)
            s->selected[t * USED + k] = (first + k * (1 + 2 * (t % 2))) % EXPERTS;
    }
}

/* Compares every row with the same expert computed for that token only, from the whole model. */
static void check_rows(struct side *s, uint32_t layer, uint32_t n_tokens)
{
    const struct activations *a =
        exec_prepare(s->truth, 0, s->values, HIDDEN, n_tokens, HIDDEN, true);
    uint32_t n_segments = s->bench.whole.map.slabs[layer].n_segments;
    for (uint32_t t = 0; t < n_tokens; t++)
        for (uint32_t k = 0; k < USED; k++) {
            float row[HIDDEN];
            struct expert_task task = {.expert = s->selected[t * USED + k],
                                       .n_segments = n_segments,
                                       .n_tokens = 1,
                                       .tokens = &t,
                                       .out = row};
            exec_experts(s->truth, &s->bench.whole.map, layer, a, &task, 1);
            assert_memory_equal(row, experts_row(s->experts, t, k), sizeof row);
        }
}

static uint64_t disk_waits(const struct side *s)
{
    return counter_read(s->counters.disk_wait_decode_ns) +
           counter_read(s->counters.disk_wait_prefill_ns);
}

static enum error_code run_layer(struct side *s, uint32_t layer, uint32_t n_tokens, struct error *e)
{
    struct experts *x = s->experts;
    uint64_t before = disk_waits(s);
    draw_layer(s, n_tokens);
    const struct mirrored_values values = {s->values, s->values};
    experts_begin(x, layer, &(struct layer_input){&values, NULL}, n_tokens, s->selected,
                  (struct batch_kind){.groups = {&(struct row_group){0, n_tokens}, n_tokens > 4},
                                      .prompt_rows = n_tokens > 4 ? n_tokens : 0});
    struct predict_seen seen = {
        .layer = layer, .n_tokens = n_tokens, .hidden = s->values, .selected = s->selected};
    struct predict_target target;
    const float *input;
    for (uint32_t i = 0; experts_predict_gate(x, seen, i, &target, &input); i++)
        experts_predict_from_gate(x, seen, &target, s->selected);
    enum error_code code = experts_finish(x, NULL, e);
    assert_int_equal(disk_waits(s), before); /* they count with the step's time */
    experts_count_disk_wait(x, n_tokens > 4);
    /* in every case the worker holds no slot afterwards */
    assert_int_equal(atomic_load(&x->cache_link.channel.header->host_epoch) % 2, 0);
    assert_int_equal(x->work.n_fetched, x->work.n_fetches);
    return code;
}

/* One token that misses some of its four experts, and a batch that activates all 16 experts with 8
 * slots. */
static void test_rows(void **state)
{
    static struct side s;
    struct error e;
    side_open(&s);
    static const uint32_t tokens[] = {1, 2, 1, MOST_TOKENS, 1, 7, 33};
    for (uint32_t step = 0; step < 6 * sizeof tokens / sizeof *tokens; step++)
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            uint32_t n = tokens[step % (sizeof tokens / sizeof *tokens)];
            must(run_layer(&s, layer, n, &e), &e);
            check_rows(&s, layer, n);
        }
    uint64_t most = 0, least = UINT64_MAX, local = counter_read(s.counters.local);
    for (uint32_t i = 0; i < s.memory.map.params.n_layers; i++) {
        const struct pool_slabs *slabs = &s.memory.map.slabs[i];
        most = slabs->slab_bytes > most ? slabs->slab_bytes : most;
        least = slabs->slab_bytes < least ? slabs->slab_bytes : least;
    }
    assert_in_range(counter_read(s.counters.local_bytes), local * least, local * most);
    assert_true(counter_read(s.counters.found_in_memory) > 0);
    assert_true(counter_read(s.counters.found_on_disk) > 100);
    assert_true(counter_read(s.counters.disk_wait_decode_ns) > 0);
    assert_true(counter_read(s.counters.disk_wait_prefill_ns) > 0);
    BENCH_UNTIL(bench_held(&s.bench) == 0);
    bench_check(&s.bench);
    side_close(&s);
}

/* If the file is cut, the layer fails soon and with a clear error, and so does every later one: the
 * file may be another's by then (memd/host/tier.h). */
static void test_failure(void **state)
{
    static struct side s;
    struct error e;
    side_open(&s);
    int fd = open(bench_file(&s.bench), O_RDWR);
    off_t whole = lseek(fd, 0, SEEK_END);
    uint8_t *copy = malloc((size_t)whole);
    assert_int_equal(pread(fd, copy, (size_t)whole, 0), whole);
    assert_int_equal(ftruncate(fd, 4096), 0);
    for (int i = 0; i < 4; i++) {
        uint64_t started = clock_ns();
        assert_int_equal(run_layer(&s, 1, MOST_TOKENS, &e), ERROR_IO);
        assert_non_null(strstr(e.text, "layer 1"));
        assert_true(clock_ns() - started < 5000000000u);
    }
    BENCH_UNTIL(bench_held(&s.bench) == 0);
    assert_int_equal(pwrite(fd, copy, (size_t)whole, 0), whole);
    assert_int_equal(run_layer(&s, 1, MOST_TOKENS, &e), ERROR_IO);
    free(copy);
    close(fd);
    side_close(&s);
}

/* A second worker is stopped while it holds fetched slots, which it never releases. Our worker
 * continues with the other slots. */
static void test_stopped_neighbour(void **state)
{
    static struct side s;
    struct bench_worker other;
    struct error e;
    side_open(&s);
    bench_attach(&other, &s.bench, 9);
    bench_fetch(&other, 2, 3);
    bench_fetch(&other, 2, 4);
    assert_true(bench_await(&other, 2, 3) && bench_await(&other, 2, 4));
    for (uint32_t step = 0; step < 3; step++)
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            must(run_layer(&s, layer, MOST_TOKENS, &e), &e);
            check_rows(&s, layer, MOST_TOKENS);
        }
    assert_true(bench_slot(&s.bench, 2, 3) >= 0 && bench_slot(&s.bench, 2, 4) >= 0);
    side_close(&s);
}

/* memd decides nothing while its lock is held, like one whose disk is slow: with pieces of reads
 * that come, or without. */
struct slow_disk {
    struct side *s;
    struct heartbeat *heartbeat;
    bool reads;
    uint32_t beats;
    atomic_bool held, done; /* done: the layer, or its wait */
};

/* Whether the wait has lasted longer than it would without reads, and the heart has beaten. */
static bool has_waited(const struct slow_disk *d, uint64_t began)
{
    uint64_t waited_ms = (clock_ns() - began) / 1000000;
    if (!d->reads)
        return false;
    return waited_ms > 10 * READ_STALL_MS || (d->beats > 3 && waited_ms > 5 * READ_STALL_MS / 4);
}

static void count_beat(struct slow_disk *d, uint64_t *before)
{
    uint64_t since = atomic_load(&d->heartbeat->since_ns);
    d->beats += since != *before;
    *before = since;
    if (d->reads)
        atomic_fetch_add(&d->s->bench.tier->table.header->pieces, 1);
    bench_nap(10000000);
}

static void *hold(void *arg)
{
    struct slow_disk *d = arg;
    struct tier *t = d->s->bench.tier;
    uint64_t before = 0, began = clock_ns();
    pthread_mutex_lock(&t->server.lock);
    atomic_store(&d->held, true);
    while (!atomic_load(&d->done) && !has_waited(d, began))
        count_beat(d, &before);
    pthread_mutex_unlock(&t->server.lock);
    while (!atomic_load(&d->done)) /* memd may be slow to decide now */
        count_beat(d, &before);
    return NULL;
}

/* A slow disk is waited for as long as it reads, and the watchdog's heart beats; one that does not
 * answer is not. */
static void test_slow_disk(void **state)
{
    static struct side s;
    struct heartbeat heartbeat = {0};
    struct error e;
    (void)state;
    side_open(&s);
    experts_set_heartbeat(s.experts, &heartbeat);
    for (int reads = 0; reads < 2; reads++) {
        struct slow_disk d = {.s = &s, .heartbeat = &heartbeat, .reads = reads};
        pthread_t holder;
        s.experts->disk_stall_ms = reads ? READ_STALL_MS : STALL_MS;
        assert_int_equal(pthread_create(&holder, NULL, hold, &d), 0);
        BENCH_UNTIL(atomic_load(&d.held));
        enum error_code code = run_layer(&s, 2, MOST_TOKENS, &e);
        atomic_store(&d.done, true);
        pthread_join(holder, NULL);
        assert_int_equal(code, reads ? ERROR_OK : ERROR_TIMEOUT);
        assert_true(reads ? d.beats > 3 : d.beats <= 1);
    }
    check_rows(&s, 2, MOST_TOKENS);
    side_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_failure),
        cmocka_unit_test(test_stopped_neighbour),
        cmocka_unit_test(test_slow_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
