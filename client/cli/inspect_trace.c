/* moed inspect TRACE: what a routing trace holds, and how evenly its layers use their experts. */
#include "client/cli/inspect.h"

#include "base/strbuf.h"
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/fold.h"
#include "trace/trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* How a layer uses its experts. */
struct usage {
    double top_tenth; /* the share of choices that go to the tenth of experts that have the most */
    double entropy;   /* of the experts' shares, in bits; log2 of their number: all the same */
    uint32_t unused;
    double kept; /* the share of a token's experts that the token before it had too */
};

struct totals {
    uint64_t prompt_tokens, hidden_tokens;
    uint32_t longest;
};

static int most_first(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

static struct usage usage_of(uint64_t *counts, uint32_t n, uint64_t again, uint64_t followed)
{
    struct usage u = {.kept = followed ? (double)again / (double)followed : 0};
    uint64_t total = 0, top = 0;
    qsort(counts, n, sizeof *counts, most_first);
    for (uint32_t i = 0; i < n; i++)
        total += counts[i];
    for (uint32_t i = 0; i < n; i++) {
        double share = total ? (double)counts[i] / (double)total : 0;
        u.entropy -= share > 0 ? share * log2(share) : 0;
        u.unused += counts[i] == 0;
        top += i < (n + 9) / 10 ? counts[i] : 0;
    }
    u.top_tenth = total ? (double)top / (double)total : 0;
    return u;
}

/* seen: [n_experts], when the expert was chosen last: the token's number from 1, over all
 * sequences. */
static struct usage count_layer(const struct trace *t, uint32_t layer, uint64_t *counts,
                                uint64_t *seen, uint32_t *selected)
{
    const struct trace_shape *s = trace_shape(t);
    uint64_t number = 0, again = 0, followed = 0;
    memset(counts, 0, s->n_experts * sizeof *counts);
    memset(seen, 0, s->n_experts * sizeof *seen);
    for (uint32_t q = 0; q < trace_sequences(t); q++)
        for (uint32_t i = 0; i < trace_sequence(t, q)->n_tokens; i++) {
            number++;
            trace_selected(t, q, i, layer, selected);
            for (uint32_t k = 0; k < s->n_used; k++) {
                again += i > 0 && seen[selected[k]] == number - 1;
                seen[selected[k]] = number;
                counts[selected[k]]++;
            }
            followed += i > 0 ? s->n_used : 0;
        }
    return usage_of(counts, s->n_experts, again, followed);
}

static bool count_layers(const struct trace *t, struct usage *usage)
{
    const struct trace_shape *s = trace_shape(t);
    uint64_t *counts = malloc(s->n_experts * sizeof *counts);
    uint64_t *seen = malloc(s->n_experts * sizeof *seen);
    uint32_t *selected = malloc(s->n_used * sizeof *selected);
    bool ok = counts && seen && selected;
    for (uint32_t l = s->first_layer; ok && l < s->n_layers; l++)
        usage[l] = count_layer(t, l, counts, seen, selected);
    free(counts);
    free(seen);
    free(selected);
    return ok;
}

static struct totals count_sequences(const struct trace *t)
{
    struct totals n = {0};
    for (uint32_t q = 0; q < trace_sequences(t); q++) {
        const struct trace_sequence *s = trace_sequence(t, q);
        uint32_t n_hidden;
        trace_hidden_tokens(t, q, &n_hidden);
        n.hidden_tokens += n_hidden;
        n.prompt_tokens += s->n_prompt;
        n.longest = s->n_tokens > n.longest ? s->n_tokens : n.longest;
    }
    return n;
}

static uint64_t expert_bytes(const struct trace *t)
{
    const struct trace_shape *s = trace_shape(t);
    uint64_t bytes = 0;
    for (uint32_t l = s->first_layer; l < s->n_layers; l++)
        bytes += s->n_experts * trace_layer(t, l)->n_segments * trace_layer(t, l)->segment_bytes;
    return bytes;
}

/* ---- for people ---- */

static void print_part(const char *name, uint64_t bytes)
{
    if (!bytes)
        return;
    fold_printf("  %-13s ", name);
    inspect_print_bytes(bytes);
    fold_printf("\n");
}

static void print_model(const struct trace *t)
{
    const struct trace_shape *s = trace_shape(t);
    const struct trace_layer *l = trace_layer(t, s->first_layer);
    fold_printf("trace of        %s\n", s->model[0] ? s->model : "a model without a name");
    fold_printf("layers          %" PRIu32, s->n_layers);
    if (s->first_layer)
        fold_printf(", the first %" PRIu32 " without experts", s->first_layer);
    fold_printf("\nexperts         %" PRIu32 " a layer, %" PRIu32 " for a token; d_model %" PRIu32
                "; router %s\n",
                s->n_experts, s->n_used, s->d_model, inspect_router_name(s->router.kind));
    fold_printf("one expert      ");
    inspect_print_bytes(l->n_segments * l->segment_bytes);
    fold_printf(" in %" PRIu32 " segment%s; all ", l->n_segments, l->n_segments == 1 ? "" : "s");
    inspect_print_bytes(expert_bytes(t));
    fold_printf("; in addition a token reads ");
    inspect_print_bytes(s->dense_bytes);
    fold_printf("\n");
}

static void print_sizes(const struct trace *t)
{
    struct totals n = count_sequences(t);
    struct trace_part_bytes parts = trace_part_bytes(t);
    fold_printf("sequences       %" PRIu32 " of %" PRIu64 " tokens, %" PRIu64
                " of them prompts'; the longest has %" PRIu32 "\n",
                trace_sequences(t), trace_tokens(t), n.prompt_tokens, n.longest);
    fold_printf("embeddings      of %" PRIu32 " distinct tokens\n", trace_embeddings(t));
    fold_printf("gate inputs     of %" PRIu64 " tokens\n", n.hidden_tokens);
    fold_printf("in the file\n");
    print_part("token ids", parts.tokens);
    print_part("choices", parts.selected);
    print_part("probabilities", parts.gate);
    print_part("gate inputs", parts.hidden);
    print_part("embeddings", parts.embeddings);
    print_part("routers", parts.routers);
}

static void print_usage(const struct trace *t, const struct usage *usage)
{
    const struct trace_shape *s = trace_shape(t);
    fold_printf("\n%5s %16s %14s %8s %18s\n", "layer", "top tenth's part", "entropy, bits",
                "unused", "as the token before");
    for (uint32_t l = s->first_layer; l < s->n_layers; l++)
        fold_printf("%5" PRIu32 " %14.1f %% %6.2f of %4.2f %8" PRIu32 " %17.1f %%\n", l,
                    100 * usage[l].top_tenth, usage[l].entropy, log2(s->n_experts), usage[l].unused,
                    100 * usage[l].kept);
}

/* ---- for programs ---- */

static void number(struct strbuf *b, const char *key, uint64_t value)
{
    strbuf_printf(b, ", \"%s\": %" PRIu64, key, value);
}

static void add_layers(struct strbuf *b, const struct trace *t, const struct usage *usage)
{
    const struct trace_shape *s = trace_shape(t);
    strbuf_printf(b, ", \"usage\": [");
    for (uint32_t l = s->first_layer; l < s->n_layers; l++)
        strbuf_printf(b,
                      "%s{\"layer\": %" PRIu32 ", \"top_tenth\": %.6f, \"entropy_bits\": %.6f, "
                      "\"unused\": %" PRIu32 ", \"kept\": %.6f}",
                      l > s->first_layer ? ", " : "", l, usage[l].top_tenth, usage[l].entropy,
                      usage[l].unused, usage[l].kept);
    strbuf_printf(b, "]");
}

static bool print_json(const struct trace *t, const struct usage *usage)
{
    const struct trace_shape *s = trace_shape(t);
    struct totals n = count_sequences(t);
    struct trace_part_bytes parts = trace_part_bytes(t);
    struct strbuf b;
    strbuf_init(&b);
    strbuf_printf(&b, "{\"model\": ");
    strbuf_json_string(&b, s->model, strlen(s->model));
    number(&b, "layers", s->n_layers);
    number(&b, "dense_layers", s->first_layer);
    number(&b, "experts", s->n_experts);
    number(&b, "experts_used", s->n_used);
    number(&b, "d_model", s->d_model);
    strbuf_printf(&b, ", \"router\": \"%s\"", inspect_router_name(s->router.kind));
    number(&b, "expert_bytes", expert_bytes(t));
    number(&b, "dense_bytes", s->dense_bytes);
    number(&b, "sequences", trace_sequences(t));
    number(&b, "tokens", trace_tokens(t));
    number(&b, "prompt_tokens", n.prompt_tokens);
    number(&b, "hidden_tokens", n.hidden_tokens);
    number(&b, "embeddings", trace_embeddings(t));
    number(&b, "token_bytes", parts.tokens);
    number(&b, "selected_bytes", parts.selected);
    number(&b, "gate_bytes", parts.gate);
    number(&b, "hidden_bytes", parts.hidden);
    number(&b, "embedding_bytes", parts.embeddings);
    number(&b, "router_bytes", parts.routers);
    add_layers(&b, t, usage);
    strbuf_printf(&b, "}\n");
    bool ok = !b.failed && ask_print(b.data, b.len);
    strbuf_fini(&b);
    return ok;
}

/* ---- the verb ---- */

static bool show(const struct trace *t, bool json)
{
    struct usage *usage = calloc(trace_shape(t)->n_layers, sizeof *usage);
    bool ok = usage && count_layers(t, usage);
    if (!ok)
        cli_complain("no memory to count the experts' use");
    else if (json)
        ok = print_json(t, usage);
    else {
        print_model(t);
        print_sizes(t);
        print_usage(t, usage);
    }
    free(usage);
    return ok;
}

static bool show_sequence(const struct trace *t, const char *number)
{
    char *end;
    unsigned long n = strtoul(number, &end, 10);
    if (end == number || *end || *number == '-' || n >= trace_sequences(t)) {
        cli_complain("inspect: --sequence %.40s: the trace has sequences 0 to %" PRIu32, number,
                     trace_sequences(t) - 1);
        return false;
    }
    const struct trace_sequence *s = trace_sequence(t, (uint32_t)n);
    for (uint32_t i = 0; i < s->n_tokens; i++)
        printf("%s%" PRIu32, i ? "," : "", s->tokens[i]);
    printf("\n");
    return true;
}

int inspect_trace(const char *path, const char *sequence, bool json)
{
    struct trace *t;
    struct error e;
    if (trace_open(path, &t, &e)) {
        cli_complain("%s", e.text);
        return CLI_FAILURE;
    }
    bool ok = sequence ? show_sequence(t, sequence) : show(t, json);
    trace_close(t);
    return ok ? CLI_OK : CLI_FAILURE;
}
