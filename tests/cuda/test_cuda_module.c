/* The table of the CUDA module (device/module.h) without the operations: memory, handles between
 * processes, pinning, streams, events, staging, errors. test_cuda_opening.c opens and closes
 * devices. Also runs on a GPU, if MOED_CUDA_MODULE names its module; only cusim can cause faults.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "other_process.h"

#include <signal.h>
#include <sys/mman.h>

/* ---- Memory and streams ---- */

static void test_facts(void **state)
{
    struct device_facts f;
    module->facts(device, &f);
    assert_true(f.name[0] && f.version[0] && f.multiprocessors > 0);
    assert_true(f.free_bytes > 0 && f.free_bytes <= f.memory_bytes);
    void *memory = on_device(64 << 20);
    assert_int_equal((uintptr_t)memory % 256, 0);
    uint64_t before = f.free_bytes;
    module->facts(device, &f);
    assert_true(f.free_bytes + (64 << 20) <= before + (2 << 20));
    release_all();
    module->release(device, NULL);
    module->release_pinned(device, NULL);
    module->close_imported(device, NULL);
    module->stream_free(NULL);
    module->event_free(NULL);
    module->close(NULL);
}

/* Upload, copy, partly overwrite, download: in order, without a wait in between. */
static void test_copies(void **state)
{
    enum { N = 5000 };
    uint8_t *a = on_device(N), *b = on_device(N), *host;
    struct error e;
    check_code(module->allocate_pinned(device, 2 * N, (void **)&host, &e), &e);
    for (int i = 0; i < N; i++)
        host[i] = (uint8_t)(i * 7);
    module->fill(stream, a, 0x11, N);
    module->upload(stream, a + 1, host + 1, N - 2);
    module->copy(stream, b, a, N);
    module->fill(stream, b + 100, 0x22, 50);
    module->fill(stream, a, 0x33, N); /* b has its copy */
    module->download(stream, host + N, b, N);
    finish();
    for (int i = 0; i < N; i++) {
        uint8_t expected = i == 0 || i == N - 1  ? 0x11
                           : i >= 100 && i < 150 ? 0x22
                                                 : (uint8_t)(i * 7);
        assert_int_equal(host[N + i], expected);
    }
    /* from memory that is not pinned; the caller may write it at once */
    uint8_t plain[64] = {1, 2, 3}, back[64];
    module->upload(stream, a, plain, sizeof plain);
    memset(plain, 0xee, sizeof plain);
    from_device(back, a, sizeof back);
    assert_true(back[0] == 1 && back[2] == 3 && back[63] == 0);
    module->release_pinned(device, host);
    release_all();
}

/* One stream waits for a point in another; many times, because the simulation chooses any order. */
static void test_events(void **state)
{
    struct device_stream *other;
    struct device_event *filled, *copied;
    struct error e;
    bool done;
    check_code(module->stream_new(device, &other, &e), &e);
    check_code(module->event_new(device, &filled, &e), &e);
    check_code(module->event_new(device, &copied, &e), &e);
    uint8_t *a = on_device(1000), *b = on_device(1000), back[1000];
    for (int i = 1; i < 200; i++) {
        module->fill(stream, a, (uint8_t)i, 1000);
        module->event_record(filled, stream);
        module->stream_wait(other, filled);
        module->copy(other, b, a, 1000);
        module->event_record(copied, other);
        module->stream_wait(stream, copied); /* the next fill must not come before the copy */
        if (i % 50)
            continue;
        check_code(module->event_wait(copied, &e), &e);
        check_code(module->event_query(copied, &done, &e), &e);
        assert_true(done);
        check_code(module->event_query(filled, &done, &e), &e);
        assert_true(done);
        from_device(back, b, sizeof back);
        assert_int_equal(back[0], i);
        assert_int_equal(back[999], i);
    }
    for (done = false; !done;) /* a wait for the copy succeeds after its end */
        check_code(module->event_query(copied, &done, &e), &e);
    finish();
    check_code(module->finish(other, &e), &e);
    module->event_free(filled);
    module->event_free(copied);
    module->stream_free(other);
    release_all();
}

static void test_no_memory(void **state)
{
    struct device_facts f;
    struct error e;
    void *memory = NULL;
    module->facts(device, &f);
    assert_int_equal(module->allocate(device, f.memory_bytes + 1, &memory, &e), ERROR_MEMORY);
    assert_non_null(strstr(e.text, f.name));
    assert_non_null(strstr(e.text, "are free"));
    assert_null(memory);
    finish(); /* this is not a fault of the device */
}

