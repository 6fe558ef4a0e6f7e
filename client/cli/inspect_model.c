/* moed inspect: describes a model: attention, rotation of positions, routing, experts. */
#include "client/cli/inspect.h"
#include "client/cli/fold.h"
#include "model/published.h"
#include "model/serving_limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "30.53 billion", "95.1 thousand". */
static void print_count(uint64_t n)
{
    if (n >= 1000000000)
        fold_printf("%.2f billion", (double)n * 1e-9);
    else if (n >= 1000000)
        fold_printf("%.2f million", (double)n * 1e-6);
    else
        fold_printf("%.1f thousand", (double)n * 1e-3);
}

void inspect_format_bytes(uint64_t bytes, char out[24])
{
    if (bytes >= 1000000000)
        snprintf(out, 24, "%.2f GB", (double)bytes * 1e-9);
    else if (bytes >= 1000000)
        snprintf(out, 24, "%.1f MB", (double)bytes * 1e-6);
    else
        snprintf(out, 24, "%.1f kB", (double)bytes * 1e-3);
}

void inspect_print_bytes(uint64_t bytes)
{
    char text[24];
    inspect_format_bytes(bytes, text);
    fold_printf("%s", text);
}

static void print_router(const struct model_params *p, const struct inspect_tensors *has_tensor)
{
    static const char *const how[] = {
        [ROUTER_SOFTMAX] = "softmax over all experts, the %" PRIu32 " likeliest",
        [ROUTER_SIGMOID] = "sigmoid of each expert, the %" PRIu32 " largest",
        [ROUTER_SOFTMAX_SELECTED] = "the %" PRIu32 " largest, softmax over those",
        [ROUTER_SPARSE_MIXER] = "sparse mixer, %" PRIu32 " in turn",
    };
    const struct router_params *r = &p->router;
    fold_printf("router          ");
    fold_printf(how[r->kind], r->n_used);
    if (r->n_groups)
        fold_printf(", from the best %" PRIu32 " of %" PRIu32 " groups", r->n_groups_used,
                    r->n_groups);
    if (has_tensor->router_bias)
        fold_printf("; a bias");
    if (has_tensor->selection_bias)
        fold_printf("; a bias for the choice alone");
    if (r->renormalise)
        fold_printf("; weights divided by their sum");
    if (r->scale != 1.0f)
        fold_printf("; weights times %g", (double)r->scale);
    if (p->arch->expert_scales)
        fold_printf("; each expert's weight times a scale of its own");
    fold_printf("\n");
}

/* The keys whose values are not the file's. */
static void print_published(const struct model_params *p)
{
    const char *before = "not in the file ";
    for (unsigned i = 0; published_key(i); i++)
        if (p->published & 1u << i) {
            fold_printf("%s%s.%s", before, p->arch->name, published_key(i));
            before = ", ";
        }
    fold_printf(": moed takes the values of the published model\n");
}

static void print_experts(const struct model_params *p, const struct inspect_tensors *has_tensor)
{
    static const char *const activations[] = {
        [ACTIVATION_SILU] = "SiLU",
        [ACTIVATION_SWIGLU_CLAMPED] = "clamped SwiGLU",
        [ACTIVATION_GELU] = "GELU",
        [ACTIVATION_SIGMOID] = "sigmoid",
        [ACTIVATION_SOFTPLUS] = "softplus",
        [ACTIVATION_RELU_SQUARED] = "ReLU squared without a gate"};
    fold_printf("experts         %" PRIu32 " a layer, %" PRIu32 " a token, width %" PRIu32 ", %s",
                p->router.n_experts, p->router.n_used, p->d_expert,
                activations[p->arch->activation]);
    if (inspect_limited_layers(p))
        fold_printf(" within limits in %" PRIu32 " layer%s", inspect_limited_layers(p),
                    inspect_limited_layers(p) == 1 ? "" : "s");
    fold_printf("%s\n", has_tensor->expert_bias ? ", biases" : "");
    if (p->d_shared)
        fold_printf("shared expert   width %" PRIu32 "%s%s\n", p->d_shared,
                    has_tensor->shared_gate ? ", with a gate of its own" : "",
                    p->arch->shared_average ? ", times 0.5" : "");
}

/* The types of the routed experts' matrices, each with its first layer. */
static void print_expert_types(const struct inspect *x)
{
    const struct pool_header *h = &x->plan.header;
    const struct pool_slabs *last = NULL;
    fold_printf("expert types    ");
    for (uint32_t layer = x->params.n_dense; layer < h->n_layers; layer++) {
        const struct pool_slabs *s = &x->plan.slabs[layer];
        if (last && s->gate_type == last->gate_type && s->up_type == last->up_type &&
            s->down_type == last->down_type)
            continue;
        fold_printf("%s", last ? ", " : "");
        if (s->up_offset)
            fold_printf("%s/", tensor_type_info(s->gate_type)->name);
        fold_printf("%s/%s from layer %" PRIu32, tensor_type_info(s->up_type)->name,
                    tensor_type_info(s->down_type)->name, layer);
        last = s;
    }
    fold_printf(" (%sup/down)\n", last && last->up_offset ? "gate/" : "");
}

