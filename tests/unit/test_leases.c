/* memd's leases over real sockets: what memd lends to a holder, when a lease ends, and that a
 * holder that misbehaves does not disturb other holders. Truth: the bytes in the lent regions, the
 * table in memory/memory_client.h, and, for the expert cache, the arrival of a worker's load. */
#include "cache_bench.h"
#include "process_counts.h"

#include "daemon/run_dir.h"
#include "ipc/kv_page.h"
#include "ipc/lease.h"
#include "ipc/lease_offer.h"
#include "memd/leases.h"
#include "memory/layouts.h"
#include "memory/memory_client.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_LEASES = 256, REGION_BYTES = 8192 };

static char run[] = "/tmp/moed-test-leases-XXXXXX";
static char path[RUN_PATH_BYTES];

struct lender {
    struct shm pool, residency, predictors;
    struct caches caches;
    struct lent lent;
    struct leases *leases;
};

struct holder {
    int fd;
    uint64_t number;
    struct lease_message grant;
    int fds[LEASE_MAX_FDS];
    unsigned n_fds;
};

static void check(enum error_code code, const struct error *e)
{
    if (code)
        fail_msg("%s", e->text);
}

static void make_region(struct shm *s, const char *text, struct error *e)
{
    check(shm_create("moed-test-leases", REGION_BYTES, s, e), e);
    strcpy(s->base, text);
    check(shm_seal_writes(s, e), e);
}

static void lend(struct lender *l, const struct lent *more)
{
    struct error e;
    make_region(&l->pool, "the pool", &e);
    make_region(&l->residency, "the table", &e);
    make_region(&l->predictors, "the predictors", &e);
    l->lent = *more;
    l->lent.pool = &l->pool;
    l->lent.residency = &l->residency;
    l->lent.predictors = &l->predictors;
    l->lent.generation = BENCH_GENERATION;
    check(leases_open(run, &l->lent, &l->leases, &e), &e);
}

static void lender_open(struct lender *l, struct cache *cache)
{
    l->caches = (struct caches){.each = {cache}, .n = cache != NULL};
    lend(l, &(struct lent){.caches = &l->caches});
}

static void lend_pages(struct lender *l, const struct shm *region, struct kv_pool *pool)
{
    l->caches = (struct caches){.n = 0};
    lend(l, &(struct lent){.caches = &l->caches, .kv = region, .kv_pool = pool});
}

static void lender_close(struct lender *l)
{
    leases_close(l->leases);
    shm_close(&l->pool);
    shm_close(&l->residency);
    shm_close(&l->predictors);
}

static enum error_code send_question(int fd, uint64_t layouts, enum memory_role role)
{
    const struct lease_message m = {.kind = MEMORY_ASK, .value = {layouts, role}};
    return lease_send(fd, &m, NULL, 0, NULL);
}

/* Connects, asks and receives the answer of any kind. */
static struct holder ask_as(enum memory_role role, uint64_t layouts)
{
    struct holder h = {.fd = -1};
    struct error e;
    check(lease_connect(path, 5000, &h.fd, &e), &e);
    send_question(h.fd, layouts, role);
    check(lease_receive(h.fd, &h.grant, h.fds, LEASE_MAX_FDS, &h.n_fds, 5000, &e), &e);
    h.number = h.grant.value[0];
    return h;
}

static struct holder ask(void)
{
    return ask_as(MEMORY_TOOL, layouts_number());
}

static struct holder hold(unsigned n_fds)
{
    struct holder h = ask();
    assert_int_equal(h.grant.kind, MEMORY_GRANT);
    assert_int_not_equal(h.number, 0);
    assert_int_equal(h.n_fds, n_fds);
    return h;
}

static void leave(struct holder *h)
{
    for (unsigned i = 0; i < h->n_fds; i++)
        close(h->fds[i]);
    close(h->fd);
}

/* The lender has closed this end's connection. */
static bool is_ended(const struct holder *h)
{
    struct lease_message m;
    return lease_receive(h->fd, &m, NULL, 0, NULL, 10000, NULL) == ERROR_UNAVAILABLE;
}

static void await_count(struct lender *l, uint32_t n)
{
    BENCH_UNTIL(leases_count(l->leases) == n);
}

static void expect_text(int fd, const char *text)
{
    struct shm s;
    assert_int_equal(shm_map(dup(fd), true, REGION_BYTES, &s, NULL), ERROR_PROTOCOL);
    assert_int_equal(shm_map(dup(fd), false, REGION_BYTES, &s, NULL), ERROR_OK);
    assert_string_equal(s.base, text);
    shm_close(&s);
}

