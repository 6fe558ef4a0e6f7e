/* The interface of a device module: the accelerator behind `--device cuda`.
 *
 * A module is a shared library. device_module_load loads it at run time, so neither a build nor a
 * machine needs the toolkit of a device that it does not use. The library exports one function,
 * DEVICE_MODULE_SYMBOL, which returns the module's table. `libmoed-cuda.so` is lib/device/cuda
 * compiled by nvcc. The tests load the same sources, compiled by the host's compiler on
 * tests/cusim.
 *
 * Terms. An address names device memory; only the module reads that memory. Copies and operations
 * of one stream happen in order. Events order streams among each other, and nothing else does. An
 * asynchronous call may return before its work is done.
 *
 * Errors. A function that returns an error code fills struct error with the failing call of the
 * device's library and that library's message. Operations return nothing: the device keeps the
 * first failure, and finish, event_query and event_wait return it. The device is then lost to this
 * process, which ends and is started again.
 *
 * Threads. One thread at a time uses a stream and the operations. Any thread may call everything
 * else.
 *
 * Plain C and C++, for both compilers. */
#ifndef MOED_DEVICE_MODULE_H
#define MOED_DEVICE_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "base/error.h"
#include "kernels/tile.h"

#define DEVICE_MODULE_ABI    15u
#define DEVICE_MODULE_SYMBOL "moed_device_module"

struct device;        /* one accelerator, opened by this process */
struct device_stream; /* an order of copies and operations */
struct device_event;  /* a point in one */
struct device_graph;  /* operations of one, to be queued again */

struct device_facts {
    char name[128];
    char version[64]; /* of driver and library, as text for logs */
    char pci[24];     /* its address on the bus, as 0000:65:00.0; "": not known */
    char blas[200];   /* the library of matrix products and its version; "": none is loaded */
    uint64_t memory_bytes, free_bytes;
    unsigned multiprocessors;
    bool signals;   /* signal and await can be called */
    bool display;   /* it drives a display, whose programs take and give back memory at any time */
    bool exclusive; /* its mode lets one process use it, and no server shares it among several */
    char mode[40];  /* which processes may use it, as text for logs */
};

/* What a process opens a device for. */
enum device_opening {
    DEVICE_COPIES,   /* memory, streams, copies, flags: no operation, and no kernel is loaded */
    DEVICE_COMPUTES, /* operations too: all kernels are loaded, before any stream waits for a flag
                      */
};

/* The offset of the flags (signal and await below) of an arena without flags. */
#define DEVICE_NO_FLAGS UINT64_MAX

/* Device memory that a stream allocates for itself, of a device that is opened to compute. */
enum { DEVICE_STREAM_BYTES = 8 << 20 };

/* The operands that the device's library of matrix products takes. */
struct device_blas {
    bool f32, f16, bf16;
};

/* True: weights of that type go through the library. BF16 goes as float32 where the library does
 * not take BF16. */
static inline bool device_blas_takes(const struct device_blas *b, enum tensor_type type)
{
    if (type == TENSOR_F32)
        return b->f32;
    return type == TENSOR_BF16 ? b->bf16 || b->f32 : b->f16;
}

/* A name of device memory for another process of this machine; valid while the memory exists. */
enum { DEVICE_HANDLE_BYTES = 64 };
struct device_handle {
    uint8_t bytes[DEVICE_HANDLE_BYTES];
};

/* Activations of n_tokens rows, ready to be multiplied: as struct activations of kernels/kernels.h,
 * in device memory. A token's block of 16 has its scale and the sum of its q, a block of 32 its
 * bias. */
struct device_activations {
    uint32_t n_tokens, cols;
    const float *x;  /* [n_tokens][x_stride] */
    size_t x_stride; /* in floats */
    int8_t *q;       /* [n_tokens][cols rounded up to 64]; NULL: not quantised */
    float *d;        /* [n_tokens][2 * blocks of 32] */
    float *bias;     /* [n_tokens][blocks of 32] */
    int32_t *sum;    /* [n_tokens][2 * blocks of 32]: of the q of each 16 */
};

