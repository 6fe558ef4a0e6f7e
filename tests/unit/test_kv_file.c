/* Conversations in a file (memd/host/kv_file.h, kv_saver.h, ipc/kv_store.h), which the prefix cache
 * reads back. The truth is that of prefix_bench.h: whatever happens to pool, worker, memd and file,
 * a path has what computing gives. */
#include "prefix_bench.h"

#include "base/checksum.h"
#include "memd/host/kv_saver.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGES = 14, SLOTS = 60 };

static char dir[] = "/tmp/moed-test-kv-XXXXXX";

static int make_dir(void **state)
{
    return !mkdtemp(dir);
}

static void path_of(uint64_t model, const char *end, char out[80])
{
    snprintf(out, 80, "%s/%016llx.kv%s", dir, (unsigned long long)model, end);
}

static int remove_dir(void **state)
{
    char path[80];
    for (uint64_t model = 1; model <= 14; model++)
        for (int i = 0; i < 2; i++) {
            path_of(model, i ? ".bad" : "", path);
            unlink(path);
        }
    return rmdir(dir);
}

/* memd: a pool, a file, and what saves. */
struct memd_bench {
    struct bench bench;
    struct kv_file file;
    struct kv_saver *saver;
    struct kv_file_options options;
    uint32_t n_windowed, window; /* of the cache */
    struct heartbeat *heartbeat;
};

static void open_memd(struct memd_bench *m, uint32_t n_pages, bool exact)
{
    struct error e;
    bench_open_windowed(&m->bench, n_pages, exact, m->n_windowed, m->window);
    assert_int_equal(kv_file_open(&m->file, &m->options, &e), ERROR_OK);
    assert_int_equal(kv_saver_new_idle(&m->bench.pool, &m->file, &m->saver, &e), ERROR_OK);
    m->bench.store = m->file.index;
    m->bench.heartbeat = m->heartbeat;
    prefix_cache_free(m->bench.cache);
    bench_attach(&m->bench, 1);
}

static void close_memd(struct memd_bench *m)
{
    kv_saver_free(m->saver);
    kv_file_close(&m->file);
    bench_close(&m->bench);
}

static struct kv_file_options options_of(uint64_t model, uint32_t slots)
{
    return (struct kv_file_options){.dir = dir,
                                    .model = model,
                                    .version = 5,
                                    .page_bytes = PAGE_BYTES,
                                    .most_bytes = KV_STORE_BLOCK +
                                                  (uint64_t)slots * (KV_STORE_BLOCK + PAGE_BYTES)};
}

static void damage_file(const char *path, uint32_t times)
{
    struct stat s;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0 && fstat(fd, &s) == 0);
    for (uint32_t i = 0; i < times; i++) {
        off_t at = KV_STORE_BLOCK + (off_t)below((uint32_t)s.st_size - KV_STORE_BLOCK - 512);
        at -= at % 512; /* numbers and records are at the beginnings of blocks */
        uint64_t other = 0x0102030405060708u * (below(200) + 1);
        assert_int_equal(pwrite(fd, &other, sizeof other, at + 8 * (off_t)below(64)), sizeof other);
    }
    close(fd);
}

/* memd ends, and another one begins with nothing but the file. Returns the pages that were read. */
static uint64_t restart(struct memd_bench *m, struct talk *talks, bool damage)
{
    char path[80];
    uint64_t restored = prefix_cache_stats(m->bench.cache).restored;
    bool exact = m->bench.exact;
    for (uint32_t i = 0; i < PATHS; i++) {
        talks[i].open = false;
        talks[i].path.n_pages = talks[i].path.n = 0;
    }
    close_memd(m);
    path_of(m->options.model, "", path);
    if (damage)
        damage_file(path, 20);
    open_memd(m, PAGES, exact);
    return restored;
}

/* Returns how many pages came from the file. */
static uint64_t check_life(bool exact, uint64_t seed, bool damage, uint32_t window)
{
    static struct talk talks[PATHS];
    struct memd_bench m = {
        .options = options_of(1, seed % 3 ? SLOTS : 9), .n_windowed = window > 0, .window = window};
    uint64_t restored = 0;
    random_state = seed;
    memset(talks, 0, sizeof talks);
    open_memd(&m, PAGES, exact);
    for (uint32_t i = 0; i < 5000; i++) {
        step(&m.bench, talks);
        if (below(12) == 0)
            kv_saver_scan(m.saver, below(2));
        if (below(400) == 0) {
            restored += prefix_cache_stats(m.bench.cache).restored;
            die(&m.bench, talks);
        }
        if (below(700) == 0)
            restored += restart(&m, talks, damage);
        if (below(1500) == 0)
            prefix_cache_clear(m.bench.cache);
    }
    restored += prefix_cache_stats(m.bench.cache).restored;
    close_memd(&m);
    return restored;
}

