/* memd's host tier where something fails: files that are cut, unknown or overwritten, experts that
 * cannot be used, no io_uring, workers that leave or write invalid records. The truth: the same
 * model loaded whole (tests/unit/tier_bench.h). */
#include "tier_bench.h"

#include "memd/load/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void test_cut_file(void **state)
{
    struct bench b;
    struct bench_worker w;
    bench_start(&b);
    bench_attach(&w, &b, 1);
    int fd = open(bench_file(&b), O_RDWR);
    off_t whole = lseek(fd, 0, SEEK_END);
    uint8_t *copy = malloc((size_t)whole);
    assert_int_equal(pread(fd, copy, (size_t)whole, 0), whole);
    assert_int_equal(ftruncate(fd, 8192), 0);
    uint64_t resident = bench_state(&b).slots.resident;
    for (uint32_t i = 8; i < 12; i++)
        bench_fetch(&w, 2, i);
    for (uint32_t i = 8; i < 12; i++) {
        BENCH_UNTIL(host_tier_read(&b.tier->table, 2, i).failures == 1);
        assert_true(bench_slot(&b, 2, i) < 0);
    }
    assert_int_equal(counter_read(&b.failed), 4);
    assert_true(atomic_load(&b.tier->table.header->reads) >= 4);
    bench_count(&w, 4);
    BENCH_UNTIL(bench_held(&b) == 0 && bench_state(&b).slots.retired == 0);
    assert_true(bench_state(&b).slots.resident >= resident - 4);
    bench_check(&b);
    assert_int_equal(atomic_load(&b.changes), 1);
    /* It is there again, but it may be another file: nothing more is read from it. */
    assert_int_equal(pwrite(fd, copy, (size_t)whole, 0), whole);
    bench_fetch(&w, 2, 9);
    BENCH_UNTIL(host_tier_read(&b.tier->table, 2, 9).failures == 2);
    assert_true(bench_slot(&b, 2, 9) < 0);
    assert_int_equal(atomic_load(&b.changes), 1);
    bench_check(&b);
    free(copy);
    close(fd);
    bench_close(&b);
}

/* After the first filling all slots have their pages, also those that it did not use. */
static void test_pages(void **state)
{
    struct bench b;
    (void)state;
    bench_start(&b);
    const struct shm *region = tier_region(b.tier);
    size_t n = (region->bytes + 4095) / 4096;
    unsigned char *there = calloc(n, 1);
    assert_int_equal(mincore(region->base, region->bytes, there), 0);
    for (size_t i = 0; i < n; i++)
        assert_true(there[i] & 1);
    free(there);
    bench_close(&b);
}

/* At the start an expert that cannot be used is named, and another start does not help. */
static void test_unusable_expert(void **state)
{
    struct mkmodel_options o;
    struct bench b;
    struct error e;
    static const uint8_t not_a_number[2] = {0xff, 0x7f}; /* the scale of a block */
    (void)state;
    bench_options(&o);
    bench_plan(&b, &o, 8);
    const struct gguf_tensor *t = gguf_tensor_find(b.g, "blk.1.ffn_gate_exps.weight");
    int fd = open(bench_file(&b), O_WRONLY);
    assert_int_equal(pwrite(fd, not_a_number, 2, (off_t)t->offset), 2);
    close(fd);
    gguf_close(b.g);
    pool_plan_free(&b.plan);
    must(gguf_open(bench_file(&b), &b.g, &e), &e);
    must(pool_plan_new(b.g, &b.plan, &e), &e);
    must(pool_plan_read_factors(&b.plan, b.g, &e), &e);
    pool_plan_keep_dense(&b.plan);
    assert_int_equal(bench_fill(&b, &e), ERROR_FORMAT);
    assert_non_null(strstr(e.text, "blk.1.ffn_gate_exps.weight"));
    bench_close(&b);
}

/* The kernel does not say whether the file has changed, as when the server of a network file system
 * is away: the read has failed, and the next one may not. */
static void test_unknown_file(void **state)
{
    struct bench b;
    struct bench_worker w;
    (void)state;
    bench_start(&b);
    bench_attach(&w, &b, 1);
    int fd = gguf_fd(b.g, 0), kept = dup(fd);
    close(fd);
    bench_fetch(&w, 2, 9);
    BENCH_UNTIL(host_tier_read(&b.tier->table, 2, 9).failures == 1);
    bench_count(&w, 1);
    assert_int_equal(dup2(kept, fd), fd);
    close(kept);
    bench_fetch_once(&w, 2, 9);
    assert_int_equal(atomic_load(&b.changes), 0);
    assert_int_equal(counter_read(&b.failed), 1);
    bench_close(&b);
}

/* The file is written in place, with the time of its last change restored: the checksum of an
 * expert that was read before differs. Before, answers changed in silence. */
