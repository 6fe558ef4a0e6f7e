/* Finds and parses machine files; see machine.h. machine_costs.c computes costs from them.
 *
 * A file has one `key = value unit` a line; # starts a comment. Every key must occur exactly once.
 */
#include "bench/replay/machine.h"

#include "bench/replay/machine_files.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FILE_BYTES = 65536 };

/* ---- The keys ---- */

struct unit {
    const char *text;
    double factor;
};

struct dimension {
    const char *units; /* for messages */
    struct unit table[6];
};

static const struct dimension rates = {
    "B/s, MB/s, GB/s, TB/s", {{"B/s", 1}, {"MB/s", 1e6}, {"GB/s", 1e9}, {"TB/s", 1e12}, {NULL, 0}}};
static const struct dimension flops = {"GFLOP/s, TFLOP/s",
                                       {{"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}, {NULL, 0}}};
static const struct dimension times = {
    "s, ms, us, ns", {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {NULL, 0}}};
static const struct dimension sizes = {
    "B, MB, GB, MiB, GiB",
    {{"B", 1}, {"MB", 1e6}, {"GB", 1e9}, {"MiB", 1048576}, {"GiB", 1073741824}, {NULL, 0}}};

struct key {
    const char *name;
    const struct dimension *dimension; /* NULL: a text */
    size_t offset, size;               /* of the member; size: of a text */
    double least, most;                /* in units of one */
};

#define NUMBER(text, d, member, least, most)                                                       \
    {                                                                                              \
        text, &(d), offsetof(struct machine, member), 0, least, most                               \
    }
#define TEXT(text, member)                                                                         \
    {                                                                                              \
        text, NULL, offsetof(struct machine, member), sizeof((struct machine *)NULL)->member, 0, 0 \
    }
static const struct key keys[] = {
    TEXT("name", name),
    TEXT("what", what),
    NUMBER("dram", rates, dram_bytes_per_s, 1e6, 1e14),
    NUMBER("cpu", rates, cpu_bytes_per_s, 1e6, 1e14),
    NUMBER("cpu-compute", flops, cpu_flop_per_s, 1e6, 1e18),
    NUMBER("cpu-call", times, cpu_call_s, 0, 1),
    NUMBER("link", rates, link_bytes_per_s, 1e6, 1e14),
    NUMBER("link-latency", times, link_latency_s, 0, 1),
    NUMBER("device", rates, device_bytes_per_s, 1e6, 1e14),
    NUMBER("device-compute", flops, device_flop_per_s, 1e6, 1e18),
    NUMBER("device-call", times, device_call_s, 0, 1),
    NUMBER("plan-expert", times, plan_expert_s, 0, 1),
    NUMBER("predict-call", times, predict_call_s, 0, 1),
    NUMBER("predict-gate", times, predict_gate_s, 0, 1),
    NUMBER("attention", times, attention_s, 0, 10),
    NUMBER("vram", sizes, vram_bytes, 1e6, 1e15),
    NUMBER("ram", sizes, ram_bytes, 1e6, 1e15),
};
enum { N_KEYS = sizeof keys / sizeof *keys };

static void list_keys(char *out, size_t size)
{
    out[0] = '\0';
    for (int i = 0; i < N_KEYS; i++) {
        size_t at = strlen(out);
        snprintf(out + at, size - at, "%s%s", i ? ", " : "", keys[i].name);
    }
}

/* ---- A line ---- */

/* The position of the parser; every message begins with it. */
struct place {
    const char *path;
    unsigned line;
};

static enum error_code set_text(const struct place *at, const struct key *key, const char *value,
                                struct machine *m, struct error *e)
{
    size_t n = strlen(value);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)value[i] < 0x20 || value[i] == 0x7f)
            return error_set(e, ERROR_FORMAT, "%s:%u: %s: has a control character", at->path,
                             at->line, key->name);
    if (n == 0 || n >= key->size)
        return error_set(e, ERROR_FORMAT, "%s:%u: %s: a text of 1 to %zu bytes is allowed",
                         at->path, at->line, key->name, key->size - 1);
    memcpy((char *)m + key->offset, value, n + 1);
    return ERROR_OK;
}

static double unit_factor(const struct dimension *d, const char *text)
{
    for (const struct unit *u = d->table; u->text; u++)
        if (strcmp(u->text, text) == 0)
            return u->factor;
    return 0;
}

static enum error_code set_number(const struct place *at, const struct key *key, const char *value,
                                  struct machine *m, struct error *e)
{
    char *end;
    errno = 0;
    double number = strtod(value, &end);
    bool plain = isdigit((unsigned char)value[0]) && end != value && isfinite(number) &&
                 value[strspn(value, "0123456789.e+-")] != 'x';
    while (*end == ' ' || *end == '\t')
        end++;
    double factor = plain ? unit_factor(key->dimension, end) : 0;
    if (factor == 0)
        return error_set(e, ERROR_FORMAT,
                         "%s:%u: %s: %.60s is not a number with a unit; allowed units: %s",
                         at->path, at->line, key->name, value[0] ? value : "an empty value",
                         key->dimension->units);
    double x = number * factor;
    if (!(x >= key->least && x <= key->most))
        return error_set(e, ERROR_FORMAT,
                         "%s:%u: %s: %.60s is out of range: %g to %g %s are allowed", at->path,
                         at->line, key->name, value, key->least / factor, key->most / factor, end);
    if (key->dimension == &sizes) {
        uint64_t bytes = (uint64_t)(x + 0.5);
        memcpy((char *)m + key->offset, &bytes, sizeof bytes);
    } else
        memcpy((char *)m + key->offset, &x, sizeof x);
    return ERROR_OK;
}

static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t n = strlen(text);
    while (n && isspace((unsigned char)text[n - 1]))
        text[--n] = '\0';
    return text;
}