/* Segments [first, first + n_segments) of one expert for some tokens; as struct expert_task of
 * exec/exec.h. The struct, the places and the tokens lie in host memory and are read before the
 * call returns. */
struct device_expert_task {
    uint32_t n_segments, n_tokens;
    const void *const *places; /* [n_segments]: each segment's address on the device */
    const uint32_t *tokens;    /* [n_tokens]: rows of the activations */
    uint32_t first_row;        /* of out */
    bool continues;            /* adds to what the rows hold; else they begin at 0 */
    bool rounds;               /* the tokens are of one group of rows (exec/row_groups.h) */
};

/* A product of some that have their input in common: y[t * y_stride + r] (+)= (W x_t)[r], then
 * plus bias[r]. */
struct device_product {
    const struct matrix *m; /* its tiles are on the device */
    float *y;
    size_t y_stride;
    bool accumulate;
    const float *bias; /* [m->rows]; NULL: none */
};

/* The addresses of the segments of a layer's experts, for experts_chosen. */
struct device_places {
    const void *const *places; /* device: [n_experts][n_segments]; NULL: not on the device */
    uint32_t n_experts;
    uint32_t n_segments; /* of each expert */
    uint32_t n_used;     /* experts of a token */
    uint32_t layer;
    uint32_t *missed; /* device: 0, or the number + 1 of the first layer that chose an expert which
                         is not on the device */
};

/* The layout of a layer's segments; from struct pool_slabs. Offsets are within a segment; gate's is
 * 0. up_offset 0: no gate, for an activation that takes none. */
struct device_segments {
    uint32_t d_model, width;
    uint32_t gate_type, up_type, down_type; /* enum tensor_type */
    uint64_t up_offset, down_offset;
    uint64_t bias_offset; /* gate's width biases, then up's; 0: none */
    uint32_t activation;  /* enum activation of kernels/kernels.h */
    float limit;          /* of struct gating there */
};

/* What the device makes of a gate's choices, without the host: it groups them by expert, checks
 * that all their segments are there, and writes the table of work for experts_chosen. If *missed is
 * 0 and all are there, row row_of[t * n_used + k] (device) will be the sum of token t's k-th
 * expert. Otherwise *missed is set, where it was 0, and there is no work. */
struct device_choice {
    const struct device_segments *layout;
    struct device_places at;
    uint32_t *row_of;
    void *tables; /* chosen_bytes */
};

/* struct gating of kernels/kernels.h. */
struct device_gating {
    uint32_t activation;
    float limit;
};

/* A shared expert, computed beside experts_chosen with the same input: out [n][down->rows]. */
struct device_shared {
    const struct matrix *gate, *up, *down; /* their tiles are on the device */
    struct device_gating gating;
    float *out;
    struct device_activations hidden; /* bound to n rows of gate->rows; quantised where down's type
                                         needs it; its x is written too */
    float *up_values;                 /* scratch [n][gate->rows] */
};

enum { DEVICE_CHOSEN = 1024 };    /* choices: the most of all rows together */
enum { DEVICE_LARGEST = 256 };    /* largest: the most values of a row */
enum { DEVICE_LEAST_GROUP = 32 }; /* multiply_many: rows of a group */

/* A layer's cache of keys and values on the device: pages of DEVICE_PAGE positions. A page holds,
 * for each layer with attention, all its positions' keys, then all their values (none where values
 * are the keys' first part). Q8_0, where a head's keys and values are multiples of 32: all
 * positions' quants, then all their scales (halves, one for 32 quants), so that both are aligned. A
 * slot's pages may change between operations of the stream without a change of this struct. */