/* ---- Handles ---- */

/* The memory that the input names; NULL: none. */
static void *import_named(void)
{
    struct device_handle handle;
    struct error e;
    void *memory;
    if (read(0, &handle, sizeof handle) != sizeof handle)
        return NULL;
    check_code(module->import_memory(device, &handle, &memory, &e), &e);
    return memory;
}

/* Imports the memory that its input names, finds our values there, writes its own, and waits for
 * the end of its input. */
static int import(void)
{
    uint8_t bytes[1000];
    open_device();
    void *memory = import_named();
    if (!memory)
        return 2;
    from_device(bytes, memory, sizeof bytes);
    for (int i = 0; i < 1000; i++)
        if (bytes[i] != (uint8_t)(i * 3))
            return 3;
    module->fill(stream, memory, 0x5c, 500);
    finish();
    if (write(1, "x", 1) != 1)
        return 4;
    while (read(0, bytes, 1) == 1)
        ;
    from_device(bytes, memory, sizeof bytes);
    bool same = bytes[0] == 0x5c && bytes[999] == (uint8_t)(999 * 3);
    module->close_imported(device, memory);
    close_device();
    return same ? 0 : 5;
}

/* Memory of two processes: each sees the other's writes; the memory outlives an importer that is
 * killed, and another one imports it again. */
static void test_import(void **state)
{
    enum { BYTES = 2 << 20 };
    struct device_handle handle;
    struct error e;
    uint8_t bytes[1000], *memory = on_device(BYTES);
    char word;
    for (int i = 0; i < 1000; i++)
        bytes[i] = (uint8_t)(i * 3);
    check_code(module->export_memory(device, memory, &handle, &e), &e);
    for (int round = 0; round < 2; round++) {
        module->upload(stream, memory, bytes, sizeof bytes);
        finish();
        struct other o = start("import", NULL, NULL);
        assert_int_equal(write(o.to, &handle, sizeof handle), sizeof handle);
        assert_int_equal(read(o.from, &word, 1), 1);
        uint8_t back[1000];
        from_device(back, memory, sizeof back);
        assert_int_equal(back[0], 0x5c);
        assert_int_equal(back[499], 0x5c);
        assert_int_equal(back[500], (uint8_t)(500 * 3));
        if (round == 0) {
            kill(o.pid, SIGKILL);
            assert_true(WIFSIGNALED(end(&o)));
            from_device(back, memory, sizeof back);
            assert_int_equal(back[0], 0x5c);
        } else {
            int status = end(&o);
            assert_true(WIFEXITED(status));
            assert_int_equal(WEXITSTATUS(status), 0);
        }
    }
    release_all();
}

static void test_bad_handle(void **state)
{
    struct device_handle none = {{0}};
    struct error e;
    void *memory = NULL;
    assert_int_not_equal(module->import_memory(device, &none, &memory, &e), ERROR_OK);
    assert_non_null(strstr(e.text, "cudaIpcOpenMemHandle: "));
    assert_null(memory);
    finish();
}

/* ---- Flags ---- */

/* A stream that waits for a flag delays only itself, until the flag has the value. */
static void test_flags(void **state)
{
    struct device_facts facts;
    struct device_stream *other;
    struct device_event *event;
    struct error e;
    bool done = false;
    module->facts(device, &facts);
    if (!facts.signals)
        skip();
    check_code(module->stream_new(device, &other, &e), &e);
    check_code(module->event_new(device, &event, &e), &e);
    uint32_t *flags = on_device(2 * sizeof *flags), back[2];
    uint8_t *memory = on_device(64), bytes[64];
    module->fill(stream, flags, 0, 2 * sizeof *flags);
    module->fill(stream, memory, 1, 64);
    finish();
    /* before the value, at it, past it, and past the wrap */
    static const uint32_t cases[][2] = {
        {1, 1}, {6, 5}, {0x80000003u, 0x80000003u}, {2, 0xfffffff0u}};
    for (int i = 0; i < 4; i++) {
        uint32_t before = cases[i][1] - 1;
        module->fill(stream, memory, (uint8_t)(2 * i), 64);
        module->signal(stream, flags + 1, before);
        finish();
        module->await(other, flags + 1, cases[i][1]);
        module->copy(other, memory + 32, memory, 32);
        module->event_record(event, other);
        for (int round = 0; round < 20; round++) { /* other work continues during the wait */
            module->fill(stream, flags, (uint8_t)round, sizeof *flags);
            finish();
            check_code(module->event_query(event, &done, &e), &e);
            assert_false(done);
        }
        module->fill(stream, memory, (uint8_t)(2 * i + 1), 32);
        module->signal(stream, flags + 1, cases[i][0]);
        check_code(module->finish(other, &e), &e);
        from_device(bytes, memory, sizeof bytes);
        for (int k = 0; k < 64; k++)
            assert_int_equal(bytes[k], 2 * i + 1);
        from_device(back, flags, sizeof back);
        assert_true(back[1] == cases[i][0] && back[0] == 19 * 0x01010101u);
        module->await(other, flags + 1, cases[i][1]); /* the flag has the value: no wait */
        check_code(module->finish(other, &e), &e);
    }
    module->event_free(event);
    module->stream_free(other);
    release_all();
}

