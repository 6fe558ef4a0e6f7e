/* moed devices: the GPUs of this machine, and what of a model would fit on each. */
#include "base/quantity.h"
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/device_choice.h"
#include "client/cli/model_file.h"
#include "daemon/supervisor_protocol.h"
#include "gguf/gguf.h"
#include "model/kv_type.h"
#include "model/pool_plan.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first line of a file below a device's folder in sysfs; "": there is none. */
static void read_attribute(const char *pci, const char *name, char out[64])
{
    char path[160], lower[24];
    size_t n = 0;
    for (; pci[n] && n < sizeof lower - 1; n++)
        lower[n] = (char)tolower((unsigned char)pci[n]);
    lower[n] = '\0';
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/%s", lower, name);
    out[0] = '\0';
    FILE *f = fopen(path, "re");
    if (!f)
        return;
    if (!fgets(out, 64, f))
        out[0] = '\0';
    fclose(f);
    out[strcspn(out, "\n")] = '\0';
}

/* The link that the slot and the device can have. It may be slower while the device is idle, so the
 * current speed says little. Data a second: PCIe 3.0 and later send 128 bits as 130, and the
 * packets' headers take some more. */
static void print_link(const char *pci)
{
    char speed[64], width[64];
    read_attribute(pci, "max_link_speed", speed);
    read_attribute(pci, "max_link_width", width);
    double transfers = atof(speed), lanes = atof(width);
    if (transfers > 0 && lanes > 0)
        printf("         PCIe %.0f GT/s, %.0f lanes: at most %.1f GB/s\n", transfers, lanes,
               transfers * lanes / 8 * (transfers > 5 ? 128.0 / 130 : 0.8));
    else
        printf("         link not known\n");
}

/* What the options give. */
struct given {
    const struct launch *launch;
    struct device_spec device;
};

static void print_fit(const struct device_module *module, const struct device_facts *facts,
                      unsigned ordinal, const struct pool_map *map, const struct given *given)
{
    struct device_spec spec = given->device;
    struct device_plan plan;
    struct error e;
    char dense[24], kv[24], experts[24];
    spec.ordinal = ordinal;
    if (device_choice_fit(module, facts, map, given->launch, &spec, &plan, &e)) {
        printf("         does not fit: %s\n", e.text);
        return;
    }
    quantity_format_bytes(plan.dense_bytes, dense);
    quantity_format_bytes(plan.kv_bytes, kv);
    quantity_format_bytes(device_share_slots_bytes(&plan), experts);
    printf("         fits: %s of experts, %.0f %% of them", experts,
           100 * (double)plan.n_slots / (double)plan.total_segments);
    if (plan.dense_bytes)
        printf("; %s dense weights, %s KV cache\n", dense, kv);
    else
        printf("; the dense part is computed on the host\n");
}

/* Prints every device; map NULL: no model. Returns an exit code. */
static int print_devices(const struct device_module *module, const struct pool_map *map,
                         const struct given *given)
{
    struct device *d;
    struct error e;
    unsigned opened = 0;
    for (unsigned n = 0; n < DEVICES_MOST; n++) {
        enum error_code code = module->open(n, DEVICE_COPIES, &d, &e);
        if (code == ERROR_NOT_FOUND || (code && !opened && n)) /* the driver's fault: no device's */
            break;
        if (code) { /* full, or too old */
            fprintf(stderr, "moed: cuda:%u: %s\n", n, e.text);
            continue;
        }
        opened++;
        struct device_facts facts;
        char free_bytes[24], memory[24];
        module->facts(d, &facts);
        quantity_format_bytes(facts.free_bytes, free_bytes);
        quantity_format_bytes(facts.memory_bytes, memory);
        printf("cuda:%-3u %s, %s of %s free, %u multiprocessors, %s\n", n, facts.name, free_bytes,
               memory, facts.multiprocessors, facts.version);
        print_link(facts.pci);
        printf("         %s%s\n", facts.mode, facts.display ? "; drives a display" : "");
        if (facts.exclusive && device_exclusive(&facts, n, &e))
            fprintf(stderr, "moed: %s\n", e.text);
        if (map)
            print_fit(module, &facts, n, map, given);
        module->close(d);
    }
    if (!opened && e.code == ERROR_NOT_FOUND)
        fprintf(stderr, "moed: %s\n", e.text);
    return opened ? CLI_OK : CLI_FAILURE;
}

static int devices_of_model(const struct device_module *module, const struct given *given)
{
    struct gguf *g;
    struct pool_plan plan;
    struct error e;
    enum error_code code = gguf_open(given->launch->model, &g, &e);
    if (code) {
        cli_complain("%s", e.text);
        return CLI_FAILURE;
    }
    int result = CLI_FAILURE;
    code = pool_plan_new(g, &plan, &e);
    if (code) {
        cli_complain("%s", e.text);
    } else {
        struct pool_map map = pool_plan_map(&plan);
        result = print_devices(module, &map, given);
        pool_plan_free(&plan);
    }
    gguf_close(g);
    return result;
}

int devices_main(int argc, char **argv)
{
    static char model[PATH_MAX];
    struct launch *l = calloc(1, sizeof *l); /* large */
    if (!l)
        return CLI_FAILURE;
    launch_init(l);
    struct device_parts parts = {0};
    struct given given = {.launch = l};
    struct deployment_options *o = &l->options;
    static const char help[] = "as of `moed up`";
    const struct option_spec table[] = {
        deployment_options_spec("ctx", o, help),
        deployment_options_spec("parallel", o, help),
        deployment_options_spec("kv-type", o, help),
        deployment_options_spec("batch", o, help),
        deployment_options_spec("workers", o, help),
        deployment_options_spec("reproducible", o, help),
        {"vram", OPTION_STRING, &parts.vram, 0, 0, "SIZE", help},
        {"reserve", OPTION_STRING, &parts.reserve, 0, 0, "SIZE", help},
        {0},
    };
    int n, exit_code;
    const struct device_module *module;
    struct error e;
    if (ask_arguments(table, "devices", "[MODEL] [OPTION]...",
                      "Lists the GPUs that moed can use: their memory and link, and how much of\n"
                      "MODEL would fit with these options of `moed up`.",
                      argc, argv, 0, 1, &n, &exit_code)) {
        l->model = model;
        if (!device_choice_read(&parts, &given.device)) {
            exit_code = CLI_USAGE;
        } else if (device_module_load("cuda", &module, &e)) {
            cli_complain("%s", e.text);
            exit_code = CLI_FAILURE;
        } else if (n && !model_file_find(argv[1], model)) {
            exit_code = CLI_FAILURE;
        } else {
            exit_code = n ? devices_of_model(module, &given) : print_devices(module, NULL, &given);
        }
    }
    free(l);
    return exit_code;
}
