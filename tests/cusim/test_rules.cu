/* Violations of the rules that cusim finds: each ends its own process with a message. */
#include "check.h"

#include "device/cuda/tensor_core.cuh"

#include <initializer_list>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

static unsigned *device_memory;

static void setup()
{
    OK(cudaMalloc(&device_memory, 1024 * sizeof *device_memory));
    OK(cudaMemset(device_memory, 0, 1024 * sizeof *device_memory));
}

/* f ends by a signal, and its message contains all of these texts. */
static void check_dies(void (*f)(), const char *first, const char *second, const char *third)
{
    struct outcome o = run_elsewhere(f);
    if (WIFEXITED(o.status) && WEXITSTATUS(o.status) == 0) {
        fprintf(stderr, "no fault, without \"%s\"\n", first);
        exit(1);
    }
    for (const char *text : {first, second, third})
        if (strstr(o.text, text) == nullptr) {
            fprintf(stderr, "\"%s\" is missing in: %s\n", text, o.text);
            exit(1);
        }
}

static __global__ void half_waits(unsigned *out)
{
    if (threadIdx.x < 32)
        __syncthreads();
    out[threadIdx.x] = 1;
}

static void launch_half_waits()
{
    setup();
    CUDA_LAUNCH(half_waits, 3, 64, 0, 0, device_memory);
    cudaDeviceSynchronize();
}

static void test_barrier_without_half_of_the_block()
{
    check_dies(launch_half_waits, "divergent barrier", "kernel half_waits, block (",
               "threads 32 to 63 have ended");
    check_dies(launch_half_waits, "threads 0 to 31 wait at __syncthreads", "of (3,1,1)", "64");
}

static __global__ void wait_differently(unsigned *out)
{
    out[threadIdx.x] =
        threadIdx.x < 32 ? (unsigned)__syncthreads_count(1) : (unsigned)__syncthreads_or(1);
}

static void launch_wait_differently()
{
    setup();
    CUDA_LAUNCH(wait_differently, 1, 64, 0, 0, device_memory);
    cudaDeviceSynchronize();
}

static void test_different_barriers()
{
    check_dies(launch_wait_differently, "divergent barrier", "__syncthreads_count",
               "__syncthreads_or");
}

static __global__ void lane_leaves(unsigned *out)
{
    if (threadIdx.x == 40)
        return;
    out[threadIdx.x] = __ballot_sync(0xffffffffu, 1);
}

static void launch_lane_leaves()
{
    setup();
    CUDA_LAUNCH(lane_leaves, 1, 64, 0, 0, device_memory);
    cudaDeviceSynchronize();
}

static void test_warp_operation_without_a_lane()
{
    check_dies(launch_lane_leaves, "kernel lane_leaves", "threads 40 to 40 have ended",
               "threads 32 to 39 wait at a vote of mask 0xffffffff");
}

static __global__ void half_a_warp(unsigned *out)
{
    out[threadIdx.x] = __shfl_sync(0xffffffffu, threadIdx.x, 3);
}

static void launch_half_a_warp()
{
    setup();
    CUDA_LAUNCH(half_a_warp, 1, 16, 0, 0, device_memory);
    cudaDeviceSynchronize();
}

static void test_full_mask_of_half_a_warp()
{
    check_dies(launch_half_a_warp, "kernel half_a_warp", "threads 0 to 15 wait at __shfl_sync",
               "mask 0xffffffff");
}

static __global__ void outside_the_mask(unsigned *out)
{
    if (threadIdx.x < 16)
        out[threadIdx.x] = __shfl_sync(0x0000ffffu, threadIdx.x, 17);
}

static void launch_outside_the_mask()
{
    setup();
    CUDA_LAUNCH(outside_the_mask, 1, 32, 0, 0, device_memory);
    cudaDeviceSynchronize();
}

static void test_shuffle_from_outside_the_mask()
{
    check_dies(launch_outside_the_mask, "kernel outside_the_mask", "lane 17", "mask 0x0000ffff");
}

static __global__ void not_in_the_mask(unsigned *out)
{
    __syncwarp(0xfffffffeu);
    out[threadIdx.x] = 1;
}

static void launch_not_in_the_mask()
{
    setup();
    CUDA_LAUNCH(not_in_the_mask, 1, 32, 0, 0, device_memory);
    cudaDeviceSynchronize();
}

static void test_caller_outside_the_mask()
{
    check_dies(launch_not_in_the_mask, "kernel not_in_the_mask", "lane 0", "not in it");
}

