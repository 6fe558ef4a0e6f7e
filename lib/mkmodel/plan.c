/* Options to tensors; see plan.h. Names and shapes: llama.cpp's for these architectures. */
#include "mkmodel/plan.h"

#include "base/checked.h"
#include "quant/quant.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void mkmodel_defaults(struct mkmodel_options *o)
{
    *o = (struct mkmodel_options){
        .arch = "qwen3moe",
        .type = "Q8_0",
        .pre = "qwen2",
        .layers = 4,
        .hidden = 256,
        .heads = 8,
        .kv_heads = 4,
        .head_dim = 0,
        .experts = 16,
        .top_k = 4,
        .expert_width = 256,
        .shared_width = 0,
        .vocab = 4096,
        .ctx = 4096,
        .seed = 1,
        .split = 1,
        .threads = 0,
    };
}

/* ---- options ---- */

static const struct {
    const char *name;
    enum tensor_type type;
    bool mixed;
    uint32_t file_type; /* the numbers that llama.cpp gives these mixtures in general.file_type */
} types[] = {
    {"F32", TENSOR_F32, false, 0},     {"F16", TENSOR_F16, false, 1},
    {"BF16", TENSOR_BF16, false, 32},  {"Q4_0", TENSOR_Q4_0, false, 2},
    {"Q8_0", TENSOR_Q8_0, false, 7},   {"Q4_K", TENSOR_Q4_K, false, 14},
    {"Q5_K", TENSOR_Q5_K, false, 16},  {"Q6_K", TENSOR_Q6_K, false, 18},
    {"Q4_K_M", TENSOR_Q4_K, true, 15}, {"Q5_K_M", TENSOR_Q5_K, true, 17},
};

static enum error_code choose_type(struct plan *p, struct error *e)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcasecmp(types[i].name, p->options.type) == 0) {
            p->type = types[i].type;
            p->mixed = types[i].mixed;
            p->file_type = types[i].file_type;
            return ERROR_OK;
        }
    return error_set(e, ERROR_USAGE,
                     "--type %s: unknown, expected F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q5_K, Q6_K, "
                     "Q4_K_M or Q5_K_M",
                     p->options.type);
}

static enum error_code choose_arch(struct plan *p, struct error *e)
{
    static const char *const names[] = {"llama", "qwen2moe", "qwen3moe"};
    for (int i = 0; i < 3; i++)
        if (strcmp(names[i], p->options.arch) == 0) {
            p->arch = (enum mkmodel_arch)i;
            return ERROR_OK;
        }
    return error_set(e, ERROR_USAGE, "--arch %s: unknown, expected llama, qwen2moe or qwen3moe",
                     p->options.arch);
}

