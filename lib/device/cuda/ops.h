/* The operations of the CUDA module; struct device_ops of module.h describes each. Plain C and C++.
 */
#ifndef MOED_DEVICE_CUDA_OPS_H
#define MOED_DEVICE_CUDA_OPS_H

#include "device/module.h"

#ifdef __cplusplus
extern "C" {
#endif

size_t cuda_activations_bytes(uint32_t cols, uint32_t n_tokens);
void cuda_activations_bind(struct device_activations *a, void *memory, uint32_t cols,
                           uint32_t n_tokens, const float *x, size_t x_stride, bool quantize);
void cuda_quantize(struct device_stream *s, const struct device_activations *a);
void cuda_multiply(struct device_stream *s, const struct matrix *m,
                   const struct device_activations *a, float *y, size_t y_stride, bool accumulate);
void cuda_multiply_several(struct device_stream *s, const struct device_product *products,
                           unsigned n, const struct device_activations *a);
void cuda_multiply_gated(struct device_stream *s, const struct matrix *gate,
                         const struct matrix *up, const struct device_activations *a,
                         struct device_gating gating, struct device_activations *hidden,
                         float *up_values);
void cuda_multiply_planes(struct device_stream *s, const struct matrix *m, size_t plane_bytes,
                          uint32_t n_planes, uint32_t n, const float *in, size_t in_stride,
                          size_t in_plane, float *out, size_t out_stride, size_t out_plane,
                          void *scratch);
size_t cuda_multiply_many_scratch_bytes(const struct matrix *m, uint32_t n_planes, uint32_t n);
void cuda_multiply_many(struct device_stream *s, const struct matrix *m, const float *x,
                        size_t x_stride, uint32_t n, uint32_t group, float *y, size_t y_stride,
                        bool accumulate, void *scratch);
void cuda_multiply_many_planes(struct device_stream *s, const struct matrix *m, size_t plane_bytes,
                               uint32_t n_planes, uint32_t n, uint32_t group, const float *in,
                               size_t in_stride, size_t in_plane, float *out, size_t out_stride,
                               size_t out_plane, void *scratch);
size_t cuda_experts_scratch_bytes(const struct device_segments *layout, uint32_t n_segments,
                                  uint32_t n_task_rows);
void cuda_experts(struct device_stream *s, const struct device_segments *layout,
                  const struct device_activations *in, const struct device_expert_task *tasks,
                  uint32_t n_tasks, float *rows, void *scratch);
size_t cuda_chosen_bytes(uint32_t n, uint32_t n_used, uint32_t n_segments);
void cuda_choose(struct device_stream *s, const struct device_choice *choice,
                 const uint32_t *selected, uint32_t n);
void cuda_experts_chosen(struct device_stream *s, const struct device_choice *choice,
                         const struct device_activations *in, float *rows, void *scratch,
                         struct device_shared *shared);
void cuda_embed(struct device_stream *s, const struct matrix *m, const uint32_t *tokens, uint32_t n,
                float *out);
void cuda_norm(struct device_stream *s, const float *x, size_t x_stride, const float *weight,
               const float *bias, float eps, uint32_t n, uint32_t d, float *out, size_t out_stride);
void cuda_norm_add(struct device_stream *s, const float *x, const float *weight, const float *bias,
                   float eps, uint32_t n, uint32_t d, float by, float *rows);
void cuda_norm_quantize(struct device_stream *s, const float *x, size_t x_stride,
                        const float *weight, const float *bias, float eps, float *out,
                        size_t out_stride, const struct device_activations *a);
void cuda_add(struct device_stream *s, const float *add, size_t add_stride, float *rows,
              size_t stride, uint32_t n, uint32_t d);
void cuda_place_heads(struct device_stream *s, const struct device_kv *kv,
                      const struct device_row *rows, uint32_t n, const struct device_heads *h);
void cuda_place_latent(struct device_stream *s, const struct device_kv *kv,
                       const struct device_row *rows, uint32_t n, const struct device_latent *l);
size_t cuda_attend_scratch_bytes(uint32_t n, uint32_t n_heads, uint32_t v_dim,
                                 uint32_t most_positions);
void cuda_attend(struct device_stream *s, const struct device_kv *kv, const struct device_row *rows,
                 uint32_t n, uint32_t most_positions, const float *q,
                 const struct device_attention *a, float *out,
                 const struct device_activations *quantized, void *scratch);
void cuda_attend_many(struct device_stream *s, const struct device_kv *kv,
                      const struct device_row *rows, uint32_t n, uint32_t most_positions,
                      const float *q, const struct device_attention *a, float *out,
                      const struct device_activations *quantized, void *scratch);
void cuda_gated(struct device_stream *s, uint32_t activation, float limit, const float *gate,
                const float *up, float *h, size_t n);
void cuda_split(struct device_stream *s, const float *from, uint32_t n,
                const struct device_split *to);
void cuda_delta(struct device_stream *s, const struct device_recurrent *r,
                const struct device_delta *d, const struct device_activations *quantized);
void cuda_short_convolution(struct device_stream *s, const struct device_recurrent *r,
                            const struct device_short_convolution *c);
void cuda_gate_by_sigmoid(struct device_stream *s, const float *gate, float *rows, size_t n);
void cuda_gate_parts(struct device_stream *s, uint32_t activation, const float *gate, float *rows,
                     uint32_t n, uint32_t n_gates, uint32_t width);
void cuda_scale(struct device_stream *s, float by, const float *from, float *to, size_t n);
size_t cuda_gate_scratch_bytes(uint32_t n_experts, uint32_t cols);
void cuda_gate(struct device_stream *s, const struct device_gate *g,
               const struct device_activations *in);
void cuda_route(struct device_stream *s, const struct device_gate *g, uint32_t n);
void cuda_combine(struct device_stream *s, const float *rows, const uint32_t *row_of,
                  const float *weights, const uint32_t *selected, uint32_t n_used,
                  const float *down_bias, const float *shared, const float *shared_by, float *x,
                  uint32_t n, uint32_t d);
size_t cuda_largest_scratch_bytes(uint32_t n, uint32_t vocab, uint32_t k);
void cuda_largest(struct device_stream *s, const float *logits, uint32_t n, uint32_t vocab,
                  uint32_t k, float *values, uint32_t *places, void *scratch);

#ifdef __cplusplus
}
#endif
#endif
