/* Reads the keys of attention: heads, windows, and the layers that have another kind of mixer; see
 * params_internal.h. */
#include "params_internal.h"

#include "kernels/kernels.h"
#include "model/published.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char heads_suffix[] = "attention.head_count";
static const char kv_heads_suffix[] = "attention.head_count_kv";

/* ---- Lists by layer ---- */

static bool is_list_type(enum gguf_value_type type)
{
    return type == GGUF_I32 || type == GGUF_U32 || type == GGUF_BOOL || type == GGUF_F32;
}

struct params_list params_find_list(const struct key_reader *r, const char *suffix,
                                    uint32_t n_layers)
{
    char key[KEY_BYTES];
    key_name(r, suffix, key);
    const struct gguf_kv *kv = gguf_find(r->g, key);
    bool is_list = kv && kv->type == GGUF_ARRAY && kv->count >= n_layers &&
                   is_list_type((enum gguf_value_type)kv->element_type);
    return (struct params_list){is_list ? kv : NULL};
}

uint32_t params_list_u32(struct params_list l, uint32_t layer)
{
    uint32_t value;
    if (l.kv->element_type == GGUF_BOOL)
        return l.kv->data[layer] != 0;
    memcpy(&value, l.kv->data + layer * sizeof value, sizeof value);
    return value;
}

float params_list_f32(struct params_list l, uint32_t layer)
{
    float value;
    if (l.kv->element_type != GGUF_F32)
        return (float)params_list_u32(l, layer);
    memcpy(&value, l.kv->data + layer * sizeof value, sizeof value);
    return value;
}

/* ---- Heads ---- */

static void check_rope_dims(struct key_reader *r, const char *suffix, uint32_t dims, uint32_t head)
{
    if (!r->failed && (dims > head || dims % 2))
        r->failed = error_set(r->e, ERROR_FORMAT,
                              "%s: key '%s.%s' is %" PRIu32
                              ": expected an even number up to the head's %" PRIu32,
                              gguf_path(r->g, 0), r->arch, suffix, dims, head);
}

static void check_heads(struct key_reader *r, const struct layer_params *l)
{
    if (!r->failed && l->n_heads % l->n_kv_heads)
        r->failed =
            error_set(r->e, ERROR_FORMAT,
                      "%s: %" PRIu32 " attention heads cannot share %" PRIu32
                      " key-value heads evenly ('%s.%s')",
                      gguf_path(r->g, 0), l->n_heads, l->n_kv_heads, r->arch, kv_heads_suffix);
}

/* A layer's number of heads, of a list by layer where the file has one and the row allows it; else
 * one number for all layers. */
static uint32_t heads_of(struct key_reader *r, const struct model_params *p, const char *suffix,
                         uint32_t layer, uint32_t absent)
{
    struct params_list list = params_find_list(r, suffix, p->n_layers);
    if (p->arch->heads_by_layer && list.kv)
        return key_check(r, suffix, params_list_u32(list, layer), PARAMS_MAX_HEADS);
    return absent ? key_u32_or(r, suffix, absent, PARAMS_MAX_HEADS)
                  : key_u32(r, suffix, PARAMS_MAX_HEADS);
}

/* A list by layer: 0 for the layers that are short convolutions, the same number for the others. */
static uint32_t read_kv_heads_list(struct key_reader *r, const struct model_params *p)
{
    struct params_list list = params_find_list(r, kv_heads_suffix, p->n_layers);
    uint32_t heads = 0, differ = 0;
    for (uint32_t i = 0; i < p->n_layers && list.kv; i++) {
        uint32_t n = params_list_u32(list, i);
        heads = heads ? heads : n;
        differ += n && n != heads;
    }
    if (!r->failed && (differ || !heads))
        r->failed = error_set(r->e, ERROR_FORMAT,
                              "%s: key '%s.%s': expected a list by layer of 0 and one other number "
                              "of heads",
                              gguf_path(r->g, 0), r->arch, kv_heads_suffix);
    return key_check(r, kv_heads_suffix, heads ? heads : 1, PARAMS_MAX_HEADS);
}

/* The list is one of blocks. */
static uint32_t block_kv_heads(struct key_reader *r, const struct model_params *p,
                               const struct layer_params *l)
{
    struct params_list list = params_find_list(r, kv_heads_suffix, p->n_blocks);
    return key_check(r, kv_heads_suffix, params_list_u32(list, l->blocks.attention),
                     PARAMS_MAX_HEADS);
}