/* A holder can read but not write the lent memory; the message has its sizes. */
static void test_grant(void **state)
{
    struct lender l;
    lender_open(&l, NULL);
    struct holder h = hold(3);
    expect_text(h.fds[0], "the pool");
    expect_text(h.fds[1], "the table");
    expect_text(h.fds[2], "the predictors");
    const uint64_t values[10] = {
        h.number, BENCH_GENERATION, REGION_BYTES, REGION_BYTES, 0, 0, REGION_BYTES, 0,
        0,        DEVICE_NO_FLAGS};
    assert_memory_equal(h.grant.value, values, sizeof values);
    await_count(&l, 1);
    leave(&h);
    await_count(&l, 0);
    assert_int_equal(leases_freed(l.leases), 1);
    lender_close(&l);
}

/* leases_end ends a lease by its number, as long as the lease exists. */
static void test_attach(void **state)
{
    struct lender l;
    struct error e;
    lender_open(&l, NULL);
    struct holder a = hold(3), b = hold(3);
    assert_int_not_equal(a.number, b.number);
    check(leases_attach(l.leases, a.number, "worker", &e), &e);
    check(leases_attach(l.leases, b.number, "a role with a name that is longer than its field", &e),
          &e);
    assert_int_equal(leases_attach(l.leases, a.number + b.number, "worker", &e), ERROR_NOT_FOUND);
    assert_int_equal(leases_attach(l.leases, 0, "worker", &e), ERROR_NOT_FOUND);
    check(leases_detach(l.leases, a.number, &e), &e);
    assert_int_equal(leases_count(l.leases), 2); /* the lease ends with its connection */
    leave(&a);
    await_count(&l, 1);
    assert_int_equal(leases_attach(l.leases, a.number, "worker", &e), ERROR_NOT_FOUND);
    assert_int_equal(leases_detach(l.leases, a.number, &e), ERROR_NOT_FOUND);
    struct holder c = hold(3); /* takes the free entry, with another number */
    assert_int_not_equal(c.number, a.number);
    assert_int_not_equal(c.number, b.number);
    leave(&b);
    leave(&c);
    await_count(&l, 0);
    assert_int_equal(leases_freed(l.leases), 3);
    lender_close(&l);
}

static void test_limit(void **state)
{
    static struct holder holders[MOST_LEASES];
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max < 4096 ? limit.rlim_max : 4096;
    setrlimit(RLIMIT_NOFILE, &limit);
    struct lender l;
    lender_open(&l, NULL);
    int before = open_fds();
    for (int i = 0; i < MOST_LEASES; i++) {
        holders[i] = hold(3);
        for (unsigned k = 0; k < 3; k++)
            close(holders[i].fds[k]);
        holders[i].n_fds = 0;
    }
    struct holder h = ask();
    assert_int_equal(h.grant.kind, MEMORY_REFUSED);
    assert_int_equal(h.grant.value[0], ERROR_LIMIT);
    assert_int_equal(h.n_fds, 0);
    assert_true(is_ended(&h));
    leave(&h);
    assert_int_equal(leases_count(l.leases), MOST_LEASES);
    leave(&holders[100]);
    await_count(&l, MOST_LEASES - 1);
    holders[100] = hold(3);
    for (int i = 0; i < MOST_LEASES; i++)
        leave(&holders[i]);
    await_count(&l, 0);
    BENCH_UNTIL(open_fds() == before);
    lender_close(&l);
}

/* A process that holds a lease until it is killed. */
static pid_t start_holder(void)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid)
        return pid;
    struct holder h = {0};
    if (lease_connect(path, 10000, &h.fd, NULL) ||
        send_question(h.fd, layouts_number(), MEMORY_TOOL) ||
        lease_receive(h.fd, &h.grant, h.fds, LEASE_MAX_FDS, &h.n_fds, 10000, NULL))
        _exit(1);
    for (;;)
        pause();
}

static void test_holder_killed(void **state)
{
    struct lender l;
    pid_t pid = start_holder(); /* before there are threads */
    lender_open(&l, NULL);
    struct holder other = hold(3);
    await_count(&l, 2);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    await_count(&l, 1);
    assert_int_equal(leases_freed(l.leases), 1);
    struct error e;
    check(leases_attach(l.leases, other.number, "worker", &e), &e);
    leave(&other);
    lender_close(&l);
}

