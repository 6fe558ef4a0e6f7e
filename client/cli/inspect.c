/* moed inspect MODEL.gguf: what a model file is, and what it would need. No deployment is needed. */
#include "commands.h"

#include "base/machine_memory.h"
#include "base/strbuf.h"
#include "daemon/options.h"
#include "gguf/gguf.h"
#include "model/memory_need.h"
#include "model/pool_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct inspect {
    bool tensors, json;
    struct gguf *g;
    struct pool_plan plan;
};

/* Types of the routed experts' matrices, with how many layers have each. */
static void print_expert_types(const struct inspect *x)
{
    const struct pool_header *h = &x->plan.header;
    const char *last = NULL;
    printf("expert types    ");
    for (uint32_t layer = h->params.n_dense; layer < h->n_layers; layer++) {
        const struct pool_slabs *s = &x->plan.slabs[layer];
        char types[64];
        snprintf(types, sizeof types, "%s/%s/%s", tensor_type_info(s->gate_type)->name,
                 tensor_type_info(s->up_type)->name, tensor_type_info(s->down_type)->name);
        static char shown[64];
        if (last && strcmp(shown, types) == 0)
            continue;
        printf("%s%s from layer %" PRIu32, last ? ", " : "", types, layer);
        snprintf(shown, sizeof shown, "%s", types);
        last = shown;
    }
    printf(" (gate/up/down)\n");
}

static void print_params(const struct inspect *x)
{
    const struct pool_header *h = &x->plan.header;
    const struct model_params *p = &h->params;
    printf("file            %s (GGUF %" PRIu32 ", %" PRIu32 " file%s, %.2f GB)\n", h->path,
           gguf_version(x->g), gguf_file_count(x->g), gguf_file_count(x->g) == 1 ? "" : "s",
           (double)h->file_bytes * 1e-9);
    printf("name            %s\n", p->name);
    printf("architecture    %s\n", h->arch);
    printf("parameters      %.2f billion\n", (double)h->parameters * 1e-9);
    printf("layers          %" PRIu32, p->n_layers);
    if (p->n_dense)
        printf(", the first %" PRIu32 " dense, width %" PRIu32, p->n_dense, p->d_dense);
    printf("\n");
    printf("hidden          %" PRIu32 "\n", p->d_model);
    printf("heads           %" PRIu32 " of %" PRIu32 ", %" PRIu32 " for keys and values\n",
           p->n_heads, p->k_dim, p->n_kv_heads);
    printf("context         %" PRIu32 " tokens in training\n", p->context_trained);
    printf("vocabulary      %" PRIu32 "\n", p->vocab);
    printf("experts         %" PRIu32 " a layer, %" PRIu32 " a token, width %" PRIu32 "\n",
           p->n_experts, p->n_used, p->d_expert);
    if (p->d_shared)
        printf("shared expert   width %" PRIu32 "\n", p->d_shared);
    print_expert_types(x);
}

static void print_needs(const struct inspect *x)
{
    const struct pool_header *h = &x->plan.header;
    const struct pool_slabs *s = &x->plan.slabs[h->params.n_dense]; /* the first with experts */
    uint64_t kv = memory_kv_bytes_a_token(&h->params);
    uint64_t available = memory_available_bytes();
    printf("one expert      %.2f MB in %" PRIu32 " segment%s of %.2f MB\n",
           (double)s->slab_bytes * 1e-6, s->n_segments, s->n_segments == 1 ? "" : "s",
           (double)s->segment_bytes * 1e-6);
    printf("experts         %.2f GB: %.1f %% of the weights; a token reads %.2f GB of them\n",
           (double)h->expert_bytes * 1e-9,
           100.0 * (double)h->expert_bytes / (double)(h->expert_bytes + h->dense_bytes),
           (double)h->expert_bytes * 1e-9 / h->params.n_experts * h->params.n_used);
    printf("dense weights   %.2f GB\n", (double)h->dense_bytes * 1e-9);
    printf("KV cache        %.1f MB for 1000 tokens\n", (double)kv * 1e-3);
    printf("host memory     %.2f GB for the weights; %.2f GB are available here%s\n",
           (double)h->bytes * 1e-9, (double)available * 1e-9,
           h->bytes + memory_margin_bytes(&x->plan) > available ? ": too little" : "");
    printf("device memory   %.2f GB for the dense weights, and up to %.2f GB for experts\n",
           (double)h->dense_bytes * 1e-9, (double)h->expert_bytes * 1e-9);
}

