/* The runtime's calls: memory, streams, events, graphs, errors. */
#include "check.h"

#include "device/cuda/launch.h"

#include <atomic>
#include <initializer_list>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <vector>

enum { N = 1 << 12 };

static __global__ void add_one(unsigned *p, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        p[i] += 1;
}

static __global__ void copy_words(unsigned *to, const unsigned *from, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        to[i] = from[i];
}

static __global__ void fail(unsigned *p)
{
    p[0] = 7;
    __trap();
}

static unsigned *device_words(size_t n)
{
    unsigned *p;
    OK(cudaMalloc(&p, n * sizeof *p));
    OK(cudaMemset(p, 0, n * sizeof *p));
    OK(cudaDeviceSynchronize());
    return p;
}

static unsigned *pinned_words(size_t n)
{
    unsigned *p;
    OK(cudaMallocHost(&p, n * sizeof *p));
    memset(p, 0, n * sizeof *p);
    return p;
}

static cudaStream_t new_stream(unsigned flags)
{
    cudaStream_t s;
    OK(cudaStreamCreateWithFlags(&s, flags));
    return s;
}

static cudaEvent_t new_event(unsigned flags)
{
    cudaEvent_t v;
    OK(cudaEventCreateWithFlags(&v, flags));
    return v;
}

static void sleep_ms(unsigned ms)
{
    struct timespec t = {0, (long)ms * 1000000};
    nanosleep(&t, nullptr);
}

/* ---- devices ---- */

static void test_devices()
{
    int count = 0, value = 0, device = -1;
    struct cudaDeviceProp properties;
    OK(cudaGetDeviceCount(&count));
    CHECK(count >= 1);
    OK(cudaSetDevice(0));
    OK(cudaGetDevice(&device));
    CHECK_EQUAL(device, 0);
    CHECK_ERROR(cudaSetDevice(count), cudaErrorInvalidDevice);
    CHECK_ERROR(cudaGetLastError(), cudaErrorInvalidDevice);
    OK(cudaGetLastError());
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 0));
    CHECK_EQUAL(value, 32);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxThreadsPerBlock, 0));
    CHECK_EQUAL(value, 1024);
    OK(cudaGetDeviceProperties(&properties, 0));
    CHECK(properties.major >= 8 && properties.multiProcessorCount > 0 && properties.name[0] != 0);
    OK(cudaRuntimeGetVersion(&value));
    CHECK_EQUAL(value / 1000, CUDART_VERSION / 1000);
}

/* ---- memory ---- */

static void test_memory_is_counted()
{
    size_t total, before, during, after;
    void *p, *huge = &p;
    OK(cudaMemGetInfo(&before, &total));
    OK(cudaMalloc(&p, 64 << 20));
    CHECK((uintptr_t)p % 256 == 0);
    OK(cudaMemGetInfo(&during, &total));
    CHECK(before - during >= 64 << 20);
    OK(cudaFree(p));
    OK(cudaMemGetInfo(&after, &total));
    CHECK(after > during);
    CHECK_ERROR(cudaMalloc(&huge, total + 1), cudaErrorMemoryAllocation);
    OK(cudaMalloc(&p, 4096)); /* goes on */
    OK(cudaFree(nullptr));
}

