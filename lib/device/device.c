/* Choosing the device; see device.h. */
#include "device/device.h"

#include "base/quantity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES "host, emu:vram=SIZE,link=RATE[,latency=TIME][,speed=FACTOR]"

/* Slots are of the largest segment's size, so all experts of a model whose segments differ take
 * more than 100 %. */
#define VRAM_SHARE_MAX 10.0
#define LATENCY_MAX_S  1.0
#define RATE_MIN       1e3 /* bytes a second: below, a segment takes hours */
#define RATE_MAX       1e15

static const struct quantity_unit rate_units[] = {
    {"", 1}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {NULL, 0}};
static const struct quantity_unit time_units[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {NULL, 0}};
static const struct quantity_unit no_units[] = {{"", 1}, {NULL, 0}};

/* One option of emu. */
struct value {
    const char *text;
    size_t len;
};

static bool set_vram(struct device_spec *s, struct value v)
{
    double x;
    if (quantity_parse(v.text, v.len, quantity_percent, &x)) {
        s->vram_share = x;
        return x > 0 && x <= VRAM_SHARE_MAX;
    }
    if (!quantity_parse(v.text, v.len, quantity_sizes, &x) || x < 1 || x > 0x1p60)
        return false;
    s->vram_bytes = (uint64_t)x;
    return true;
}

static bool set_link(struct device_spec *s, struct value v)
{
    return quantity_parse(v.text, v.len, rate_units, &s->link_bytes_per_s) &&
           s->link_bytes_per_s >= RATE_MIN && s->link_bytes_per_s <= RATE_MAX;
}

static bool set_latency(struct device_spec *s, struct value v)
{
    return quantity_parse(v.text, v.len, time_units, &s->link_latency_s) &&
           s->link_latency_s <= LATENCY_MAX_S;
}

static bool set_speed(struct device_spec *s, struct value v)
{
    return quantity_parse(v.text, v.len, no_units, &s->speed) && s->speed > 0 && s->speed <= 1;
}

static const struct emu_option {
    const char *name;
    bool (*set)(struct device_spec *s, struct value v);
    const char *takes;
    bool required;
} emu_options[] = {
    {"vram", set_vram, "bytes (K, M, G, T, Ki, Mi, Gi) or a share of the routed experts, as 25%",
     true},
    {"link", set_link, "bytes a second (K, M, G), at least 1K", true},
    {"latency", set_latency, "a time with us, ms or s, at most 1s", false},
    {"speed", set_speed, "a factor above 0, at most 1", false},
};
enum { N_EMU_OPTIONS = sizeof emu_options / sizeof *emu_options };

static enum error_code parse_emu_option(const char *text, size_t len, unsigned *seen,
                                        struct device_spec *s, struct error *e)
{
    const char *equals = memchr(text, '=', len);
    size_t name_len = equals ? (size_t)(equals - text) : len;
    for (unsigned i = 0; i < N_EMU_OPTIONS; i++) {
        const struct emu_option *o = &emu_options[i];
        if (strlen(o->name) != name_len || memcmp(o->name, text, name_len) != 0)
            continue;
        if (*seen & 1u << i)
            return error_set(e, ERROR_USAGE, "device emu: %s is given twice", o->name);
        *seen |= 1u << i;
        struct value v = {text + name_len + 1, equals ? len - name_len - 1 : 0};
        if (!equals || !o->set(s, v))
            return error_set(e, ERROR_USAGE, "device emu: %s is not %s: '%.*s'", o->name, o->takes,
                             equals ? (int)(v.len < 40 ? v.len : 40) : 0, equals ? v.text : "");
        return ERROR_OK;
    }
    return error_set(e, ERROR_USAGE,
                     "device emu: no option '%.*s'; it takes vram, link, latency, speed",
                     (int)(name_len < 40 ? name_len : 40), text);
}

/* text: what stands after "emu", empty or ":name=value,..." */
static enum error_code parse_emu(const char *text, struct device_spec *s, struct error *e)
{
    unsigned seen = 0;
    while (*text) { /* at the ':' or a ',' */
        text++;
        size_t len = strcspn(text, ",");
        enum error_code code = parse_emu_option(text, len, &seen, s, e);
        if (code)
            return code;
        text += len;
    }
    for (unsigned i = 0; i < N_EMU_OPTIONS; i++)
        if (emu_options[i].required && !(seen & 1u << i))
            return error_set(e, ERROR_USAGE, "device emu: %s is missing (%s); the form is " DEVICES,
                             emu_options[i].name, emu_options[i].takes);
    return ERROR_OK;
}

enum error_code device_parse(const char *text, struct device_spec *out, struct error *e)
{
    if (strcmp(text, "host") == 0) {
        *out = (struct device_spec){.kind = DEVICE_HOST};
        return ERROR_OK;
    }
    if (strncmp(text, "emu", 3) == 0 && (text[3] == 0 || text[3] == ':')) {
        struct device_spec s = {.kind = DEVICE_EMU, .link_latency_s = 10e-6, .speed = 1};
        enum error_code code = parse_emu(text + 3, &s, e);
        if (!code)
            *out = s;
        return code;
    }
    return error_set(e, ERROR_UNSUPPORTED,
                     "device '%.40s' is not in this build; there is: " DEVICES, text);
}

uint64_t device_arena_bytes(const struct device_spec *s, uint64_t expert_bytes)
{
    if (s->kind == DEVICE_HOST)
        return 0;
    if (s->vram_bytes)
        return s->vram_bytes;
    double bytes = s->vram_share * (double)expert_bytes;
    return bytes < 0x1p63 ? (uint64_t)llround(bytes) : UINT64_MAX;
}

unsigned device_cores(const struct device_spec *s, unsigned cores)
{
    if (s->kind != DEVICE_EMU)
        return 0;
    return cores > 1 ? cores / 2 : 1;
}

void device_poison(void *memory, size_t bytes)
{
    memset(memory, 0xff, bytes);
}