/* Another build, and one that says nothing of the kind, gets nothing and harms nobody. */
static void test_other_build(void **state)
{
    struct lender l;
    struct error e;
    char text[200];
    lender_open(&l, NULL);
    struct holder good = hold(3);
    for (int i = 0; i < 2; i++) {
        struct holder h = ask_as(MEMORY_WORKER, layouts_number() + (i ? 1 : 1u << 7));
        assert_int_equal(h.grant.kind, MEMORY_REFUSED);
        assert_int_equal(h.grant.value[0], ERROR_VERSION);
        assert_int_equal(h.grant.value[1], layouts_number());
        assert_int_equal(h.n_fds, 0);
        assert_true(is_ended(&h));
        leave(&h);
    }
    struct holder other = {0};
    check(lease_connect(path, 5000, &other.fd, &e), &e);
    const struct lease_message m = {.kind = CACHE_OFFER, .value = {layouts_number()}};
    check(lease_send(other.fd, &m, NULL, 0, &e), &e);
    check(lease_receive(other.fd, &other.grant, NULL, 0, NULL, 5000, &e), &e);
    assert_int_equal(other.grant.value[0], ERROR_PROTOCOL);
    leave(&other);
    await_count(&l, 1);
    leave(&good);
    lender_close(&l);
    layouts_difference(layouts_number() + 1, text, sizeof text);
    assert_non_null(strstr(text, "messages"));
    assert_null(strchr(text, ','));
    assert_string_equal(layouts_difference(layouts_number(), text, sizeof text), "");
}

/* ---- Workers and the KV pool ---- */

static void make_pool(struct shm *region, struct kv_pool *pool)
{
    struct error e;
    check(shm_create("moed-test-kv", kv_pool_bytes(4, KV_POOL_ALIGN), region, &e), &e);
    kv_pool_init(region->base, 4, KV_POOL_ALIGN, BENCH_GENERATION);
    check(kv_pool_attach(pool, region->base, region->bytes, &e), &e);
}

static struct holder hold_worker(void)
{
    struct holder h = ask_as(MEMORY_WORKER, layouts_number());
    assert_int_equal(h.grant.kind, MEMORY_GRANT);
    assert_int_equal(h.n_fds, 4);
    assert_true(h.grant.value[12] < KV_POOL_WORKERS);
    return h;
}

/* A worker that holds a page, and writes another one, until it is killed. */
static pid_t start_worker(void)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid)
        return pid;
    struct holder h = {0};
    struct shm region;
    struct kv_pool pool;
    if (lease_connect(path, 10000, &h.fd, NULL) ||
        send_question(h.fd, layouts_number(), MEMORY_WORKER) ||
        lease_receive(h.fd, &h.grant, h.fds, LEASE_MAX_FDS, &h.n_fds, 10000, NULL) ||
        h.n_fds != 4 || shm_map(h.fds[3], true, h.grant.value[10], &region, NULL) ||
        kv_pool_attach(&pool, region.base, region.bytes, NULL))
        _exit(1);
    uint32_t worker = (uint32_t)h.grant.value[12];
    for (uint32_t page = 0; page < 2; page++) {
        if (!kv_page_claim(&pool, worker, page, kv_page_word(&pool, page)))
            _exit(1);
        kv_page_begin(&pool, worker, page);
    }
    atomic_store(&pool.records[0].n, 5);
    kv_page_finish(&pool, 0);
    for (;;)
        pause();
}

/* Each worker has a number of its own. What a killed one used is free, and its number too. */
static void test_worker_killed(void **state)
{
    struct lender l;
    struct shm region;
    struct kv_pool pool;
    make_pool(&region, &pool);
    pid_t pid = start_worker(); /* before there are threads */
    lend_pages(&l, &region, &pool);
    BENCH_UNTIL(!kv_page_has_writer(kv_page_word(&pool, 0)) &&
                kv_page_has_content(kv_page_word(&pool, 0)));
    struct holder a = hold_worker(), b = hold_worker();
    assert_int_not_equal(a.grant.value[12], b.grant.value[12]);
    assert_int_equal(kv_pool_use(&pool).pages_in_use, 2);
    kill(pid, SIGKILL);
    BENCH_UNTIL(kv_pool_use(&pool).pages_in_use == 0); /* it is not waited for yet */
    waitpid(pid, NULL, 0);
    assert_int_equal(kv_pool_use(&pool).tokens, 5);
    struct holder c[KV_POOL_WORKERS];
    int n = 0;
    for (; n < KV_POOL_WORKERS - 2; n++)
        c[n] = hold_worker();
    struct holder more = ask_as(MEMORY_WORKER, layouts_number());
    assert_int_equal(more.grant.kind, MEMORY_REFUSED);
    assert_int_equal(more.grant.value[0], ERROR_LIMIT);
    leave(&more);
    while (n-- > 0)
        leave(&c[n]);
    leave(&a);
    leave(&b);
    await_count(&l, 0);
    lender_close(&l);
    shm_close(&region);
}

