/* lib/ipc/ring and doorbell: in one thread, between two processes over a sealed memfd, and between
 * two threads with the region mapped twice, where ThreadSanitizer can watch. */
#include "ipc/ring.h"

#include "base/clock.h"
#include "ipc/shm.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

struct record {
    uint64_t word[8];
};
_Static_assert(sizeof(struct record) == RING_RECORD_BYTES, "a record");

/* A record of eight words. The last seven follow from the first (splitmix64's steps), so a check
 * finds a broken record. */
static struct record make_record(uint64_t number)
{
    struct record r = {{number}};
    for (unsigned i = 1; i < 8; i++) {
        uint64_t z = r.word[i - 1] + 0x9e3779b97f4a7c15u * i;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        r.word[i] = z ^ (z >> 27);
    }
    return r;
}

static bool is_record(const struct record *r, uint64_t number)
{
    struct record expected = make_record(number);
    return memcmp(r, &expected, sizeof expected) == 0;
}

static struct shm region(uint32_t capacity)
{
    struct shm s = {0};
    struct error e = {0};
    if (shm_create("moed-test-ring", ring_bytes(capacity), &s, &e) != ERROR_OK)
        fail_msg("%s", e.text);
    ring_init(s.base, capacity);
    return s;
}

static struct ring attach(void *memory, size_t bytes)
{
    struct ring r;
    struct error e = {0};
    if (ring_attach(&r, memory, bytes, &e) != ERROR_OK)
        fail_msg("%s", e.text);
    return r;
}

static void test_full_and_empty(void **state)
{
    struct shm s = region(4);
    struct ring p = attach(s.base, s.bytes), c = attach(s.base, s.bytes);
    struct record r;
    assert_int_equal(ring_pop(&c, &r), 0);
    uint64_t pushed = 0, popped = 0;
    for (int round = 0; round < 100; round++) { /* wraps around at every fill */
        for (unsigned i = 0; i < 4; i++) {
            r = make_record(pushed++);
            assert_int_equal(ring_push(&p, &r), 1);
        }
        struct record extra = make_record(999);
        assert_int_equal(ring_push(&p, &extra), 0);
        for (unsigned i = 0; i < 4 - (unsigned)round % 3; i++) {
            assert_int_equal(ring_pop(&c, &r), 1);
            assert_true(is_record(&r, popped++));
        }
        while (ring_pop(&c, &r) == 1)
            assert_true(is_record(&r, popped++));
        assert_int_equal(popped, pushed);
    }
    shm_close(&s);
}

/* The indices wrap at 2^32 without an effect. */
static void test_index_wrap(void **state)
{
    struct shm s = region(8);
    struct ring p = attach(s.base, s.bytes), c = attach(s.base, s.bytes);
    uint32_t near = UINT32_MAX - 20;
    atomic_store(&p.header->tail, near);
    atomic_store(&p.header->head, near);
    p.own = p.peer = c.own = c.peer = near;
    uint64_t pushed = 0, popped = 0;
    for (int round = 0; round < 20; round++) {
        struct record r = make_record(pushed);
        while (ring_push(&p, &r) == 1)
            r = make_record(++pushed);
        assert_int_equal(pushed - popped, 8);
        for (int i = 0; i < 5; i++) {
            assert_int_equal(ring_pop(&c, &r), 1);
            assert_true(is_record(&r, popped++));
        }
    }
    assert_true(atomic_load(&p.header->tail) < near);
    shm_close(&s);
}

static void test_attach_refuses(void **state)
{
    struct shm s = region(16);
    struct ring_header *h = s.base;
    struct ring r;
    struct error e = {0};
    assert_int_equal(ring_attach(&r, s.base, s.bytes, &e), ERROR_OK);
    assert_int_equal(ring_attach(&r, s.base, s.bytes - 1, &e), ERROR_PROTOCOL);
    assert_int_equal(ring_attach(&r, s.base, 10, &e), ERROR_PROTOCOL);
    assert_int_equal(ring_attach(&r, (uint8_t *)s.base + 8, s.bytes - 8, &e), ERROR_USAGE);
    const uint32_t bad[] = {0, 3, 17, 32, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        h->capacity = bad[i];
        assert_int_equal(ring_attach(&r, s.base, s.bytes, &e), ERROR_PROTOCOL);
    }
    h->capacity = 16;
    h->version++;
    assert_int_equal(ring_attach(&r, s.base, s.bytes, &e), ERROR_VERSION);
    h->version--;
    h->magic++;
    assert_int_equal(ring_attach(&r, s.base, s.bytes, &e), ERROR_PROTOCOL);
    shm_close(&s);
}

