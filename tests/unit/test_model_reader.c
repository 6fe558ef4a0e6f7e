/* The process that reads model files (reader/model_reader.h): its result is that of reading in this
 * process; its death costs an error; whatever it returns, the plan stays within the files and the
 * pool. */
#include "reader/model_reader.h"

#include "base/clock.h"
#include "gguf/file_type.h"
#include "plan_bounds.h"
#include "process_counts.h"
#include "random_numbers.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#define GOLDEN(name) MOED_SOURCE_DIR "/tests/golden/" name ".gguf"
#define SEGMENT      65536

static struct error why;

/* ---- The same as in this process ---- */

static void compare_sources(const struct pool_source *a, const struct pool_source *b)
{
    assert_string_equal(a->tensor->name, b->tensor->name);
    assert_int_equal(a->tensor->offset, b->tensor->offset);
    assert_int_equal(a->first_row, b->first_row);
    assert_int_equal(a->plane_rows, b->plane_rows);
    assert_int_equal(a->transposed, b->transposed);
}

static void compare(const char *path)
{
    struct read_model there;
    struct gguf *g;
    struct pool_plan here;
    if (model_reader_read(path, SEGMENT, &there, &why))
        fail_msg("%s", why.text);
    assert_int_equal(gguf_open(path, &g, &why), ERROR_OK);
    assert_int_equal(pool_plan_new_cut(g, SEGMENT, &here, &why), ERROR_OK);
    const struct pool_header *h = &here.header;
    assert_memory_equal(&there.plan.header, h, sizeof *h);
    assert_memory_equal(there.plan.tensors, here.tensors, h->n_tensors * sizeof *here.tensors);
    assert_memory_equal(there.plan.slabs, here.slabs, h->n_layers * sizeof *here.slabs);
    for (uint32_t i = 0; i < h->n_tensors; i++)
        compare_sources(&there.plan.sources[i], &here.sources[i]);
    for (uint32_t i = 0; i < h->n_layers; i++)
        if (here.experts[i].gate.tensor)
            compare_sources(&there.plan.experts[i].down, &here.experts[i].down);
    assert_int_equal(there.file_type, gguf_file_type(g));
    size_t len, other_len;
    const void *metadata = gguf_metadata(g, &len);
    assert_null(gguf_metadata(there.gguf, &other_len));
    assert_int_equal(len, other_len);
    uint8_t *read = malloc(len);
    assert_int_equal(gguf_read_metadata(there.gguf, read, &why), ERROR_OK);
    assert_memory_equal(read, metadata, len);
    const struct gguf_tensor *t = gguf_tensor_at(there.gguf, 0);
    uint8_t *data = malloc(t->bytes);
    assert_int_equal(gguf_read_tensor(there.gguf, t, data, &why), ERROR_OK);
    assert_memory_equal(data, gguf_tensor_data(g, gguf_tensor_at(g, 0)), t->bytes);
    assert_int_equal(gguf_check_unchanged(there.gguf, 0, &why), ERROR_OK);
    assert_true(plan_in_bounds(there.gguf, &there.plan));
    free(data);
    free(read);
    pool_plan_free(&here);
    gguf_close(g);
    read_model_free(&there);
}

static void test_same_plan(void **state)
{
    static const char *const paths[] = {
        GOLDEN("olmoe"),
        GOLDEN("qwen2moe"),
        GOLDEN("gpt-oss"),
        GOLDEN("deepseek2-v3"),
        GOLDEN("qwen3next"),
        GOLDEN("lfm2moe"),
        GOLDEN("gemma4"),
        GOLDEN("exaone-moe"),
        GOLDEN("phimoe-long"),
        GOLDEN("deepseek2-unsplit"),
        GOLDEN("glm-dsa"),
        GOLDEN("nemotron_h_moe"),
        MOED_SOURCE_DIR "/models/demo.gguf", /* it has a file type */
    };
    (void)state;
    int before = open_fds();
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        compare(paths[i]);
    assert_int_equal(open_fds(), before);
}

/* ---- Broken files ---- */

static uint8_t *read_file(const char *path, size_t *len)
{
    struct stat s;
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0 && fstat(fd, &s) == 0);
    uint8_t *data = malloc((size_t)s.st_size);
    assert_int_equal(read(fd, data, (size_t)s.st_size), s.st_size);
    close(fd);
    *len = (size_t)s.st_size;
    return data;
}