enum { DEVICE_PAGE = 64 };
struct device_kv {
    uint32_t type;         /* enum tensor_type: F32, F16 (rounded to nearest even) or Q8_0 */
    uint32_t rows;         /* 2; 1 where values are the keys' first part */
    uint32_t key_values;   /* of a position's keys */
    uint32_t value_values; /* of its values; key_values where these are the keys' first part */
    uint32_t key_bytes;    /* of a position's keys, with their scales */
    /* device: [n_slots][pages_a_slot], the address of the page of each DEVICE_PAGE positions,
     * aligned to 16 bytes; the same for all layers. The layer's keys lie `offset` further, a
     * multiple of 16, and its values DEVICE_PAGE * key_bytes behind these. */
    const uint64_t *pages;
    uint64_t offset;
    uint32_t pages_a_slot;
};

/* A row of a batch: the slot of its request, and its position there. */
struct device_row {
    uint32_t slot, position;
};

/* As struct router_params of model/params.h; kind is an enum router_kind. */
struct device_router {
    uint32_t kind, n_experts, n_used, n_groups, n_groups_used;
    bool renormalise;
    float scale, weight_sum_eps, weight_sum_least;
};

/* The gate of a layer. */
struct device_gate {
    const struct matrix *router_weights; /* [n_experts] rows; its tiles are on the device */
    const float *bias;                   /* [n_experts], of the logits; NULL: none */
    struct device_router router;
    const float *selection_bias; /* [n_experts]; NULL: none */
    const float *expert_scales;  /* [n_experts], factors of the weights; NULL: none */
    float *logits;               /* [n][n_experts]: as router_select leaves them */
    uint32_t *selected;          /* [n][n_used] */
    float *weights;              /* [n][n_used] */
    /* A matrix of one row with the same input, to other_out [n]; NULL: none. */
    const struct matrix *other;
    float *other_out;
    const struct device_choice *choice; /* NULL: the host plans */
    void *scratch; /* gate_scratch_bytes; zeroed before the first use, and left so */
};

/* What happens to the heads of q, k and v before attention, in this order: norm of v; norm and
 * rotation of q and k; keys and values go to the cache. q is changed in place. */
struct device_heads {
    float *q;       /* [n][n_heads][k_dim] */
    const float *k; /* [n][n_kv_heads][k_dim] */
    const float *v; /* [n][n_kv_heads][v_dim]; NULL: k, before its norm. Not read where the cache
                       has no values */
    uint32_t n_heads, n_kv_heads, k_dim, v_dim;
    const float *q_norm, *k_norm; /* [k_dim]: an RMS norm of each head; NULL: none */
    bool norm_after;              /* after the rotation */
    bool value_norm;              /* an RMS norm without weights of each head of v */
    float eps;
    const float *cos_sin; /* [n][2][dims / 2] */
    uint32_t dims;        /* rotated values of a head; 0: none */
    bool neox;
};

/* The same of latent attention: the first `rank` values of a row are normed and the dims after them
 * rotated, and the row goes to the cache as key; the last dims of each head of q (q is scaled
 * before) go to its place in absorbed, rotated. */
struct device_latent {
    const float *row; /* [n][rank + dims] */
    float *q;         /* [n][n_heads][q_dim] */
    float *absorbed;  /* [n][n_heads][rank + dims] */
    uint32_t n_heads, rank, q_dim, dims;
    const float *norm; /* [rank] */
    float eps;
    const float *query_scales; /* [n]; NULL: 1 */
    const float *cos_sin;      /* [n][2][dims / 2] */
    bool neox;
};

struct device_attention {
    uint32_t n_heads, n_kv_heads, k_dim, v_dim;
    float scale;
    uint32_t window;    /* positions, the row's own included; 0: all */
    const float *sinks; /* [n_heads]; NULL: none */
    const float *gate;  /* [n][n_heads][v_dim]: results are multiplied by its sigmoid; NULL: none */
};

/* Adjacent rows of a batch that are one slot's. n 0: none. */
struct device_run {
    uint32_t first, n;
};

/* The states of a recurrent layer, and the rows that step them. A slot's state is
 * params_layer_state_floats of model/params.h, slot * slot_floats behind `states`. Nothing is read
 * of it that a position before the slot's first row has not written, so it needs no zeros where a
 * request begins. Pointers to values of rows, here and in the operations' structs, are those of the
 * batch's row 0. */