static void test_overwritten_file(void **state)
{
    struct bench b;
    struct bench_worker w;
    bench_start(&b);
    struct stat before;
    struct pack_item items[PACK_EXPERT_ITEMS];
    pack_expert_items(&b.plan, 2, 9, 0, items);
    struct mkmodel_options o;
    bench_options(&o);
    bench_read_all(&b, &o); /* every sum is kept */
    bench_attach(&w, &b, 2);
    for (uint32_t i = 0; i < 32; i++) /* others take its slot */
        bench_fetch_once(&w, i / 16, i % 16);
    assert_true(bench_slot(&b, 2, 9) < 0);
    int fd = open(bench_file(&b), O_RDWR);
    uint8_t byte;
    off_t at = (off_t)items[1].source + 20;
    assert_int_equal(fstat(fd, &before), 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    struct timespec times[2] = {before.st_atim, before.st_mtim};
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
    bench_fetch(&w, 2, 9);
    BENCH_UNTIL(host_tier_read(&b.tier->table, 2, 9).failures == 1);
    assert_true(bench_slot(&b, 2, 9) < 0);
    assert_int_equal(atomic_load(&b.changes), 1);
    bench_close(&b);
}

static void test_leaving(void **state)
{
    struct mkmodel_options o;
    struct bench b;
    struct bench_worker w, other;
    bench_options(&o);
    bench_open(&b, &o, 8);
    bench_attach(&w, &b, 1);
    bench_attach(&other, &b, 2);
    bench_epoch(&w);
    for (uint32_t i = 0; i < 16; i++)
        bench_fetch(&w, 1, i); /* more fetches than slots, and the worker never counts one */
    bench_nap(20000000);
    assert_true(bench_held(&b) > 0);
    tier_remove_worker(b.tier, 1);
    for (uint32_t i = 0; i < 16; i++) {
        bench_fetch(&other, 2, i);
        assert_true(bench_await(&other, 2, i));
        bench_count(&other, 1);
    }
    BENCH_UNTIL(bench_held(&b) == 0);
    bench_check(&b);
    bench_close(&b);
}

static void test_nonsense(void **state)
{
    struct bench b;
    bench_start(&b);
    struct bench_worker good;
    bench_attach(&good, &b, 100);
    struct cache_record records[] = {
        {.kind = CACHE_LOAD, .layer = 1, .n_entries = 1}, /* of the other ring */
        {.kind = 99},
        {.kind = CACHE_FETCH, .layer = 3},
        {.kind = CACHE_FETCH, .layer = 1, .n_entries = CACHE_RECORD_ENTRIES + 1},
        {.kind = CACHE_FETCH, .layer = 1, .n_entries = 1, .entries = {{16, 1}}},
        {.kind = CACHE_PREDICTED, .layer = 2, .n_entries = 1, .entries = {{65535, 1}}},
    };
    for (uint64_t i = 0; i <= sizeof records / sizeof *records; i++) {
        struct bench_worker w;
        bench_attach(&w, &b, 200 + i);
        bench_fetch(&w, 1, 9);
        if (i < sizeof records / sizeof *records)
            assert_int_equal(ring_push(&w.channel.fetches, &records[i]), 1);
        else
            atomic_fetch_add(&w.channel.fetches.header->tail, 5000);
        ring_notify(&w.channel.fetches);
        BENCH_UNTIL(b.broken == 200 + i);
        BENCH_UNTIL(bench_held(&b) == 0);
        tier_remove_worker(b.tier, 200 + i);
        bench_fetch(&good, 2, (uint32_t)i);
        assert_true(bench_await(&good, 2, (uint32_t)i));
        bench_count(&good, 1);
    }
    bench_check(&b);
    bench_close(&b);
}

/* From here on this thread, and threads that it starts, have no io_uring (as in many containers)
 * and no direct reads (as on some file systems). */
static void forbid(void)
{
    enum { NR = offsetof(struct seccomp_data, nr), FLAGS = offsetof(struct seccomp_data, args[2]) };
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, NR),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_openat, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FLAGS),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_DIRECT, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    assert_int_equal(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

/* The last test: it cannot be undone. */
static void test_without_io_uring(void **state)
{
    struct mkmodel_options o;
    struct bench b;
    bench_options(&o);
    forbid();
    assert_int_equal(open("/proc/self/exe", O_RDONLY | O_DIRECT), -1);
    bench_open(&b, &o, 8);
    bench_read_all(&b, &o);
    assert_true(counter_read(&b.reads) > 40);
    bench_close(&b);
    test_cut_file(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_file),         cmocka_unit_test(test_pages),
        cmocka_unit_test(test_unusable_expert),  cmocka_unit_test(test_unknown_file),
        cmocka_unit_test(test_overwritten_file), cmocka_unit_test(test_leaving),
        cmocka_unit_test(test_nonsense),         cmocka_unit_test(test_without_io_uring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