/* A file of these bytes, by its path in /proc. */
static int make_file(const void *data, size_t len, char path[64])
{
    int fd = memfd_create("model", MFD_CLOEXEC);
    assert_int_equal(write(fd, data, len), len);
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

/* Each wrong byte of the metadata gives the result of reading it in this process. */
static void test_broken(void **state)
{
    enum { ROUNDS = 150 };
    size_t len, metadata_bytes;
    char path[64];
    struct gguf *whole;
    (void)state;
    uint8_t *data = read_file(GOLDEN("olmoe"), &len);
    assert_int_equal(gguf_open(GOLDEN("olmoe"), &whole, &why), ERROR_OK);
    gguf_metadata(whole, &metadata_bytes);
    gguf_close(whole);
    for (int round = 0; round < ROUNDS; round++) {
        size_t at = below((uint32_t)metadata_bytes), cut = round % 8 ? len : at + 1;
        uint8_t was = data[at];
        data[at] = (uint8_t)random_u64();
        int fd = make_file(data, cut, path);
        data[at] = was;
        struct read_model there;
        struct gguf *g;
        struct pool_plan plan;
        struct error here = {0};
        enum error_code code = model_reader_read(path, SEGMENT, &there, &why);
        enum error_code same = gguf_open(path, &g, &here);
        if (!same) {
            same = pool_plan_new_cut(g, SEGMENT, &plan, &here);
            if (!same)
                pool_plan_free(&plan);
            gguf_close(g);
        }
        if (same) /* else the tokenizer may be broken */
            assert_int_equal(code, same);
        if (same)
            assert_string_equal(why.text, here.text);
        if (!code) {
            assert_true(plan_in_bounds(there.gguf, &there.plan));
            read_model_free(&there);
        }
        close(fd);
    }
    free(data);
}

static void test_missing(void **state)
{
    struct read_model m;
    (void)state;
    assert_int_equal(model_reader_read("/none.gguf", SEGMENT, &m, &why), ERROR_NOT_FOUND);
    assert_int_equal(model_reader_read("/", SEGMENT, &m, &why), ERROR_IO);
    assert_int_equal(model_reader_read("/none-00001-of-00003.gguf", SEGMENT, &m, &why),
                     ERROR_NOT_FOUND);
}

/* ---- A process that dies, or lies ---- */

static void crash(struct gguf *g, uint64_t segment_bytes, int fd)
{
    raise(SIGSEGV);
}

static void end_early(struct gguf *g, uint64_t segment_bytes, int fd)
{
    (void)!write(fd, "x", 1);
}

static void crash_late(struct gguf *g, uint64_t segment_bytes, int fd)
{
    model_reader_run(g, segment_bytes, fd);
    abort();
}

static void lie(struct gguf *g, uint64_t segment_bytes, int fd)
{
    char nonsense[4096];
    memset(nonsense, 'x', sizeof nonsense);
    for (int i = 0; i < 100; i++)
        (void)!write(fd, nonsense, sizeof nonsense);
}

static void hang(struct gguf *g, uint64_t segment_bytes, int fd)
{
    for (volatile bool hangs = true; hangs;)
        ;
}

/* With its end of the pipe, and without using its CPU time. */
static void hang_openly(struct gguf *g, uint64_t segment_bytes, int fd)
{
    int word = 0;
    for (;;)
        syscall(SYS_futex, &word, FUTEX_WAIT, 0, NULL, NULL, 0);
}

static void hang_quietly(struct gguf *g, uint64_t segment_bytes, int fd)
{
    close(fd);
    hang_openly(g, segment_bytes, fd);
}

static void hang_after_message(struct gguf *g, uint64_t segment_bytes, int fd)
{
    model_reader_run(g, segment_bytes, fd);
    hang_quietly(g, segment_bytes, fd);
}

static int callers_fd;

/* Reports what it could do. */
static void try_forbidden(struct gguf *g, uint64_t segment_bytes, int fd)
{
    static struct model_message m = {.magic = MODEL_MESSAGE_MAGIC, .code = ERROR_USAGE};
    bool opens = open(GOLDEN("olmoe"), O_RDONLY) >= 0,
         connects = socket(AF_UNIX, SOCK_STREAM, 0) >= 0;
    bool forks = fork() >= 0;
    struct stat s;
    snprintf(m.text, sizeof m.text, "open %d socket %d fork %d descriptor %d", opens, connects,
             forks, fstat(callers_fd, &s) == 0);
    (void)!write(fd, &m, sizeof m);
}

/* The file, which is its standard input, is cut after it was mapped. */
static void cut_and_read(struct gguf *g, uint64_t segment_bytes, int fd)
{
    assert_int_equal(ftruncate(STDIN_FILENO, 0), 0);
    model_reader_run(g, segment_bytes, fd);
}

/* What the disk does with the page of a mapping that it could not read, when it is read again. The
 * file is cut for it, but its size does not say so. */
static enum disk { DISK_REAL, DISK_FAILS, DISK_RECOVERS, DISK_HANGS } disk, disk_then;

/* Visible: with a sanitizer the linker takes its library to refer to them. */
#define WRAP __attribute__((visibility("default")))

WRAP int __wrap_fstat(int fd, struct stat *s);
int __real_fstat(int fd, struct stat *s);
int __wrap_fstat(int fd, struct stat *s)
{
    int failed = __real_fstat(fd, s);
    if (disk)
        s->st_size = 1 << 30;
    return failed;
}

WRAP ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t at);
ssize_t __real_pread(int fd, void *to, size_t bytes, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t at)
{
    if (disk == DISK_HANGS)
        hang_openly(NULL, 0, fd);
    if (disk == DISK_RECOVERS)
        return (ssize_t)bytes;
    if (disk == DISK_REAL)
        return __real_pread(fd, to, bytes, at);
    errno = EIO;
    return -1;
}