static void test_life(void **state)
{
    uint64_t restored = 0;
    for (uint64_t seed = 1; seed <= 6; seed++)
        restored += check_life(seed % 2, seed, false, 0);
    assert_true(restored > 100);
}

static void test_life_with_windows(void **state)
{
    static const uint32_t windows[] = {1, 70, 150};
    uint64_t restored = 0;
    for (uint64_t seed = 1; seed <= 6; seed++)
        restored += check_life(seed % 2, seed, false, windows[seed % 3]);
    assert_true(restored > 100);
}

static void test_damage(void **state)
{
    uint64_t restored = 0;
    for (uint64_t seed = 1; seed <= 6; seed++)
        restored += check_life(seed % 2, seed, true, seed % 3 ? 0 : 70);
    assert_true(restored > 100);
}

/* ---- By hand ---- */

static void ask(struct memd_bench *m, struct talk *t, uint32_t n, uint32_t token, uint32_t found)
{
    memset(t, 0, sizeof *t);
    for (uint32_t i = 0; i < n; i++)
        t->tokens[i] = token;
    t->n = n;
    open_talk(&m->bench, t);
    assert_int_equal(t->path.n, found);
    while (t->n_past < t->n)
        assert_true(compute(&m->bench, t));
    close_talk(&m->bench, t);
}

static void reopen(struct memd_bench *m)
{
    close_memd(m);
    open_memd(m, PAGES, true);
}

/* All of a conversation comes back, also its last part of a page; another one does not get it. */
static void test_comes_back(void **state)
{
    static struct talk t;
    struct memd_bench m = {.options = options_of(2, SLOTS)};
    open_memd(&m, PAGES, true);
    ask(&m, &t, 200, 7, 0);
    reopen(&m);
    assert_int_equal(atomic_load(&m.file.n_used), 4);
    ask(&m, &t, 210, 7, 200);
    ask(&m, &t, 200, 8, 0);
    reopen(&m);
    ask(&m, &t, 100, 7, 99);
    assert_int_equal(prefix_cache_stats(m.bench.cache).restored, 2);
    close_memd(&m);
}

/* With a limit each opening reads one page more, or a page's windowed pages. */
static void check_in_parts(uint64_t model, uint32_t n_windowed, uint32_t openings)
{
    static struct talk t;
    struct heartbeat heartbeat = {0};
    struct memd_bench m = {.options = options_of(model, SLOTS),
                           .n_windowed = n_windowed,
                           .window = 10,
                           .heartbeat = &heartbeat};
    const struct kv_prefix prefix = {t.tokens, 250, 250, 0};
    open_memd(&m, PAGES, true);
    ask(&m, &t, 250, 7, 0);
    reopen(&m);
    t.path.reading.most_ns = 1;
    for (uint32_t i = 1; i <= openings; i++) {
        prefix_cache_close(m.bench.cache, &t.path);
        heartbeat_rest(&heartbeat);
        prefix_cache_open(m.bench.cache, &prefix, &t.path);
        assert_true(atomic_load(&heartbeat.since_ns) > 0);
        assert_int_equal(t.path.reading.more, i < openings);
    }
    assert_int_equal(t.path.n, 250);
    prefix_cache_close(m.bench.cache, &t.path);
    close_memd(&m);
}

static void test_in_parts(void **state)
{
    check_in_parts(8, 0, 4);
    check_in_parts(9, 2, 4 + 1);
}

/* Pages that an earlier opening has read, and that others have evicted, do not save their time
 * again. */
static void test_read_again(void **state)
{
    static struct talk t, other;
    struct memd_bench m = {.options = options_of(10, SLOTS), .n_windowed = 2, .window = 10};
    const struct kv_prefix prefix = {t.tokens, 250, 250, 0};
    uint32_t known;
    (void)state;
    open_memd(&m, PAGES, true);
    ask(&m, &t, 250, 7, 0);
    reopen(&m);
    other.path = (struct kv_path){.pages = other.pages, .capacity = PAGES};
    t.path.reading.most_ns = 1;
    uint64_t saved_ns = 0;
    for (int i = 0; i < 3; i++) {
        prefix_cache_open(m.bench.cache, &prefix, &t.path);
        prefix_cache_close(m.bench.cache, &t.path);
        assert_true(t.path.reading.more && t.path.reading.saved_ns > 0);
        assert_true(i == 0 || t.path.reading.saved_ns == saved_ns);
        saved_ns = t.path.reading.saved_ns;
        assert_false(prefix_cache_extend(m.bench.cache, &other.path, PAGES * KV_POOL_TOKENS));
        prefix_cache_close(m.bench.cache, &other.path);
        prefix_cache_find(m.bench.cache, &prefix, &known);
        assert_int_equal(known, 0);
    }
    close_memd(&m);
}