static enum error_code check_ranges(const struct mkmodel_options *o, struct error *e)
{
    const struct {
        const char *option;
        uint32_t value, low, high;
    } ranges[] = {
        {"--layers", o->layers, 1, 1000},
        {"--hidden", o->hidden, 1, 1 << 17},
        {"--heads", o->heads, 1, 4096},
        {"--kv-heads", o->kv_heads, 1, 4096},
        {"--head-dim", o->head_dim, 2, 4096},
        {"--experts", o->experts, 1, 65536},
        {"--top-k", o->top_k, 1, 65536},
        {"--expert-width", o->expert_width, 1, 1 << 20},
        {"--shared-width", o->shared_width, 1, 1 << 20},
        {"--vocab", o->vocab, 259, 1000000}, /* 256 bytes and 3 special tokens */
        {"--ctx", o->ctx, 1, 1 << 30},
        {"--split", o->split, 1, 1000},
        {"--threads", o->threads, 0, 1024},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (ranges[i].value < ranges[i].low || ranges[i].value > ranges[i].high)
            return error_set(e, ERROR_USAGE, "%s %u: out of range, expected %u to %u",
                             ranges[i].option, ranges[i].value, ranges[i].low, ranges[i].high);
    return ERROR_OK;
}

static enum error_code check_options(struct mkmodel_options *o, struct error *e)
{
    if (o->head_dim == 0 && o->heads != 0) {
        if (o->hidden % o->heads != 0)
            return error_set(e, ERROR_USAGE,
                             "--hidden %u is no multiple of --heads %u: change one or give "
                             "--head-dim",
                             o->hidden, o->heads);
        o->head_dim = o->hidden / o->heads;
    }
    if (o->shared_width == 0)
        o->shared_width = o->expert_width;
    enum error_code code = check_ranges(o, e);
    if (code != ERROR_OK)
        return code;
    if (o->head_dim % 2 != 0)
        return error_set(e, ERROR_USAGE,
                         "--head-dim %u: odd, but rotary positions turn pairs of values",
                         o->head_dim);
    if (o->heads % o->kv_heads != 0)
        return error_set(e, ERROR_USAGE, "--heads %u is no multiple of --kv-heads %u", o->heads,
                         o->kv_heads);
    if (o->top_k > o->experts)
        return error_set(e, ERROR_USAGE, "--top-k %u: more than --experts %u", o->top_k,
                         o->experts);
    return ERROR_OK;
}

/* ---- tensors ---- */

/* The type asked for, or one with a smaller block that the rows fit. */
static enum tensor_type type_that_fits(enum tensor_type type, uint64_t columns)
{
    if (columns % tensor_type_info(type)->block_values == 0)
        return type;
    return columns % tensor_type_info(TENSOR_Q8_0)->block_values == 0 ? TENSOR_Q8_0 : TENSOR_F16;
}

static struct planned_tensor *append(struct plan *p)
{
    if (p->count == p->capacity) {
        uint64_t capacity = p->capacity ? 2 * p->capacity : 64;
        struct planned_tensor *grown = realloc(p->tensors, capacity * sizeof *grown);
        if (!grown)
            return NULL;
        p->tensors = grown;
        p->capacity = capacity;
    }
    struct planned_tensor *t = &p->tensors[p->count++];
    memset(t, 0, sizeof *t);
    return t;
}

/* Shape {columns, rows, matrices}; rows 0 for a vector, matrices 0 for one matrix. The values of
 * one matrix spread as spread / sqrt(columns), so that a product keeps the scale of its input; a
 * vector spreads as `spread` itself. */
static bool add_tensor(struct plan *p, enum tensor_type type, float mean, float spread,
                       uint64_t columns, uint64_t rows, uint64_t matrices, const char *format, ...)
    __attribute__((format(printf, 8, 9)));

static bool add_tensor(struct plan *p, enum tensor_type type, float mean, float spread,
                       uint64_t columns, uint64_t rows, uint64_t matrices, const char *format, ...)
{
    struct planned_tensor *t = append(p);
    if (!t)
        return false;
    va_list args;
    va_start(args, format);
    vsnprintf(t->name, sizeof t->name, format, args);
    va_end(args);
    t->type = type_that_fits(type, columns);
    t->n_dims = matrices ? 3 : rows ? 2 : 1;
    t->ne[0] = columns;
    t->ne[1] = rows ? rows : 1;
    t->ne[2] = matrices ? matrices : 1;
    t->rows = t->ne[1] * t->ne[2];
    t->row_bytes = quant_row_bytes(t->type, columns);
    t->mean = mean;
    t->deviation = rows ? spread / sqrtf((float)columns) : spread;
    if (!checked_mul(t->rows, t->row_bytes, &t->bytes) ||
        !checked_add(p->bytes, t->bytes, &p->bytes))
        return false;
    p->other_type_count += t->type != type;
    return true;
}

static bool add_attention(struct plan *p, uint32_t layer, enum tensor_type value_type)
{
    const struct mkmodel_options *o = &p->options;
    uint64_t query = (uint64_t)o->heads * o->head_dim, key = (uint64_t)o->kv_heads * o->head_dim;
    /* Queries and keys twice as wide: attention looks at some tokens more than at others. */
    bool ok =
        add_tensor(p, TENSOR_F32, 1, 0.1f, o->hidden, 0, 0, "blk.%u.attn_norm.weight", layer) &&
        add_tensor(p, p->type, 0, 2, o->hidden, query, 0, "blk.%u.attn_q.weight", layer) &&
        add_tensor(p, p->type, 0, 2, o->hidden, key, 0, "blk.%u.attn_k.weight", layer) &&
        add_tensor(p, value_type, 0, 1, o->hidden, key, 0, "blk.%u.attn_v.weight", layer) &&
        add_tensor(p, p->type, 0, 1, query, o->hidden, 0, "blk.%u.attn_output.weight", layer);
    if (ok && p->arch == MKMODEL_QWEN2MOE)
        ok = add_tensor(p, TENSOR_F32, 0, 0.3f, query, 0, 0, "blk.%u.attn_q.bias", layer) &&
             add_tensor(p, TENSOR_F32, 0, 0.3f, key, 0, 0, "blk.%u.attn_k.bias", layer) &&
             add_tensor(p, TENSOR_F32, 0, 0.3f, key, 0, 0, "blk.%u.attn_v.bias", layer);
    if (ok && p->arch == MKMODEL_QWEN3MOE)
        ok = add_tensor(p, TENSOR_F32, 1, 0.1f, o->head_dim, 0, 0, "blk.%u.attn_q_norm.weight",
                        layer) &&
             add_tensor(p, TENSOR_F32, 1, 0.1f, o->head_dim, 0, 0, "blk.%u.attn_k_norm.weight",
                        layer);
    return ok;
}

static bool add_experts(struct plan *p, uint32_t layer, enum tensor_type down_type)
{
    const struct mkmodel_options *o = &p->options;
    uint64_t hidden = o->hidden, width = o->expert_width, shared = o->shared_width;
    /* The router spreads wider: its choices are clear, few near ties. */
    bool ok = add_tensor(p, TENSOR_F32, 1, 0.1f, hidden, 0, 0, "blk.%u.ffn_norm.weight", layer) &&
              add_tensor(p, TENSOR_F32, 0, 4, hidden, o->experts, 0, "blk.%u.ffn_gate_inp.weight",
                         layer) &&
              add_tensor(p, p->type, 0, 1.5f, hidden, width, o->experts,
                         "blk.%u.ffn_gate_exps.weight", layer) &&
              add_tensor(p, p->type, 0, 1.5f, hidden, width, o->experts,
                         "blk.%u.ffn_up_exps.weight", layer) &&
              add_tensor(p, down_type, 0, 1.5f, width, hidden, o->experts,
                         "blk.%u.ffn_down_exps.weight", layer);
    if (ok && p->arch == MKMODEL_QWEN2MOE)
        ok = add_tensor(p, p->type, 0, 1, hidden, shared, 0, "blk.%u.ffn_gate_shexp.weight",
                        layer) &&
             add_tensor(p, p->type, 0, 1, hidden, shared, 0, "blk.%u.ffn_up_shexp.weight", layer) &&
             add_tensor(p, p->type, 0, 1, shared, hidden, 0, "blk.%u.ffn_down_shexp.weight",
                        layer) &&
             add_tensor(p, TENSOR_F32, 0, 1 / sqrtf((float)hidden), hidden, 0, 0,
                        "blk.%u.ffn_gate_inp_shexp.weight", layer);
    return ok;
}

static enum error_code list_tensors(struct plan *p, struct error *e)
{
    const struct mkmodel_options *o = &p->options;
    enum tensor_type head = p->mixed ? TENSOR_Q6_K : p->type;
    /* Embeddings spread as 1 each, like the norms' outputs. */
    bool ok = add_tensor(p, p->type, 0, sqrtf((float)o->hidden), o->hidden, o->vocab, 0,
                         "token_embd.weight") &&
              add_tensor(p, TENSOR_F32, 1, 0.1f, o->hidden, 0, 0, "output_norm.weight") &&
              add_tensor(p, head, 0, 2, o->hidden, o->vocab, 0, "output.weight");
    for (uint32_t layer = 0; ok && layer < o->layers; layer++) {
        enum tensor_type finer = p->mixed && layer % 2 == 0 ? TENSOR_Q6_K : p->type;
        ok = add_attention(p, layer, finer) && add_experts(p, layer, finer);
    }
    if (!ok)
        return error_set(e, ERROR_MEMORY, "no memory to plan a model of this size");
    return ERROR_OK;
}

static void find_other_type_example(struct plan *p)
{
    for (uint64_t i = 0; i < p->count && !p->other_type_example; i++) {
        const struct planned_tensor *t = &p->tensors[i];
        bool asked = t->type == p->type || (p->mixed && t->type == TENSOR_Q6_K);
        if (!asked && t->type != TENSOR_F32)
            p->other_type_example = t;
    }
}

enum error_code plan_init(struct plan *p, const struct mkmodel_options *o, struct error *e)
{
    *p = (struct plan){.options = *o};
    enum error_code code = choose_arch(p, e);
    if (code == ERROR_OK)
        code = choose_type(p, e);
    if (code == ERROR_OK)
        code = check_options(&p->options, e);
    if (code == ERROR_OK)
        code = list_tensors(p, e);
    if (code != ERROR_OK) {
        plan_fini(p);
        return code;
    }
    if (p->options.split > p->count)
        p->options.split = (uint32_t)p->count;
    if (p->other_type_count)
        find_other_type_example(p);
    return ERROR_OK;
}

void plan_fini(struct plan *p)
{
    free(p->tensors);
    p->tensors = NULL;
}