static void check_attention(struct key_reader *r, const struct model_params *p)
{
    if (!r->failed && !params_attends(params_attention(p)))
        r->failed = error_set(r->e, ERROR_UNSUPPORTED,
                              "%s: no layer has attention: moed does not run such a model",
                              gguf_path(r->g, 0));
}

/* One KV head for each group of query heads. */
static void read_grouped_layer(struct key_reader *r, const struct model_params *p, uint32_t layer,
                               struct layer_params *l)
{
    bool sized = p->arch->windowed_heads && l->window > 0;
    if (!params_attends(l))
        return;
    l->n_heads = heads_of(r, p, heads_suffix, layer, 0);
    if (r->failed)
        return;
    if (p->arch->block_parts)
        l->n_kv_heads = block_kv_heads(r, p, l);
    else
        l->n_kv_heads = p->arch->short_convolutions
                            ? read_kv_heads_list(r, p)
                            : heads_of(r, p, kv_heads_suffix, layer, l->n_heads);
    if (r->failed)
        return;
    uint32_t head_dim = p->d_model / l->n_heads;
    uint32_t key = key_u32_or(r, "attention.key_length", head_dim, PARAMS_MAX_HEAD_DIM);
    uint32_t value = key_u32_or(r, "attention.value_length", head_dim, PARAMS_MAX_HEAD_DIM);
    l->q_dim = l->k_dim =
        sized ? key_u32_or(r, "attention.key_length_swa", key, PARAMS_MAX_HEAD_DIM) : key;
    l->o_dim = l->v_dim =
        sized ? key_u32_or(r, "attention.value_length_swa", value, PARAMS_MAX_HEAD_DIM) : value;
    check_heads(r, l);
}

/* What the layers rotate: those with a window perhaps another part than the others. */
static void read_rotated(struct key_reader *r, struct model_params *p)
{
    static const char suffix[] = "rope.dimension_count", windowed[] = "rope.dimension_count_swa";
    const struct layer_params *all = NULL, *some = NULL;
    for (uint32_t i = 0; i < p->n_layers; i++)
        if (params_attends(&p->layers[i]))
            *(p->layers[i].window ? &some : &all) = &p->layers[i];
    const struct layer_params *l = all ? all : some;
    uint32_t dims = key_u32_or(r, suffix, l->k_dim, PARAMS_MAX_HEAD_DIM);
    check_rope_dims(r, suffix, dims, p->arch->rope_half ? 2 * l->q_dim : l->q_dim);
    p->rope.dims = p->arch->rope_half ? dims / 2 : dims;
    if (!p->arch->windowed_rope || !some)
        return;
    uint32_t absent = p->arch->windowed_heads ? some->k_dim : dims;
    p->windowed_rope.dims = key_u32_or(r, windowed, absent, PARAMS_MAX_HEAD_DIM);
    check_rope_dims(r, windowed, p->windowed_rope.dims, some->q_dim);
}

static void read_grouped_attention(struct key_reader *r, struct model_params *p)
{
    for (uint32_t i = 0; i < p->n_layers && !r->failed; i++)
        read_grouped_layer(r, p, i, &p->layers[i]);
    check_attention(r, p);
    if (!r->failed)
        read_rotated(r, p);
}

/* Files whose kv_b is split have keys for a head's own sizes; key_length is then the cached row's.
 */