static __global__ void write_at(unsigned *out, size_t i)
{
    out[i] = 1;
}

static void use_after_free()
{
    setup();
    OK(cudaFree(device_memory));
    CUDA_LAUNCH(write_at, 1, 1, 0, 0, device_memory, 3);
    cudaDeviceSynchronize();
}

static void write_behind_the_end()
{
    setup();
    CUDA_LAUNCH(write_at, 1, 1, 0, 0, device_memory, 1024);
    cudaDeviceSynchronize();
}

static void test_bad_accesses()
{
    check_dies(use_after_free, "kernel write_at",
               "12 bytes into an allocation of 4096 bytes that was freed", "thread 0");
#if defined(__SANITIZE_ADDRESS__)
    check_dies(write_behind_the_end, "AddressSanitizer", "write_at", "WRITE");
#else
    check_dies(write_behind_the_end, "kernel write_at",
               "4096 bytes into an allocation of 4096 bytes", "thread 0");
#endif
}

static void read_on_the_host()
{
    CHECK(setenv("MOED_CUSIM_PROTECT", "1", 1) == 0);
    setup();
    CUDA_LAUNCH(write_at, 1, 1, 0, 0, device_memory, 5);
    OK(cudaDeviceSynchronize());
    unsigned host[6];
    OK(cudaMemcpy(host, device_memory, sizeof host, cudaMemcpyDeviceToHost)); /* the right way */
    CHECK_EQUAL(host[5], 1);
    host[0] = *(volatile unsigned *)&device_memory[5];
}

static void test_host_reads_device_memory()
{
    check_dies(read_on_the_host, "20 bytes into an allocation of 4096 bytes", "in host code",
               "bad access");
}

static __global__ void copy_shared(unsigned *out)
{
    CUDA_SHARED(unsigned, words);
    out[threadIdx.x] = words[threadIdx.x];
}

static void test_memory_is_poisoned()
{
    unsigned host[32], *poisoned;
    setup();
    OK(cudaMalloc(&poisoned, sizeof host));
    OK(cudaMemcpy(host, poisoned, sizeof host, cudaMemcpyDeviceToHost));
    for (unsigned word : host)
        CHECK_EQUAL(word, 0xffffffffu);
    CUDA_LAUNCH(copy_shared, 1, 32, sizeof host, 0, device_memory);
    OK(cudaMemcpy(host, device_memory, sizeof host, cudaMemcpyDeviceToHost));
    for (unsigned word : host)
        CHECK_EQUAL(word, 0xffffffffu);
}

static __global__ void copy_unaligned(unsigned *out)
{
    CUDA_SHARED(unsigned, words);
    tensor_copy<16>(words, out + 1);
    tensor_copy_wait_all();
}

static __global__ void copy_to_device_memory(unsigned *out)
{
    tensor_copy<4>(out, out + 1);
    tensor_copy_wait_all();
}

static __global__ void copy_without_wait(unsigned *out)
{
    CUDA_SHARED(unsigned, words);
    tensor_copy<4>(words, out);
    tensor_copy_group();
    tensor_copy_wait<1>();
}

static __global__ void load_unaligned(unsigned *out)
{
    CUDA_SHARED(unsigned, words);
    uint32_t got[4];
    tensor_load_4(words + threadIdx.x, got);
    out[threadIdx.x] = got[0];
}

template <void (*kernel)(unsigned *)> static void launch_with_shared()
{
    setup();
    CUDA_LAUNCH(kernel, 1, 32, 512, 0, device_memory);
    cudaDeviceSynchronize();
}

static void test_copies_and_matrices()
{
    check_dies(launch_with_shared<copy_unaligned>, "cp.async of 16 bytes", "not aligned", "kernel");
    check_dies(launch_with_shared<copy_to_device_memory>, "cp.async", "outside of the dynamic",
               "shared memory");
    check_dies(launch_with_shared<copy_without_wait>, "a thread ends before", "cp.async", "kernel");
    check_dies(launch_with_shared<load_unaligned>, "ldmatrix", "not aligned to 16", "kernel");
}

