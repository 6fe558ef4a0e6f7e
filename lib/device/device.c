/* Parsing of --device; see device.h. */
#include "device/device.h"

#include "base/quantity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES                                                                                    \
    "host, emu:vram=SIZE,link=RATE[,latency=TIME][,speed=FACTOR][,call=TIME], "                    \
    "cuda[:N][,vram=SIZE][,reserve=SIZE][,dense=host]"

/* Slots have the largest segment's size. So if segments differ, all experts take more than 100 %.
 */
#define VRAM_SHARE_MAX 10.0
#define LATENCY_MAX_S  1.0
#define CALL_MAX_S     0.01
#define RATE_MIN       1e3 /* bytes a second: slower, a segment takes hours */
#define RATE_MAX       1e15
#define ORDINAL_DIGITS 3
/* Assumptions for a CUDA device until they are measured: a PCIe 3.0 slot of 16 lanes, and a small
 * copy's way through the driver. */
#define CUDA_LINK_BYTES_PER_S 12e9
#define CUDA_LINK_LATENCY_S   10e-6

static const struct quantity_unit rate_units[] = {
    {"", 1}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {NULL, 0}};
static const struct quantity_unit time_units[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {NULL, 0}};
static const struct quantity_unit no_units[] = {{"", 1}, {NULL, 0}};

/* The value of one option. */
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
    return quantity_parse_size(v.text, v.len, &s->vram_bytes) && s->vram_bytes > 0;
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

static bool set_dense(struct device_spec *s, struct value v)
{
    s->dense_on_host = v.len == 4 && memcmp(v.text, "host", 4) == 0;
    return s->dense_on_host;
}

static bool set_reserve(struct device_spec *s, struct value v)
{
    s->reserve_set = quantity_parse_size(v.text, v.len, &s->reserve_bytes);
    return s->reserve_set;
}

static bool set_call(struct device_spec *s, struct value v)
{
    return quantity_parse(v.text, v.len, time_units, &s->call_s) && s->call_s <= CALL_MAX_S;
}

static bool set_devices(struct device_spec *s, struct value v)
{
    s->n_devices = v.len == 1 ? (unsigned)(*v.text - '0') : 0;
    return s->n_devices >= 1 && s->n_devices <= DEVICES_MAX;
}

struct option {
    const char *name;
    bool (*set)(struct device_spec *s, struct value v);
    const char *takes;
    bool required;
};

#define VRAM_TAKES QUANTITY_SIZE " or a share of the routed experts, as 25%"
static const struct option emu_options[] = {
    {"vram", set_vram, VRAM_TAKES, true},
    {"link", set_link, "bytes a second (K, M, G), at least 1K", true},
    {"latency", set_latency, "a time with us, ms or s, at most 1s", false},
    {"speed", set_speed, "a factor above 0, at most 1", false},
    {"call", set_call, "a time with us, ms or s, at most 10ms", false},
    {"devices", set_devices, "a number from 1 to 8", false},
    {0},
};
static const struct option cuda_options[] = {{"vram", set_vram, VRAM_TAKES, false},
                                             {"reserve", set_reserve, QUANTITY_SIZE, false},
                                             {"dense", set_dense, "host", false},
                                             {0}};

/* A kind of device and its options. */
struct form {
    const char *name;
    const struct option *options;
    const char *takes; /* their names */
};
static const struct form emu = {"emu", emu_options, "vram, link, latency, speed, call, devices"};
static const struct form cuda = {"cuda", cuda_options,
                                 "vram, reserve and dense, after the device's number"};

static enum error_code parse_option(const struct form *f, const char *text, size_t len,
                                    unsigned *seen, struct device_spec *s, struct error *e)
{
    const char *equals = memchr(text, '=', len);
    size_t name_len = equals ? (size_t)(equals - text) : len;
    for (unsigned i = 0; f->options[i].name; i++) {
        const struct option *o = &f->options[i];
        if (strlen(o->name) != name_len || memcmp(o->name, text, name_len) != 0)
            continue;
        if (*seen & 1u << i)
            return error_set(e, ERROR_USAGE, "device %s: %s is given twice", f->name, o->name);
        *seen |= 1u << i;
        struct value v = {text + name_len + 1, equals ? len - name_len - 1 : 0};
        if (!equals || !o->set(s, v))
            return error_set(e, ERROR_USAGE, "device %s: %s is not %s: '%.*s'", f->name, o->name,
                             o->takes, equals ? (int)(v.len < 40 ? v.len : 40) : 0,
                             equals ? v.text : "");
        return ERROR_OK;
    }
    return error_set(e, ERROR_USAGE, "device %s: no option '%.*s'; it takes %s", f->name,
                     (int)(name_len < 40 ? name_len : 40), text, f->takes);
}