static enum error_code read_line(const struct place *at, char *line, struct machine *m,
                                 bool seen[N_KEYS], struct error *e)
{
    line[strcspn(line, "#")] = '\0';
    char *name = trim(line), *equals = strchr(name, '=');
    if (!*name)
        return ERROR_OK;
    if (!equals)
        return error_set(e, ERROR_FORMAT, "%s:%u: %.60s: only `key = value` lines are allowed",
                         at->path, at->line, name);
    *equals = '\0';
    name = trim(name);
    const char *value = trim(equals + 1);
    for (int i = 0; i < N_KEYS; i++) {
        if (strcmp(keys[i].name, name) != 0)
            continue;
        if (seen[i])
            return error_set(e, ERROR_FORMAT, "%s:%u: %s: the key occurs twice; once is allowed",
                             at->path, at->line, name);
        seen[i] = true;
        return keys[i].dimension ? set_number(at, &keys[i], value, m, e)
                                 : set_text(at, &keys[i], value, m, e);
    }
    char all[256];
    list_keys(all, sizeof all);
    return error_set(e, ERROR_FORMAT, "%s:%u: there is no key %.60s; allowed: %s", at->path,
                     at->line, name, all);
}

/* ---- A file ---- */

static enum error_code check_whole(const char *path, unsigned lines, const struct machine *m,
                                   const bool seen[N_KEYS], struct error *e)
{
    for (int i = 0; i < N_KEYS; i++)
        if (!seen[i])
            return error_set(e, ERROR_FORMAT, "%s:%u: the key %s is missing; allowed: %s", path,
                             lines, keys[i].name,
                             keys[i].dimension ? keys[i].dimension->units : "a text");
    if (m->cpu_bytes_per_s > m->dram_bytes_per_s)
        return error_set(e, ERROR_FORMAT,
                         "%s:%u: cpu: %g GB/s is more than dram; at most %g GB/s is allowed", path,
                         lines, m->cpu_bytes_per_s * 1e-9, m->dram_bytes_per_s * 1e-9);
    return ERROR_OK;
}

enum error_code machine_parse(const char *text, const char *path, struct machine *out,
                              struct error *e)
{
    struct machine m = {0};
    bool seen[N_KEYS] = {0};
    struct place at = {path, 0};
    while (*text) {
        char line[512];
        size_t n = strcspn(text, "\n");
        at.line++;
        if (n >= sizeof line)
            return error_set(e, ERROR_FORMAT, "%s:%u: the line is too long; %zu bytes are allowed",
                             path, at.line, sizeof line - 1);
        memcpy(line, text, n);
        line[n] = '\0';
        enum error_code code = read_line(&at, line, &m, seen, e);
        if (code)
            return code;
        text += n + (text[n] == '\n');
    }
    enum error_code code = check_whole(path, at.line, &m, seen, e);
    if (!code)
        *out = m;
    return code;
}

static enum error_code read_machine(const char *path, struct machine *out, struct error *e)
{
    FILE *f = fopen(path, "re");
    if (!f && errno == ENOENT)
        return error_set(e, ERROR_NOT_FOUND, "%.200s is neither a file nor a built-in machine (%s)",
                         path, machine_names());
    if (!f)
        return error_set(e, ERROR_IO, "%.200s: %m", path);
    enum error_code code = ERROR_OK;
    char *text = malloc(MOST_FILE_BYTES + 1);
    size_t n = text ? fread(text, 1, MOST_FILE_BYTES + 1, f) : 0;
    if (!text)
        code = error_set(e, ERROR_MEMORY, "%.200s: out of memory", path);
    else if (ferror(f))
        code = error_set(e, ERROR_IO, "%.200s: %m", path);
    else if (n > MOST_FILE_BYTES || memchr(text, '\0', n))
        code = error_set(e, ERROR_FORMAT, "%.200s: this is not a machine file", path);
    else {
        text[n] = '\0';
        code = machine_parse(text, path, out, e);
    }
    free(text);
    fclose(f);
    return code;
}

enum error_code machine_find(const char *name, struct machine *out, struct error *e)
{
    for (const struct machine_file *f = machine_files; f->name; f++)
        if (strcmp(f->name, name) == 0)
            return machine_parse(f->text, f->name, out, e);
    return read_machine(name, out, e);
}

const char *machine_names(void)
{
    static char names[1024];
    if (!names[0])
        for (const struct machine_file *f = machine_files; f->name; f++) {
            size_t at = strlen(names);
            snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "", f->name);
        }
    return names;
}