/* Imports a flag and bytes, which its input names. Its stream waits until the flag is 3, and then
 * computes with the bytes. */
static int await_flag(void)
{
    uint8_t bytes[1000];
    open_device();
    void *memory = import_named();
    if (!memory)
        return 2;
    module->await(stream, memory, 3);
    module->copy(stream, (uint8_t *)memory + 2048, (uint8_t *)memory + 1024, sizeof bytes);
    if (write(1, "x", 1) != 1)
        return 3;
    from_device(bytes, (uint8_t *)memory + 2048, sizeof bytes);
    for (int i = 0; i < 1000; i++)
        if (bytes[i] != 0x33)
            return 4;
    module->close_imported(device, memory);
    close_device();
    return 0;
}

/* Another process waits for a flag and continues when the bytes are there. If it dies during the
 * wait, this process is not delayed. */
static void test_flags_between_processes(void **state)
{
    enum { BYTES = 2 << 20 };
    struct device_facts facts;
    struct device_handle handle;
    struct error e;
    char word;
    int status;
    module->facts(device, &facts);
    if (!facts.signals)
        skip();
    uint8_t *memory = on_device(BYTES);
    check_code(module->export_memory(device, memory, &handle, &e), &e);
    for (int round = 0; round < 4; round++) {
        module->fill(stream, memory, 0, BYTES);
        finish();
        struct other o = start("await-flag", NULL, NULL);
        assert_int_equal(write(o.to, &handle, sizeof handle), sizeof handle);
        assert_int_equal(read(o.from, &word, 1), 1);
        assert_int_equal(waitpid(o.pid, &status, WNOHANG), 0);
        if (round == 1)
            kill(o.pid, SIGKILL);
        module->signal(stream, (uint32_t *)memory, 2); /* not yet */
        module->fill(stream, memory + 1024, 0x33, 1000);
        module->signal(stream, (uint32_t *)memory, 3);
        finish();
        status = end(&o);
        if (round == 1) {
            assert_true(WIFSIGNALED(status));
            continue;
        }
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    release_all();
}

/* A driver without flags: the facts say so, and everything else works. */
static int report_signals(void)
{
    struct device_facts facts;
    open_device();
    module->facts(device, &facts);
    module->fill(stream, on_device(16), 0, 16);
    finish();
    close_device();
    return facts.signals ? 1 : 0;
}

static void test_no_flags(void **state)
{
    if (!is_simulated())
        skip();
    for (int there = 0; there < 2; there++) {
        struct other o = start("say-signals", "MOED_CUSIM_FLAGS", there ? "1" : "0");
        int status = end(&o);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), there);
    }
}

/* ---- Pinning ---- */

/* Memory that this process may write, and a read-only mapping. Returns whether the device takes the
 * latter; otherwise the error says so. */
