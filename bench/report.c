/* Medians, the machine's description, the table and the JSON; see report.h. */
#include "report.h"

#include "base/sort_doubles.h"
#include "base/strbuf.h"
#include "daemon/program_find.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct spread {
    double median, lowest, highest;
};

void samples_add(struct samples *s, double value)
{
    if (s->n < MAX_RUNS)
        s->values[s->n++] = value;
}

static struct spread spread_of(const struct samples *s)
{
    double sorted[MAX_RUNS];
    if (s->n == 0)
        return (struct spread){0};
    memcpy(sorted, s->values, s->n * sizeof *sorted);
    sort_doubles(sorted, s->n);
    double middle = (sorted[(s->n - 1) / 2] + sorted[s->n / 2]) / 2;
    return (struct spread){middle, sorted[0], sorted[s->n - 1]};
}

static double bytes_a_token(const struct report *r)
{
    return (double)(r->dense_bytes_a_token + r->expert_bytes_a_token);
}

/* Whether each decoded token read its weights from host memory: a device has memory of its own,
 * streams share experts, and a step with right drafts gives several tokens. */
static bool reads_memory(const struct report *r, const struct row *row)
{
    return r->on_host && row->streams == 1 && row->decode.n && !row->drafts_accepted;
}

/* ---- The machine ---- */

/* The value behind "key : " in a file of /proc. */
static void read_proc(const char *path, const char *key, char out[128])
{
    char line[512];
    FILE *f = fopen(path, "re");
    snprintf(out, 128, "unknown");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key)) != 0)
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(out, 128, "%.*s", (int)strcspn(colon, "\n"), colon);
        break;
    }
    if (f)
        fclose(f);
}

/* The present commit of moed's sources where this program lies in their build folder, else empty.
 */
static void read_commit(char out[64])
{
    char folder[PATH_MAX], command[PATH_MAX + 128];
    struct error e;
    out[0] = '\0';
    if (program_find("moed-bench", NULL, folder, &e))
        return;
    *strrchr(folder, '/') = '\0';
    if (strchr(folder, '\''))
        return;
    snprintf(command, sizeof command,
             "exec 2>/dev/null; cd '%s/' && git cat-file -e HEAD:bench/moed_bench.c && git "
             "describe --always --dirty",
             folder);
    FILE *f = popen(command, "re");
    if (!f)
        return;
    if (fgets(out, 64, f))
        out[strcspn(out, "\n")] = '\0';
    pclose(f);
}

struct machine {
    char cpu[128], memory[128], commit[64];
    long cores;
};

static void describe_machine(struct machine *m)
{
    read_proc("/proc/cpuinfo", "model name", m->cpu);
    read_proc("/proc/meminfo", "MemTotal", m->memory);
    snprintf(m->memory, sizeof m->memory, "%.0f", strtod(m->memory, NULL) * 1024e-9);
    read_commit(m->commit);
    m->cores = sysconf(_SC_NPROCESSORS_ONLN);
}

/* ---- The table ---- */

/* "12.3 (11.9-12.4)"; a dash where nothing was measured. */
static void print_cell(FILE *out, const struct samples *s, double scale)
{
    struct spread v = spread_of(s);
    if (s->n)
        fprintf(out, " %.1f (%.1f-%.1f) |", v.median * scale, v.lowest * scale, v.highest * scale);
    else
        fprintf(out, " - |");
}

void report_print_head(FILE *out)
{
    fprintf(out, "| model | size | streams | prompt tokens | prefill tokens/s | decode tokens/s | "
                 "weights GB/s | memory GB/s | weights / memory |\n"
                 "|---|---:|---:|---:|---:|---:|---:|---:|---:|\n");
    fflush(out);
}

