/* The types that the KV cache may have, and what a position then takes: for the worker that owns one, for who starts it,
 * and for who says beforehand what memory it needs. */
#ifndef MOED_MODEL_KV_TYPE_H
#define MOED_MODEL_KV_TYPE_H

#include "base/error.h"
#include "gguf/tensor_type.h"
#include "model/params.h"

#include <stddef.h>

/* What --kv-type takes, for help texts. */
#define KV_TYPES        "f32, f16 or q8_0"
#define KV_TYPE_DEFAULT "f16"

/* ERROR_USAGE with the names that there are. */
enum error_code kv_type_parse(const char *text, enum tensor_type *out, struct error *e);
/* ERROR_UNSUPPORTED where the type's blocks do not divide the model's heads. */
enum error_code kv_type_check(const struct model_params *p, enum tensor_type type, struct error *e);

/* Bytes of a position of one KV head in one layer: its keys, its values. Latent attention's values are the first part
 * of its keys and take nothing. The type is checked. */
size_t kv_key_bytes(const struct model_params *p, enum tensor_type type);
size_t kv_value_bytes(const struct model_params *p, enum tensor_type type);

#endif