static bool check_pins(void)
{
    enum { BYTES = 1 << 20 };
    struct error e;
    bool takes_read_only = true;
    int fd = memfd_create("moed-test-pin", MFD_CLOEXEC);
    assert_true(fd >= 0 && ftruncate(fd, BYTES) == 0);
    uint8_t *ours = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(ours != MAP_FAILED);
    for (int i = 0; i < BYTES; i++)
        ours[i] = (uint8_t)(i >> 8);
    const uint8_t *read_only = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(read_only != MAP_FAILED);
    uint8_t *memory = on_device(BYTES), *back = malloc(BYTES);
    const uint8_t *pinned[] = {ours, read_only};
    for (int i = 0; i < 2; i++) {
        enum error_code code = module->pin(device, pinned[i], BYTES, &e);
        if (code && pinned[i] == read_only && strstr(e.text, "read-only")) {
            takes_read_only = false;
            continue;
        }
        check_code(code, &e);
        module->upload(stream, memory, pinned[i], BYTES);
        from_device(back, memory, BYTES);
        assert_memory_equal(back, ours, BYTES);
        assert_int_not_equal(module->pin(device, pinned[i], BYTES, &e), ERROR_OK); /* twice */
        assert_non_null(strstr(e.text, "cudaHostRegister: "));
        assert_int_not_equal(module->pin(device, pinned[i], BYTES, &e), ERROR_OK); /* still is */
        module->unpin(device, pinned[i]);
        check_code(module->pin(device, pinned[i], BYTES, &e), &e);
        module->unpin(device, pinned[i]);
        module->fill(stream, memory, 0, BYTES);
    }
    module->unpin(device, back); /* was never pinned */
    finish();
    free(back);
    munmap(ours, BYTES);
    munmap((void *)(uintptr_t)read_only, BYTES);
    close(fd);
    release_all();
    return takes_read_only;
}

static void test_pin(void **state)
{
    bool takes_read_only = check_pins();
    if (!is_simulated())
        return;
    assert_true(takes_read_only);
    close_device();
    setenv("MOED_CUSIM_READ_ONLY", "0", 1);
    open_device();
    assert_false(check_pins());
    close_device();
    unsetenv("MOED_CUSIM_READ_ONLY");
    open_device();
}

/* Pinning the second GiB fails: no part of the memory stays pinned. */
static int pin_parts(void)
{
    struct error e;
    size_t bytes = (1u << 30) + 4096;
    void *memory = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    open_device();
    if (memory == MAP_FAILED || !module->pin(device, memory, bytes, &e))
        return 2;
    if (module->pin(device, memory, bytes, &e)) /* would find the first GiB registered */
        return 3;
    module->unpin(device, memory);
    if (module->pin(device, memory, bytes, &e))
        return 4;
    module->close(device); /* while memory is pinned */
    return 0;
}

