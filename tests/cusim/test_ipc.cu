/* Memory and events between processes: an exporter and an importer that talk through pipes. */
#include "check.h"

#include "device/cuda/launch.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 10000 };

static int to_importer[2], to_exporter[2];

static __global__ void fill(unsigned *p, unsigned base)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N)
        p[i] = base + i;
}

static __global__ void compare(const unsigned *p, unsigned base, unsigned *n_wrong)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N && p[i] != base + i)
        atomicAdd(n_wrong, 1u);
}

static void send_to(int fd, const void *data, size_t bytes)
{
    CHECK(write(fd, data, bytes) == (ssize_t)bytes);
}

static void receive_from(int fd, void *data, size_t bytes)
{
    CHECK(read(fd, data, bytes) == (ssize_t)bytes);
}

static unsigned n_wrong_in(const unsigned *p, unsigned base)
{
    unsigned *counter, n;
    OK(cudaMalloc(&counter, sizeof n));
    OK(cudaMemset(counter, 0, sizeof n));
    CUDA_LAUNCH(compare, (N + 255) / 256, 256, 0, 0, p, base, counter);
    OK(cudaMemcpy(&n, counter, sizeof n, cudaMemcpyDeviceToHost));
    OK(cudaFree(counter));
    return n;
}

static void fill_and_wait(unsigned *p, unsigned base)
{
    CUDA_LAUNCH(fill, (N + 255) / 256, 256, 0, 0, p, base);
    OK(cudaDeviceSynchronize());
}

/* Runs exporter in another process at the same time as importer, before either uses the device. */
static void run_both(void (*exporter)(), void (*importer)(pid_t exporter_pid))
{
    int status;
    CHECK(pipe(to_importer) == 0 && pipe(to_exporter) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        exporter();
        exit(0);
    }
    importer(pid);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0) || WIFSIGNALED(status));
    CHECK(!WIFSIGNALED(status) || WTERMSIG(status) == SIGKILL);
}

static char receive_word(int fd)
{
    char word;
    receive_from(fd, &word, 1);
    return word;
}

/* ---- both write, both read ---- */

