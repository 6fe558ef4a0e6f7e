/* See device_choice.h.
 *
 * A child process looks at the devices: to see how much memory is free, a process opens the device,
 * and then takes some of that memory until it ends. */
#include "client/cli/device_choice.h"

#include "base/quantity.h"
#include "client/cli/commands.h"
#include "client/cli/complain.h"
#include "device/link.h"
#include "device/nvidia_gpu.h"
#include "model/kv_type.h"
#include "model/pool_plan.h"
#include "model/memory_need.h"
#include "model/serving_limits.h"
#include "reader/model_reader.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the child reports. */
struct choice {
    uint32_t seen;     /* devices that are there, in whatever state */
    uint32_t found;    /* a device is chosen */
    char device[32];   /* its name for --device */
    char reason[400];  /* why none is chosen */
    char summary[300]; /* of the chosen one */
};

enum error_code device_choice_fit(const struct device_module *module,
                                  const struct device_facts *facts, const struct pool_map *map,
                                  const struct launch *l, struct device_spec *spec,
                                  struct device_plan *out, struct error *e)
{
    struct device_plan_options options = {.device = spec,
                                          .workers = (uint32_t)l->options.workers,
                                          .parallel =
                                              memory_parallel(&map->params, l->options.parallel),
                                          .kv_requests = (uint32_t)l->options.parallel,
                                          .context = (uint32_t)l->options.ctx,
                                          .batch = (uint32_t)l->options.batch,
                                          .reproducible = l->options.reproducible};
    enum error_code code = kv_type_parse(l->options.kv_type ? l->options.kv_type : KV_TYPE_DEFAULT,
                                         &options.kv_type, e);
    if (code)
        return code;
    spec->dense_on_host = params_host_dense(&map->params) != NULL; /* as memd does */
    return device_plan_look(module, facts, map, &options, out, e);
}

/* memd shares its memory of the device with the workers. Systems such as WSL2 have devices that
 * cannot. */
static enum error_code try_to_share(const struct device_module *module, struct device *d,
                                    const char *name, struct error *e)
{
    struct device_handle handle;
    struct error why;
    void *memory;
    enum error_code code = module->allocate(d, DEVICE_ALLOCATION_BYTES, &memory, e);
    if (code)
        return code;
    code = module->export_memory(d, memory, &handle, &why);
    module->release(d, memory);
    if (code)
        error_set(e, code,
                  "%.120s cannot share its memory between processes, as under WSL2: %.200s", name,
                  why.text);
    return code;
}

/* Describes the open device in c if it takes more experts than *most. */
static void look_at(const struct device_module *module, struct device *d, unsigned ordinal,
                    const struct pool_map *map, const struct launch *l,
                    const struct device_spec *given, uint32_t *most, struct choice *c)
{
    struct device_facts facts;
    struct device_spec spec = *given;
    spec.ordinal = ordinal;
    struct device_plan plan;
    struct error e;
    char bytes[24];
    module->facts(d, &facts);
    if ((facts.exclusive && !l->options.mps && device_exclusive(&facts, ordinal, &e)) ||
        device_choice_fit(module, &facts, map, l, &spec, &plan, &e) ||
        try_to_share(module, d, facts.name, &e)) {
        if (!c->found)
            snprintf(c->reason, sizeof c->reason, "%.390s", e.text);
        return;
    }
    if (plan.n_slots <= *most)
        return;
    *most = plan.n_slots;
    c->found = 1;
    quantity_format_bytes(facts.free_bytes, bytes);
    snprintf(c->device, sizeof c->device, "cuda:%u%s", ordinal,
             spec.dense_on_host ? ",dense=host" : "");
    int n = snprintf(c->summary, sizeof c->summary, "%.120s, %s free, %.0f %% of the experts fit",
                     facts.name, bytes, 100 * (double)plan.n_slots / (double)plan.total_segments);
    if (!l->options.parallel && plan.kv_bytes && plan.kv_requests < DEFAULT_KV_REQUESTS)
        snprintf(c->summary + n, sizeof c->summary - (size_t)n,
                 ", the KV cache holds %" PRIu32 " request%s of a whole context", plan.kv_requests,
                 plan.kv_requests == 1 ? "" : "s");
}

static void look_at_all(const struct device_module *module, const struct pool_map *map,
                        const struct launch *l, const struct device_spec *given, struct choice *c)
{
    struct device *d;
    struct error e;
    uint32_t most = 0;
    enum error_code code = ERROR_OK;
    for (unsigned i = 0; i < DEVICES_MOST && code != ERROR_NOT_FOUND; i++) {
        code = module->open(i, DEVICE_COPIES, &d, &e);
        c->seen += code != ERROR_NOT_FOUND;
        if (!code) {
            look_at(module, d, i, map, l, given, &most, c);
            module->close(d);
        } else if (code != ERROR_NOT_FOUND && !c->found) { /* full, or too old */
            snprintf(c->reason, sizeof c->reason, "%.390s", e.text);
        }
    }
    if (!c->found && !c->reason[0])
        snprintf(c->reason, sizeof c->reason, "%.390s", e.text);
}