struct device_recurrent {
    float *states;
    size_t slot_floats;
    const struct device_row *rows; /* device: of the batch */
    const struct device_run *runs; /* device: [n_runs], all the batch's runs, at most one a slot */
    uint32_t n_runs;
    uint32_t first, n; /* the rows of this call; those before them have been stepped */
};

/* Gated DeltaNet of all heads. qkv [.][channels] is q, then k of all key heads, then v of all value
 * heads, before the convolution. */
struct device_delta {
    uint32_t k_heads, v_heads, k_dim, v_dim; /* k_dim: at most DELTA_KEY_MOST_ON_DEVICE */
    uint32_t taps;                           /* at most CONVOLVE_TAPS */
    bool grouped; /* value head j reads key head j / (v_heads / k_heads); else j mod k_heads */
    const float *qkv, *z; /* [.][channels], [.][v_heads][v_dim] */
    /* [.][v_heads], before sigmoid and softplus; alpha NULL: beta has both, of each key head its
     * value heads' beta, then their alpha */
    const float *beta, *alpha;
    const float *conv;              /* [channels][taps] */
    const float *dt, *a;            /* [v_heads] */
    float q_scale, k_scale, l2_eps; /* the RMS norm of q and k with these is the L2 norm */
    const float *norm;              /* [v_dim], of the output */
    float eps;
    float *placed; /* scratch [.][channels]: q, k and v convolved and normed */
    float *rates;  /* scratch [.][2][v_heads]: decay, beta */
    float *out;    /* [.][v_heads][v_dim]: normed and gated by silu(z) */
};

/* A gated short convolution: out [.][width] = c * the convolution of b * x. */
struct device_short_convolution {
    uint32_t width, taps; /* taps: at most CONVOLVE_TAPS */
    const float *in;      /* [.][3][width]: b, c, x */
    const float *weights; /* [width][taps] */
    float *out;
};

/* Where adjacent values of each part of a row go: the first to[0].width of the part to to[0], the
 * next to to[1], ... */
enum { DEVICE_SPLIT = 4 };
struct device_split {
    uint32_t n_parts, n_to;
    struct {
        float *at; /* of row 0, part 0; the parts are `width` apart, the rows `stride` */
        uint32_t width;
        size_t stride;
    } to[DEVICE_SPLIT];
};

/* Operations on one stream, asynchronous. Float pointers are device memory unless a comment says
 * otherwise; n is the number of rows. The portable build of kernels/kernels.h (or the file that is
 * named) defines each result to the bit, and no result depends on the other rows of the batch. The
 * exceptions are multiply_many, multiply_many_planes and attend_many. */
struct device_ops {
    /* activations_bind sets *a, with its buffers in memory, activations_bytes of it; quantize fills
     * the buffers. */
    size_t (*activations_bytes)(uint32_t cols, uint32_t n_tokens);
    void (*activations_bind)(struct device_activations *a, void *memory, uint32_t cols,
                             uint32_t n_tokens, const float *x, size_t x_stride, bool quantize);
    void (*quantize)(struct device_stream *s, const struct device_activations *a);

    /* y[t * y_stride + r] (+)= (W x_t)[r]; m->tiles is on the device. */
    void (*multiply)(struct device_stream *s, const struct matrix *m,
                     const struct device_activations *a, float *y, size_t y_stride,
                     bool accumulate);
    /* Several products of one input, in one launch where their types allow it. */
    void (*multiply_several)(struct device_stream *s, const struct device_product *products,
                             unsigned n, const struct device_activations *a);
    /* hidden->x (written) = act(gate x) * (up x), quantised where hidden is: gate and up in one
     * launch where their types allow it, and then x need not be written where it is quantised.
     * hidden may change: use it as input of a product before it is bound again. up_values: scratch,
     * as hidden->x. */
    void (*multiply_gated)(struct device_stream *s, const struct matrix *gate,
                           const struct matrix *up, const struct device_activations *a,
                           struct device_gating gating, struct device_activations *hidden,
                           float *up_values);
    /* n_planes matrices of m's shape, plane_bytes apart: plane i takes the cols floats at in[t *
     * in_stride + i * in_plane] to out[t * out_stride + i * out_plane]. scratch:
     * activations_bytes(m->cols, n * n_planes). */
    void (*multiply_planes)(struct device_stream *s, const struct matrix *m, size_t plane_bytes,
                            uint32_t n_planes, uint32_t n, const float *in, size_t in_stride,
                            size_t in_plane, float *out, size_t out_stride, size_t out_plane,
                            void *scratch);

