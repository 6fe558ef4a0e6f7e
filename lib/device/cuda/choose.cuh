/* The table of work of the experts that a gate chose, made by one block of threads. Each expert's
 * choices are cut into items of tokens_an_item tokens. */
#ifndef MOED_DEVICE_CUDA_CHOOSE_CUH
#define MOED_DEVICE_CUDA_CHOOSE_CUH

#include "device/cuda/launch.h"
#include "device/cuda/product.h"
#include "device/module.h"

struct choose_call {
    struct device_places at; /* n_used 0: there is nothing to choose */
    const uint32_t *selected;
    uint32_t n_choices, tokens_an_item;
    uint32_t n_items;           /* in items: choose_items */
    struct product_item *items; /* [n_items] */
    const void **places; /* [n_choices][n_segments]; those of an expert at its first choice */
    uint32_t *tokens;    /* [n_choices]; each expert's are adjacent */
    uint32_t *row_of;
};

/* A block's memory for it. */
struct choose_shared {
    uint16_t chosen[DEVICE_CHOSEN]; /* the expert of each choice */
    uint16_t first[DEVICE_CHOSEN];  /* the expert's first choice */
    uint16_t rank[DEVICE_CHOSEN];   /* how many choices of the expert come before */
    uint16_t count[DEVICE_CHOSEN];  /* of the expert's choices, at its first */
    uint32_t missing, n_items;
};

/* The most items of n_choices. */
static inline uint32_t choose_items(uint32_t n_choices, uint32_t n_experts, uint32_t tokens_an_item)
{
    uint32_t n = n_experts + n_choices / tokens_an_item;
    return n < n_choices ? n : n_choices;
}

/* The expert of each choice, and where in its choices this one is. */
static __device__ __forceinline__ void choose_count(const choose_call &c, choose_shared &sh)
{
    for (uint32_t i = threadIdx.x; i < c.n_choices; i += blockDim.x)
        sh.chosen[i] = (uint16_t)c.selected[i];
    if (threadIdx.x == 0) {
        sh.missing = *c.at.missed != 0;
        sh.n_items = 0;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < c.n_choices; i += blockDim.x) {
        uint32_t first = i, rank = 0, count = 0;
        for (uint32_t k = 0; k < c.n_choices; k++)
            if (sh.chosen[k] == sh.chosen[i]) {
                first = min(first, k);
                rank += k < i;
                count++;
            }
        sh.first[i] = (uint16_t)first;
        sh.rank[i] = (uint16_t)rank;
        sh.count[i] = (uint16_t)count;
    }
    __syncthreads();
}

/* Copies the addresses of the chosen experts' segments, and notes if one is not there. */
static __device__ __forceinline__ void choose_places(const choose_call &c, choose_shared &sh)
{
    uint32_t n_segments = c.at.n_segments;

    for (uint32_t i = threadIdx.x; i < c.n_choices; i += blockDim.x)
        for (uint32_t s = 0; sh.first[i] == i && s < n_segments; s++) {
            const void *place = c.at.places[(size_t)sh.chosen[i] * n_segments + s];
            c.places[(size_t)i * n_segments + s] = place;
            if (place == NULL)
                sh.missing = 1;
        }
    __syncthreads();
    if (threadIdx.x == 0 && sh.missing != 0 && *c.at.missed == 0)
        *c.at.missed = c.at.layer + 1;
}

/* Every tokens_an_item-th choice of an expert makes an item, for itself and the next ones. */
static __device__ __forceinline__ void choose_item(const choose_call &c, choose_shared &sh,
                                                   uint32_t i)
{
    uint32_t first = sh.first[i], rank = sh.rank[i], before = 0, items_before = 0;

    for (uint32_t k = 0; k < c.n_choices; k++) {
        before += sh.first[k] < first;
        items_before += sh.first[k] < first && sh.rank[k] % c.tokens_an_item == 0;
    }
    c.tokens[before + rank] = i / c.at.n_used;
    c.row_of[i] = before + rank;
    if (sh.missing != 0 || rank % c.tokens_an_item != 0)
        return;
    struct product_item item = {};
    item.place = first * c.at.n_segments;
    item.n_segments = c.at.n_segments;
    item.token = before + rank;
    item.n_tokens = min(sh.count[i] - rank, c.tokens_an_item);
    item.hidden_row = before * c.at.n_segments + rank;
    item.task_tokens = sh.count[i];
    item.out_row = before + rank;
    c.items[items_before + rank / c.tokens_an_item] = item;
    atomicAdd(&sh.n_items, 1u);
}

/* All threads of the block call it. */
static __device__ __forceinline__ void choose(const choose_call &c, choose_shared &sh)
{
    choose_count(c, sh);
    choose_places(c, sh);
    for (uint32_t i = threadIdx.x; i < c.n_choices; i += blockDim.x)
        choose_item(c, sh, i);
    __syncthreads();
    for (uint32_t i = sh.n_items + threadIdx.x; i < c.n_items; i += blockDim.x)
        c.items[i] = {};
}

#endif
