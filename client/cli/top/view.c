/* The page of `moed top`; see view.h. */
#include "client/cli/top/view.h"

#include "base/quantity.h"
#include "base/utf8.h"
#include "client/cli/deployment.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LABEL_COLUMNS = 14, VALUE_COLUMNS = 30, MIN_BAR = 4 };

/* ---- Lines ---- */

static struct strbuf *new_line(struct view_page *page, enum view_style style)
{
    unsigned i = page->n < VIEW_LINES ? page->n++ : VIEW_LINES - 1;
    page->style[i] = style;
    return &page->text[i];
}

static void add_line(struct view_page *page, enum view_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add_line(struct view_page *page, enum view_style style, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    strbuf_append(new_line(page, style), text, strlen(text));
}

/* How many columns the text takes, where each character takes one. */
static int columns_of(const char *text, size_t len)
{
    int n = 0;
    for (size_t i = 0; i < len; i++)
        n += !utf8_continues(text[i]);
    return n;
}

/* Cuts a line to `width` columns, at a character's start. */
static void cut_line(struct strbuf *line, int width)
{
    size_t end = 0;
    int n = 0;
    if (!line->data || columns_of(line->data, line->len) <= width)
        return;
    while (end < line->len) {
        n += !utf8_continues(line->data[end]);
        if (n > width)
            break;
        end++;
    }
    line->len = end;
    line->data[end] = '\0';
}

/* A name that a model file or a person gave: without what a terminal would obey. */
static void clean_name(const struct view *v, const char *text, char out[64])
{
    snprintf(out, 64, "%s", text);
    size_t len = strlen(out);
    out[len - utf8_incomplete_tail(out, len)] = '\0';
    utf8_hide_controls(out, strlen(out), "");
    for (char *p = out; *p && !v->utf8; p++)
        *p = (unsigned char)*p < 0x80 ? *p : '?';
}

/* ---- Values ---- */

/* "12", "1.5"; "-" where it is not measured. */
static const char *count_text(double value, char out[24])
{
    snprintf(out, 24, isnan(value) ? "-" : "%.0f", value);
    return out;
}

static const char *rate_text(double value, char out[24])
{
    snprintf(out, 24, isnan(value) ? "-" : "%.1f", value);
    return out;
}

static const char *percent_text(double value, char out[24])
{
    snprintf(out, 24, isnan(value) ? "-" : "%.1f %%", 100 * value);
    return out;
}

static const char *bytes_text(double value, char out[24])
{
    if (isnan(value))
        snprintf(out, 24, "-");
    else
        quantity_format_bytes((uint64_t)value, out);
    return out;
}

static double seconds_between(const struct sample *now, const struct sample *before)
{
    return before ? now->at_s - before->at_s : 0;
}

/* Computed prompt tokens a second. */
static double prompt_rate(const struct sample *now, const struct sample *before)
{
    return before ? sample_rate(before->prompt_tokens, now->prompt_tokens,
                                seconds_between(now, before))
                  : NAN;
}

/* The share of all prompt tokens that the conversation cache had. moed_worker_prompt_tokens_total
 * counts the computed ones. */
static double cached_share(const struct sample *s)
{
    double all = s->prompt_tokens + s->cached_tokens;
    return all > 0 ? s->cached_tokens / all : NAN;
}

/* The cores that a process used since `before`; NaN: not known. */
static double cpu_share(const struct sample *now, const struct sample *before,
                        const struct sample_process *p)
{
    for (unsigned i = 0; before && i < before->n_processes; i++)
        if (before->processes[i].pid == p->pid && p->pid)
            return sample_rate(before->processes[i].cpu_s, p->cpu_s, seconds_between(now, before));
    return NAN;
}

/* ---- Bars ---- */

void view_bar(struct strbuf *out, double share, int columns, bool utf8)
{
    static const char *const eighths[] = {"",       "\u258f", "\u258e", "\u258d",
                                          "\u258c", "\u258b", "\u258a", "\u2589"};
    double clamped = share > 1 ? 1 : share > 0 ? share : 0; /* NaN: 0 */
    int steps = (int)(clamped * columns * 8 + 0.5);
    int full = utf8 ? steps / 8 : (int)(clamped * columns + 0.5);
    bool part = utf8 && steps % 8;
    for (int i = 0; i < full; i++)
        strbuf_printf(out, "%s", utf8 ? "\u2588" : "#");
    if (part)
        strbuf_printf(out, "%s", eighths[steps % 8]);
    for (int i = full + part; i < columns; i++)
        strbuf_printf(out, "%s", utf8 ? " " : ".");
}

/* "link          [####......]  41.0 %  1.20 GB/s" */
static void add_bar(const struct view *v, struct view_page *page, const char *label, double share,
                    const char *value)
{
    int columns = v->width - LABEL_COLUMNS - VALUE_COLUMNS - 3;
    struct strbuf *line = new_line(page, STYLE_PLAIN);
    strbuf_printf(line, "%-*s", LABEL_COLUMNS, label);
    if (columns >= MIN_BAR) {
        strbuf_printf(line, "[");
        view_bar(line, share, columns, v->utf8);
        strbuf_printf(line, "] ");
    }
    strbuf_printf(line, "%s", value);
}

static void add_share(const struct view *v, struct view_page *page, const char *label, double share,
                      const char *more)
{
    char percent[24], value[64];
    if (isnan(share))
        return;
    snprintf(value, sizeof value, "%7s%s%s", percent_text(share, percent), *more ? "  " : "", more);
    add_bar(v, page, label, share, value);
}

/* ---- Parts of the page ---- */

static void draw_title(const struct view *v, const struct sample *s, struct view_page *page)
{
    char name[64], model[64], place[48] = "";
    clean_name(v, s->name, name);
    clean_name(v, s->model, model);
    if (v->deployments > 1)
        snprintf(place, sizeof place, ", %u of %u deployments", v->chosen, v->deployments);
    add_line(page, s->n_processes ? STYLE_TITLE : STYLE_ALARM, "moed top: %s%s%s%s, %s%s%s", name,
             *model ? " (" : "", model, *model ? ")" : "",
             !s->n_processes ? "not running"
             : s->state[0]   ? s->state
                             : "without a supervisor",
             place, v->paused ? ", PAUSED" : "");
}

static void draw_requests(const struct sample *s, const struct sample *before,
                          struct view_page *page)
{
    char a[24], b[24], c[24], d[24];
    add_line(page, STYLE_PLAIN, "%-*s%s running, %s waiting, %s ended; %s clients", LABEL_COLUMNS,
             "requests", count_text(s->requests_running, a), count_text(s->requests_waiting, b),
             count_text(s->requests_ended, c), count_text(s->clients, d));
    add_line(page, STYLE_PLAIN, "%-*s%s generated, %s of prompts", LABEL_COLUMNS, "tokens/s",
             rate_text(s->tokens_per_s, a), rate_text(prompt_rate(s, before), b));
}

static void draw_conversations(const struct view *v, const struct sample *s, struct view_page *page)
{
    char used[24], all[24], value[64];
    double total = s->kv_used_bytes + s->kv_free_bytes;
    if (total > 0) {
        snprintf(value, sizeof value, "%s of %s", bytes_text(s->kv_used_bytes, used),
                 bytes_text(total, all));
        add_bar(v, page, "conversations", s->kv_used_bytes / total, value);
    }
    add_share(v, page, "prompt cache", cached_share(s), "of prompt tokens");
}

static void draw_cache(const struct view *v, const struct sample *s, struct view_page *page)
{
    char bytes[24], rate[40] = "";
    add_share(v, page, "expert cache", s->hit_rate, "hit rate");
    if (!isnan(s->link_bytes_per_s))
        snprintf(rate, sizeof rate, "%s/s", bytes_text(s->link_bytes_per_s, bytes));
    add_share(v, page, "link busy", s->link_busy, rate);
    add_share(v, page, "device busy", s->device_busy, "");
    add_share(v, page, "CPU busy", s->cpu_busy, "");
}

/* "device memory 1.1 GB dense, 9.5 GB experts", without parts that there are not. */
static void draw_device_memory(const struct sample *s, struct view_page *page)
{
    struct strbuf parts;
    strbuf_init(&parts);
    if (s->has_device_memory)
        deployment_device_text(&s->device_memory, "dense", &parts);
    if (parts.len)
        add_line(page, STYLE_PLAIN, "%-*s%s", LABEL_COLUMNS, "device memory", parts.data);
    strbuf_fini(&parts);
}

static void draw_tier(const struct view *v, const struct sample *s, struct view_page *page)
{
    char bytes[24], rate[40] = "";
    if (!isnan(s->disk_bytes_per_s))
        snprintf(rate, sizeof rate, "disk %s/s", bytes_text(s->disk_bytes_per_s, bytes));
    add_share(v, page, "memory hits", s->memory_hit_rate, rate);
    add_share(v, page, "disk wait", s->disk_wait, "of decode time");
}

static void draw_places(const struct view *v, const struct sample *s, struct view_page *page)
{
    struct sample_places p = sample_places(s);
    char more[48];
    if (isnan(p.host))
        return;
    snprintf(more, sizeof more, "%.0f experts", s->experts);
    if (!isnan(p.device))
        add_share(v, page, "on device", p.device, "of the experts");
    add_share(v, page, "in memory", p.host, more);
    if (p.file > 0)
        add_share(v, page, "in file only", p.file, "");
    draw_tier(v, s, page);
    draw_device_memory(s, page);
}

/* ---- Processes ---- */

struct row {
    const struct sample_process *p;
    double cpu;
};

static enum view_sort sort_key; /* qsort has no argument of its own */

static double key_of(const struct row *r)
{
    double key = sort_key == SORT_MEMORY     ? r->p->memory_bytes
                 : sort_key == SORT_CPU      ? r->cpu
                 : sort_key == SORT_RESTARTS ? r->p->restarts
                                             : 0;
    return isnan(key) ? -1 : key;
}

static int compare_rows(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    if (sort_key == SORT_NAME)
        return strcmp(x->p->name, y->p->name);
    double left = key_of(x), right = key_of(y);
    if (left != right)
        return left < right ? 1 : -1;
    return x->p < y->p ? -1 : x->p > y->p; /* in the order of the supervisor */
}

static void draw_row(const struct row *r, struct view_page *page)
{
    char pid[24] = "-", uptime[24] = "-", restarts[24], memory[24], cpu[24];
    const struct sample_process *p = r->p;
    if (p->pid)
        snprintf(pid, sizeof pid, "%d", (int)p->pid);
    if (p->pid)
        deployment_format_uptime(p->uptime_ms, uptime);
    percent_text(r->cpu, cpu);
    add_line(page, strcmp(p->state, "ready") ? STYLE_ALARM : STYLE_PLAIN,
             "%-9s %8s  %-8s %8s %9s %9s %9s", p->name, pid, p->state, uptime,
             count_text(p->restarts, restarts), bytes_text(p->memory_bytes, memory), cpu);
}

static void draw_processes(const struct view *v, const struct sample *s,
                           const struct sample *before, struct view_page *page)
{
    struct row rows[SAMPLE_PROCESSES];
    for (unsigned i = 0; i < s->n_processes; i++)
        rows[i] = (struct row){&s->processes[i], cpu_share(s, before, &s->processes[i])};
    sort_key = v->sort;
    qsort(rows, s->n_processes, sizeof *rows, compare_rows);
    add_line(page, STYLE_HEAD, "%-9s %8s  %-8s %8s %9s %9s %9s", "PROCESS", "PID", "STATE",
             "UPTIME", "RESTARTS", "MEMORY", "CPU");
    for (unsigned i = 0; i < s->n_processes; i++)
        draw_row(&rows[i], page);
}

const char *view_sort_name(enum view_sort sort)
{
    static const char *const names[] = {"start", "memory", "CPU", "restarts", "name"};
    return sort < SORT_KEYS ? names[sort] : "";
}

static void draw_help(const struct view *v, struct view_page *page)
{
    static const char *const lines[] = {
        "q, F10    quit",
        "s         sort the processes: start, memory, CPU, restarts, name",
        "p, space  pause, and go on",
        "d, Tab    the next deployment; D: the one before; 1 to 9: that one",
        "+, -      look more often, less often",
        "?, h      this page",
        "",
        "Expert cache, link, device, CPU, disk: the last 5 seconds; tokens/s: at most 10.",
        "A process's memory includes what it shares with the others.",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        add_line(page, STYLE_PLAIN, "%s", lines[i]);
}

static void draw_body(const struct view *v, const struct sample *s, const struct sample *before,
                      struct view_page *page)
{
    draw_requests(s, before, page);
    draw_conversations(v, s, page);
    draw_cache(v, s, page);
    draw_places(v, s, page);
    add_line(page, STYLE_PLAIN, "%s", "");
    draw_processes(v, s, before, page);
}

static void draw_keys(const struct view *v, struct view_page *page)
{
    while (v->height && page->n + 1 < (unsigned)v->height && page->n + 1 < VIEW_LINES)
        add_line(page, STYLE_PLAIN, "%s", "");
    if (v->height && page->n >= (unsigned)v->height)
        page->n = (unsigned)v->height - 1;
    if (page->n < VIEW_LINES)
        strbuf_clear(&page->text[page->n]); /* a line that did not fit */
    add_line(page, STYLE_HEAD, "q quit  s sort: %s  p %s  d deployment  +/- every %g s  ? help",
             view_sort_name(v->sort), v->paused ? "go on" : "pause", v->interval_s);
}

static void begin_page(struct view_page *page)
{
    for (unsigned i = 0; i < VIEW_LINES; i++)
        strbuf_init(&page->text[i]);
    page->n = 0;
}

void view_draw_experts(const struct view *v, const struct sample *now, struct view_page *out)
{
    begin_page(out);
    draw_cache(v, now, out);
    draw_places(v, now, out);
}

void view_draw(const struct view *v, const struct sample *now, const struct sample *before,
               struct view_page *out)
{
    begin_page(out);
    draw_title(v, now, out);
    if (v->help)
        draw_help(v, out);
    else if (now->n_processes)
        draw_body(v, now, before, out);
    if (v->keys)
        draw_keys(v, out);
    for (unsigned i = 0; i < out->n; i++)
        cut_line(&out->text[i], v->width);
}

void view_fini(struct view_page *page)
{
    for (unsigned i = 0; i < VIEW_LINES; i++)
        strbuf_fini(&page->text[i]);
}

/* ---- JSON ---- */

static void number_json(struct strbuf *out, const char *key, double value)
{
    if (!isnan(value))
        strbuf_printf(out, ", \"%s\": %.10g", key, value);
}

static void device_memory_json(struct strbuf *out, const struct sample *s)
{
    const Moed__V1__DeviceMemory *m = &s->device_memory;
    if (!s->has_device_memory)
        return;
    number_json(out, "device_dense_bytes", (double)m->dense_bytes);
    number_json(out, "device_expert_bytes", (double)m->expert_bytes);
    number_json(out, "device_kv_bytes", (double)m->kv_bytes);
    number_json(out, "device_scratch_bytes", (double)m->scratch_bytes);
}

static void text_json(struct strbuf *out, const char *key, const char *value)
{
    strbuf_printf(out, "\"%s\": ", key);
    strbuf_json_string(out, value, strlen(value));
}

static void process_json(struct strbuf *out, const struct sample *now, const struct sample *before,
                         unsigned i)
{
    const struct sample_process *p = &now->processes[i];
    strbuf_printf(out, "%s\n    {", i ? "," : "");
    text_json(out, "process", p->name);
    strbuf_printf(out, ", \"pid\": %d, ", (int)p->pid);
    text_json(out, "state", p->state);
    number_json(out, "uptime_s", (double)p->uptime_ms * 1e-3);
    number_json(out, "restarts", p->restarts);
    number_json(out, "memory_bytes", p->memory_bytes);
    number_json(out, "cpu_s", p->cpu_s);
    number_json(out, "cpu_share", cpu_share(now, before, p));
    strbuf_printf(out, "}");
}

void view_json(const struct sample *now, const struct sample *before, struct strbuf *out)
{
    struct sample_places places = sample_places(now);
    strbuf_printf(out, "{");
    text_json(out, "name", now->name);
    strbuf_printf(out, ", ");
    text_json(out, "state", now->state);
    strbuf_printf(out, ", ");
    text_json(out, "model", now->model);
    number_json(out, "requests_running", now->requests_running);
    number_json(out, "requests_waiting", now->requests_waiting);
    number_json(out, "requests_ended", now->requests_ended);
    number_json(out, "clients", now->clients);
    number_json(out, "tokens_per_s", now->tokens_per_s);
    number_json(out, "generated_tokens", now->generated_tokens);
    number_json(out, "prompt_tokens", now->prompt_tokens);
    number_json(out, "cached_prompt_tokens", now->cached_tokens);
    number_json(out, "prompt_tokens_per_s", prompt_rate(now, before));
    number_json(out, "prompt_cache_share", cached_share(now));
    number_json(out, "kv_used_bytes", now->kv_used_bytes);
    number_json(out, "kv_free_bytes", now->kv_free_bytes);
    number_json(out, "kv_tokens", now->kv_tokens);
    number_json(out, "hit_rate", now->hit_rate);
    number_json(out, "prediction_precision", now->precision);
    number_json(out, "link_bytes_per_s", now->link_bytes_per_s);
    number_json(out, "link_busy_share", now->link_busy);
    number_json(out, "device_busy_share", now->device_busy);
    number_json(out, "cpu_busy_share", now->cpu_busy);
    number_json(out, "memory_hit_rate", now->memory_hit_rate);
    number_json(out, "disk_bytes_per_s", now->disk_bytes_per_s);
    number_json(out, "decode_disk_wait_share", now->disk_wait);
    device_memory_json(out, now);
    number_json(out, "experts", now->experts);
    number_json(out, "experts_on_device_share", places.device);
    number_json(out, "experts_in_memory_share", places.host);
    number_json(out, "experts_in_file_only_share", places.file);
    strbuf_printf(out, ", \"processes\": [");
    for (unsigned i = 0; i < now->n_processes; i++)
        process_json(out, now, before, i);
    strbuf_printf(out, "\n]}\n");
}