static void read_latent_attention(struct key_reader *r, struct model_params *p)
{
    bool split = key_exists(r, "attention.key_length_mla");
    struct layer_params all = {.n_kv_heads = 1}, *l = &all;
    l->n_heads = key_u32(r, heads_suffix, PARAMS_MAX_HEADS);
    p->kv_rank = key_u32(r, "attention.kv_lora_rank", PARAMS_MAX_WIDTH);
    if (key_exists(r, "attention.q_lora_rank"))
        p->q_rank = key_u32(r, "attention.q_lora_rank", PARAMS_MAX_WIDTH);
    l->q_dim = key_u32(r, split ? "attention.key_length_mla" : "attention.key_length",
                       PARAMS_MAX_HEAD_DIM);
    l->o_dim = key_u32(r, split ? "attention.value_length_mla" : "attention.value_length",
                       PARAMS_MAX_HEAD_DIM);
    p->rope.dims = key_u32(r, "rope.dimension_count", PARAMS_MAX_HEAD_DIM);
    l->k_dim = p->kv_rank + p->rope.dims;
    l->v_dim = p->kv_rank;
    check_rope_dims(r, "rope.dimension_count", p->rope.dims, l->q_dim);
    if (!r->failed && p->rope.dims >= l->q_dim)
        r->failed = error_set(r->e, ERROR_FORMAT,
                              "%s: key '%s.rope.dimension_count' is %" PRIu32
                              ": expected less than the head's %" PRIu32,
                              gguf_path(r->g, 0), r->arch, p->rope.dims, l->q_dim);
    for (uint32_t i = 0; i < p->n_layers; i++)
        p->layers[i] = all;
}

/* ---- Windows ---- */

void params_refuse_value(struct key_reader *r, const char *suffix, double value, const char *what)
{
    if (!r->failed)
        r->failed = error_set(r->e, ERROR_UNSUPPORTED,
                              "%s: key '%s.%s' is %.10g, %s, which moed does not compute for "
                              "architecture %s",
                              gguf_path(r->g, 0), r->arch, suffix, value, what, r->arch);
}

/* Which layers have a window: a list by layer in the file, or all but one in each run of so many
 * layers, by the file's number or the architecture's row. */
static void read_window_pattern(struct key_reader *r, struct model_params *p, uint32_t window)
{
    static const char suffix[] = "attention.sliding_window_pattern";
    char key[KEY_BYTES];
    key_name(r, suffix, key);
    const struct gguf_kv *kv = gguf_find(r->g, key);
    struct params_list list = params_find_list(r, suffix, p->n_layers);
    if (!r->failed && kv && kv->type == GGUF_ARRAY && !list.kv)
        r->failed = error_set(r->e, ERROR_FORMAT,
                              "%s: key '%s' has %" PRIu64 " values for %" PRIu32 " layers",
                              gguf_path(r->g, 0), key, kv->count, p->n_layers);
    uint32_t period =
        list.kv ? 1 : key_u32_or(r, suffix, p->arch->window_period, PARAMS_MAX_LAYERS);
    for (uint32_t i = 0; i < p->n_layers && !r->failed; i++) {
        uint32_t all = p->arch->window_after_first ? 0 : period - 1;
        bool windowed = list.kv ? params_list_u32(list, i) != 0 : i % period != all;
        p->layers[i].window = windowed ? window : 0;
    }
}

/* A window as long as the context has no effect: the model has no window. */
static void read_window(struct key_reader *r, struct model_params *p)
{
    static const char suffix[] = "attention.sliding_window";
    uint32_t window = 0;
    char key[KEY_BYTES];
    key_name(r, suffix, key);
    if (p->arch->window_period && !p->arch->window_optional)
        window = key_u32(r, suffix, PARAMS_MAX_CONTEXT);
    else if (!r->failed)
        r->failed = gguf_get_u32_or(r->g, key, 0, &window, r->e);
    if (r->failed || window == 0)
        return;
    if (p->arch->window_period)
        read_window_pattern(r, p,
                            key_check(r, suffix, window, PARAMS_MAX_CONTEXT) +
                                (p->arch->window_beyond ? 1 : 0));
    else if (window < p->context_trained)
        params_refuse_value(r, suffix, window, "less than the context: a window");
}

void params_choose_rotated(const struct key_reader *r, struct model_params *p)
{
    for (uint32_t i = 0; i < p->n_layers && !r->failed; i++) {
        struct layer_params *l = &p->layers[i];
        bool dense = p->arch->rope_dense && l->feed_forward == FEED_FORWARD_DENSE;
        l->unrotated =
            p->arch->no_rope || (p->arch->rope_windowed_only && l->window == 0 && !dense);
    }
}

/* ---- Recurrent layers ---- */

struct params_list params_recurrent_list(struct key_reader *r, uint32_t n_blocks)
{
    static const char suffix[] = "attention.recurrent_layers";
    struct params_list list = params_find_list(r, suffix, n_blocks);
    if (!r->failed && key_exists(r, suffix) && !list.kv)
        r->failed = error_set(r->e, ERROR_FORMAT,
                              "%s: key '%s.%s': expected a list of booleans, one for each of the "
                              "%" PRIu32 " layers",
                              gguf_path(r->g, 0), r->arch, suffix, n_blocks);
    return list;
}

