/* bench-ipc: round trips between two processes, over the shared-memory ring (asleep and spinning)
 * and over the control plane's rpc. Prints the median and the 99th percentile. */
#include "base/clock.h"
#include "base/sort_doubles.h"
#include "ipc/ring.h"
#include "ipc/rpc.h"
#include "ipc/shm.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RING_CAPACITY 16
#define RING_TRIPS    20000
#define RPC_TRIPS     1000

extern char **environ;

static void die(const struct error *e)
{
    fprintf(stderr, "bench-ipc: %s\n", e->text);
    exit(1);
}

static void report(const char *what, double *us, size_t n)
{
    sort_doubles(us, n);
    printf("%-28s %9.2f us median %9.2f us p99 %7zu trips\n", what, us[n / 2], us[n * 99 / 100], n);
    fflush(stdout);
}

static void echo(struct ring *in, struct ring *out, unsigned spin_us, size_t trips)
{
    uint8_t record[RING_RECORD_BYTES];
    struct spinner spinner;
    spinner_init(&spinner, spin_us);
    for (size_t i = 0; i < trips; i++) {
        while (ring_pop(in, record) == 0)
            ring_wait(in, NULL, &spinner, -1);
        ring_push(out, record);
        ring_notify(out);
    }
}

/* pause_us: between trips, so that the other side sleeps before the next. */
static void bench_ring(const char *what, unsigned spin_us, unsigned pause_us, size_t trips)
{
    struct shm s;
    struct error e;
    size_t half = ring_bytes(RING_CAPACITY);
    if (shm_create("moed-bench", 2 * half, &s, &e) != ERROR_OK)
        die(&e);
    uint8_t *there_memory = s.base, *back_memory = there_memory + half;
    ring_init(there_memory, RING_CAPACITY);
    ring_init(back_memory, RING_CAPACITY);
    struct ring there, back;
    if (ring_attach(&there, there_memory, half, &e) != ERROR_OK ||
        ring_attach(&back, back_memory, half, &e) != ERROR_OK)
        die(&e);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        echo(&there, &back, spin_us, trips);
        _exit(0);
    }
    double *us = calloc(trips, sizeof *us);
    uint8_t record[RING_RECORD_BYTES] = {0};
    struct spinner spinner;
    spinner_init(&spinner, spin_us);
    for (size_t i = 0; i < trips; i++) {
        if (pause_us > 0)
            nanosleep(&(struct timespec){.tv_nsec = (long)pause_us * 1000}, NULL);
        uint64_t start = clock_ns();
        ring_push(&there, record);
        ring_notify(&there);
        while (ring_pop(&back, record) == 0)
            ring_wait(&back, NULL, &spinner, -1);
        us[i] = (double)(clock_ns() - start) * 1e-3;
    }
    waitpid(pid, NULL, 0);
    report(what, us, trips);
    free(us);
    shm_close(&s);
}

static void echo_handler(void *arg, const uint8_t *request, size_t len, struct rpc_reply *reply)
{
    reply->data = malloc(len);
    if (reply->data == NULL)
        return;
    memcpy(reply->data, request, len);
    reply->len = len;
}

static int server_process(const char *url)
{
    struct rpc_server *s;
    struct error e;
    if (rpc_serve(url, echo_handler, NULL, &s, &e) != ERROR_OK)
        die(&e);
    pause(); /* until killed */
    return 0;
}

static enum error_code trip(const char *url, struct error *e)
{
    uint8_t request[64] = {0}, *reply;
    size_t len;
    enum error_code code = rpc_call(url, request, sizeof request, 5000, &reply, &len, e);
    if (code == ERROR_OK)
        free(reply);
    return code;
}

static void bench_rpc(void)
{
    char directory[] = "/tmp/moed-bench-XXXXXX", url[64];
    if (mkdtemp(directory) == NULL) {
        perror("bench-ipc: mkdtemp");
        exit(1);
    }
    snprintf(url, sizeof url, "ipc://%s/s", directory);
    char *argv[] = {"bench-ipc", "--server", url, NULL};
    pid_t pid;
    if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ) != 0) {
        perror("bench-ipc: posix_spawn");
        exit(1);
    }
    struct error e = {0};
    for (int i = 0; i < 500 && trip(url, &e) == ERROR_UNAVAILABLE; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    static double us[RPC_TRIPS];
    enum error_code code = ERROR_OK;
    for (size_t i = 0; i < RPC_TRIPS && code == ERROR_OK; i++) {
        uint64_t start = clock_ns();
        code = trip(url, &e);
        us[i] = (double)(clock_ns() - start) * 1e-3;
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    unlink(url + strlen("ipc://"));
    rmdir(directory);
    if (code != ERROR_OK)
        die(&e);
    report("rpc, with its connection", us, RPC_TRIPS);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--server") == 0)
        return server_process(argv[2]);
    printf("%ld CPUs online, 64-byte records\n", sysconf(_SC_NPROCESSORS_ONLN));
    bench_ring("ring, spinning", 1000, 0, RING_TRIPS);
    bench_ring("ring, never spinning", 0, 0, RING_TRIPS);
    bench_ring("ring, asleep for 200 us", 0, 200, RING_TRIPS / 10);
    bench_rpc();
    return 0;
}
