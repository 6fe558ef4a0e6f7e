/* cuBLAS: operands are converted to float, OpenBLAS multiplies, in the stream. */
#include "include/cublas_v2.h"
#include "include/cuda_bf16.h"
#include "include/cuda_fp16.h"
#include "runtime.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

struct cublasContext {
    cudaStream_t stream;
    cublasPointerMode_t mode;
};

namespace
{
/* Constants and types of cblas.h. */
enum { COLUMN_MAJOR = 102, PLAIN = 111, TRANSPOSED = 112 };
typedef void sgemm_function(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                            const float *a, int lda, const float *b, int ldb, float beta, float *c,
                            int ldc);

/* OpenBLAS's, without threads of its own; NULL: it is not installed. */
sgemm_function *load_sgemm()
{
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    return library ? (sgemm_function *)dlsym(library, "cblas_sgemm") : nullptr;
}

sgemm_function *sgemm; /* since the first handle */

/* A column-major matrix in device memory. */
struct matrix {
    char *memory;
    cudaDataType type;
    size_t rows, columns, leading;
};

struct product {
    bool transpose_a, transpose_b;
    int m, n, k;
    float alpha, beta;
    matrix a, b, c;
};

size_t bytes_of(cudaDataType type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

float load(const matrix &x, size_t i)
{
    if (x.type == CUDA_R_32F)
        return ((const float *)x.memory)[i];
    unsigned short bits = ((const unsigned short *)x.memory)[i];
    return x.type == CUDA_R_16F ? __half2float(__ushort_as_half(bits))
                                : __bfloat162float(__ushort_as_bfloat16(bits));
}

void store(const matrix &x, size_t i, float value)
{
    if (x.type == CUDA_R_32F)
        ((float *)x.memory)[i] = value;
    else
        ((unsigned short *)x.memory)[i] = x.type == CUDA_R_16F
                                              ? __half_as_ushort(__float2half_rn(value))
                                              : __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

/* Without gaps between the columns. */
std::vector<float> unpack(const matrix &x)
{
    std::vector<float> out(x.rows * x.columns);
    for (size_t j = 0; j < x.columns; j++)
        for (size_t i = 0; i < x.rows; i++)
            out[j * x.rows + i] = load(x, j * x.leading + i);
    return out;
}

void multiply(const product &p)
{
    std::vector<float> a = unpack(p.a), b = unpack(p.b), c(p.c.rows * p.c.columns);
    if (p.beta != 0) /* else cuBLAS ignores C, NaN too */
        c = unpack(p.c);
    sgemm(COLUMN_MAJOR, p.transpose_a ? TRANSPOSED : PLAIN, p.transpose_b ? TRANSPOSED : PLAIN, p.m,
          p.n, p.k, p.alpha, a.data(), (int)p.a.rows, b.data(), (int)p.b.rows, p.beta, c.data(),
          p.m);
    for (size_t j = 0; j < p.c.columns; j++)
        for (size_t i = 0; i < p.c.rows; i++)
            store(p.c, j * p.c.leading + i, c[j * p.c.rows + i]);
}

bool lies_on_device(const matrix &x, size_t batch_bytes, int n_batches)
{
    size_t bytes = ((x.columns - 1) * x.leading + x.rows) * bytes_of(x.type) +
                   batch_bytes * (size_t)(n_batches - 1);
    return x.leading >= x.rows && memory_kind_of(x.memory, bytes) == MEMORY_DEVICE;
}

/* True if MOED_CUSIM_BLAS_REFUSES names the type. */
bool is_refused(const char *name)
{
    const char *list = getenv("MOED_CUSIM_BLAS_REFUSES");
    size_t n = strlen(name);
    for (const char *at = list; at && (at = strstr(at, name)); at += n)
        if ((at == list || at[-1] == ',') && (at[n] == ',' || at[n] == '\0'))
            return true;
    return false;
}

bool is_known(cudaDataType type)
{
    return (type == CUDA_R_32F && !is_refused("f32")) ||
           (type == CUDA_R_16F && !is_refused("f16")) ||
           (type == CUDA_R_16BF && !is_refused("bf16"));
}
} // namespace

extern "C" {
cublasStatus_t cublasCreate(cublasHandle_t *handle)
{
    if (call_begin("cublasCreate") != cudaSuccess || setting("MOED_CUSIM_BLAS", 1) == 0)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (handle == nullptr)
        return CUBLAS_STATUS_INVALID_VALUE;
    static sgemm_function *const loaded = load_sgemm();
    sgemm = loaded;
    if (sgemm == nullptr)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = new cublasContext{nullptr, CUBLAS_POINTER_MODE_HOST};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle)
{
    delete handle;
    return handle != nullptr ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

cublasStatus_t cublasGetVersion(cublasHandle_t handle, int *version)
{
    if (handle == nullptr || version == nullptr)
        return CUBLAS_STATUS_INVALID_VALUE;
    *version = 120800;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
    if (handle == nullptr)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode(cublasHandle_t handle, cublasPointerMode_t mode)
{
    if (handle == nullptr)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    handle->mode = mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
    (void)mode; /* all arithmetic is in float */
    return handle != nullptr ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void *workspace, size_t bytes)
{
    if (handle == nullptr)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    bool good = bytes == 0 || memory_kind_of(workspace, bytes) == MEMORY_DEVICE;
    return good ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

const char *cublasGetStatusString(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "an invalid value was used as an argument";
    case CUBLAS_STATUS_ARCH_MISMATCH:
        return "the device does not have what is needed";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "the program failed to execute";
    case CUBLAS_STATUS_INTERNAL_ERROR:
        return "an internal operation failed";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "the functionality is not supported";
    }
    return "unknown status";
}

/* The status that a call has when the runtime fails in it so. */
static cublasStatus_t status_of(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return CUBLAS_STATUS_SUCCESS;
    case cudaErrorMemoryAllocation:
        return CUBLAS_STATUS_ALLOC_FAILED;
    case cudaErrorNotSupported:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    default:
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
}

static cublasStatus_t multiply_batches(const char *name, cublasHandle_t handle,
                                       cublasOperation_t op_a, cublasOperation_t op_b, int m, int n,
                                       int k, const void *alpha, const void *a, cudaDataType a_type,
                                       int lda, long long int stride_a, const void *b,
                                       cudaDataType b_type, int ldb, long long int stride_b,
                                       const void *beta, void *c, cudaDataType c_type, int ldc,
                                       long long int stride_c, int n_batches)
{
    if (handle == nullptr)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    cublasStatus_t begun = status_of(call_begin(name));
    if (begun != CUBLAS_STATUS_SUCCESS)
        return begun;
    if (m < 0 || n < 0 || k < 0 || n_batches < 0 || alpha == nullptr || beta == nullptr)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (m == 0 || n == 0 || n_batches == 0)
        return CUBLAS_STATUS_SUCCESS;
    if (k == 0 || a_type != b_type || !is_known(a_type) ||
        (c_type != a_type && c_type != CUDA_R_32F))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    size_t um = (size_t)m, un = (size_t)n, uk = (size_t)k;
    bool on_device = handle->mode == CUBLAS_POINTER_MODE_DEVICE; /* read when the product runs */
    const float *factors[2] = {(const float *)alpha, (const float *)beta};
    for (const float *f : factors)
        if (on_device && memory_kind_of(f, sizeof *f) != MEMORY_DEVICE)
            return CUBLAS_STATUS_INVALID_VALUE;
    product p = {op_a != CUBLAS_OP_N, op_b != CUBLAS_OP_N, m, n, k, 0, 0, {}, {}, {}};
    if (!on_device)
        p.alpha = *factors[0], p.beta = *factors[1];
    p.a = {(char *)const_cast<void *>(a), a_type, p.transpose_a ? uk : um, p.transpose_a ? um : uk,
           (size_t)lda};
    p.b = {(char *)const_cast<void *>(b), b_type, p.transpose_b ? un : uk, p.transpose_b ? uk : un,
           (size_t)ldb};
    p.c = {(char *)c, c_type, um, un, (size_t)ldc};
    size_t step_a = (size_t)stride_a * bytes_of(a_type),
           step_b = (size_t)stride_b * bytes_of(b_type);
    size_t step_c = (size_t)stride_c * bytes_of(c_type);
    if (!lies_on_device(p.a, step_a, n_batches) || !lies_on_device(p.b, step_b, n_batches) ||
        !lies_on_device(p.c, step_c, n_batches))
        return CUBLAS_STATUS_INVALID_VALUE;
    auto run = [=]() mutable {
        if (on_device)
            p.alpha = *factors[0], p.beta = *factors[1];
        for (int i = 0; i < n_batches; i++) {
            multiply(p);
            p.a.memory += step_a, p.b.memory += step_b, p.c.memory += step_c;
        }
        return cudaSuccess;
    };
    /* A copy each time: a graph runs it again. */
    cudaError_t error =
        enqueue(handle->stream, {name, [run] { return decltype(run)(run)(); }, {}, {}});
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                            int m, int n, int k, const void *alpha, const void *a,
                            cudaDataType a_type, int lda, const void *b, cudaDataType b_type,
                            int ldb, const void *beta, void *c, cudaDataType c_type, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t algorithm)
{
    (void)compute, (void)algorithm; /* sums in float with every algorithm */
    return multiply_batches("cublasGemmEx", handle, op_a, op_b, m, n, k, alpha, a, a_type, lda, 0,
                            b, b_type, ldb, 0, beta, c, c_type, ldc, 0, 1);
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t op_a,
                                          cublasOperation_t op_b, int m, int n, int k,
                                          const void *alpha, const void *a, cudaDataType a_type,
                                          int lda, long long int stride_a, const void *b,
                                          cudaDataType b_type, int ldb, long long int stride_b,
                                          const void *beta, void *c, cudaDataType c_type, int ldc,
                                          long long int stride_c, int n_batches,
                                          cublasComputeType_t compute, cublasGemmAlgo_t algorithm)
{
    (void)compute, (void)algorithm;
    return multiply_batches("cublasGemmStridedBatchedEx", handle, op_a, op_b, m, n, k, alpha, a,
                            a_type, lda, stride_a, b, b_type, ldb, stride_b, beta, c, c_type, ldc,
                            stride_c, n_batches);
}
}
