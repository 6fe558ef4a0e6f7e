/* Types of the KV cache; see kv_type.h. */
#include "model/kv_type.h"

#include <inttypes.h>
#include <string.h>

enum error_code kv_type_parse(const char *text, enum tensor_type *out, struct error *e)
{
    static const struct {
        const char *name;
        enum tensor_type type;
    } types[] = {{"f32", TENSOR_F32}, {"f16", TENSOR_F16}, {"q8_0", TENSOR_Q8_0}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, text) == 0) {
            *out = types[i].type;
            return ERROR_OK;
        }
    return error_set(e, ERROR_USAGE, "--kv-type: '%.20s' is none of " KV_TYPES, text);
}

enum error_code kv_type_check(const struct model_params *p, enum tensor_type type, struct error *e)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    for (const struct layer_params *l = p->layers; l < p->layers + p->n_layers; l++)
        if (l->k_dim % info->block_values || l->v_dim % info->block_values)
            return error_set(
                e, ERROR_UNSUPPORTED,
                "--kv-type q8_0 takes heads of a multiple of %u values: this model's have %" PRIu32
                " and %" PRIu32 "; take f16",
                (unsigned)info->block_values, l->k_dim, l->v_dim);
    return ERROR_OK;
}

static size_t row_bytes(enum tensor_type type, uint32_t values)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    return (size_t)values / info->block_values * info->block_bytes;
}

size_t kv_key_bytes(const struct model_params *p, uint32_t layer, enum tensor_type type)
{
    return row_bytes(type, p->layers[layer].k_dim);
}

size_t kv_value_bytes(const struct model_params *p, uint32_t layer, enum tensor_type type)
{
    return params_cache_rows(p) == 1 ? 0 : row_bytes(type, p->layers[layer].v_dim);
}