static void print_types(const struct inspect *x)
{
    struct inspect_type types[INSPECT_MAX_TYPES];
    unsigned n = inspect_count_types(x, types);
    fold_printf("tensors         ");
    for (unsigned i = 0; i < n; i++) {
        fold_printf("%s%" PRIu64 " %s of ", i ? ", " : "", types[i].tensors,
                    tensor_type_info(types[i].type)->name);
        inspect_print_bytes(types[i].bytes);
    }
    fold_printf("%s\n", x->plan.n_factors ? "; factors beside NVFP4 matrices" : "");
}

/* Copies a key's text, safe for a terminal. False: the file does not have it. */
static bool text_of(const struct inspect *x, const char *key, char out[48])
{
    struct gguf_string s;
    if (!gguf_find(x->g, key) || gguf_get_string(x->g, key, &s, NULL) || s.len == 0)
        return false;
    snprintf(out, 48, "%.*s", (int)(s.len < 40 ? s.len : 40), s.data);
    for (char *c = out; *c; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f)
            *c = '?';
    return true;
}

static void print_tokenizer(const struct inspect *x)
{
    char model[48], pre[48];
    struct gguf_string chat;
    fold_printf("tokenizer       %s", text_of(x, "tokenizer.ggml.model", model) ? model : "none");
    if (text_of(x, "tokenizer.ggml.pre", pre))
        fold_printf(", pre-tokenizer %s", pre);
    fold_printf(", %" PRIu32 " tokens", x->params.vocab);
    if (!gguf_find(x->g, "tokenizer.chat_template") ||
        gguf_get_string(x->g, "tokenizer.chat_template", &chat, NULL) || chat.len == 0)
        fold_printf("; no chat template\n");
    else if (chat.len > CHAT_TEMPLATE_BYTES)
        fold_printf("; a chat template of %" PRIu64 " bytes, more than moed uses\n", chat.len);
    else
        fold_printf("; chat template%s\n",
                    memmem(chat.data, chat.len, "<|im_start|>", 12) ? " with <|im_start|>" : "");
}

void inspect_print_model(const struct inspect *x)
{
    const struct pool_header *h = &x->plan.header;
    const struct model_params *p = &x->params;
    struct inspect_tensors has_tensor = inspect_find_tensors(x);
    fold_printf("file            %s (GGUF %" PRIu32 ", %" PRIu32 " file%s, ", h->path,
                gguf_version(x->g), gguf_file_count(x->g), gguf_file_count(x->g) == 1 ? "" : "s");
    inspect_print_bytes(h->file_bytes);
    fold_printf(")\nname            %s\n", p->name);
    fold_printf("architecture    %s (%s)\nparameters      ", h->arch, p->arch->models);
    print_count(h->parameters);
    fold_printf("\nlayers          %" PRIu32, p->n_layers);
    if (p->n_blocks != p->n_layers)
        fold_printf(", %" PRIu32 " blocks of the file", p->n_blocks);
    if (p->n_dense)
        fold_printf(", the first %" PRIu32 " dense, width %" PRIu32, p->n_dense, p->d_dense);
    if (inspect_further_layers(x))
        fold_printf("; %" PRIu32 " more for further tokens (MTP), not run",
                    inspect_further_layers(x));
    fold_printf("\n");
    inspect_print_layers(p);
    fold_printf("hidden          %" PRIu32 "\n", p->d_model);
    inspect_print_attention(p, &has_tensor);
    fold_printf("context         %" PRIu32 " tokens in training", p->context_trained);
    if (p->context_most)
        fold_printf(", computed up to %" PRIu32 ": the indexer is not run", p->context_most);
    fold_printf("\n");
    print_router(p, &has_tensor);
    print_experts(p, &has_tensor);
    fold_printf("output          %s%s\n",
                has_tensor.tied_output ? "the embedding's matrix (tied)" : "a matrix of its own",
                has_tensor.output_bias ? ", with a bias" : "");
    if (p->logit_cap > 0)
        fold_printf("logits          capped to %g by tanh\n", (double)p->logit_cap);
    if (p->logit_scale != 1)
        fold_printf("logits          times %g\n", (double)p->logit_scale);
    if (p->published)
        print_published(p);
    print_tokenizer(x);
    inspect_print_sampling(x->g);
    print_types(x);
    print_expert_types(x);
}
