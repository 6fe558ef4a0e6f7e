/* The types of the KV cache and the bytes of a position. The worker, the command line that starts
 * it, and the estimate of memory use them. */
#ifndef MOED_MODEL_KV_TYPE_H
#define MOED_MODEL_KV_TYPE_H

#include "base/error.h"
#include "gguf/tensor_type.h"
#include "model/params.h"

#include <stddef.h>

/* The values of --kv-type, for help texts. */
#define KV_TYPES        "f32, f16 or q8_0"
#define KV_TYPE_DEFAULT "f16"

/* ERROR_USAGE lists the known names. */
enum error_code kv_type_parse(const char *text, enum tensor_type *out, struct error *e);
/* ERROR_UNSUPPORTED if the type's blocks do not divide the model's heads. */
enum error_code kv_type_check(const struct model_params *p, enum tensor_type type, struct error *e);

/* Bytes of the keys, and of the values, of one position of one KV head in a layer: none in a layer
 * without attention. With latent attention the values are the first part of the keys and take 0
 * bytes. kv_type_check must allow the type. */
size_t kv_key_bytes(const struct model_params *p, uint32_t layer, enum tensor_type type);
size_t kv_value_bytes(const struct model_params *p, uint32_t layer, enum tensor_type type);

#endif
