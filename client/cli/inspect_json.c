/* moed inspect --json: prints one object. */
#include "client/cli/inspect.h"

#include "base/strbuf.h"
#include "model/memory_need.h"
#include "model/published.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void number(struct strbuf *b, const char *key, uint64_t value)
{
    strbuf_printf(b, ", \"%s\": %" PRIu64, key, value);
}

static void real(struct strbuf *b, const char *key, float value)
{
    strbuf_printf(b, ", \"%s\": %.7g", key, (double)value);
}

static void word(struct strbuf *b, const char *key, const char *value)
{
    strbuf_printf(b, ", \"%s\": \"%s\"", key, value);
}

static void boolean(struct strbuf *b, const char *key, bool value)
{
    strbuf_printf(b, ", \"%s\": %s", key, value ? "true" : "false");
}

/* One entry for each kind of layer. */
static void add_layers(struct strbuf *b, const struct model_params *p)
{
    const char *before = "";
    strbuf_printf(b, ", \"layer_kinds\": [");
    for (uint32_t i = 0; i < p->n_layers; i++) {
        const struct layer_params *l = &p->layers[i];
        uint32_t n = inspect_alike(p, i);
        if (n == 0)
            continue;
        strbuf_printf(b, "%s{\"kind\": \"%s\"", before, inspect_layer_name(l->kind));
        word(b, "feed_forward", inspect_feed_forward_name(l->feed_forward));
        number(b, "first", i);
        number(b, "layers", n);
        number(b, "heads", l->n_heads);
        number(b, "kv_heads", l->n_kv_heads);
        number(b, "head_dim", l->q_dim);
        number(b, "value_dim", l->o_dim);
        number(b, "window", l->window);
        strbuf_printf(b, "}");
        before = ", ";
    }
    strbuf_printf(b, "]");
}

static void add_attention(struct strbuf *b, const struct model_params *p,
                          const struct inspect_tensors *has)
{
    const struct layer_params *l = params_attention(p);
    add_layers(b, p);
    word(b, "norm", inspect_norm_name(p->norm));
    real(b, "norm_eps", p->norm_eps);
    word(b, "attention", inspect_attention_name(p));
    number(b, "heads", l->n_heads);
    number(b, "kv_heads", l->n_kv_heads);
    number(b, "head_dim", l->q_dim);
    number(b, "value_dim", l->o_dim);
    number(b, "q_rank", p->q_rank);
    number(b, "kv_rank", p->kv_rank);
    number(b, "window", params_windows(p).largest);
    number(b, "windowed_layers", params_windows(p).layers);
    boolean(b, "qk_norm", has->qk_norm);
    real(b, "temperature_scale", p->temperature_scale);
    boolean(b, "attention_sinks", p->arch->attention_sinks);
    boolean(b, "qkv_bias", has->qkv_bias);
    boolean(b, "query_gate", p->arch->query_gate);
    boolean(b, "output_gate", has->output_gate);
    real(b, "value_scale", p->value_scale);
    number(b, "recurrent_layers", params_recurrent_layers(p));
    word(b, "rope_scaling", inspect_rope_name(p->rope.scaling));
    number(b, "rope_dims", p->arch->no_rope ? 0 : p->rope.dims);
    real(b, "rope_base", p->rope.base);
    number(b, "windowed_rope_dims", p->windowed_rope.dims);
    real(b, "windowed_rope_base", p->windowed_rope.base);
    real(b, "logit_cap", p->logit_cap);
    real(b, "logit_scale", p->logit_scale);
    real(b, "rope_factor", p->rope.factor);
    number(b, "rope_original_context", p->rope.original_context);
}