/* A peer that misbehaves writes impossible indices: the ring refuses them and stays broken. */
static void test_wild_indices(void **state)
{
    struct record r = make_record(1);
    const uint32_t wild[] = {5, 1000, 0x80000000u, UINT32_MAX};
    for (size_t i = 0; i < sizeof wild / sizeof wild[0]; i++) {
        struct shm s = region(4);
        struct ring p = attach(s.base, s.bytes), c = attach(s.base, s.bytes);
        for (int k = 0; k < 4; k++)
            assert_int_equal(ring_push(&p, &r), 1);
        atomic_store(&p.header->head, wild[i]);
        assert_int_equal(ring_push(&p, &r), -1);
        atomic_store(&p.header->head, 0);
        assert_int_equal(ring_push(&p, &r), -1);
        atomic_store(&c.header->tail, wild[i]);
        assert_true(ring_wait(&c, NULL, NULL, 1000)); /* at once: ring_pop reports it */
        assert_int_equal(ring_pop(&c, &r), -1);
        atomic_store(&c.header->tail, 4);
        assert_int_equal(ring_pop(&c, &r), -1);
        assert_true(ring_wait(&c, NULL, NULL, 1000));
        shm_close(&s);
    }
    /* another process writes this end's index */
    struct shm s = region(4);
    struct ring p = attach(s.base, s.bytes), c = attach(s.base, s.bytes);
    assert_int_equal(ring_push(&p, &r), 1);
    struct ring again = attach(s.base, s.bytes);
    assert_int_equal(ring_push(&again, &r), -1);
    atomic_store(&c.header->head, 3);
    assert_int_equal(ring_pop(&c, &r), -1);
    shm_close(&s);
}

static void test_wait_timeout(void **state)
{
    struct shm s = region(4);
    struct ring p = attach(s.base, s.bytes), c = attach(s.base, s.bytes);
    _Atomic bool stop = false;
    uint64_t start, least = UINT64_MAX; /* a loaded machine may interrupt some */
    for (int i = 0; i < 20; i++) {
        start = clock_ns();
        assert_false(ring_wait(&c, &stop, NULL, 0));
        least = clock_ns() - start < least ? clock_ns() - start : least;
    }
    assert_true(least < 50000000u);
    start = clock_ns();
    struct spinner spinner;
    spinner_init(&spinner, 50);
    assert_false(ring_wait(&c, &stop, &spinner, 60));
    uint64_t took = clock_ns() - start;
    assert_true(took >= 60000000u && took < 2000000000u);
    atomic_store(&stop, true);
    assert_false(ring_wait(&c, &stop, NULL, -1)); /* does not block */
    struct record r = make_record(0);
    assert_int_equal(ring_push(&p, &r), 1);
    assert_true(ring_wait(&c, &stop, NULL, -1));
    shm_close(&s);
}

/* ---- two sides that run concurrently ---- */

/* Sends count records; sleeps now and then, so that the other side goes to sleep. */
static bool produce(struct ring *r, uint64_t count, unsigned pause_every)
{
    for (uint64_t n = 0; n < count; n++) {
        struct record record = make_record(n);
        int rc;
        while ((rc = ring_push(r, &record)) == 0) {
            ring_notify(r);
            sched_yield();
        }
        if (rc < 0)
            return false;
        if (n % 64 == 0 || pause_every > 0)
            ring_notify(r);
        if (pause_every > 0 && n % pause_every == 0)
            nanosleep(&(struct timespec){.tv_nsec = (long)(n * 7919 % 100000)}, NULL);
    }
    ring_notify(r);
    return true;
}