/* Of the windowed pages the file has those that a conversation goes on with. */
static void test_windows_come_back(void **state)
{
    static struct talk t;
    struct memd_bench m = {.options = options_of(6, SLOTS), .n_windowed = 2, .window = 10};
    open_memd(&m, PAGES, true);
    ask(&m, &t, 250, 7, 0);
    reopen(&m);
    assert_int_equal(atomic_load(&m.file.n_used), 4 + 2 * 2);
    ask(&m, &t, 260, 7, 250);
    close_memd(&m);
}

/* What is cleared is gone from the file. */
static void test_clear(void **state)
{
    static struct talk t;
    struct memd_bench m = {.options = options_of(3, SLOTS)};
    struct stat s;
    char path[80];
    open_memd(&m, PAGES, true);
    ask(&m, &t, 200, 7, 0);
    kv_saver_scan(m.saver, true);
    prefix_cache_clear(m.bench.cache);
    ask(&m, &t, 30, 7, 0); /* the file has not followed yet */
    prefix_cache_clear(m.bench.cache);
    kv_saver_scan(m.saver, true);
    assert_int_equal(atomic_load(&m.file.n_used), 0);
    path_of(3, "", path);
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_size, KV_STORE_BLOCK);
    reopen(&m);
    ask(&m, &t, 200, 7, 0);
    close_memd(&m);
}

/* A file of other options is begun again; what is no file of ours is set aside. One is locked. */
static void test_other_files(void **state)
{
    static struct talk t;
    struct memd_bench m = {.options = options_of(4, SLOTS)};
    struct kv_file second;
    struct error e;
    char path[80], aside[80], text[8] = "";
    open_memd(&m, PAGES, true);
    ask(&m, &t, 200, 7, 0);
    assert_int_equal(kv_file_open(&second, &m.options, &e), ERROR_EXISTS);
    close_memd(&m);
    m.options.version = 6;
    open_memd(&m, PAGES, true);
    ask(&m, &t, 200, 7, 0);
    close_memd(&m);

    path_of(4, "", path);
    path_of(4, ".bad", aside);
    int fd = open(path, O_WRONLY | O_TRUNC);
    assert_int_equal(write(fd, "foreign", 7), 7);
    close(fd);
    open_memd(&m, PAGES, true);
    ask(&m, &t, 200, 7, 0);
    close_memd(&m);
    fd = open(aside, O_RDONLY);
    assert_int_equal(read(fd, text, 7), 7);
    close(fd);
    assert_string_equal(text, "foreign");
    m.options.most_bytes = KV_STORE_BLOCK;
    assert_int_equal(kv_file_open(&second, &m.options, &e), ERROR_USAGE);
}

/* If the file is full, the pages used longest ago go, the end of a conversation first. */
static void test_full(void **state)
{
    static const uint32_t used[] = {30, 10, 20, 20};
    uint8_t memory[PAGE_BYTES] = {0};
    struct kv_file_options options = options_of(5, 4);
    struct kv_file f;
    struct error e;
    assert_int_equal(kv_file_open(&f, &options, &e), ERROR_OK);
    struct kv_store_page page = {.parent_key = 1, .n = 1};
    for (uint32_t i = 0; i < 4; i++) {
        page.key = 10 + i;
        page.used_s = used[i];
        page.depth = i;
        kv_file_put(&f, &page, memory, NULL, NULL);
    }
    static const struct {
        uint32_t used_s;
        uint64_t gone;
    } more[] = {{5, 20}, {15, 11}, {40, 21}, {40, 13}};
    for (uint32_t i = 0; i < 4; i++) {
        page.key = 20 + i;
        page.used_s = more[i].used_s;
        kv_file_put(&f, &page, memory, NULL, NULL);
        assert_int_equal(kv_file_find(&f, 1, more[i].gone), UINT32_MAX);
        assert_int_equal(atomic_load(&f.n_used), 4);
    }
    assert_int_not_equal(kv_file_find(&f, 1, 10), UINT32_MAX);
    assert_int_not_equal(kv_file_find(&f, 1, 12), UINT32_MAX);
    kv_file_close(&f);
}

