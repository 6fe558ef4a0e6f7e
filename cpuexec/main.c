/* moed-cpuexec: the CPU executor. It computes the expert segments that workers assign to the CPU,
 * with the weights in memd's host pool, on threads pinned to cores, and writes partial sums into
 * shared memory. It reads no model file and has no connection to a frontend. */
#include "serve.h"

#include "base/log.h"
#include "confine/calls.h"
#include "confine/files.h"
#include "confine/memory.h"
#include "confine/privileges.h"
#include "daemon/daemon.h"
#include "device/device.h"
#include "ipc/watch.h"
#include "kernels/bf16.h"
#include "kernels/kernels.h"

struct cpuexec {
    struct daemon daemon;
    /* options */
    uint64_t threads;
    double spin_us;
    bool pin, reproducible;
    const char *device, *kernels;
    /* what it owns */
    struct memory_client memory;
    struct pool *pool;
    struct watch *watch;
    struct serve *serve;
    struct serve_counters counters;
};

static void register_metrics(struct cpuexec *c)
{
    struct metrics *m = c->daemon.metrics;
    struct serve_counters *k = &c->counters;
    k->jobs = metrics_counter(m, "moed_cpuexec_jobs_total", NULL, 1,
                              "Jobs computed for workers: one layer's expert work each.");
    k->experts = metrics_counter(m, "moed_cpuexec_experts_total", NULL, 1,
                                 "Experts computed, each for one or more tokens.");
    k->rows = metrics_counter(m, "moed_cpuexec_expert_rows_total", NULL, 1,
                              "Tokens that experts were computed for.");
    k->weight_bytes =
        metrics_counter(m, "moed_cpuexec_weight_bytes_total", NULL, 1,
                        "Bytes of expert weights that jobs used, counted once a job.");
    k->compute_ns =
        metrics_counter(m, "moed_cpuexec_compute_seconds_total", NULL, 1e-9, "Time spent on jobs.");
    k->refused = metrics_counter(m, "moed_cpuexec_jobs_refused_total", NULL, 1, "Malformed jobs.");
    k->job_seconds =
        metrics_histogram(m, "moed_cpuexec_job_seconds", NULL, histogram_seconds_bounds,
                          histogram_seconds_count, "Time of a job from receipt to completion.");
    gauge_set(metrics_gauge(m, "moed_cpuexec_threads", NULL, "Compute threads."),
              (int64_t)pool_thread_count(c->pool));
}

static bool memd_gone(void *arg, int fd)
{
    struct cpuexec *c = arg;
    (void)fd;
    log_warn("memd has gone: stopping, for the supervisor to restart both");
    daemon_request_stop(&c->daemon, EXIT_RETRY);
    return false;
}

static void fill_health(void *arg, Moed__V1__HealthReply *health)
{
    struct cpuexec *c = arg;
    health->model = c->memory.map.params.name;
    health->experts_total = counter_read(c->counters.experts);
}

/* An emulated device's threads take some of the cores. Then the kernel places all threads: none is
 * pinned. */
static enum error_code make_pool(struct cpuexec *c, struct error *e)
{
    struct device_spec device;
    enum error_code code = device_parse(c->device, &device, e);
    if (code)
        return code;
    unsigned cores = pool_usable_cores(), computes = device_cores(&device, cores);
    unsigned taken = computes + device_spinners(&device, cores);
    unsigned rest = cores > taken ? cores - taken : 1;
    unsigned threads = c->threads ? pool_useful_threads((unsigned)c->threads) : rest;
    code = pool_new("cpuexec", threads, c->pin && !computes, (unsigned)c->spin_us, &c->pool, e);
    if (!code)
        pool_log(c->pool, c->threads);
    return code;
}

/* cpuexec uses no device, so it has no driver in it. */
static void confine_to_files(const struct cpuexec *c)
{
    struct confine_files f;
    confine_memory();
    confine_privileges_daemon();
    confine_files_begin(&f);
    confine_files_allow_daemon(&f, c->daemon.run);
    confine_files_end(&f);
}

static enum error_code start(struct cpuexec *c, struct error *e)
{
    if (!kernels_select(c->kernels))
        return error_set(e, ERROR_USAGE, "kernels '%.20s' cannot run on this CPU", c->kernels);
    kernels_log();
    bf16_get(); /* connections come when system calls are confined */
    enum error_code code = memory_client_attach(c->daemon.run, c->daemon.process, MEMORY_CPUEXEC, 0,
                                                10000, &c->memory, e);
    if (!code)
        code = make_pool(c, e);
    if (!code)
        code = watch_new("cpuexec/memd", &c->watch, e);
    if (!code)
        code = watch_add(c->watch, c->memory.lease_fd, memd_gone, c, e);
    if (code)
        return code;
    register_metrics(c);
    return serve_open(c->daemon.run, &c->memory, c->pool, !c->reproducible, (unsigned)c->spin_us,
                      &c->counters, &c->serve, e);
}

int main(int argc, char **argv)
{
    static struct cpuexec c = {.device = "host", .pin = true, .spin_us = 20, .kernels = "auto"};
    const struct option_spec options[] = {
        {"device", OPTION_STRING, &c.device, 0, 0, "D",
         "the worker's device (emulated: half the cores)"},
        {"threads", OPTION_UINT, &c.threads, 0, 1024, "N",
         "compute threads; 0: one for each core left"},
        {"pin", OPTION_BOOL, &c.pin, 0, 0, NULL, "pin compute threads to cores and memory nodes"},
        {"spin-us", OPTION_FLOAT, &c.spin_us, 0, 10000, "US",
         "spin for at least US microseconds before sleeping"},
        {"reproducible", OPTION_BOOL, &c.reproducible, 0, 0, NULL,
         "same bits in every batch: no BF16 inputs"},
        {"kernels", OPTION_STRING, &c.kernels, 0, 0, "NAME",
         "auto, portable, avx2, avx2-vnni or avx512"},
        {0},
    };
    daemon_init(&c.daemon, "cpuexec", "the CPU expert executor of a moed deployment", options, argc,
                argv);
    if (c.daemon.confine)
        confine_to_files(&c);
    daemon_start(&c.daemon);
    struct error e;
    enum error_code code = start(&c, &e);
    static const struct daemon_handlers handlers = {.health = fill_health};
    if (!code)
        code = daemon_serve(&c.daemon, &handlers, &c, &e);
    if (code)
        daemon_fail(&c.daemon,
                    code == ERROR_USAGE     ? EXIT_BAD_USAGE
                    : code == ERROR_VERSION ? EXIT_PERMANENT
                                            : EXIT_RETRY,
                    &e);
    daemon_status(&c.daemon, "serving %s with %u threads, %s kernels", c.memory.map.params.name,
                  pool_thread_count(c.pool), kernels_get()->name);
    if (c.daemon.confine)
        confine_calls(CONFINE_DAEMON, false);
    daemon_ready(&c.daemon);
    int exit_code = daemon_wait(&c.daemon);
    daemon_stop(&c.daemon);
    serve_close(c.serve);
    watch_free(c.watch);
    pool_free(c.pool);
    memory_client_detach(&c.memory);
    return exit_code;
}