/* Runs look_at_all in a child. False: it did not report. */
static bool look_in_child(const struct device_module *module, const struct pool_map *map,
                          const struct launch *l, const struct device_spec *given, struct choice *c)
{
    int ends[2];
    if (pipe(ends) != 0)
        return false;
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        look_at_all(module, map, l, given, c);
        _exit(write(ends[1], c, sizeof *c) == (ssize_t)sizeof *c ? 0 : 1);
    }
    close(ends[1]);
    bool reported = child > 0 && read(ends[0], c, sizeof *c) == (ssize_t)sizeof *c;
    close(ends[0]);
    if (child > 0)
        waitpid(child, NULL, 0);
    return reported;
}

/* Chooses a GPU. given: what it is to leave free. Without one *c says why. */
static void find_gpu(const struct launch *l, const struct device_spec *given, struct choice *c)
{
    const struct device_module *module;
    struct read_model m;
    struct error e;
    uint64_t segment_bytes =
        l->options.segment_bytes ? l->options.segment_bytes : POOL_SEGMENT_BYTES;
    *c = (struct choice){0};
    if (device_module_load("cuda", &module, &e)) {
        snprintf(c->reason, sizeof c->reason, "%.390s", e.text);
        return;
    }
    if (model_reader_read(l->model, segment_bytes, &m, &e))
        return; /* launch_start reports it */
    struct pool_map map = pool_plan_map(&m.plan);
    if (!look_in_child(module, &map, l, given, c))
        *c = (struct choice){.seen = 1, .reason = "the driver ends the process that looks for one"};
    read_model_free(&m);
}

/* Makes --vram or --reserve (name) a part of *device, in `text`. Complains. */
static bool add_part(const char **device, const char *name, const char *value, char text[400])
{
    struct device_spec spec;
    struct error e;
    if (!value)
        return true;
    bool bare = strcmp(*device, "emu") == 0; /* no option yet */
    snprintf(text, 400, "%.300s%c%s=%.60s", *device, bare ? ':' : ',', name, value);
    if (strcmp(*device, "host") == 0) {
        cli_complain("--%s needs a device with memory of its own, --device host has none", name);
        return false;
    }
    if (device_parse(text, &spec, &e)) {
        cli_complain("--%s %s: %s", name, value, e.text);
        return false;
    }
    *device = text;
    return true;
}

static bool add_parts(const char **device, const struct device_parts *parts)
{
    static char with_vram[400], with_reserve[400];
    return add_part(device, "vram", parts->vram, with_vram) &&
           add_part(device, "reserve", parts->reserve, with_reserve);
}

/* A worker for each device, unless the user gave a number. Complains. */
static bool choose_workers(struct launch *l)
{
    struct device_spec spec;
    struct error e;
    if (!l->options.device ||
        device_parse(l->options.device, &spec, &e)) /* the processes refuse it in detail */
        return true;
    if (!l->options.workers && spec.n_devices > 1)
        l->options.workers = spec.n_devices;
    if (!l->options.workers || l->options.workers >= spec.n_devices)
        return true;
    cli_complain("--workers %u for %u devices: a device without a worker computes nothing",
                 (unsigned)l->options.workers, spec.n_devices);
    return false;
}

/* To the owner of a GPU. Without a reason the model cannot be read, which launch_start reports. */
static void say_why_host(const struct choice *c)
{
    bool here = c->seen || nvidia_gpu_exists("");
    if (here && !c->seen && !nvidia_gpu_has_driver(""))
        fprintf(stderr, "moed: uses the host: this machine has an NVIDIA GPU, but NVIDIA's driver "
                        "is not installed or not loaded\n");
    else if (here && c->reason[0])
        fprintf(stderr, "moed: uses the host: %s\n", c->reason);
}

/* No GPU was found: the option that needs one; NULL: the host will do. */
static const char *needs_gpu(const struct device_parts *parts)
{
    return parts->vram ? "vram" : parts->reserve ? "reserve" : NULL;
}

bool device_choice_read(const struct device_parts *parts, struct device_spec *out)
{
    const char *device = "cuda";
    struct error e;
    return add_parts(&device, parts) && !device_parse(device, out, &e);
}

/* Returns an exit code. */
static int choose_gpu(struct launch *l, const struct device_parts *parts)
{
    static struct choice c;
    struct device_spec given;
    const char *needs = needs_gpu(parts);
    if (!device_choice_read(&(struct device_parts){.reserve = parts->reserve}, &given))
        return CLI_USAGE;
    find_gpu(l, &given, &c);
    l->options.device = c.found ? c.device : NULL;
    if (c.found)
        fprintf(stderr, "moed: uses %s: %s (--device host: without it)\n", c.device, c.summary);
    else if (needs)
        cli_complain("--%s needs a GPU, and none can be used: %s", needs,
                     c.reason[0] ? c.reason : "the model cannot be read");
    else
        say_why_host(&c);
    return c.found || !needs ? CLI_OK : CLI_FAILURE;
}

int device_choice_make(struct launch *l, const struct device_parts *parts)
{
    bool given = l->options.device && l->options.device[0];
    int exit_code = given ? CLI_OK : choose_gpu(l, parts);
    if (!exit_code && (!add_parts(&l->options.device, parts) || !choose_workers(l)))
        exit_code = CLI_USAGE;
    return exit_code;
}