    /* y[t * y_stride + r] (+)= (W x_t)[r] for n rows of x, some dozens and more, by the device's
     * library of matrix products. Each `group` rows (at least DEVICE_LEAST_GROUP, or all), and what
     * is left, are a product of their own, which depends on no other rows. load_blas must have
     * found it, and it must take W (device_blas_takes).
     *
     * The arithmetic is not the definition's: the library rounds in its own order. All sums are
     * float32. Operands by W's type:
     *
     *   F32     float32 (no TF32)
     *   BF16    x is rounded to BF16. Where the library has no products of BF16: float32, with W
     *           as it is. FP16 would be faster, but W may need float32's range.
     *   others  W and x are rounded to FP16: 11 bits, where a quantised x has 8. x may be of any
     *           size: one power of two scales all of a group so that its largest magnitude is just
     * in range, and y is scaled back. Values below 2^-28 of the largest keep fewer bits. Weights
     * beyond 65504, which no real model has, become 65504; weights below 2^-14 are rounded to
     * multiples of 2^-24.
     *
     * scratch: multiply_many_scratch_bytes of the matrix, whose tiles are not read for that, and of
     * one plane. */
    size_t (*multiply_many_scratch_bytes)(const struct matrix *m, uint32_t n_planes, uint32_t n);
    void (*multiply_many)(struct device_stream *s, const struct matrix *m, const float *x,
                          size_t x_stride, uint32_t n, uint32_t group, float *y, size_t y_stride,
                          bool accumulate, void *scratch);
    /* As multiply_many, for n_planes matrices laid out as in multiply_planes. One power of two
     * scales the x of some planes, not of all. */
    void (*multiply_many_planes)(struct device_stream *s, const struct matrix *m,
                                 size_t plane_bytes, uint32_t n_planes, uint32_t n, uint32_t group,
                                 const float *in, size_t in_stride, size_t in_plane, float *out,
                                 size_t out_stride, size_t out_plane, void *scratch);

    /* rows [.][d_model]: the tasks' partial sums, as exec_experts computes them. scratch:
     * experts_scratch_bytes of the number of segments and of token rows (the sum of each task's
     * n_segments * n_tokens).
     *
     * Tasks with `rounds` may be computed otherwise if an expert has weights of BF16 or F16:
     * inputs, and hidden values, are rounded to BF16, for weights of F16 to 16 bits, and sums are
     * float32 in another order. Whether they are depends on the task's number of tokens only. */
    size_t (*experts_scratch_bytes)(const struct device_segments *layout, uint32_t n_segments,
                                    uint32_t n_task_rows);
    void (*experts)(struct device_stream *s, const struct device_segments *layout,
                    const struct device_activations *in, const struct device_expert_task *tasks,
                    uint32_t n_tasks, float *rows, void *scratch);

    /* As experts, for the experts that a gate chose: n * n_used at most DEVICE_CHOSEN choices. The
     * host takes no part. choose makes the table of work, unless `gate` has made it; experts_chosen
     * computes it. Where an expert is missing the rows stay as they are. shared NULL: none. tables:
     * chosen_bytes; scratch: experts_scratch_bytes of n * n_used token rows. */
    size_t (*chosen_bytes)(uint32_t n, uint32_t n_used, uint32_t n_segments);
    void (*choose)(struct device_stream *s, const struct device_choice *choice,
                   const uint32_t *selected, uint32_t n);
    void (*experts_chosen)(struct device_stream *s, const struct device_choice *choice,
                           const struct device_activations *in, float *rows, void *scratch,
                           struct device_shared *shared);