/* The file, which is its standard input, is cut after it was mapped, and `disk` is what reads it.
 */
static void fault(struct gguf *g, uint64_t segment_bytes, int fd)
{
    assert_int_equal(ftruncate(STDIN_FILENO, 4096), 0);
    disk = disk_then;
    model_reader_run(g, segment_bytes, fd);
}

/* An error without a text, and one that would clear a terminal. */
static void fail_silently(struct gguf *g, uint64_t segment_bytes, int fd)
{
    static const struct model_message m = {.magic = MODEL_MESSAGE_MAGIC, .code = ERROR_FORMAT};
    (void)!write(fd, &m, sizeof m);
}

static void fail_with_controls(struct gguf *g, uint64_t segment_bytes, int fd)
{
    static const struct model_message m = {
        .magic = MODEL_MESSAGE_MAGIC, .code = ERROR_FORMAT, .text = "a file\33[2J\nof two lines"};
    (void)!write(fd, &m, sizeof m);
}

static void dies(model_reader_work *work, const char *path, enum error_code code, const char *says)
{
    struct read_model m;
    uint64_t stall_ns = work == hang_openly ? 300000000u : MODEL_READER_STALL_NS;
    assert_int_equal(model_reader_read_by(work, path, SEGMENT, stall_ns, &m, &why), code);
    if (!strstr(why.text, says))
        fail_msg("'%s' does not say '%s'", why.text, says);
}

/* Reads a file that is cut after it was mapped. until_ns: 0: the reader's own patience. */
static void faults(model_reader_work *work, enum disk then, uint64_t until_ns, enum error_code code,
                   const char *says)
{
    char path[64];
    size_t len;
    struct read_model m;
    uint8_t *data = read_file(GOLDEN("olmoe"), &len);
    int fd = make_file(data, len, path), input = dup(STDIN_FILENO);
    dup2(fd, STDIN_FILENO);
    disk_then = then;
    if (until_ns)
        assert_int_equal(model_reader_describe_by(work, path, until_ns, &m, &why), code);
    else
        dies(work, path, code, says);
    dup2(input, STDIN_FILENO);
    free(data);
    close(input);
    close(fd);
}

static void test_bad_process(void **state)
{
    (void)state;
    int before = open_fds();
    dies(crash, GOLDEN("olmoe"), ERROR_FORMAT, "Segmentation fault");
    dies(crash_late, GOLDEN("olmoe"), ERROR_FORMAT, "Aborted");
    dies(end_early, GOLDEN("olmoe"), ERROR_MEMORY, "no memory");
    dies(lie, GOLDEN("olmoe"), ERROR_MEMORY, "no memory");
    dies(hang_quietly, GOLDEN("olmoe"), ERROR_FORMAT, "does not end");
    dies(hang_openly, GOLDEN("olmoe"), ERROR_TIMEOUT, "has not gone on for 0.3 s");
    dies(fail_silently, GOLDEN("olmoe"), ERROR_PROTOCOL, "returned nonsense");
    dies(fail_with_controls, GOLDEN("olmoe"), ERROR_FORMAT, "a file?[2J?of two lines");
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    callers_fd = dup2(STDERR_FILENO, 50);
    dies(try_forbidden, GOLDEN("olmoe"), ERROR_USAGE, "open 0 socket 0 fork 0 descriptor 0");
    close(callers_fd);
    faults(cut_and_read, DISK_REAL, 0, ERROR_IO, "was cut while it was read");
    faults(fault, DISK_FAILS, 0, ERROR_IO, "reading at byte 4096: Input/output error (errno 5)");
    faults(fault, DISK_RECOVERS, 0, ERROR_IO, "could not be read at byte 4096: the kernel's log");
    faults(fault, DISK_HANGS, clock_end_ns(300), ERROR_TIMEOUT, NULL);
#else
    (void)try_forbidden, (void)cut_and_read, (void)faults, (void)fault;
#endif
    struct read_model m;
    assert_int_equal(model_reader_read_by(hang_after_message, GOLDEN("olmoe"), SEGMENT,
                                          MODEL_READER_STALL_NS, &m, &why),
                     ERROR_OK);
    read_model_free(&m);
    assert_int_equal(model_reader_describe_by(hang, GOLDEN("olmoe"), clock_end_ns(300), &m, &why),
                     ERROR_TIMEOUT);
    assert_int_equal(model_reader_describe(GOLDEN("olmoe"), clock_end_ns(60000), &m, &why),
                     ERROR_OK);
    read_model_free(&m);
    assert_int_equal(open_fds(), before);
}