static void add_experts(struct strbuf *b, const struct model_params *p,
                        const struct inspect_tensors *has)
{
    const struct router_params *r = &p->router;
    word(b, "router", inspect_router_name(r->kind));
    number(b, "experts", r->n_experts);
    number(b, "experts_used", r->n_used);
    number(b, "expert_groups", r->n_groups);
    number(b, "expert_groups_used", r->n_groups_used);
    boolean(b, "selection_bias", has->selection_bias);
    boolean(b, "weights_renormalised", r->renormalise);
    real(b, "weights_scale", r->scale);
    word(b, "activation", inspect_activation_name(p->arch->activation));
    number(b, "limited_layers", inspect_limited_layers(p));
    number(b, "expert_width", p->d_expert);
    boolean(b, "expert_bias", has->expert_bias);
    number(b, "shared_width", p->d_shared);
    boolean(b, "shared_gate", has->shared_gate);
    number(b, "dense_layers", p->n_dense);
    number(b, "dense_width", p->d_dense);
}

static void add_sizes(struct strbuf *b, const struct inspect *x)
{
    const struct pool_header *h = &x->plan.header;
    const struct pool_slabs *s = &x->plan.slabs[x->params.n_dense];
    struct inspect_type types[INSPECT_MAX_TYPES];
    unsigned n = inspect_count_types(x, types);
    strbuf_printf(b, ", \"tensor_types\": [");
    for (unsigned i = 0; i < n; i++)
        strbuf_printf(b, "%s{\"type\": \"%s\", \"tensors\": %" PRIu64 ", \"bytes\": %" PRIu64 "}",
                      i ? ", " : "", tensor_type_info(types[i].type)->name, types[i].tensors,
                      types[i].bytes);
    strbuf_printf(b, "]");
    number(b, "file_bytes", h->file_bytes);
    number(b, "pool_bytes", h->bytes);
    number(b, "expert_bytes", h->expert_bytes);
    number(b, "dense_bytes", h->dense_bytes);
    number(b, "expert_bytes_per_token", pool_plan_expert_token_bytes(&x->plan));
    number(b, "dense_bytes_per_token", pool_plan_dense_token_bytes(&x->plan));
    number(b, "segments", s->n_segments);
    number(b, "segment_bytes", s->segment_bytes);
    struct memory_kv kv = memory_kv_bytes(&x->params, x->kv_type);
    number(b, "kv_bytes_per_token", kv.a_token);
    number(b, "kv_window_bytes", kv.window_bytes);
    word(b, "kv_type", x->kv_type_name);
    number(b, "state_bytes", params_state_bytes(&x->params));
}

/* The keys whose values are not the file's. */
static void add_published(struct strbuf *b, const struct model_params *p)
{
    const char *before = "";
    strbuf_printf(b, ", \"not_in_file\": [");
    for (unsigned i = 0; published_key(i); i++)
        if (p->published & 1u << i) {
            strbuf_printf(b, "%s\"%s\"", before, published_key(i));
            before = ", ";
        }
    strbuf_printf(b, "]");
}

void inspect_print_json(const struct inspect *x)
{
    const struct pool_header *h = &x->plan.header;
    const struct model_params *p = &x->params;
    struct inspect_tensors has = inspect_find_tensors(x);
    struct strbuf b;
    strbuf_init(&b);
    strbuf_printf(&b, "{\"path\": ");
    strbuf_json_string(&b, h->path, strlen(h->path));
    strbuf_printf(&b, ", \"name\": ");
    strbuf_json_string(&b, p->name, strlen(p->name));
    word(&b, "architecture", h->arch);
    number(&b, "parameters", h->parameters);
    number(&b, "layers", p->n_layers);
    number(&b, "further_layers", inspect_further_layers(x));
    number(&b, "hidden", p->d_model);
    number(&b, "vocab", p->vocab);
    number(&b, "context", p->context_trained);
    number(&b, "context_most", p->context_most);
    boolean(&b, "tied_output", has.tied_output);
    add_attention(&b, p, &has);
    add_experts(&b, p, &has);
    add_published(&b, p);
    add_sizes(&b, x);
    inspect_add_sampling(&b, x->g);
    strbuf_printf(&b, "}\n");
    if (!b.failed)
        fwrite(b.data, 1, b.len, stdout);
    strbuf_fini(&b);
}