static void test_pin_parts(void **state)
{
    if (!is_simulated())
        skip();
    /* pin tries two sets of flags: two calls for the first GiB (read-only), the third and fourth
     * for the second */
    struct other o = start("pin-parts", "MOED_CUSIM_FAIL",
                           "cudaHostRegister:3:cudaErrorMemoryAllocation,"
                           "cudaHostRegister:4:cudaErrorMemoryAllocation");
    int status = end(&o);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- Staging ---- */

/* Stages more than the ring holds before any wait: every launch finds its own bytes. embed takes
 * its tokens from host memory, which the test overwrites at once. */
static void test_staging(void **state)
{
    enum { COLS = 4, ROWS = 16, CALLS = 12, MOST = 400000 };
    static const uint32_t sizes[CALLS] = {1,    399999, MOST,   63, 64,   65,
                                          MOST, 300000, 100001, 7,  MOST, MOST};
    float *values = calloc(ROWS * COLS, sizeof *values), *out[CALLS];
    uint32_t *tokens = malloc(MOST * sizeof *tokens);
    size_t bytes = tile_matrix_bytes(TENSOR_F32, ROWS, COLS);
    void *tiles = aligned_alloc(TILE_ALIGN, bytes);
    for (int i = 0; i < ROWS * COLS; i++)
        values[i] = (float)i;
    tile_pack(TENSOR_F32, COLS, ROWS, values, COLS * sizeof *values, tiles);
    struct matrix m = {TENSOR_F32, ROWS, COLS, to_device(tiles, bytes)};
    for (uint32_t c = 0; c < CALLS; c++) {
        out[c] = on_device((size_t)sizes[c] * COLS * sizeof **out);
        for (uint32_t i = 0; i < sizes[c]; i++)
            tokens[i] = (i * 5 + c) % ROWS;
        module->ops.embed(stream, &m, tokens, sizes[c], out[c]);
    }
    memset(tokens, 0xff, MOST * sizeof *tokens);
    finish();
    float *back = malloc((size_t)MOST * COLS * sizeof *back);
    for (uint32_t c = 0; c < CALLS; c++) {
        from_device(back, out[c], (size_t)sizes[c] * COLS * sizeof *back);
        for (uint32_t i = 0; i < sizes[c]; i++)
            if (back[i * COLS + 3] != (float)((i * 5 + c) % ROWS * COLS + 3))
                fail_msg("call %u, row %u is another's", c, i);
    }
    free(back);
    free(tiles);
    free(tokens);
    free(values);
    release_all();
}

/* ---- Faults ---- */

/* Prints the first error of the device, and checks that it stays the first. */
static int report_fault(void)
{
    struct error e, again;
    bool done;
    struct device_event *event;
    open_device();
    float *rows = on_device(64 * sizeof *rows), back[64];
    check_code(module->event_new(device, &event, &e), &e);
    module->fill(stream, rows, 0, 64 * sizeof *rows);
    module->ops.add(stream, rows, 0, rows, 64, 1, 64);
    module->download(stream, back, rows, sizeof back);
    module->event_record(event, stream);
    if (!module->finish(stream, &e))
        return 2;
    module->ops.add(stream, rows, 0, rows, 64, 1, 64);
    if (!module->finish(stream, &again) || strcmp(e.text, again.text) != 0)
        return 3;
    if (!module->event_wait(event, &again) || strcmp(e.text, again.text) != 0)
        return 4;
    if (!module->event_query(event, &done, &again) || strcmp(e.text, again.text) != 0)
        return 5;
    printf("%s\n", e.text);
    fflush(stdout);
    module->event_free(event); /* and exiting does not hang */
    close_device();
    return 0;
}

static void assert_fault(const char *what, const char *first, const char *second)
{
    char text[1024];
    struct other o = start("say-fault", "MOED_CUSIM_FAIL", what);
    read_all(&o, text, sizeof text);
    int status = end(&o);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("%s: status %d, '%s'", what, status, text);
    if (!strstr(text, first) || !strstr(text, second))
        fail_msg("%s: '%s'", what, text);
}

static void test_faults(void **state)
{
    if (!is_simulated())
        skip();
    /* a fault in a kernel: the next wait fails, and names its file and line */
    assert_fault("kernel:1:cudaErrorIllegalAddress", "an illegal memory access", "stream.c:");
    assert_fault("cudaMemsetAsync:1:cudaErrorInvalidValue", "cudaMemsetAsync: invalid argument",
                 "(cudaErrorInvalidValue)");
    assert_fault("cudaMemcpyAsync:1:cudaErrorUnknown", "cudaMemcpyAsync: ", "(cudaErrorUnknown)");
    assert_fault("cudaStreamSynchronize:1:cudaErrorECCUncorrectable",
                 "cudaStreamSynchronize: ", "uncorrectable ECC");
}

/* An operation fails if it needs more staging than a block holds. */
static int stage_too_much(void)
{
    enum { N = (2 << 20) / 4 + 1 };
    struct error e;
    open_device();
    uint32_t *tokens = calloc(N, sizeof *tokens);
    struct matrix m = {TENSOR_F32, 16, 4, on_device(tile_matrix_bytes(TENSOR_F32, 16, 4))};
    module->ops.embed(stream, &m, tokens, N, on_device((size_t)N * 4 * sizeof(float)));
    free(tokens);
    if (module->finish(stream, &e) != ERROR_INTERNAL)
        return 2;
    return strstr(e.text, "more is staged at once") ? 0 : 3;
}

static void test_stage_too_much(void **state)
{
    struct other o = start("stage-too-much", NULL, NULL);
    int status = end(&o);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {
        {"import", import},       {"await-flag", await_flag},  {"say-signals", report_signals},
        {"pin-parts", pin_parts}, {"say-fault", report_fault}, {"stage-too-much", stage_too_much}};
    const struct role *role = role_of(argc, argv, roles, sizeof roles / sizeof *roles);
    if (role)
        return role->run();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_facts),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_import),
        cmocka_unit_test(test_bad_handle),
        cmocka_unit_test(test_pin),
        cmocka_unit_test(test_pin_parts),
        cmocka_unit_test(test_staging),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_stage_too_much),
        cmocka_unit_test(test_flags),
        cmocka_unit_test(test_flags_between_processes),
        cmocka_unit_test(test_no_flags),
    };
    return run_group("cuda_module", tests, open_all);
}