/* ---- A message of anything ---- */

static uint8_t *true_message(const char *path, size_t *len)
{
    struct gguf *g;
    struct stat s;
    int fd = memfd_create("message", MFD_CLOEXEC);
    assert_int_equal(gguf_open_unparsed(path, &g, &why), ERROR_OK);
    assert_int_equal(gguf_map_unparsed(g, &why), ERROR_OK);
    model_reader_run(g, SEGMENT, fd);
    gguf_close(g);
    assert_int_equal(fstat(fd, &s), 0);
    uint8_t *message = malloc((size_t)s.st_size);
    assert_int_equal(pread(fd, message, (size_t)s.st_size, 0), s.st_size);
    close(fd);
    *len = (size_t)s.st_size;
    return message;
}

static enum error_code take(const char *path, const uint8_t *message, size_t len)
{
    struct gguf *g;
    struct read_model m;
    assert_int_equal(gguf_open_unparsed(path, &g, &why), ERROR_OK);
    enum error_code code = model_reader_take(g, message, len, SEGMENT, &m, &why);
    if (!code) {
        assert_true(plan_in_bounds(m.gguf, &m.plan));
        read_model_free(&m);
    }
    return code;
}

static const uint32_t evil[] = {0,    1,     2,      3,          7,          0x7f,
                                0xff, 0x100, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff};

static void test_hostile_message(void **state)
{
    static const char *const paths[] = {
        GOLDEN("olmoe"),  GOLDEN("deepseek2-v3"), GOLDEN("gpt-oss"), GOLDEN("qwen3next"),
        GOLDEN("gemma4"), GOLDEN("mimo2"),        GOLDEN("step35")};
    enum { ROUNDS = 1200 };
    unsigned taken = 0;
    (void)state;
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++) {
        size_t len;
        uint8_t *message = true_message(paths[p], &len), *changed = malloc(len);
        assert_int_equal(take(paths[p], message, len), ERROR_OK);
        assert_int_equal(take(paths[p], message, len - 1), ERROR_PROTOCOL);
        assert_int_equal(take(paths[p], message, sizeof(struct model_message)), ERROR_PROTOCOL);
        assert_int_equal(take(paths[p], message, 0), ERROR_PROTOCOL);
        const struct model_message *m = (const struct model_message *)message;
        size_t layers = (size_t)((const uint8_t *)&m->params.layers[m->params.n_layers] - message);
        for (int round = 0; round < ROUNDS; round++) {
            memcpy(changed, message, len);
            for (uint32_t n = 1 + below(3); n > 0; n--) {
                /* half of them in the hyper-parameters that are in use, half in the tensors */
                size_t at =
                    round % 2 ? offsetof(struct model_message, arch) +
                                    below((uint32_t)(layers - offsetof(struct model_message, arch)))
                              : sizeof *m + below((uint32_t)(len - sizeof *m));
                uint32_t value = evil[below(sizeof evil / sizeof *evil)];
                size_t bytes = below(2) ? 4 : 1;
                at -= bytes == 4 ? at % 4 : 0;
                memcpy(changed + at, &value, bytes);
            }
            taken += take(paths[p], changed, len) == ERROR_OK;
        }
        free(changed);
        free(message);
    }
    assert_in_range(taken, 100, 5 * ROUNDS - 1000); /* numbers without a meaning for the plan */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_plan),       cmocka_unit_test(test_broken),
        cmocka_unit_test(test_missing),         cmocka_unit_test(test_bad_process),
        cmocka_unit_test(test_hostile_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