static void test_copies_know_their_memory()
{
    unsigned *device = device_words(N), *pinned = pinned_words(N), host[16];
    CHECK_ERROR(cudaMemcpy(device, device, 64, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    CHECK_ERROR(cudaMemcpy(host, pinned, 64, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    CHECK_ERROR(cudaMemcpy(device + N - 8, pinned, 64, cudaMemcpyHostToDevice),
                cudaErrorInvalidValue);
    CHECK_ERROR(cudaMemset(pinned + N - 1, 0, 8), cudaErrorInvalidValue);
    for (unsigned i = 0; i < 16; i++)
        host[i] = i * i;
    OK(cudaMemcpy(device + 5, host, sizeof host, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(pinned, device, 4 * N, cudaMemcpyDefault));
    for (unsigned i = 0; i < 16; i++)
        CHECK_EQUAL(pinned[5 + i], i * i);
    CHECK(pinned[4] == 0 && pinned[21] == 0);
}

static void test_copy_of_rows()
{
    cudaStream_t s = new_stream(cudaStreamNonBlocking);
    unsigned *device = device_words(N), *pinned = pinned_words(N);
    for (unsigned i = 0; i < N; i++)
        pinned[i] = i;
    /* 3 rows of 4 words: 10 apart there, 7 apart here. */
    OK(cudaMemcpy2DAsync(device, 40, pinned, 28, 16, 3, cudaMemcpyHostToDevice, s));
    OK(cudaStreamSynchronize(s));
    OK(cudaMemcpy(pinned, device, 4 * N, cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < 30; i++)
        CHECK_EQUAL(pinned[i], i % 10 < 4 ? i / 10 * 7 + i % 10 : 0);
}

static void test_registered_memory()
{
    enum { BYTES = 1 << 16 };
    char *memory =
        (char *)mmap(nullptr, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct cudaPointerAttributes attributes;
    CHECK(memory != MAP_FAILED);
    CHECK_ERROR(cudaHostUnregister(memory), cudaErrorHostMemoryNotRegistered);
    OK(cudaHostRegister(memory, BYTES, cudaHostRegisterDefault));
    CHECK_ERROR(cudaHostRegister(memory, BYTES, cudaHostRegisterDefault),
                cudaErrorHostMemoryAlreadyRegistered);
    OK(cudaPointerGetAttributes(&attributes, memory + 100));
    CHECK_EQUAL(attributes.type, cudaMemoryTypeHost);
    OK(cudaHostUnregister(memory));
    CHECK_ERROR(cudaHostUnregister(memory), cudaErrorHostMemoryNotRegistered);
    OK(cudaPointerGetAttributes(&attributes, memory + 100));
    CHECK_EQUAL(attributes.type, cudaMemoryTypeUnregistered);
    CHECK(mprotect(memory, BYTES, PROT_READ) == 0);
    CHECK(cudaHostRegister(memory, BYTES, cudaHostRegisterDefault) != cudaSuccess);
    int supported;
    OK(cudaDeviceGetAttribute(&supported, cudaDevAttrHostRegisterReadOnlySupported, 0));
    if (supported) {
        OK(cudaHostRegister(memory, BYTES, cudaHostRegisterReadOnly));
        OK(cudaHostUnregister(memory));
    }
}

/* ---- streams ---- */

static void test_order_within_a_stream()
{
    cudaStream_t s = new_stream(cudaStreamNonBlocking);
    unsigned *device = device_words(N), *in = pinned_words(N), *out = pinned_words(N);
    for (unsigned i = 0; i < N; i++)
        in[i] = i;
    OK(cudaMemcpyAsync(device, in, 4 * N, cudaMemcpyHostToDevice, s));
    for (unsigned i = 0; i < 100; i++)
        CUDA_LAUNCH(add_one, N / 256, 256, 0, s, device, N);
    OK(cudaMemcpyAsync(out, device, 4 * N, cudaMemcpyDeviceToHost, s));
    OK(cudaStreamSynchronize(s));
    for (unsigned i = 0; i < N; i++)
        CHECK_EQUAL(out[i], i + 100);
    OK(cudaStreamQuery(s));
    OK(cudaStreamDestroy(s));
}

/* One stream writes, another reads; returns the number of words that arrived. */
static unsigned words_through_streams(bool with_event)
{
    cudaStream_t writer = new_stream(cudaStreamNonBlocking),
                 reader = new_stream(cudaStreamNonBlocking);
    cudaEvent_t written = new_event(cudaEventDisableTiming);
    unsigned *from = device_words(N), *to = device_words(N), *in = pinned_words(N),
             *out = pinned_words(N), n = 0;
    for (unsigned i = 0; i < N; i++)
        in[i] = i + 1;
    OK(cudaMemcpyAsync(from, in, 4 * N, cudaMemcpyHostToDevice, writer));
    OK(cudaEventRecord(written, writer));
    if (with_event)
        OK(cudaStreamWaitEvent(reader, written, 0));
    CUDA_LAUNCH(copy_words, N / 256, 256, 0, reader, to, from, N);
    OK(cudaMemcpyAsync(out, to, 4 * N, cudaMemcpyDeviceToHost, reader));
    OK(cudaStreamSynchronize(reader));
    for (unsigned i = 0; i < N; i++)
        n += out[i] == i + 1;
    return n;
}

static void test_order_by_event()
{
    for (unsigned i = 0; i < 50; i++)
        CHECK_EQUAL(words_through_streams(true), N);
}

static void test_default_stream_orders_blocking_ones()
{
    for (unsigned i = 0; i < 20; i++) {
        cudaStream_t a = new_stream(cudaStreamDefault), b = new_stream(cudaStreamDefault);
        unsigned *device = device_words(N), *other = device_words(N), *out = pinned_words(N);
        CUDA_LAUNCH(add_one, N / 256, 256, 0, a, device, N);
        CUDA_LAUNCH(add_one, N / 256, 256, 0, 0, device, N); /* after a, before b */
        CUDA_LAUNCH(copy_words, N / 256, 256, 0, b, other, device, N);
        OK(cudaMemcpyAsync(out, other, 4 * N, cudaMemcpyDeviceToHost, b));
        OK(cudaStreamSynchronize(b));
        for (unsigned j = 0; j < N; j++)
            CHECK_EQUAL(out[j], 2);
    }
}

static void test_work_is_done_without_waiting()
{
    cudaStream_t s = new_stream(cudaStreamNonBlocking);
    cudaEvent_t v = new_event(cudaEventDisableTiming);
    unsigned *device = device_words(N), *out = pinned_words(N);
    volatile unsigned *seen = out;
    OK(cudaEventQuery(v)); /* never recorded: done */
    CUDA_LAUNCH(add_one, N / 256, 256, 0, s, device, N);
    OK(cudaMemcpyAsync(out, device, 4 * N, cudaMemcpyDeviceToHost, s));
    OK(cudaEventRecord(v, s));
    cudaError_t state;
    unsigned tries = 0;
    while ((state = cudaEventQuery(v)) == cudaErrorNotReady && tries++ < 10000)
        sleep_ms(1);
    OK(state);
    CHECK_EQUAL(seen[N - 1], 1);
}

static void test_times_of_events()
{
    cudaStream_t s = new_stream(cudaStreamNonBlocking);
    cudaEvent_t start = new_event(cudaEventDefault), end = new_event(cudaEventDefault);
    cudaEvent_t untimed = new_event(cudaEventDisableTiming);
    unsigned *device = device_words(N);
    float ms = -1;
    CHECK_ERROR(cudaEventElapsedTime(&ms, start, end), cudaErrorInvalidResourceHandle);
    OK(cudaEventRecord(start, s));
    for (unsigned i = 0; i < 20; i++)
        CUDA_LAUNCH(add_one, N / 256, 256, 0, s, device, N);
    OK(cudaEventRecord(end, s));
    OK(cudaEventRecord(untimed, s));
    OK(cudaEventSynchronize(end));
    OK(cudaEventElapsedTime(&ms, start, end));
    CHECK(ms > 0);
    OK(cudaEventSynchronize(untimed));
    CHECK_ERROR(cudaEventElapsedTime(&ms, start, untimed), cudaErrorInvalidResourceHandle);
    OK(cudaEventDestroy(start));
}

/* Host functions stand in the stream's order. */
static std::atomic<unsigned> n_called;
static unsigned *watched;

static void look(void *expected)
{
    if (*(volatile unsigned *)watched == (unsigned)(uintptr_t)expected)
        n_called++;
}

static void test_host_functions()
{
    cudaStream_t s = new_stream(cudaStreamNonBlocking);
    unsigned *device = device_words(1);
    watched = pinned_words(1);
    for (unsigned i = 1; i <= 5; i++) {
        CUDA_LAUNCH(add_one, 1, 1, 0, s, device, 1);
        OK(cudaMemcpyAsync(watched, device, 4, cudaMemcpyDeviceToHost, s));
        OK(cudaLaunchHostFunc(s, look, (void *)(uintptr_t)i));
    }
    OK(cudaStreamSynchronize(s));
    CHECK_EQUAL(n_called.load(), 5);
}

/* ---- graphs ---- */

static void test_graph()
{
    cudaStream_t s = new_stream(cudaStreamNonBlocking), side = new_stream(cudaStreamNonBlocking);
    cudaEvent_t fork_event = new_event(cudaEventDisableTiming),
                join = new_event(cudaEventDisableTiming);
    unsigned *device = device_words(N), *other = device_words(N), *out = pinned_words(N);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    enum cudaStreamCaptureStatus status;
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    OK(cudaStreamIsCapturing(s, &status));
    CHECK_EQUAL(status, cudaStreamCaptureStatusActive);
    CUDA_LAUNCH(add_one, N / 256, 256, 0, s, device, N);
    OK(cudaEventRecord(fork_event, s));
    OK(cudaStreamWaitEvent(side, fork_event, 0));
    CUDA_LAUNCH(copy_words, N / 256, 256, 0, side, other, device, N);
    OK(cudaEventRecord(join, side));
    OK(cudaStreamWaitEvent(s, join, 0));
    OK(cudaMemcpyAsync(out, other, 4 * N, cudaMemcpyDeviceToHost, s));
    OK(cudaStreamEndCapture(s, &graph));
    OK(cudaStreamIsCapturing(side, &status));
    CHECK_EQUAL(status, cudaStreamCaptureStatusNone);
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamSynchronize(s));
    CHECK_EQUAL(out[0], 0); /* no operation has run yet */
    for (unsigned i = 1; i <= 10; i++) {
        OK(cudaGraphLaunch(exec, s));
        OK(cudaStreamSynchronize(s));
        CHECK_EQUAL(out[N - 1], i);
    }
    OK(cudaGraphExecDestroy(exec));
}

/* ---- errors ---- */

static void test_launch_limits()
{
    unsigned *device = device_words(N);
    CUDA_LAUNCH(add_one, 1, 1025, 0, 0, device, N);
    CHECK_ERROR(cudaGetLastError(), cudaErrorInvalidConfiguration);
    CUDA_LAUNCH(add_one, 1, dim3(16, 16, 8), 0, 0, device, N);
    CHECK_ERROR(cudaGetLastError(), cudaErrorInvalidConfiguration);
    CUDA_LAUNCH(add_one, 0, 32, 0, 0, device, N);
    CHECK_ERROR(cudaGetLastError(), cudaErrorInvalidConfiguration);
    CUDA_LAUNCH(add_one, dim3(1, 65536), 32, 0, 0, device, N);
    CHECK_ERROR(cudaGetLastError(), cudaErrorInvalidConfiguration);
    CUDA_LAUNCH(add_one, 1, 32, (48 << 10) + 1, 0, device, N);
    CHECK(cudaGetLastError() != cudaSuccess);
    OK(cudaFuncSetAttribute(add_one, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10));
    CUDA_LAUNCH(add_one, 1, 32, 64 << 10, 0, device, N);
    OK(cudaGetLastError());
    OK(cudaDeviceSynchronize());
    CHECK_ERROR(cudaFuncSetAttribute(add_one, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20),
                cudaErrorInvalidValue);
    CHECK_ERROR(cudaPeekAtLastError(), cudaErrorInvalidValue);
    CHECK_ERROR(cudaGetLastError(), cudaErrorInvalidValue);
    OK(cudaGetLastError());
}

static void test_a_lost_device_stays_lost()
{
    unsigned *device = device_words(N), *pinned = pinned_words(N);
    void *p;
    CUDA_LAUNCH(fail, 4, 64, 0, 0, device);
    cudaError_t launched = cudaGetLastError(); /* the kernel may have failed already */
    CHECK(launched == cudaSuccess || launched == cudaErrorLaunchFailure);
    CHECK_ERROR(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    CHECK_ERROR(cudaMalloc(&p, 100), cudaErrorLaunchFailure);
    CHECK_ERROR(cudaMemcpy(pinned, device, 4, cudaMemcpyDeviceToHost), cudaErrorLaunchFailure);
    CHECK_ERROR(cudaGetLastError(), cudaErrorLaunchFailure);
    CHECK_ERROR(cudaGetLastError(), cudaErrorLaunchFailure);
}

static void test_names_of_errors()
{
    CHECK(strcmp(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation") == 0);
    CHECK(strcmp(cudaGetErrorName(cudaSuccess), "cudaSuccess") == 0);
    CHECK(strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory") == 0);
    CHECK(strcmp(cudaGetErrorString((cudaError_t)12345), "unrecognized error code") == 0);
}

#ifdef MOED_CUSIM
static void set(const char *name, const char *value)
{
    CHECK(setenv(name, value, 1) == 0);
}

/* No operation runs before a thread waits. */
static void wait_long()
{
    set("MOED_CUSIM_DELAY_US", "1000000000");
}

static void test_missing_event_shows_cusim()
{
    unsigned n_wrong = 0;
    wait_long();
    for (unsigned i = 0; i < 50; i++)
        n_wrong += words_through_streams(false) != N;
    CHECK(n_wrong > 0 && n_wrong < 50);
    for (unsigned i = 0; i < 50; i++)
        CHECK_EQUAL(words_through_streams(true), N);
}

static void test_sources_are_read_late_cusim()
{
    cudaStream_t s = new_stream(cudaStreamNonBlocking);
    unsigned *pinned, *device, pageable = 1, got;
    wait_long();
    pinned = pinned_words(1);
    device = device_words(1);
    pinned[0] = 1;
    OK(cudaMemcpyAsync(device, pinned, 4, cudaMemcpyHostToDevice, s));
    pinned[0] = 2;
    OK(cudaStreamSynchronize(s));
    OK(cudaMemcpy(&got, device, 4, cudaMemcpyDeviceToHost));
    CHECK_EQUAL(got, 2);
    OK(cudaMemcpyAsync(device, &pageable, 4, cudaMemcpyHostToDevice, s));
    pageable = 2;
    OK(cudaStreamSynchronize(s));
    OK(cudaMemcpy(&got, device, 4, cudaMemcpyDeviceToHost));
    CHECK_EQUAL(got, 1);
}

static void test_injected_failures_cusim()
{
    void *p;
    set("MOED_CUSIM_FAIL",
        "cudaMalloc:2,cudaStreamSynchronize:1:cudaErrorECCUncorrectable,cudaHostAlloc:1:201");
    OK(cudaMalloc(&p, 100));
    CHECK_ERROR(cudaMalloc(&p, 100), cudaErrorMemoryAllocation);
    OK(cudaMalloc(&p, 100));
    CHECK_ERROR(cudaStreamSynchronize(0), cudaErrorECCUncorrectable);
    OK(cudaStreamSynchronize(0));
    CHECK_ERROR(cudaHostAlloc(&p, 100, 0), cudaErrorDeviceUninitialized);
}

static void test_injected_kernel_fault_cusim()
{
    set("MOED_CUSIM_FAIL", "add_one:3:cudaErrorIllegalAddress");
    unsigned *device = device_words(N), host = 0;
    for (unsigned i = 0; i < 2; i++)
        CUDA_LAUNCH(add_one, 1, 1, 0, 0, device, N);
    OK(cudaMemcpy(&host, device, 4, cudaMemcpyDeviceToHost));
    CHECK_EQUAL(host, 2);
    CUDA_LAUNCH(add_one, 1, 1, 0, 0, device, N);
    CHECK_ERROR(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    CHECK_ERROR(cudaFree(device), cudaErrorIllegalAddress);
}

static void test_no_device_cusim()
{
    int count = 7, version;
    set("MOED_CUSIM_DEVICES", "0");
    CHECK_ERROR(cudaGetDeviceCount(&count), cudaErrorNoDevice);
    set("MOED_CUSIM_DRIVER", "11040");
    OK(cudaDriverGetVersion(&version));
    CHECK_EQUAL(version, 11040);
    CHECK_ERROR(cudaSetDevice(0), cudaErrorInsufficientDriver);
}

static void test_two_small_devices_cusim()
{
    void *p;
    size_t available, total;
    set("MOED_CUSIM_DEVICES", "2");
    set("MOED_CUSIM_MEMORY", "1M");
    OK(cudaSetDevice(1));
    OK(cudaMemGetInfo(&available, &total));
    CHECK_EQUAL(total, 1 << 20);
    OK(cudaMalloc(&p, 600 << 10));
    CHECK_ERROR(cudaMalloc(&p, 600 << 10), cudaErrorMemoryAllocation);
    OK(cudaSetDevice(0));
    OK(cudaMalloc(&p, 600 << 10));
}

static void call_back(void *result)
{
    *(cudaError_t *)result = cudaDeviceSynchronize();
}

static void test_no_calls_from_host_functions_cusim()
{
    cudaError_t result = cudaSuccess;
    OK(cudaLaunchHostFunc(0, call_back, &result));
    OK(cudaDeviceSynchronize());
    CHECK_EQUAL(result, cudaErrorNotPermitted);
}

/* Not under ASan: in a child of a process with threads its allocator may stay locked. */
#ifndef __SANITIZE_ADDRESS__
static void count_devices()
{
    int count;
    exit(cudaGetDeviceCount(&count) == cudaErrorInitializationError ? 0 : 1);
}

static void test_forked_process_cusim()
{
    device_words(1);
    CHECK_EQUAL(run_elsewhere(count_devices).status, 0);
}
#endif
#endif

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"devices", test_devices},
        {"memory is counted", test_memory_is_counted},
        {"copies know their memory", test_copies_know_their_memory},
        {"copy of rows", test_copy_of_rows},
        {"registered memory", test_registered_memory},
        {"order within a stream", test_order_within_a_stream},
        {"order by event", test_order_by_event},
        {"default stream orders blocking ones", test_default_stream_orders_blocking_ones},
        {"work is done without waiting", test_work_is_done_without_waiting},
        {"times of events", test_times_of_events},
        {"host functions", test_host_functions},
        {"graph", test_graph},
        {"launch limits", test_launch_limits},
        {"a lost device stays lost", test_a_lost_device_stays_lost},
        {"names of errors", test_names_of_errors},
#ifdef MOED_CUSIM
        {"missing event shows", test_missing_event_shows_cusim},
        {"sources are read late", test_sources_are_read_late_cusim},
        {"injected failures", test_injected_failures_cusim},
        {"injected kernel fault", test_injected_kernel_fault_cusim},
        {"no device", test_no_device_cusim},
        {"two small devices", test_two_small_devices_cusim},
        {"no calls from host functions", test_no_calls_from_host_functions_cusim},
#ifndef __SANITIZE_ADDRESS__
        {"forked process", test_forked_process_cusim},
#endif
#endif
    };
    return run_tests(tests, sizeof tests / sizeof *tests, argc, argv);
}
