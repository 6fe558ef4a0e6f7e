/* What the files of the dense part on a CUDA device share. dense_cuda.c (the batch, rows, the
 * table) stands on dense_cuda_products.c, dense_cuda_attention.c and dense_cuda_recurrent.c, and
 * these on dense_cuda_memory.c. */
#ifndef MOED_WORKER_FORWARD_DENSE_CUDA_INTERNAL_H
#define MOED_WORKER_FORWARD_DENSE_CUDA_INTERNAL_H

#include "dense.h"
#include "kv_pages.h"
#include "layer_graphs.h"
#include "worker/links/cuda_device.h"

enum { DENSE_CUDA_BUFFERS = 64 };
#define DENSE_CUDA_ALIGN 256u /* of a buffer, and of rows that are brought */

/* A slot's pages of a group of layers: those with the indices [first, end) are put. */
struct kv_slot {
    uint32_t first, end;
    uint32_t changed; /* since the last batch: pages from this index on; UINT32_MAX: none */
};

struct dense_cuda {
    struct dense base;
    struct cuda_device *cuda;
    const struct device_module *module; /* these three are cuda's */
    struct device *device;
    struct device_stream *stream;
    struct layer_graphs *graphs;
    void *tables; /* holds kv, slot_pages, slot_hosts, slots and tokens */

    /* the batch under way */
    uint32_t *tokens;                    /* [max_tokens], in host memory: embed's */
    struct mirrored_values rows;         /* struct device_row [max_tokens] */
    struct mirrored_values angles;       /* float [max_tokens][params_angles]: as begin's cos_sin */
    struct mirrored_values query_scales; /* float [max_tokens]; none where all are 1 */
    uint32_t most_positions;             /* of the batch, rounded up where a graph may serve it */
    struct row_groups groups;            /* its products may go through BLAS */
    bool kept;                           /* its layers may be kept as graphs */

    /* the KV cache */
    uint32_t n_slots, context, kv_requests;
    uint32_t pages_a_slot;
    struct device_kv *kv; /* [n_layers] */
    struct kv_pages *pages;
    uint64_t *slot_pages;         /* [groups][n_slots][pages_a_slot]: addresses of pages; 0: none */
    uint8_t **slot_hosts;         /* too: where put_page's caller has them */
    struct kv_slot *slots;        /* [groups][n_slots] */
    struct mirrored_values table; /* slot_pages, as kv[].pages reads it */

    /* products */
    struct device_activations inputs[EXEC_SLOTS]; /* prepared */
    void *input_memory[EXEC_SLOTS];
    struct device_blas blas; /* the operands that BLAS takes */
    void *blas_scratch;      /* NULL: BLAS is not used */
    void *heads_scratch, *attend_scratch, *gate_scratch, *largest_scratch;
    const float *zeros;     /* [d_model]: biases of norms that have none */
    uint32_t logits_rows;   /* rows of logits that are there at once */
    float *logits;          /* [logits_rows][vocab] */
    uint32_t *largest;      /* on the device [2][logits_rows][DEVICE_LARGEST]: values, places */
    uint32_t *largest_host; /* in host memory, of a whole batch: logits_rows rows after another */

    struct cuda_states *states; /* NULL: the model has no recurrent layers */

    /* memory */
    struct mirrored_values staged; /* pinned: dense_ops.bring */
    size_t staged_bytes, staged_used;
    void *buffers[DENSE_CUDA_BUFFERS], *pinned[DENSE_CUDA_BUFFERS];
    unsigned n_buffers, n_pinned;
    struct error failed; /* why the last failed allocation failed */
};

static inline struct dense_cuda *dense_cuda_of(struct dense *d)
{
    return (struct dense_cuda *)d;
}

/* Functions without a comment are those of dense_ops. */

/* ---- dense_cuda_memory.c: NULL or false: c->failed says why ---- */

void *dense_cuda_allocate(struct dense *d, size_t bytes);
void *dense_cuda_allocate_pinned(struct dense_cuda *c, size_t bytes);
bool dense_cuda_allocate_shared(struct dense *d, size_t bytes, struct mirrored_values *out);
void dense_cuda_fetch(struct dense *d, const struct mirrored_values *v, size_t bytes);
enum error_code dense_cuda_wait(struct dense *d, struct error *e);
const void *dense_cuda_bring(struct dense *d, const void *host, size_t bytes);

/* ---- dense_cuda_products.c ---- */

/* Loads BLAS and allocates its scratch. Without it products are slower; nothing else changes. */
void dense_cuda_load_blas(struct dense_cuda *c, const struct pool_map *map);
const void *dense_cuda_prepare(struct dense *d, unsigned slot, const float *x, uint32_t cols,
                               bool quantize);