void report_print_row(const struct report *r, const struct row *row, FILE *out)
{
    fprintf(out, "| %s | %.2f GB | %" PRIu32 " | %" PRIu32 " |", r->name,
            (double)r->file_bytes * 1e-9, row->streams, row->prompt_tokens);
    print_cell(out, &row->prefill, 1);
    print_cell(out, &row->decode, 1);
    if (!reads_memory(r, row)) {
        fprintf(out, " - | - | - |\n");
        fflush(out);
        return;
    }
    double weights = spread_of(&row->decode).median * bytes_a_token(r);
    double memory = spread_of(&r->read_bandwidth).median;
    fprintf(out, " %.2f |", weights * 1e-9);
    print_cell(out, &r->read_bandwidth, 1e-9);
    fprintf(out, " %.0f %% |\n", 100 * weights / memory);
    fflush(out);
}

void report_print_foot(const struct report *r, FILE *out)
{
    struct machine m;
    describe_machine(&m);
    fprintf(out,
            "\n%s, %ld cores, %s GB of memory; %" PRIu32 " threads; moed " MOED_VERSION
            "%s%s. `%s`: median of %" PRIu32 " runs (lowest-highest), %" PRIu32
            " tokens decoded after each prompt. Decoding one token reads %.0f MB of weights: %.0f "
            "MB of experts, %.0f MB of the rest. Memory: read by as many threads, between the "
            "runs.\n",
            m.cpu, m.cores, m.memory, r->threads, m.commit[0] ? ", commit " : "", m.commit,
            r->command, r->runs, r->generate, bytes_a_token(r) * 1e-6,
            (double)r->expert_bytes_a_token * 1e-6, (double)r->dense_bytes_a_token * 1e-6);
}

/* ---- JSON ---- */

static void append_text(struct strbuf *b, const char *key, const char *value)
{
    strbuf_printf(b, "\"%s\": ", key);
    strbuf_json_string(b, value, strlen(value));
    strbuf_printf(b, ", ");
}

static void append_samples(struct strbuf *b, const char *key, const struct samples *s)
{
    struct spread v = spread_of(s);
    if (s->n)
        strbuf_printf(b, "\"%s\": {\"median\": %.6g, \"lowest\": %.6g, \"highest\": %.6g}", key,
                      v.median, v.lowest, v.highest);
    else
        strbuf_printf(b, "\"%s\": null", key);
}

static void append_row(struct strbuf *b, const struct report *r, const struct row *row)
{
    strbuf_printf(b, "{\"streams\": %" PRIu32 ", \"prompt_tokens\": %" PRIu32 ", ", row->streams,
                  row->prompt_tokens);
    append_samples(b, "prefill_tokens_per_s", &row->prefill);
    strbuf_printf(b, ", ");
    append_samples(b, "decode_tokens_per_s", &row->decode);
    if (reads_memory(r, row))
        strbuf_printf(b, ", \"decode_weight_bytes_per_s\": %.6g",
                      spread_of(&row->decode).median * bytes_a_token(r));
    strbuf_printf(b, "}");
}

void report_print_json(const struct report *r, FILE *out)
{
    struct machine m;
    struct strbuf b;
    describe_machine(&m);
    strbuf_init(&b);
    strbuf_printf(&b, "{");
    append_text(&b, "model", r->name);
    append_text(&b, "path", r->path);
    append_text(&b, "cpu", m.cpu);
    append_text(&b, "version", MOED_VERSION);
    append_text(&b, "commit", m.commit);
    append_text(&b, "command", r->command);
    strbuf_printf(&b,
                  "\"cores\": %ld, \"threads\": %" PRIu32 ", \"runs\": %" PRIu32
                  ", \"generate\": %" PRIu32 ", \"file_bytes\": %" PRIu64
                  ", \"expert_bytes_per_token\": %" PRIu64 ", \"dense_bytes_per_token\": %" PRIu64
                  ", ",
                  m.cores, r->threads, r->runs, r->generate, r->file_bytes, r->expert_bytes_a_token,
                  r->dense_bytes_a_token);
    append_samples(&b, "memory_read_bytes_per_s", &r->read_bandwidth);
    strbuf_printf(&b, ", \"rows\": [");
    for (uint32_t i = 0; i < r->n_rows; i++) {
        strbuf_printf(&b, i ? ", " : "");
        append_row(&b, r, &r->rows[i]);
    }
    strbuf_printf(&b, "]}\n");
    if (!b.failed)
        fwrite(b.data, 1, b.len, out);
    strbuf_fini(&b);
}