static void print_tensors(const struct inspect *x)
{
    printf("\n%-34s %-6s %-24s %12s %14s\n", "tensor", "type", "shape", "bytes", "offset");
    for (uint64_t i = 0; i < gguf_tensor_count(x->g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(x->g, i);
        char shape[64];
        int n = 0;
        for (uint32_t d = 0; d < t->n_dims; d++)
            n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%" PRIu64, d ? " x " : "",
                          t->ne[d]);
        printf("%-34s %-6s %-24s %12" PRIu64 " %14" PRIu64 "\n", t->name,
               tensor_type_info(t->type)->name, shape, t->bytes, t->offset);
    }
}

static void print_json(const struct inspect *x)
{
    const struct pool_header *h = &x->plan.header;
    const struct model_params *p = &h->params;
    struct strbuf b;
    strbuf_init(&b);
    strbuf_printf(&b, "{\"path\": ");
    strbuf_json_string(&b, h->path, strlen(h->path));
    strbuf_printf(&b, ", \"name\": ");
    strbuf_json_string(&b, p->name, strlen(p->name));
    strbuf_printf(&b, ", \"architecture\": \"%s\", \"parameters\": %" PRIu64, h->arch,
                  h->parameters);
    strbuf_printf(&b, ", \"layers\": %" PRIu32 ", \"hidden\": %" PRIu32 ", \"heads\": %" PRIu32,
                  p->n_layers, p->d_model, p->n_heads);
    strbuf_printf(&b, ", \"kv_heads\": %" PRIu32 ", \"head_dim\": %" PRIu32 ", \"vocab\": %" PRIu32,
                  p->n_kv_heads, p->k_dim, p->vocab);
    strbuf_printf(&b, ", \"context\": %" PRIu32 ", \"experts\": %" PRIu32
                  ", \"experts_used\": %" PRIu32 ", \"expert_width\": %" PRIu32
                  ", \"shared_width\": %" PRIu32,
                  p->context_trained, p->n_experts, p->n_used, p->d_expert, p->d_shared);
    strbuf_printf(&b, ", \"file_bytes\": %" PRIu64 ", \"pool_bytes\": %" PRIu64
                  ", \"expert_bytes\": %" PRIu64 ", \"dense_bytes\": %" PRIu64
                  ", \"segments\": %" PRIu32 ", \"segment_bytes\": %" PRIu64
                  ", \"kv_bytes_per_token\": %" PRIu64 "}\n",
                  h->file_bytes, h->bytes, h->expert_bytes, h->dense_bytes,
                  x->plan.slabs[p->n_dense].n_segments, x->plan.slabs[p->n_dense].segment_bytes,
                  memory_kv_bytes_a_token(p));
    if (!b.failed)
        fwrite(b.data, 1, b.len, stdout);
    strbuf_fini(&b);
}

int inspect_main(int argc, char **argv)
{
    struct inspect x = {0};
    const struct option_spec options[] = {
        {"tensors", OPTION_BOOL, &x.tensors, 0, 0, NULL, "list every tensor"},
        {"json", OPTION_BOOL, &x.json, 0, 0, NULL, "print one JSON object"},
        {0},
    };
    if (options_wants_help(argc, argv)) {
        options_print_help(options, "moed inspect", "MODEL.gguf",
                           "Show what a model file is and what it would need; no deployment is "
                           "needed.");
        return CLI_OK;
    }
    struct error e;
    int n = 0;
    if (options_parse(options, argc, argv, &n, &e)) {
        fprintf(stderr, "moed inspect: %s\n", e.text);
        return CLI_USAGE;
    }
    if (n != 1) {
        fprintf(stderr, "moed inspect: give one model file: moed inspect MODEL.gguf\n");
        return CLI_USAGE;
    }
    enum error_code code = gguf_open(argv[1], &x.g, &e);
    if (!code)
        code = pool_plan_new(x.g, &x.plan, &e);
    if (code) {
        fprintf(stderr, "moed inspect: %s\n", e.text);
    } else if (x.json) {
        print_json(&x);
    } else {
        print_params(&x);
        print_needs(&x);
        if (x.tensors)
            print_tensors(&x);
    }
    pool_plan_free(&x.plan);
    gguf_close(x.g);
    return code ? CLI_FAILURE : CLI_OK;
}