static void put(struct kv_file *f, uint64_t parent, uint64_t key, uint64_t used_s)
{
    const uint8_t memory[PAGE_BYTES] = {0};
    struct kv_store_page page = {.parent_key = parent, .key = key, .n = 1, .used_s = used_s};
    kv_file_put(f, &page, memory, NULL, NULL);
}

static bool has(const struct kv_file *f, uint64_t parent, uint64_t key)
{
    return kv_file_find(f, parent, key) != UINT32_MAX;
}

/* A full file loses a conversation from its end, also where the first pages were used before the
 * last ones; a new page never takes the place of the one that it continues. */
static void test_full_path(void **state)
{
    struct kv_file_options options = options_of(7, 3);
    struct kv_file f;
    struct error e;
    assert_int_equal(kv_file_open(&f, &options, &e), ERROR_OK);
    for (uint64_t i = 0; i < 3; i++)
        put(&f, i ? 9 + i : 1, 10 + i, 10 + i);
    for (uint64_t i = 0; i < 3; i++) {
        put(&f, i ? 19 + i : 1, 20 + i, 40 - i);
        assert_false(has(&f, i < 2 ? 11 - i : 1, 12 - i));
        assert_true(has(&f, i ? 19 + i : 1, 20 + i));
    }
    put(&f, 22, 23, 50); /* only pages that it needs are there */
    assert_false(has(&f, 22, 23));
    assert_int_equal(atomic_load(&f.n_used), 3);
    kv_file_close(&f);
}

enum { YEAR_S = 365 * 86400, AHEAD_SLOTS = 3 };

/* Fills the file while the clock is ahead by a year. */
static void fill_ahead(struct kv_file *f, const struct kv_file_options *options)
{
    struct error e;
    uint64_t now_s = (uint64_t)time(NULL);
    assert_int_equal(kv_file_open(f, options, &e), ERROR_OK);
    for (uint32_t i = 0; i < AHEAD_SLOTS; i++) {
        put(f, 1, 10 + i, now_s);
        kv_file_touch(f, i, now_s + YEAR_S + i);
    }
}

/* Once the clock is set back, new pages take the place of those, but not of one that is used
 * again. */
static void test_clock_set_back(void **state)
{
    struct kv_file_options options = options_of(11, AHEAD_SLOTS);
    struct kv_file f;
    uint64_t now_s = (uint64_t)time(NULL);
    (void)state;
    fill_ahead(&f, &options);
    put(&f, 1, 20, now_s);
    assert_true(has(&f, 1, 20));
    assert_false(has(&f, 1, 10));
    kv_file_touch(&f, kv_file_find(&f, 1, 11), now_s + 1);
    put(&f, 1, 21, now_s);
    assert_true(has(&f, 1, 21) && has(&f, 1, 11));
    put(&f, 1, 22, now_s + YEAR_S); /* used before that: now */
    assert_true(has(&f, 1, 22));
    assert_true(f.index.records[kv_file_find(&f, 1, 22)].page.used_s < now_s + YEAR_S);
    kv_file_close(&f);
}

/* The same after restarts: what each of them keeps is still there in the next one. */
static void test_clock_set_back_before(void **state)
{
    struct kv_file_options options = options_of(12, AHEAD_SLOTS);
    struct kv_file f;
    struct error e;
    uint64_t now_s = (uint64_t)time(NULL);
    (void)state;
    fill_ahead(&f, &options);
    for (uint64_t turn = 0; turn < AHEAD_SLOTS; turn++) {
        kv_file_close(&f);
        assert_int_equal(kv_file_open(&f, &options, &e), ERROR_OK);
        put(&f, 1, 20 + turn, now_s + turn);
        for (uint64_t i = 0; i <= turn; i++)
            assert_true(has(&f, 1, 20 + i));
    }
    kv_file_close(&f);
}

/* A page that comes from the file was used then. */
static void test_use_of_saved(void **state)
{
    static struct talk t;
    struct memd_bench m = {.options = options_of(13, SLOTS)};
    (void)state;
    open_memd(&m, PAGES, true);
    ask(&m, &t, 200, 7, 0);
    reopen(&m);
    for (uint32_t slot = 0; slot < 3; slot++) {
        struct kv_store_page page = m.file.index.records[slot].page;
        page.used_s = 1;
        kv_store_set(&m.file.index, slot, &page);
    }
    ask(&m, &t, 210, 7, 200);
    kv_saver_scan(m.saver, true);
    for (uint32_t slot = 0; slot < 3; slot++)
        assert_true(m.file.index.records[slot].page.used_s > 1);
    close_memd(&m);
}

static unsigned n_keys;

uint64_t __real_kv_store_key(uint64_t parent_key, uint32_t kind, const uint32_t *tokens,
                             uint32_t n);