/* A malformed message ends the connection that it came over, and no other. */
static void test_garbage(void **state)
{
    struct lender l;
    struct error e;
    lender_open(&l, NULL);
    struct holder good = hold(3);
    struct shm region;
    check(shm_create("moed-test-leases", REGION_BYTES, &region, &e), &e);
    int before = open_fds();
    for (int i = 0; i < 4; i++) {
        struct holder bad = hold(3);
        struct lease_message m = {.magic = LEASE_MAGIC, .kind = 0x7777}, answer;
        if (i == 0)
            assert_int_equal(send(bad.fd, "?", 1, MSG_NOSIGNAL), 1);
        if (i == 1)
            check(lease_send(bad.fd, &m, &region.fd, 1, &e), &e);
        if (i == 2)
            check(lease_offer_send(bad.fd, CACHE_OFFER, &region, BENCH_GENERATION + 1, &e), &e);
        if (i == 3) /* this memd has no cache */
            check(lease_offer_send(bad.fd, CACHE_OFFER, &region, BENCH_GENERATION, &e), &e);
        if (i) {
            check(lease_receive(bad.fd, &answer, NULL, 0, NULL, 5000, &e), &e);
            assert_int_equal(answer.kind, CACHE_REFUSE);
            assert_int_equal(answer.value[0], i == 2 ? ERROR_VERSION : ERROR_PROTOCOL);
        }
        assert_true(is_ended(&bad));
        leave(&bad);
        await_count(&l, 1);
        BENCH_UNTIL(open_fds() == before);
    }
    check(leases_attach(l.leases, good.number, "worker", &e), &e);
    leave(&good);
    shm_close(&region);
    lender_close(&l);
}

static void test_end(void **state)
{
    struct lender l;
    lender_open(&l, NULL);
    struct holder good = hold(3), bad = hold(3);
    leases_end(l.leases, bad.number + 1000); /* no such lease: no effect */
    leases_end(l.leases, bad.number);
    assert_true(is_ended(&bad));
    await_count(&l, 1);
    struct error e;
    check(leases_attach(l.leases, good.number, "worker", &e), &e);
    leave(&bad);
    leave(&good);
    lender_close(&l);
}

/* An offered channel reaches the cache, under the lease's number, until the lease ends. */
static void test_cache_channel(void **state)
{
    struct bench b;
    struct bench_worker w;
    struct lender l;
    struct error e;
    bench_open(&b, CACHE_LRU, 16, 1e-6);
    lender_open(&l, b.cache);
    const struct device_arena *arena = cache_arena(b.cache);
    struct holder h = hold(4);
    assert_int_equal(h.grant.value[3], cache_residency(b.cache)->bytes);
    assert_int_equal(h.grant.value[4], arena->extents[0].n_slots * arena->slot_bytes);
    struct shm slots;
    check(shm_map(dup(h.fds[2]), false, h.grant.value[4], &slots, &e), &e);

    bench_make_region(&w, &b, h.number);
    check(lease_offer_send(h.fd, CACHE_OFFER, &w.region, BENCH_GENERATION, &e), &e);
    check(lease_offer_answered(h.fd, CACHE_OFFER, 5000, &e), &e);
    bench_follow(&w);
    assert_int_equal(bench_present(&b), 1);
    bench_load(&w, 1, 3, 1);
    assert_true(bench_await(&w, 1, 3, 1));
    uint32_t slot = atomic_load(residency_slot(&b.table, 1, 3, 0));
    assert_true(slot < arena->extents[0].n_slots);
    assert_true(bench_is_segment((const uint8_t *)slots.base + slot * SLOT_BYTES, 1, 3, 0));
    shm_close(&slots);
    leave(&h);
    BENCH_UNTIL(bench_present(&b) == 0);
    await_count(&l, 0);
    lender_close(&l);
    shm_close(&w.region);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_holder_killed), cmocka_unit_test(test_worker_killed),
        cmocka_unit_test(test_other_build),   cmocka_unit_test(test_grant),
        cmocka_unit_test(test_attach),        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_garbage),       cmocka_unit_test(test_end),
        cmocka_unit_test(test_cache_channel),
    };
    if (mkdtemp(run) == NULL)
        return 1;
    run_dir_file(run, "memd.lease", path);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    rmdir(run);
    return rc;
}
