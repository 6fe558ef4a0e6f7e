/* moed map: prints what memd holds, and where in the host pool; with --experts where the experts
 * are. */
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/deployment.h"
#include "client/state/placement_map.h"
#include "daemon/control.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#define MAP_TIMEOUT_MS 5000

static void print_device(const Moed__V1__DeviceMemory *m)
{
    struct strbuf parts;
    strbuf_init(&parts);
    deployment_device_text(m, "dense weights", &parts);
    if (!parts.failed)
        printf("device %s: %s\n", m->device, parts.data);
    strbuf_fini(&parts);
}

static void print_entry(const Moed__V1__MemoryMapEntry *entry)
{
    char offset[24] = "-"; /* experts that memd loads and evicts */
    if (entry->offset)
        snprintf(offset, sizeof offset, "%" PRIu64, entry->offset);
    printf("%14s %12" PRIu64 "  %-5s %7" PRIu32 " x %-6" PRIu32 " %s", offset, entry->bytes,
           entry->type, entry->rows, entry->cols, entry->name);
    if (entry->experts)
        printf(" (%" PRIu32 " experts of %" PRIu32 " segment%s)", entry->experts, entry->segments,
               entry->segments == 1 ? "" : "s");
    printf("\n");
}

/* Prints entries from *first on and moves *first past them. *generation and *total come from memd.
 */
static enum error_code print_some(const char *run, uint32_t *first, uint32_t *total,
                                  uint64_t *generation, struct error *e)
{
    Moed__V1__MemoryMapRequest map = MOED__V1__MEMORY_MAP_REQUEST__INIT;
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    Moed__V1__Reply *reply;
    map.first = *first;
    request.body_case = MOED__V1__REQUEST__BODY_MEMORY_MAP;
    request.memory_map = &map;
    enum error_code code = control_call(run, "memd", &request, MOED__V1__REPLY__BODY_MEMORY_MAP,
                                        MAP_TIMEOUT_MS, &reply, e);
    if (code)
        return code;
    const Moed__V1__MemoryMapReply *got = reply->memory_map;
    if (*first == 0) {
        printf("generation %" PRIu64 "\n", got->generation);
        if (got->device)
            print_device(got->device);
        printf("%14s %12s  %-5s %16s %s\n", "offset", "bytes", "type", "rows x columns", "name");
    } else if (got->generation != *generation)
        code = error_set(e, ERROR_UNAVAILABLE, "memd has loaded the model again: try again");
    else if (got->n_entries == 0)
        code = error_set(e, ERROR_PROTOCOL, "memd gave no more entries after %" PRIu32, *first);
    for (size_t i = 0; !code && i < got->n_entries; i++)
        print_entry(got->entries[i]);
    *generation = got->generation;
    *total = got->total;
    *first += (uint32_t)got->n_entries;
    moed__v1__reply__free_unpacked(reply, NULL);
    return code;
}

static enum error_code print_tables(const char *run, struct error *e)
{
    uint32_t first = 0, total = 1;
    uint64_t generation = 0;
    enum error_code code = ERROR_OK;
    while (!code && first < total)
        code = print_some(run, &first, &total, &generation, e);
    return code;
}

static void append_count(struct strbuf *out, uint32_t count)
{
    strbuf_printf(out, " %9" PRIu32, count);
}

/* Experts at each place, and those that were activated lately, in cells [first, first + n). */
static void append_counts(const struct placement_map *m, uint32_t first, uint32_t n,
                          struct strbuf *out)
{
    uint32_t at[MOED__V1__EXPERT_PLACE__ON_DEVICE + 1] = {0}, used = 0;
    for (uint32_t i = first; i < first + n; i++) {
        if (m->now.place[i] < sizeof at / sizeof *at)
            at[m->now.place[i]]++;
        used += m->now.use[i] > 0;
    }
    for (size_t place = sizeof at / sizeof *at; place-- > 0;)
        append_count(out, at[place]);
    append_count(out, used);
    strbuf_printf(out, "\n");
}

static void append_expert_table(const struct placement_map *m, struct strbuf *out)
{
    strbuf_printf(out, "%s: %" PRIu32 " experts a layer, %" PRIu32 " for a token%s%s\n", m->model,
                  m->experts, m->experts_used, *m->policy ? "; policy " : "", m->policy);
    strbuf_printf(out, "%6s %9s %9s %9s %9s %9s %9s\n", "layer", "device", "partly", "arriving",
                  "memory", "file", "used");
    for (uint32_t row = 0; row < m->n_layers; row++) {
        strbuf_printf(out, "%6" PRIu32, m->layers[row]);
        append_counts(m, row * m->experts, m->experts, out);
    }
    strbuf_printf(out, "%6s", "all");
    append_counts(m, 0, m->n_cells, out);
}

/* The worker counts activations only while it is asked, so this asks once a second. */
static enum error_code print_placement_map(const char *name, const char *run, bool json,
                                           uint64_t seconds, struct error *e)
{
    struct placement_map map;
    struct strbuf text;
    placement_map_init(&map);
    strbuf_init(&text);
    enum error_code code = placement_map_fetch(&map, run, e);
    for (uint64_t i = 0; i < seconds && !code; i++) {
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
        code = placement_map_fetch(&map, run, e);
    }
    if (!code) {
        if (json) {
            placement_map_json(&map, name ? name : "default", &text);
            strbuf_printf(&text, "\n");
        } else {
            append_expert_table(&map, &text);
        }
        if (text.failed)
            code = error_set(e, ERROR_MEMORY, "no memory for the text");
        else
            fputs(text.data, stdout);
    }
    strbuf_fini(&text);
    placement_map_fini(&map);
    return code;
}

int map_main(int argc, char **argv)
{
    const char *name = NULL;
    bool json = false, experts = false;
    uint64_t seconds = 1;
    const struct option_spec table[] = {
        {"name", OPTION_STRING, &name, 0, 0, "NAME", "select a deployment (default: default)"},
        {"experts", OPTION_BOOL, &experts, 0, 0, NULL,
         "print where each layer's experts are and how many were used lately"},
        {"json", OPTION_BOOL, &json, 0, 0, NULL,
         "the same as JSON, each expert; also without --experts"},
        {"seconds", OPTION_UINT, &seconds, 0, 3600, "S",
         "of experts: count activations for S seconds first"},
        {0},
    };
    int n, exit_code;
    if (!ask_arguments(
            table, "map", "[--name NAME] [--experts] [--json]",
            "Prints each dense tensor and each layer's experts that memd holds, with offset\n"
            "in the host pool, bytes and type; and what the device's memory is used for.\n"
            "With --experts: how many of each layer's experts are completely, partly, and\n"
            "soon on the device, in host memory and in the file only, and how many were used\n"
            "lately.\n"
            "With --json: the place of each expert, the object of moed-http's /moed/map.",
            argc, argv, 0, 0, &n, &exit_code))
        return exit_code;
    char run[RUN_DIR_BYTES];
    if (!deployment_choose(&name, &exit_code) || !deployment_find_running(name, run, &exit_code))
        return exit_code;
    struct error e = {0};
    if (json || experts ? print_placement_map(name, run, json, seconds, &e)
                        : print_tables(run, &e)) {
        cli_complain("map: %s", e.text);
        return CLI_FAILURE;
    }
    return CLI_OK;
}