static void export_and_look()
{
    unsigned *memory, *other;
    cudaIpcMemHandle_t handle;
    void *again;
    OK(cudaMalloc(&other, 100)); /* so that the shared allocation is not the first */
    OK(cudaMalloc(&memory, N * sizeof *memory));
    fill_and_wait(memory, 5);
    OK(cudaIpcGetMemHandle(&handle, memory));
    CHECK(cudaIpcOpenMemHandle(&again, handle, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess);
    send_to(to_importer[1], &handle, sizeof handle);
    CHECK_EQUAL(receive_word(to_exporter[0]), 'w');
    CHECK_EQUAL(n_wrong_in(memory, 77), 0);
    CHECK_EQUAL(receive_word(to_exporter[0]), 'c'); /* the importer has closed it */
    OK(cudaFree(memory));
}

static void import_and_write(pid_t)
{
    cudaIpcMemHandle_t handle;
    unsigned *memory, *again;
    receive_from(to_importer[0], &handle, sizeof handle);
    OK(cudaIpcOpenMemHandle((void **)&memory, handle, cudaIpcMemLazyEnablePeerAccess));
    OK(cudaIpcOpenMemHandle((void **)&again, handle, cudaIpcMemLazyEnablePeerAccess));
    CHECK(memory == again);
    CHECK_EQUAL(n_wrong_in(memory, 5), 0);
    fill_and_wait(memory, 77);
    OK(cudaIpcCloseMemHandle(memory));
    send_to(to_exporter[1], "w", 1);
    CHECK_EQUAL(n_wrong_in(memory, 77), 0); /* opened twice, closed once */
    OK(cudaIpcCloseMemHandle(memory));
    CHECK(cudaIpcCloseMemHandle(memory) != cudaSuccess);
    cudaGetLastError();
    send_to(to_exporter[1], "c", 1);
}

static void test_memory()
{
    run_both(export_and_look, import_and_write);
}

/* ---- the exporter is killed ---- */

static void export_and_stay()
{
    unsigned *memory;
    cudaIpcMemHandle_t handle;
    OK(cudaMalloc(&memory, N * sizeof *memory));
    fill_and_wait(memory, 9);
    OK(cudaIpcGetMemHandle(&handle, memory));
    send_to(to_importer[1], &handle, sizeof handle);
    for (;;)
        pause();
}

static void import_and_kill(pid_t exporter)
{
    cudaIpcMemHandle_t handle;
    unsigned *memory;
    siginfo_t info;
    receive_from(to_importer[0], &handle, sizeof handle);
    OK(cudaIpcOpenMemHandle((void **)&memory, handle, cudaIpcMemLazyEnablePeerAccess));
    CHECK(kill(exporter, SIGKILL) == 0);
    CHECK(waitid(P_PID, (id_t)exporter, &info, WEXITED | WNOWAIT) == 0);
    CHECK_EQUAL(n_wrong_in(memory, 9), 0);
    OK(cudaIpcCloseMemHandle(memory));
    CHECK(cudaIpcOpenMemHandle((void **)&memory, handle, cudaIpcMemLazyEnablePeerAccess) !=
          cudaSuccess);
}

static void test_killed_exporter()
{
    run_both(export_and_stay, import_and_kill);
}

/* ---- events ---- */

static void export_with_event()
{
    unsigned *memory;
    cudaStream_t s;
    cudaEvent_t v;
    cudaIpcMemHandle_t handle;
    cudaIpcEventHandle_t event_handle;
    OK(cudaMalloc(&memory, N * sizeof *memory));
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&v, cudaEventDisableTiming | cudaEventInterprocess));
    OK(cudaIpcGetMemHandle(&handle, memory));
    OK(cudaIpcGetEventHandle(&event_handle, v));
    send_to(to_importer[1], &handle, sizeof handle);
    send_to(to_importer[1], &event_handle, sizeof event_handle);
    for (unsigned round = 1; round <= 20; round++) {
        for (unsigned i = 0; i < 5; i++)
            CUDA_LAUNCH(fill, (N + 255) / 256, 256, 0, s, memory, round * 1000);
        OK(cudaEventRecord(v, s));
        send_to(to_importer[1], "r", 1); /* recorded, not done */
        CHECK_EQUAL(receive_word(to_exporter[0]), 'd');
    }
    OK(cudaEventSynchronize(v));
}

static void import_with_event(pid_t)
{
    cudaIpcMemHandle_t handle;
    cudaIpcEventHandle_t event_handle;
    unsigned *memory;
    cudaEvent_t v;
    receive_from(to_importer[0], &handle, sizeof handle);
    receive_from(to_importer[0], &event_handle, sizeof event_handle);
    OK(cudaIpcOpenMemHandle((void **)&memory, handle, cudaIpcMemLazyEnablePeerAccess));
    OK(cudaIpcOpenEventHandle(&v, event_handle));
    for (unsigned round = 1; round <= 20; round++) {
        CHECK_EQUAL(receive_word(to_importer[0]), 'r');
        if (round % 2 == 0)
            OK(cudaStreamWaitEvent(0, v, 0));
        else
            OK(cudaEventSynchronize(v));
        CHECK_EQUAL(n_wrong_in(memory, round * 1000), 0);
        send_to(to_exporter[1], "d", 1);
    }
}

static void test_events()
{
    run_both(export_with_event, import_with_event);
}

/* ---- invalid handles ---- */

static void test_bad_handles()
{
    cudaIpcMemHandle_t handle;
    unsigned *memory;
    void *p;
    memset(&handle, 0x5a, sizeof handle);
    CHECK(cudaIpcOpenMemHandle(&p, handle, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess);
    CHECK(cudaIpcGetMemHandle(&handle, &p) != cudaSuccess);
    OK(cudaMalloc(&memory, 100));
    OK(cudaFree(memory));
    CHECK(cudaIpcGetMemHandle(&handle, memory) != cudaSuccess);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"memory", test_memory},
        {"killed exporter", test_killed_exporter},
        {"events", test_events},
        {"bad handles", test_bad_handles},
    };
    return run_tests(tests, sizeof tests / sizeof *tests, argc, argv);
}
