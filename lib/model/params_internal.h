/* What the readers of hyper-parameters share: params.c stands on params_attention.c (heads,
 * windows, recurrent layers), params_blocks.c, params_rope.c and params_features.c. After an error
 * they leave the parameters as they are; see key_reader.h. */
#ifndef MOED_MODEL_PARAMS_INTERNAL_H
#define MOED_MODEL_PARAMS_INTERNAL_H

#include "model/key_reader.h"
#include "model/params.h"

/* No model comes near these limits. A file beyond them is broken or hostile. */
enum {
    PARAMS_MAX_WIDTH = 1 << 18,
    PARAMS_MAX_HEADS = 1024,
    PARAMS_MAX_HEAD_DIM = 4096,
    PARAMS_MAX_VOCAB = 1 << 22,
    PARAMS_MAX_CONTEXT = 1 << 28,
    PARAMS_MAX_TAPS = 16,
};

/* ERROR_UNSUPPORTED: the key has a value, and what it means is not computed. */
void params_refuse_value(struct key_reader *r, const char *suffix, double value, const char *what);

/* A list by layer, for each layer one value. */
struct params_list {
    const struct gguf_kv *kv; /* NULL: the file has no such list */
};
struct params_list params_find_list(const struct key_reader *r, const char *suffix,
                                    uint32_t n_layers);
/* A value: integers, or booleans as 0 and 1. */
uint32_t params_list_u32(struct params_list l, uint32_t layer);
float params_list_f32(struct params_list l, uint32_t layer);
/* Which blocks of the file are recurrent, where it says so. Fails where it does in another form. */
struct params_list params_recurrent_list(struct key_reader *r, uint32_t n_blocks);

/* Where a block of the file is a part of a layer: the layers, with their kinds and blocks. */
void params_read_blocks(struct key_reader *r, struct model_params *p);
/* Elsewhere, after the layers are known: their blocks. */
void params_number_blocks(const struct key_reader *r, struct model_params *p);

/* The layers' kinds, heads and windows. */
void params_read_attention(struct key_reader *r, struct model_params *p);
/* After the experts. */
void params_read_value_scale(struct key_reader *r, struct model_params *p);
/* After it. Where the file says which layers rotate, they are known after the dense layers are. */
void params_read_rope(struct key_reader *r, struct model_params *p);
void params_choose_rotated(const struct key_reader *r, struct model_params *p);

/* After all of these: refuses keys that say that the model computes something else. */
void params_refuse_features(struct key_reader *r, const struct model_params *p);

#endif