/* Returns the number of records that arrived whole and in order. longest: the worst single wait. */
static uint64_t consume(struct ring *r, uint64_t count, unsigned spin_us, uint64_t *longest_ns)
{
    struct spinner spinner;
    spinner_init(&spinner, spin_us);
    uint64_t n = 0;
    while (n < count) {
        struct record record;
        int rc = ring_pop(r, &record);
        if (rc < 0 || (rc == 1 && !is_record(&record, n)))
            break;
        if (rc == 1) {
            n++;
            continue;
        }
        uint64_t start = clock_ns();
        if (!ring_wait(r, NULL, &spinner, 20000))
            break;
        uint64_t took = clock_ns() - start;
        if (longest_ns != NULL && took > *longest_ns)
            *longest_ns = took;
    }
    return n;
}

static void two_processes(uint64_t count, uint32_t capacity, unsigned pause_every, unsigned spin_us)
{
    struct shm s = region(capacity);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct shm mine;
        struct ring r;
        if (shm_map(dup(s.fd), true, 1, &mine, NULL) != ERROR_OK ||
            ring_attach(&r, mine.base, mine.bytes, NULL) != ERROR_OK)
            _exit(2);
        _exit(produce(&r, count, pause_every) ? 0 : 1);
    }
    struct ring c = attach(s.base, s.bytes);
    assert_int_equal(consume(&c, count, spin_us, NULL), count);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    shm_close(&s);
}

static void test_two_processes(void **state)
{
    two_processes(1000000, 256, 0, 20);
    two_processes(100000, 2, 0, 0);
}

static void test_two_processes_sleeping(void **state)
{
    two_processes(5000, 16, 1, 0);
    two_processes(5000, 16, 3, 30);
}

struct side {
    struct ring ring;
    uint64_t count, result;
    unsigned pause_every;
};

static void *producer_main(void *arg)
{
    struct side *side = arg;
    side->result = produce(&side->ring, side->count, side->pause_every);
    return NULL;
}

static void two_threads(uint64_t count, uint32_t capacity, unsigned pause_every, unsigned spin_us)
{
    struct shm a = region(capacity), b;
    assert_int_equal(shm_map(dup(a.fd), true, 1, &b, NULL), ERROR_OK);
    assert_ptr_not_equal(a.base, b.base);
    struct side p = {.ring = attach(a.base, a.bytes), .count = count, .pause_every = pause_every};
    struct ring c = attach(b.base, b.bytes);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, producer_main, &p), 0);
    uint64_t longest_ns = 0;
    assert_int_equal(consume(&c, count, spin_us, &longest_ns), count);
    pthread_join(thread, NULL);
    assert_int_equal(p.result, 1);
    /* a lost wake-up shows as a sleep of a second, the doorbell's longest */
    assert_true(longest_ns < 900000000u);
    shm_close(&a);
    shm_close(&b);
}

static void test_two_threads(void **state)
{
    two_threads(200000, 64, 0, 10);
    two_threads(50000, 1, 0, 0);
    two_threads(10000, 8, 1, 0);
    two_threads(10000, 8, 2, 20);
}

/* ---- the doorbell rung by a third party: a watcher that noticed the peer's death ---- */

struct watcher {
    struct doorbell *doorbell;
    _Atomic bool *stop;
};

static void *watcher_main(void *arg)
{
    struct watcher *w = arg;
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    atomic_store_explicit(w->stop, true, memory_order_release);
    doorbell_ring(w->doorbell);
    return NULL;
}

static void test_stopped_by_a_watcher(void **state)
{
    for (int i = 0; i < 10; i++) {
        struct shm s = region(4);
        struct ring c = attach(s.base, s.bytes);
        _Atomic bool stop = false;
        struct watcher w = {&c.header->doorbell, &stop};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, watcher_main, &w), 0);
        uint64_t start = clock_ns();
        assert_false(ring_wait(&c, &stop, NULL, -1));
        assert_true(clock_ns() - start < 900000000u);
        assert_true(atomic_load(&stop));
        pthread_join(thread, NULL);
        shm_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_and_empty),         cmocka_unit_test(test_index_wrap),
        cmocka_unit_test(test_attach_refuses),         cmocka_unit_test(test_wild_indices),
        cmocka_unit_test(test_wait_timeout),           cmocka_unit_test(test_two_processes),
        cmocka_unit_test(test_two_processes_sleeping), cmocka_unit_test(test_two_threads),
        cmocka_unit_test(test_stopped_by_a_watcher),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