/* Which layers are linear attention: a list by layer in the file, or all but the last in each run
 * of full_attention_interval. */
static void read_delta_layers(struct key_reader *r, struct model_params *p)
{
    struct params_list list = params_recurrent_list(r, p->n_layers);
    uint32_t interval = key_u32_or(r, "full_attention_interval", 4, PARAMS_MAX_LAYERS);
    for (uint32_t i = 0; i < p->n_layers && !r->failed; i++)
        if (list.kv ? params_list_u32(list, i) != 0 : (i + 1) % interval != 0)
            p->layers[i] = (struct layer_params){.kind = LAYER_DELTA_NET};
}

/* The keys are named as a state space model's, which Mamba2 is. */
static void read_delta(struct key_reader *r, struct model_params *p)
{
    struct delta_params *d = &p->delta;
    if (r->failed || !(p->arch->delta_layers || p->arch->block_parts))
        return;
    d->taps = key_u32(r, "ssm.conv_kernel", PARAMS_MAX_TAPS);
    d->k_dim = key_u32(r, "ssm.state_size", DELTA_KEY_MOST);
    d->k_heads = key_u32(r, "ssm.group_count", PARAMS_MAX_HEADS);
    d->v_heads = key_u32(r, "ssm.time_step_rank", PARAMS_MAX_HEADS);
    uint32_t inner = key_u32(r, "ssm.inner_size", PARAMS_MAX_WIDTH);
    if (!r->failed && (inner % d->v_heads || d->v_heads % d->k_heads || d->taps < 2 ||
                       inner / d->v_heads > PARAMS_MAX_HEAD_DIM))
        r->failed = error_set(r->e, ERROR_FORMAT,
                              "%s: %" PRIu32 " key heads, %" PRIu32 " value heads, an inner size "
                              "of %" PRIu32 " and %" PRIu32 " taps make no recurrent layer "
                              "(keys '%s.ssm.*')",
                              gguf_path(r->g, 0), d->k_heads, d->v_heads, inner, d->taps, r->arch);
    if (r->failed)
        return;
    d->v_dim = inner / d->v_heads;
    if (p->arch->delta_layers)
        read_delta_layers(r, p);
}

static void read_short_convolutions(struct key_reader *r, struct model_params *p)
{
    static const char suffix[] = "shortconv.l_cache";
    if (r->failed || !p->arch->short_convolutions)
        return;
    struct params_list list = params_find_list(r, kv_heads_suffix, p->n_layers);
    uint32_t taps = key_u32(r, suffix, PARAMS_MAX_TAPS);
    p->delta.taps = key_check(r, suffix, taps < 2 ? 0 : taps, PARAMS_MAX_TAPS);
    for (uint32_t i = 0; i < p->n_layers && list.kv; i++)
        if (params_list_u32(list, i) == 0)
            p->layers[i] = (struct layer_params){.kind = LAYER_SHORT_CONVOLUTION};
}

/* ---- All ---- */

void params_read_value_scale(struct key_reader *r, struct model_params *p)
{
    static const char suffix[] = "attention.value_scale";
    float absent = published_value_scale(p);
    p->value_scale = absent > 0 ? key_f32_or(r, suffix, absent, 1e-6f, 1e6f) : 1.0f;
    if (absent > 0 && !key_exists(r, suffix))
        p->published |= PUBLISHED_VALUE_SCALE;
}

void params_read_attention(struct key_reader *r, struct model_params *p)
{
    if (r->failed) /* the number of layers may be wrong */
        return;
    read_window(r, p);
    if (p->arch->attention == ATTENTION_LATENT)
        read_latent_attention(r, p);
    else
        read_grouped_attention(r, p);
    if (r->failed)
        return;
    uint32_t head = params_attention(p)->q_dim;
    p->attention_scale = p->arch->unscaled_attention ? 1.0f : 1.0f / sqrtf((float)head);
    if (p->arch->indexer)
        p->context_most = key_u32(r, "attention.indexer.top_k", PARAMS_MAX_CONTEXT);
    read_delta(r, p);
    read_short_convolutions(r, p);
    check_attention(r, p);
}