    /* out[i] = row tokens[i] of m (a host array), as tile_unpack_row. */
    void (*embed)(struct device_stream *s, const struct matrix *m, const uint32_t *tokens,
                  uint32_t n, float *out);
    /* Rows of d floats, strides in floats; bias NULL: RMS norm, weight NULL: 1. out may be x. */
    void (*norm)(struct device_stream *s, const float *x, size_t x_stride, const float *weight,
                 const float *bias, float eps, uint32_t n, uint32_t d, float *out,
                 size_t out_stride);
    /* rows [n][d] = (rows + norm of x [n][d]) * by; rows is not x. */
    void (*norm_add)(struct device_stream *s, const float *x, const float *weight,
                     const float *bias, float eps, uint32_t n, uint32_t d, float by, float *rows);
    /* Norms the rows and quantises the result; a: rows of cols floats at out. */
    void (*norm_quantize)(struct device_stream *s, const float *x, size_t x_stride,
                          const float *weight, const float *bias, float eps, float *out,
                          size_t out_stride, const struct device_activations *a);
    /* rows[t][i] += add[t * add_stride + i]; add_stride 0: the same for every row. */
    void (*add)(struct device_stream *s, const float *add, size_t add_stride, float *rows,
                size_t stride, uint32_t n, uint32_t d);
    /* From products to attention; rows: device memory. */
    void (*place_heads)(struct device_stream *s, const struct device_kv *kv,
                        const struct device_row *rows, uint32_t n, const struct device_heads *h);
    void (*place_latent)(struct device_stream *s, const struct device_kv *kv,
                         const struct device_row *rows, uint32_t n, const struct device_latent *l);
    /* Attention of every head of every row over the positions up to its own, within the window:
     * kernels.h, attend. q [n][n_heads][k_dim], out [n][n_heads][v_dim]; quantized: also filled,
     * bound to out; NULL: none. most_positions: the batch's largest position + 1. scratch:
     * attend_scratch_bytes. */
    size_t (*attend_scratch_bytes)(uint32_t n, uint32_t n_heads, uint32_t v_dim,
                                   uint32_t most_positions);
    void (*attend)(struct device_stream *s, const struct device_kv *kv,
                   const struct device_row *rows, uint32_t n, uint32_t most_positions,
                   const float *q, const struct device_attention *a, float *out,
                   const struct device_activations *quantized, void *scratch);
    /* As attend, for rows of prompts, by tensor cores: queries, shares, and keys and values of
     * Q8_0, are rounded to FP16, sums are float32 in the device's order. A row's result depends on
     * no other row. It falls back to attend without tensor cores, and with a cache of F32. It does
     * so where dimensions are no multiples of 16 or more than 512, of a latent key 576. Before
     * compute capability 8.0 it also does with more than 128 dimensions, and latent. */
    void (*attend_many)(struct device_stream *s, const struct device_kv *kv,
                        const struct device_row *rows, uint32_t n, uint32_t most_positions,
                        const float *q, const struct device_attention *a, float *out,
                        const struct device_activations *quantized, void *scratch);
    /* h[i] from gate[i] and up[i]; activation: enum activation. h may be gate. */
    void (*gated)(struct device_stream *s, uint32_t activation, float limit, const float *gate,
                  const float *up, float *h, size_t n);
    /* from [n][n_parts][the sum of the widths]. */
    void (*split)(struct device_stream *s, const float *from, uint32_t n,
                  const struct device_split *to);
    /* Step the states; see kernels.h. quantized: also filled, bound to all of the batch's rows of
     * out; NULL: none. */
    void (*delta)(struct device_stream *s, const struct device_recurrent *r,
                  const struct device_delta *d, const struct device_activations *quantized);
    void (*short_convolution)(struct device_stream *s, const struct device_recurrent *r,
                              const struct device_short_convolution *c);
    /* rows[i] from gate[i] by ACTIVATION_SIGMOID. */
    void (*gate_by_sigmoid)(struct device_stream *s, const float *gate, float *rows, size_t n);
    /* rows [n][n_gates][width] *= act(gate [n][n_gates]); activation: ACTIVATION_SIGMOID or
     * ACTIVATION_SOFTPLUS. worker/forward/dense_host_recurrent.c. */
    void (*gate_parts)(struct device_stream *s, uint32_t activation, const float *gate, float *rows,
                       uint32_t n, uint32_t n_gates, uint32_t width);
    /* to[i] = from[i] * by; to may be from. */
    void (*scale)(struct device_stream *s, float by, const float *from, float *to, size_t n);
    /* A layer's gate, of in->n_tokens rows: model/router.h. The products never go through a
     * library. */
    size_t (*gate_scratch_bytes)(uint32_t n_experts, uint32_t cols);
    void (*gate)(struct device_stream *s, const struct device_gate *g,
                 const struct device_activations *in);
    /* Only the choice from g's logits. */
    void (*route)(struct device_stream *s, const struct device_gate *g, uint32_t n);
    /* x[t] += (sum over ranks k of weights[t][k] * (row row_of[t * n_used + k] of rows +
     * down_bias[selected]), in order of rank, from 0) + shared[t] * sigmoid(shared_by[t]); as
     * worker/forward/dense_host.c's combine_token. down_bias [n_experts][d] or NULL, shared or
     * NULL, shared_by [n] or NULL: without the factor. */
    void (*combine)(struct device_stream *s, const float *rows, const uint32_t *row_of,
                    const float *weights, const uint32_t *selected, uint32_t n_used,
                    const float *down_bias, const float *shared, const float *shared_by, float *x,
                    uint32_t n, uint32_t d);
    /* The k (at most DEVICE_LARGEST) largest values of each row and their places, largest first; of
     * equal values the lower place first. scratch: largest_scratch_bytes. */
    size_t (*largest_scratch_bytes)(uint32_t n, uint32_t vocab, uint32_t k);
    void (*largest)(struct device_stream *s, const float *logits, uint32_t n, uint32_t vocab,
                    uint32_t k, float *values, uint32_t *places, void *scratch);
};

