/* bench-device: the speed of a device module. Each figure stands with its bound, measured in the
 * same run:
 *
 *   copies     from pinned host memory, by size: queued, and each waited for; the bound is one large
 *              copy. memory: a copy within the device, bytes read and written a second
 *   waits      a segment's copy, by the way of waiting, and by how many are queued
 *   launches   a kernel that does nothing: queued, waited for, in graphs
 *   experts    1 token and 8 tokens through 8 experts of a Qwen3-30B layer, by tensor type, with the
 *              device's table of work and with the host's: bytes of weights a second; the bound is
 *              memory
 *   rows       matrices of a layer times one row, by shape and tensor type
 *   attention  in the shapes of three models: one token at three depths, rows of a prompt
 *   delta      a layer of linear attention: one token, rows of a prompt
 *   products   a matrix of a layer's attention times the rows of a batch, by tensor type: the
 *              module's own kernels, which keep to the definition, and cuBLAS, if it is there; in
 *              arithmetic operations a second, and as a ratio
 *   pinning    the time of pinning host memory
 *   flags      from one process's flag to another's kernel
 *   sharing    the time of exporting half of the free memory and importing it in another process,
 *              as one allocation and as many extents as an arena may have
 *
 * On a simulated device it runs everything once and prints no speed. tests/gpu/run reads lines
 * "figure: ...". Exit codes: 77 no module or no device, 1 another error. */
#include "bench/device/bench.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *only;
static bool facts_only;

static const struct part {
    const char *name;
    void (*run)(void);
} parts[] = {
    {"copies", bench_copies},   {"waits", bench_waits},       {"launches", bench_launches},
    {"experts", bench_experts}, {"rows", bench_rows},         {"attention", bench_attention},
    {"delta", bench_delta},     {"products", bench_products}, {"pinning", bench_pinning}};
#define N_PARTS (sizeof parts / sizeof *parts)

/* Parts with another process. They come last: an import may take long. */
static struct other_part {
    const char *name;
    struct other_process *(*start)(unsigned ordinal);
    void (*run)(struct other_process *o);
    struct other_process *process; /* NULL: not wanted */
} other_parts[] = {{"flags", flags_process_new, bench_flags, NULL},
                   {"sharing", sharing_process_new, bench_sharing, NULL}};
#define N_OTHER_PARTS (sizeof other_parts / sizeof *other_parts)

static bool is_part(const char *name)
{
    for (size_t i = 0; i < N_PARTS; i++)
        if (strcmp(parts[i].name, name) == 0)
            return true;
    for (size_t i = 0; i < N_OTHER_PARTS; i++)
        if (strcmp(other_parts[i].name, name) == 0)
            return true;
    return false;
}

static _Noreturn void usage(void)
{
    fprintf(stderr,
            "usage: bench-device [--device cuda[:N]] [--seconds S] [--only PART] [--facts]\n"
            "  --device   measure this device (cuda:0)\n"
            "  --seconds  measure each figure for about S seconds (0.1)\n"
            "  --only     copies, waits, launches, experts, rows, attention, delta, products,\n"
            "             pinning, sharing or flags; copies and launches give the bounds\n"
            "  --facts    print only the device's name, memory, address and mode\n");
    exit(2);
}

static unsigned read_options(int argc, char **argv)
{
    unsigned ordinal = 0;
    static const struct option options[] = {{"device", required_argument, NULL, 'd'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"only", required_argument, NULL, 'o'},
                                            {"facts", no_argument, NULL, 'f'},
                                            {0}};
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;)
        if (o == 'd' && strncmp(optarg, "cuda", 4) == 0)
            ordinal = optarg[4] == ':' ? (unsigned)atoi(optarg + 5) : 0;
        else if (o == 's' && atof(optarg) > 0)
            measure_seconds = atof(optarg);
        else if (o == 'o' && is_part(optarg))
            only = optarg;
        else if (o == 'f')
            facts_only = true;
        else
            usage();
    return ordinal;
}

static void open_device(unsigned ordinal)
{
    struct error e;
    struct device_facts facts;
    struct device_facts without_kernels = {0};
    enum error_code code = ERROR_OK;
    if (facts_only) { /* else the device's trial of flags would come twice */
        code = module->open(ordinal, DEVICE_COPIES, &device, &e);
        if (!code) {
            module->facts(device, &without_kernels);
            module->close(device); /* the process keeps the context */
        }
    }
    if (!code)
        code = module->open(ordinal, DEVICE_COMPUTES, &device, &e);
    if (code) {
        fprintf(stderr, "bench-device: %s\n", e.text);
        exit(77);
    }
    module->facts(device, &facts);
    if (module->stream_new(device, &stream, &e))
        fail(&e);
    printf("%s, %s, %.1f GB of memory, %u multiprocessors, at %s\n", facts.name, facts.version,
           (double)facts.memory_bytes * 1e-9, facts.multiprocessors,
           facts.pci[0] ? facts.pci : "an unknown address");
    if (facts_only)
        printf("%s%s; the kernels' code takes %.1f MB of the device's memory\n", facts.mode,
               facts.display ? ", drives a display" : "",
               ((double)without_kernels.free_bytes - (double)facts.free_bytes) * 1e-6);
}

/* Before this process opens the device. */
static void start_other_parts(unsigned ordinal)
{
    for (size_t i = 0; i < N_OTHER_PARTS; i++)
        if (!only || strcmp(only, other_parts[i].name) == 0)
            other_parts[i].process = other_parts[i].start(ordinal);
}

/* The bounds come first, for every part. */
static void run_parts(void)
{
    for (size_t i = 0; i < N_PARTS; i++)
        if (!only || strcmp(only, parts[i].name) == 0 ||
            (parts[i].run == bench_copies && strcmp(only, "flags") != 0) ||
            parts[i].run == bench_launches)
            parts[i].run();
    for (size_t i = 0; i < N_OTHER_PARTS; i++) {
        struct other_part *p = &other_parts[i];
        if (!p->process)
            continue;
        p->run(p->process);
        other_process_free(p->process);
    }
}

int main(int argc, char **argv)
{
    struct error e;
    unsigned ordinal = read_options(argc, argv);
    setvbuf(stdout, NULL, _IOLBF, 0); /* what is measured stays where a later part hangs */
    if (device_module_load("cuda", &module, &e)) {
        fprintf(stderr, "bench-device: %s\n", e.text);
        return 77;
    }
    simulated = strcmp(module->name, "cusim") == 0;
    if (!facts_only)
        start_other_parts(ordinal);
    open_device(ordinal);
    if (!facts_only)
        run_parts();
    module->stream_free(stream);
    module->close(device);
    return 0;
}