#ifdef CUSIM_RACES /* not in builds with sanitizers */
static __global__ void read_without_barrier(unsigned *out)
{
    CUDA_SHARED(unsigned, words);
    words[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = words[threadIdx.x ^ 1];
}

static __global__ void overwrite_without_barrier(unsigned *out)
{
    CUDA_SHARED(unsigned, words);
    words[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = words[31 - threadIdx.x];
    words[threadIdx.x] = 0;
}

/* The lanes of a half-warp that waits see each other's writes, not those of the other half. */
static __global__ void other_half(unsigned *out)
{
    CUDA_SHARED(unsigned, words);
    words[threadIdx.x] = threadIdx.x;
    __syncwarp(threadIdx.x < 16 ? 0xffffu : 0xffff0000u);
    out[threadIdx.x] = words[threadIdx.x ^ 15];
    out[threadIdx.x] = words[threadIdx.x ^ 16];
}

static __global__ void shuffle_is_no_barrier(unsigned *out)
{
    CUDA_SHARED(unsigned, words);
    words[threadIdx.x] = threadIdx.x;
    unsigned other = __shfl_xor_sync(0xffffffffu, threadIdx.x, 1);
    out[threadIdx.x] = words[other];
}

static __global__ void copy_seen_early(unsigned *out)
{
    CUDA_SHARED(unsigned, words);
    tensor_copy<4>(words + threadIdx.x, out + threadIdx.x);
    __syncthreads();
    out[threadIdx.x + 32] = words[threadIdx.x ^ 1];
    tensor_copy_wait_all();
}

static __global__ void load_without_barrier(unsigned *out)
{
    CUDA_SHARED(unsigned, words);
    uint32_t got[4];
    for (unsigned i = 0; i < 4; i++)
        words[threadIdx.x + 32 * i] = i;
    tensor_load_4(words + 4 * threadIdx.x, got);
    out[threadIdx.x] = got[0];
}
#endif

/* Bytes of one word, barriers of the block, of the warp and of its halves: no race. */
static __global__ void no_race(unsigned *out)
{
    CUDA_SHARED(uint8_t, bytes);
    unsigned half = threadIdx.x < 16 ? 0xffffu : 0xffff0000u;
    bytes[threadIdx.x] = 1;
    __syncwarp(half);
    unsigned sum = bytes[threadIdx.x ^ 15];
    __syncwarp();
    sum += bytes[threadIdx.x ^ 31];
    __syncthreads();
    bytes[31 - threadIdx.x] = 2;
    __syncthreads();
    out[threadIdx.x] = sum + bytes[threadIdx.x];
}

static void test_races()
{
#ifdef CUSIM_RACES
    check_dies(launch_with_shared<read_without_barrier>, "race: thread", "of the shared memory",
               "without a barrier");
    check_dies(launch_with_shared<overwrite_without_barrier>, "race: thread",
               "of the shared memory", "without a barrier");
    check_dies(launch_with_shared<other_half>, "race: thread", "of the shared memory",
               "without a barrier");
    check_dies(launch_with_shared<shuffle_is_no_barrier>, "race: thread", "of the shared memory",
               "without a barrier");
    check_dies(launch_with_shared<copy_seen_early>, "race: thread", "of the shared memory",
               "without a barrier");
    check_dies(launch_with_shared<load_without_barrier>, "race: thread", "of the shared memory",
               "without a barrier");
#endif
    launch_with_shared<no_race>();
    OK(cudaGetLastError());
}

static void leak()
{
    void *freed, *memory;
    OK(cudaMalloc(&freed, 100));
    OK(cudaMalloc(&memory, 5000));
    OK(cudaFree(freed));
    cudaDeviceReset();
}

static void no_leak()
{
    void *memory;
    OK(cudaMalloc(&memory, 100));
    OK(cudaFree(memory));
    OK(cudaDeviceReset());
}

static void test_leak()
{
    CHECK_EQUAL(run_elsewhere(no_leak).status, 0);
    check_dies(leak, "cudaDeviceReset", "was not freed: 1 allocations", "the largest 5000 bytes");
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"barrier without half of the block", test_barrier_without_half_of_the_block},
        {"different barriers", test_different_barriers},
        {"warp operation without a lane", test_warp_operation_without_a_lane},
        {"full mask of half a warp", test_full_mask_of_half_a_warp},
        {"shuffle from outside the mask", test_shuffle_from_outside_the_mask},
        {"caller outside the mask", test_caller_outside_the_mask},
        {"bad accesses", test_bad_accesses},
        {"host reads device memory", test_host_reads_device_memory},
        {"memory is poisoned", test_memory_is_poisoned},
        {"leak", test_leak},
        {"copies and matrices", test_copies_and_matrices},
        {"races", test_races},
    };
    return run_tests(tests, sizeof tests / sizeof *tests, argc, argv);
}