struct device_module {
    uint32_t abi; /* DEVICE_MODULE_ABI */
    const char *name;

    /* Once, before open: what takes long is reported to `line` when it begins. */
    void (*report_to)(void (*line)(const char *text));
    /* ordinal: the device's number on this machine. ERROR_NOT_FOUND: there is no such device;
     * ERROR_UNSUPPORTED: the driver or the device is too old, or no process may use the device. */
    enum error_code (*open)(unsigned ordinal, enum device_opening use, struct device **out,
                            struct error *e);
    void (*close)(struct device *d); /* takes NULL */
    /* Ends this process's context of a device that it has closed, and frees all that the context
     * has. For tests: a checker of leaks reports at that point what is still allocated. */
    void (*reset)(unsigned ordinal);
    void (*facts)(struct device *d, struct device_facts *out);

    /* Loads the library behind multiply_many, which takes its memory of the device now, and tries
     * which operands it takes. A second call returns the first one's result. Called by the thread
     * that calls the operations. ERROR_UNSUPPORTED: this machine has no such library that takes
     * any operands; do not call multiply_many then. Nothing else changes. */
    enum error_code (*load_blas)(struct device *d, struct device_blas *out, struct error *e);

    /* Device memory, aligned to 256 bytes at least; its content is undefined. */
    enum error_code (*allocate)(struct device *d, size_t bytes, void **out, struct error *e);
    void (*release)(struct device *d, void *memory); /* takes NULL */
    /* memory: an address that allocate returned. Another process imports it once, and closes it. */
    enum error_code (*export_memory)(struct device *d, void *memory, struct device_handle *out,
                                     struct error *e);
    enum error_code (*import_memory)(struct device *d, const struct device_handle *handle,
                                     void **out, struct error *e);
    void (*close_imported)(struct device *d, void *memory); /* takes NULL */
    /* Pins host memory, also a read-only mapping, so that copies reach the link's rate. */
    enum error_code (*pin)(struct device *d, const void *memory, size_t bytes, struct error *e);
    void (*unpin)(struct device *d, const void *memory);
    /* Allocates host memory that is pinned, for staging. */
    enum error_code (*allocate_pinned)(struct device *d, size_t bytes, void **out, struct error *e);
    void (*release_pinned)(struct device *d, void *memory); /* takes NULL */