/* text: empty, or ":name=value,..." */
static enum error_code parse_options(const struct form *f, const char *text, struct device_spec *s,
                                     struct error *e)
{
    unsigned seen = 0;
    while (*text) { /* at the ':' or a ',' */
        text++;
        size_t len = strcspn(text, ",");
        enum error_code code = parse_option(f, text, len, &seen, s, e);
        if (code)
            return code;
        text += len;
    }
    for (unsigned i = 0; f->options[i].name; i++)
        if (f->options[i].required && !(seen & 1u << i))
            return error_set(e, ERROR_USAGE, "device %s: %s is missing (%s); the form is " DEVICES,
                             f->name, f->options[i].name, f->options[i].takes);
    return ERROR_OK;
}

/* Digits of a device's number behind ':', or behind ',' where it is not the first; 0: there is
 * none.
 */
static size_t ordinal_digits(const char *text, bool first)
{
    return *text == (first ? ':' : ',') ? strspn(text + 1, "0123456789") : 0;
}

/* text: the rest after the name: "", ":N", ":N,N", ":N,vram=...", ",vram=...", ":vram=..." */
static enum error_code parse_cuda(const char *text, struct device_spec *s, struct error *e)
{
    unsigned n = 0;
    for (size_t digits; (digits = ordinal_digits(text, n == 0)); text += 1 + digits) {
        if (digits > ORDINAL_DIGITS)
            return error_set(e, ERROR_USAGE,
                             "device cuda: no device has a number as large as %.20s", text + 1);
        unsigned ordinal = (unsigned)strtoul(text + 1, NULL, 10);
        if (n == DEVICES_MAX)
            return error_set(e, ERROR_USAGE, "device cuda: a deployment has at most %d devices",
                             DEVICES_MAX);
        for (unsigned i = 0; i < n; i++)
            if (s->ordinals[i] == ordinal)
                return error_set(e, ERROR_USAGE, "device cuda: device %u is given twice", ordinal);
        s->ordinals[n++] = ordinal;
        if (text[1 + digits] && text[1 + digits] != ',')
            return error_set(e, ERROR_USAGE, "device cuda: '%.20s' after the device's number",
                             text + 1 + digits);
    }
    s->n_devices = n ? n : 1;
    s->ordinal = s->ordinals[0];
    return parse_options(&cuda, text, s, e);
}

static bool is_device(const char *text, const char *name)
{
    size_t n = strlen(name);
    return strncmp(text, name, n) == 0 && (text[n] == 0 || text[n] == ':');
}

enum error_code device_parse(const char *text, struct device_spec *out, struct error *e)
{
    if (strcmp(text, "host") == 0) {
        *out = (struct device_spec){.kind = DEVICE_HOST};
        return ERROR_OK;
    }
    struct device_spec s;
    enum error_code code;
    if (is_device(text, "emu")) {
        s = (struct device_spec){
            .kind = DEVICE_EMU, .link_latency_s = 10e-6, .speed = 1, .n_devices = 1};
        code = parse_options(&emu, text + 3, &s, e);
    } else if (is_device(text, "cuda") || strncmp(text, "cuda,", 5) == 0) {
        s = (struct device_spec){.kind = DEVICE_CUDA,
                                 .link_bytes_per_s = CUDA_LINK_BYTES_PER_S,
                                 .link_latency_s = CUDA_LINK_LATENCY_S,
                                 .speed = 1};
        code = parse_cuda(text + 4, &s, e);
    } else {
        return error_set(e, ERROR_UNSUPPORTED, "device '%.40s' is not known; there is: " DEVICES,
                         text);
    }
    if (!code)
        *out = s;
    return code;
}

struct device_spec device_of(const struct device_spec *s, unsigned index)
{
    struct device_spec one = *s;
    one.n_devices = 1;
    one.ordinal = one.ordinals[0] = s->ordinals[index];
    return one;
}

enum error_code device_parse_vram(const char *text, struct device_spec *s, struct error *e)
{
    struct device_spec new = *s;
    new.vram_bytes = 0;
    new.vram_share = 0;
    if (!set_vram(&new, (struct value){text, strlen(text)}))
        return error_set(e, ERROR_USAGE, "vram is not %s: '%.40s'", VRAM_TAKES, text);
    *s = new;
    return ERROR_OK;
}

uint64_t device_arena_bytes(const struct device_spec *s, uint64_t expert_bytes)
{
    if (s->vram_bytes)
        return s->vram_bytes;
    double bytes = s->vram_share * (double)expert_bytes;
    if (s->vram_share > 0 && bytes < 1)
        return 1;
    return bytes < 0x1p63 ? (uint64_t)llround(bytes) : UINT64_MAX;
}

unsigned device_cores(const struct device_spec *s, unsigned cores)
{
    if (s->kind != DEVICE_EMU)
        return 0;
    return cores > 1 ? cores / 2 : 1;
}

unsigned device_spinners(const struct device_spec *s, unsigned cores)
{
    if (s->kind != DEVICE_CUDA || cores < 4)
        return 0;
    return cores < 8 ? 1 : 2;
}

void device_poison(void *memory, size_t bytes)
{
    memset(memory, DEVICE_POISON, bytes);
}