/* The activations of a slot, for rows of the batch that something else fills. */
struct device_activations *dense_cuda_bind(struct dense_cuda *c, unsigned slot, const float *x,
                                           uint32_t cols, bool quantize);
const void *dense_cuda_prepared(struct dense *d, unsigned slot, const float *x, uint32_t cols,
                                bool quantize);
const void *dense_cuda_norm_prepare(struct dense *d, unsigned slot, const float *x,
                                    const struct norm_weights *w, float eps, uint32_t width,
                                    float *out, bool quantize);
void dense_cuda_multiply(struct dense *d, const struct matrix *m, const void *input, float *y,
                         bool accumulate);
void dense_cuda_multiply_several(struct dense *d, const struct dense_product *products, unsigned n,
                                 const void *input);
const void *dense_cuda_multiply_gated(struct dense *d, unsigned slot, struct gating g,
                                      const struct matrix *gate, const struct matrix *up,
                                      const void *input, float *h, float *up_values, bool quantize);
void dense_cuda_multiply_heads(struct dense *d, const struct head_matrices *m, const float *in,
                               uint32_t in_head, float *out, uint32_t out_head);
enum error_code dense_cuda_largest(struct dense *d, const struct matrix *m, const float *bias,
                                   const float *hidden, uint32_t n, uint32_t k, float *values,
                                   uint32_t *places, struct error *e);
enum error_code dense_cuda_logits(struct dense *d, const struct matrix *m, const float *bias,
                                  const float *hidden, uint32_t n, bool bulk, float *logits,
                                  struct error *e);

/* The bias that the device's norm takes; NULL: an RMS norm. */
static inline const float *dense_cuda_bias(const struct dense_cuda *c, const struct norm_weights *w)
{
    return w->centred ? c->zeros : w->bias;
}

/* ---- dense_cuda_recurrent.c ---- */

/* The states of the recurrent layers, where the model has some. False: c->failed says why. */
bool dense_cuda_make_states(struct dense_cuda *c);
void dense_cuda_free_states(struct dense_cuda *c);
/* The batch's part of `begin`. False: its layers cannot be graphs, because states are copied. */
bool dense_cuda_begin_states(struct dense_cuda *c);
void dense_cuda_end(struct dense *d);
void dense_cuda_split_gate(struct dense *d, uint32_t layer, const float *both, float *q,
                           float *gate);
void dense_cuda_split_delta(struct dense *d, const float *x, float *qkv, float *z);
const void *dense_cuda_delta_prepare(struct dense *d, unsigned slot, uint32_t layer,
                                     const struct layer_weights *w, const struct delta_inputs *in,
                                     float *out, bool quantize);
void dense_cuda_short_convolution(struct dense *d, uint32_t layer, const struct layer_weights *w,
                                  const float *in, float *out);
bool dense_cuda_save_state(struct dense *d, uint32_t slot, uint32_t position, void *state);
void dense_cuda_load_state(struct dense *d, uint32_t slot, const void *state, uint32_t position);

/* ---- dense_cuda_attention.c ---- */

/* False: c->failed says why. */
bool dense_cuda_make_kv(struct dense_cuda *c, enum tensor_type type, uint64_t bytes);
bool dense_cuda_put_page(struct dense *d, uint32_t slot, struct kv_place place, uint8_t *page,
                         uint32_t filled);
void dense_cuda_save_page(struct dense *d, uint32_t slot, struct kv_place place);
void dense_cuda_pass_pages(struct dense *d, uint32_t slot, uint32_t first, uint32_t end);
void dense_cuda_release_slot(struct dense *d, uint32_t slot);
void dense_cuda_kv_resize(struct dense *d, uint64_t bytes);
struct dense_kv_use dense_cuda_kv_use(const struct dense *d);
/* Uploads the page addresses of slots whose pages changed since the last batch. */
void dense_cuda_upload_pages(struct dense_cuda *c);
void dense_cuda_place_heads(struct dense *d, uint32_t layer, const struct layer_weights *w,
                            float *q, float *k, float *v);
void dense_cuda_place_latent(struct dense *d, uint32_t layer, const struct layer_weights *w,
                             float *row, float *q, float *absorbed);
void dense_cuda_attend(struct dense *d, uint32_t layer, const float *q, const float *sinks,
                       float *out);
void dense_cuda_gate_parts(struct dense *d, struct gating g, float *gate, float *rows,
                           uint32_t n_gates, uint32_t width);
const void *dense_cuda_attend_prepare(struct dense *d, unsigned slot, uint32_t layer,
                                      const float *q, const float *sinks, const float *gate,
                                      float *out, bool quantize);

#endif