    enum error_code (*stream_new)(struct device *d, struct device_stream **out, struct error *e);
    void (*stream_free)(struct device_stream *s); /* takes NULL */
    /* Asynchronous from and to pinned memory, and within the device. With memory that is not pinned
     * the call may wait. */
    void (*upload)(struct device_stream *s, void *to, const void *from, size_t bytes);
    void (*download)(struct device_stream *s, void *to, const void *from, size_t bytes);
    void (*copy)(struct device_stream *s, void *to, const void *from, size_t bytes);
    void (*fill)(struct device_stream *s, void *to, uint8_t byte, size_t bytes);
    /* Waits until everything in the stream is done. Returns the first error since open. */
    enum error_code (*finish)(struct device_stream *s, struct error *e);

    /* From now on add, norm_add, scale, combine, an accumulating multiply, and the states of
     * delta and short_convolution change nothing if *stop (device) is not 0 when they run. So
     * operations that were queued behind a failure do no harm. NULL: no guard.
     */
    void (*guard)(struct device_stream *s, const uint32_t *stop);
    /* Between begin and end the stream keeps operations, their arguments and the guard, instead of
     * running them; graph_launch queues them all. Host memory that they read is not kept, so do not
     * call embed or experts in between, and copies only from and to pinned memory, whose content is
     * read when the copy runs. */
    void (*graph_begin)(struct device_stream *s);
    /* An error: there is no graph, and no operation has run. After ERROR_MEMORY the device is as it
     * was; after any other error it is lost. */
    enum error_code (*graph_end)(struct device_stream *s, struct device_graph **out,
                                 struct error *e);
    void (*graph_launch)(struct device_stream *s, struct device_graph *g);
    void (*graph_free)(struct device_graph *g); /* takes NULL; no launch of it is under way */

    enum error_code (*event_new)(struct device *d, struct device_event **out, struct error *e);
    void (*event_free)(struct device_event *v); /* takes NULL */
    void (*event_record)(struct device_event *v, struct device_stream *s);
    void (*stream_wait)(struct device_stream *s, struct device_event *v);
    /* Flags: numbers in device memory, which another process may have imported. Only where facts
     * say `signals`.
     *
     * signal writes a flag after everything before it in the stream is done; a reader that sees the
     * value also sees the bytes. await holds the stream until the flag has reached value, on a
     * circle: (int32_t)(*flag - value) >= 0. Only the write ends such a wait. So a caller of await
     * makes sure that some process writes the flag, or ends. */
    void (*signal)(struct device_stream *s, uint32_t *flag, uint32_t value);
    void (*await)(struct device_stream *s, const uint32_t *flag, uint32_t value);
    /* *done: everything before the event is done. */
    enum error_code (*event_query)(struct device_event *v, bool *done, struct error *e);
    enum error_code (*event_wait)(struct device_event *v, struct error *e);

    struct device_ops ops;
};

typedef const struct device_module *device_module_function(void);

/* Loads the module of that name ("cuda") once: the file that the environment variable
 * MOED_CUDA_MODULE names, else libmoed-NAME.so in the program's folder or in ../lib/moed of it. It
 * is never unloaded. ERROR_UNSUPPORTED says what is missing. Defined in module.c, which moed's
 * processes link; modules do not. */
enum error_code device_module_load(const char *name, const struct device_module **out,
                                   struct error *e);

#ifdef __cplusplus
}
#endif
#endif