uint64_t __wrap_kv_store_key(uint64_t parent_key, uint32_t kind, const uint32_t *tokens,
                             uint32_t n);
uint64_t __wrap_kv_store_key(uint64_t parent_key, uint32_t kind, const uint32_t *tokens, uint32_t n)
{
    n_keys++;
    return __real_kv_store_key(parent_key, kind, tokens, n);
}

/* While the disk is full nothing is saved; afterwards all that was missed is. */
static void test_full_disk(void **state)
{
    static struct talk t;
    struct memd_bench m = {.options = options_of(14, SLOTS)};
    struct rlimit before, little;
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    little = (struct rlimit){KV_STORE_BLOCK, before.rlim_max};
    open_memd(&m, PAGES, true);
    ask(&m, &t, 200, 7, 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    kv_saver_scan(m.saver, true);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_true(m.file.failed);
    kv_saver_scan(m.saver, true); /* the next attempt is not due */
    assert_int_equal(atomic_load(&m.file.n_used), 0);
    n_keys = 0;
    kv_saver_scan(m.saver, false);
    assert_int_equal(n_keys, 0); /* pages that wait are not hashed each second */
    kv_file_retry(&m.file);
    kv_saver_scan(m.saver, true);
    assert_false(m.file.failed);
    assert_int_equal(atomic_load(&m.file.n_used), 4);
    close_memd(&m);
}

/* A page that a worker writes while it is saved has the checksum of what is in the file. */
static void test_changes_meanwhile(void **state)
{
    enum { SAVES = 200, BYTES = 1 << 16 };
    static uint8_t saved[BYTES];
    struct kv_file_options options = options_of(6, SAVES);
    struct kv_file f;
    struct error e;
    uint8_t *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    volatile uint64_t *changes = (volatile uint64_t *)(memory + BYTES) - 1;
    options.page_bytes = BYTES;
    options.most_bytes = KV_STORE_BLOCK + SAVES * (uint64_t)(KV_STORE_BLOCK + BYTES);
    assert_int_equal(kv_file_open(&f, &options, &e), ERROR_OK);
    pid_t writer = fork();
    assert_true(writer >= 0);
    if (writer == 0)
        for (prctl(PR_SET_PDEATHSIG, SIGKILL);;)
            ++*changes;
    while (!*changes)
        usleep(1000);
    for (uint32_t i = 0; i < SAVES; i++) {
        struct kv_store_page page = {.parent_key = 1, .key = 10 + i, .n = 1};
        kv_file_put(&f, &page, memory, NULL, NULL);
    }
    kill(writer, SIGKILL);
    waitpid(writer, NULL, 0);
    assert_int_equal(atomic_load(&f.n_used), SAVES);
    for (uint32_t slot = 0; slot < SAVES; slot++) {
        off_t at = (off_t)(kv_store_offset(&f.index, slot) + KV_STORE_BLOCK);
        assert_int_equal(pread(f.read_fd, saved, BYTES, at), BYTES);
        assert_int_equal(checksum64(f.index.seed, saved, BYTES),
                         f.index.records[slot].page.checksum);
    }
    kv_file_close(&f);
    munmap(memory, BYTES);
}

/* Each bit of data and seed counts. */
static void test_checksum(void **state)
{
    uint8_t data[100] = {1, 2, 3};
    for (size_t n = 0; n <= sizeof data; n++) {
        uint64_t sum = checksum64(3, data, n);
        assert_int_not_equal(sum, checksum64(4, data, n));
        for (size_t bit = 0; bit < 8 * n; bit++) {
            data[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_int_not_equal(sum, checksum64(3, data, n));
            data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        if (n < sizeof data) /* a zero more */
            assert_int_not_equal(sum, checksum64(3, data, n + 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_life),
                                       cmocka_unit_test(test_life_with_windows),
                                       cmocka_unit_test(test_damage),
                                       cmocka_unit_test(test_comes_back),
                                       cmocka_unit_test(test_windows_come_back),
                                       cmocka_unit_test(test_in_parts),
                                       cmocka_unit_test(test_read_again),
                                       cmocka_unit_test(test_clear),
                                       cmocka_unit_test(test_other_files),
                                       cmocka_unit_test(test_full),
                                       cmocka_unit_test(test_full_path),
                                       cmocka_unit_test(test_clock_set_back),
                                       cmocka_unit_test(test_clock_set_back_before),
                                       cmocka_unit_test(test_use_of_saved),
                                       cmocka_unit_test(test_full_disk),
                                       cmocka_unit_test(test_changes_meanwhile),
                                       cmocka_unit_test(test_checksum)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
