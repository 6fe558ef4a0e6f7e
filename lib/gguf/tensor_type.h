/* Tensor types of GGUF: ids, names and block sizes, from ggml's list of types. */
#ifndef MOED_GGUF_TENSOR_TYPE_H
#define MOED_GGUF_TENSOR_TYPE_H

#include <stdbool.h>
#include <stdint.h>

/* X(name, id in the file, values per block, bytes per block, moed computes with it) */
#define TENSOR_TYPE_LIST(X)                                                                        \
    X(F32, 0, 1, 4, true)                                                                          \
    X(F16, 1, 1, 2, true)                                                                          \
    X(Q4_0, 2, 32, 18, true)                                                                       \
    X(Q4_1, 3, 32, 20, true)                                                                       \
    X(Q5_0, 6, 32, 22, true)                                                                       \
    X(Q5_1, 7, 32, 24, true)                                                                       \
    X(Q8_0, 8, 32, 34, true)                                                                       \
    X(Q8_1, 9, 32, 36, false)                                                                      \
    X(Q2_K, 10, 256, 84, true)                                                                     \
    X(Q3_K, 11, 256, 110, true)                                                                    \
    X(Q4_K, 12, 256, 144, true)                                                                    \
    X(Q5_K, 13, 256, 176, true)                                                                    \
    X(Q6_K, 14, 256, 210, true)                                                                    \
    X(Q8_K, 15, 256, 292, false)                                                                   \
    X(IQ2_XXS, 16, 256, 66, true)                                                                  \
    X(IQ2_XS, 17, 256, 74, true)                                                                   \
    X(IQ3_XXS, 18, 256, 98, true)                                                                  \
    X(IQ1_S, 19, 256, 50, true)                                                                    \
    X(IQ4_NL, 20, 32, 18, true)                                                                    \
    X(IQ3_S, 21, 256, 110, true)                                                                   \
    X(IQ2_S, 22, 256, 82, true)                                                                    \
    X(IQ4_XS, 23, 256, 136, true)                                                                  \
    X(I8, 24, 1, 1, false)                                                                         \
    X(I16, 25, 1, 2, false)                                                                        \
    X(I32, 26, 1, 4, false)                                                                        \
    X(I64, 27, 1, 8, false)                                                                        \
    X(F64, 28, 1, 8, false)                                                                        \
    X(IQ1_M, 29, 256, 56, true)                                                                    \
    X(BF16, 30, 1, 2, true)                                                                        \
    X(TQ1_0, 34, 256, 54, false)                                                                   \
    X(TQ2_0, 35, 256, 66, false)                                                                   \
    X(MXFP4, 39, 32, 17, true)                                                                     \
    X(NVFP4, 40, 64, 36, true)

enum tensor_type {
#define X(name, id, block, bytes, computes) TENSOR_##name = id,
    TENSOR_TYPE_LIST(X)
#undef X
};

struct tensor_type_info {
    const char *name;      /* "Q4_K" */
    uint32_t block_values; /* values per block */
    uint32_t block_bytes;  /* bytes per block */
    bool computes;         /* lib/kernels computes with it */
};

/* NULL for an unknown id. */
const struct tensor_type_info *tensor_type_info(uint32_t id);

/* A type that moed does not have: of ik_llama.cpp, or withdrawn. */
struct tensor_type_foreign {
    char name[64];    /* "IQ4_KS of ik_llama.cpp" */
    const char *take; /* types that take its place: "IQ4_XS" */
};

/* False: the id is of no such type. */
bool tensor_type_foreign(uint32_t id, struct tensor_type_foreign *out);

/* Ignores case. -1 for an unknown name. */
int tensor_type_from_name(const char *name);

#endif
