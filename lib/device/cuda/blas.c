/* See blas.h. cuBLAS' functions are declared here, as its ABI has them: the toolkit's header is
 * often not installed with the compiler. Where it is, static assertions compare the constants with
 * it. */
#include "blas.h"

#include "blas_paths.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLAS_SUCCESS = 0,
    BLAS_NO_MEMORY = 3,
    BLAS_NOT_SUPPORTED = 15,
    BLAS_AS_IT_IS = 0,
    BLAS_TRANSPOSED = 1,
    BLAS_ON_DEVICE = 1,
    BLAS_FLOAT = 68,
    BLAS_ANY = -1
};

#if __has_include(<cublas_v2.h>)
#include <cublas_v2.h>
_Static_assert((int)BLAS_SUCCESS == (int)CUBLAS_STATUS_SUCCESS &&
                   (int)BLAS_NO_MEMORY == (int)CUBLAS_STATUS_ALLOC_FAILED &&
                   (int)BLAS_NOT_SUPPORTED == (int)CUBLAS_STATUS_NOT_SUPPORTED,
               "cublasStatus_t");
_Static_assert((int)BLAS_AS_IT_IS == (int)CUBLAS_OP_N && (int)BLAS_TRANSPOSED == (int)CUBLAS_OP_T,
               "cublasOperation_t");
_Static_assert((int)BLAS_ON_DEVICE == (int)CUBLAS_POINTER_MODE_DEVICE, "cublasPointerMode_t");
_Static_assert((int)BLAS_FLOAT == (int)CUBLAS_COMPUTE_32F, "cublasComputeType_t");
_Static_assert((int)BLAS_ANY == (int)CUBLAS_GEMM_DEFAULT, "cublasGemmAlgo_t");
#endif

struct cuda_blas {
    struct device_blas operands; /* that it takes on this device */
    char name[200];
    _Atomic bool given_up; /* set by the thread that multiplies */
    void *handle;
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, cudaStream_t stream);
    int (*set_pointer_mode)(void *handle, int mode); /* where alpha and beta lie */
    /* C = alpha * op(A) op(B) + beta * C, column-major. */
    int (*gemm)(void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha,
                const void *a, cudaDataType a_type, int lda, const void *b, cudaDataType b_type,
                int ldb, const void *beta, void *c, cudaDataType c_type, int ldc, int compute,
                int algorithm);
    int (*gemm_batched)(void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha,
                        const void *a, cudaDataType a_type, int lda, long long a_plane,
                        const void *b, cudaDataType b_type, int ldb, long long b_plane,
                        const void *beta, void *c, cudaDataType c_type, int ldc, long long c_plane,
                        int n_planes, int compute, int algorithm);
    int (*get_version)(void *handle, int *version);
    const char *(*status_words)(int status);
};

static bool find_functions(void *library, struct cuda_blas *b)
{
    const struct {
        const char *name;
        void **function;
    } functions[] = {{"cublasCreate_v2", (void **)&b->create},
                     {"cublasDestroy_v2", (void **)&b->destroy},
                     {"cublasGetVersion_v2", (void **)&b->get_version},
                     {"cublasSetStream_v2", (void **)&b->set_stream},
                     {"cublasSetPointerMode_v2", (void **)&b->set_pointer_mode},
                     {"cublasGemmEx", (void **)&b->gemm},
                     {"cublasGemmStridedBatchedEx", (void **)&b->gemm_batched},
                     {"cublasGetStatusString", (void **)&b->status_words}};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (!(*functions[i].function = dlsym(library, functions[i].name)))
            return false;
    return true;
}

/* Makes a handle of this library. False: e says why not. */
static bool make_handle(void *library, const char *name, struct cuda_blas *b, struct error *e)
{
    if (!find_functions(library, b)) {
        error_set(e, ERROR_UNSUPPORTED, "%s is too old", name);
        return false;
    }
    int version = 0, status = b->create(&b->handle);
    if (status != BLAS_SUCCESS) { /* a library of a newer CUDA than the driver's fails so */
        error_set(e, ERROR_UNSUPPORTED, "%s does not start: %.100s (%d)", name,
                  b->status_words(status), status);
        return false;
    }
    b->get_version(b->handle, &version);
    snprintf(b->name, sizeof b->name, "%.160s, version %d", name, version);
    return true;
}

#ifdef MOED_CUSIM
/* This module is linked with tests/cusim, which stands in for cuBLAS. */
static bool find_library(struct cuda_blas *b, struct error *e)
{
    return make_handle(RTLD_DEFAULT, "cusim's cuBLAS", b, e);
}
#else
struct search {
    struct cuda_blas *blas;
    struct error *error; /* of the last library that is there */
};

/* Loads the library that libcublas needs from the same folder, where the loader would not look. */
static void load_lt(const char *path)
{
    const char *slash = strrchr(path, '/'), *version = slash ? strstr(slash, ".so") : NULL;
    char lt[PATH_MAX];
    if (!version)
        return;
    int n = snprintf(lt, sizeof lt, "%.*s/libcublasLt%s", (int)(slash - path), path, version);
    if (n < (int)sizeof lt)
        dlopen(lt, RTLD_NOW | RTLD_LOCAL);
}

/* True: this library works; it stays loaded. */
static bool try_library(const char *path, void *arg)
{
    struct search *s = arg;
    load_lt(path);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library && strchr(path, '/'))
        error_set(s->error, ERROR_UNSUPPORTED, "cuBLAS cannot be loaded: %.200s", dlerror());
    if (library && make_handle(library, path, s->blas, s->error))
        return true;
    if (library)
        dlclose(library);
    return false;
}

static bool find_library(struct cuda_blas *b, struct error *e)
{
    struct search s = {b, e};
    error_set(e, ERROR_UNSUPPORTED,
              "cuBLAS is not installed (libcublas.so.13, .12 or .11); MOED_CUBLAS can name it");
    return blas_paths_try(try_library, &s);
}
#endif

/* BLAS is column-major, so our rows are its columns: W is cols x rows, transposed; x cols x n; y
 * rows x n. */
static int multiply(const struct cuda_blas *b, const struct cuda_blas_product *p)
{
    int m = (int)p->rows, n = (int)p->n, k = (int)p->cols, lda = (int)p->w_stride,
        ldb = (int)p->x_stride, ldc = (int)p->y_stride;
    if (p->n_planes == 1)
        return b->gemm(b->handle, BLAS_TRANSPOSED, BLAS_AS_IT_IS, m, n, k, p->alpha, p->w, p->type,
                       lda, p->x, p->type, ldb, p->beta, p->y, CUDA_R_32F, ldc, BLAS_FLOAT,
                       BLAS_ANY);
    return b->gemm_batched(b->handle, BLAS_TRANSPOSED, BLAS_AS_IT_IS, m, n, k, p->alpha, p->w,
                           p->type, lda, (long long)p->w_plane, p->x, p->type, ldb,
                           (long long)p->x_plane, p->beta, p->y, CUDA_R_32F, ldc,
                           (long long)p->y_plane, (int)p->n_planes, BLAS_FLOAT, BLAS_ANY);
}

enum { TRIAL = 64, TRIAL_PLANES = 2 }; /* rows, columns, and columns of the result */

/* Multiplies zeros, one product and two at once, so that cuBLAS allocates memory now and not
 * during a prompt. Other shapes' code is loaded at their first product. Returns the status. */
static int try_type(const struct cuda_blas *b, float *memory, cudaDataType type)
{
    size_t plane = TRIAL * TRIAL;
    struct cuda_blas_product p = {.type = type,
                                  .rows = TRIAL,
                                  .cols = TRIAL,
                                  .n = TRIAL,
                                  .w_stride = TRIAL,
                                  .x_stride = TRIAL,
                                  .y_stride = TRIAL,
                                  .w_plane = plane,
                                  .x_plane = plane,
                                  .y_plane = plane};
    p.alpha = p.beta = memory;
    p.w = p.x = memory + TRIAL;
    p.y = memory + TRIAL + TRIAL_PLANES * plane;
    p.n_planes = 1;
    int status = multiply(b, &p);
    p.n_planes = TRIAL_PLANES;
    return status == BLAS_SUCCESS ? multiply(b, &p) : status;
}

/* Sets b->operands; returns the status of a refused type. Tries each type separately: a device may
 * have no products of BF16. */
static int try_types(struct cuda_blas *b, float *memory)
{
    const struct {
        cudaDataType type;
        bool *taken;
    } types[] = {{CUDA_R_32F, &b->operands.f32},
                 {CUDA_R_16F, &b->operands.f16},
                 {CUDA_R_16BF, &b->operands.bf16}};
    int refused = BLAS_SUCCESS;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        int status = try_type(b, memory, types[i].type);
        *types[i].taken = status == BLAS_SUCCESS;
        refused = status == BLAS_SUCCESS ? refused : status;
    }
    return refused;
}

/* True: the library takes some type. */
static bool works(struct cuda_blas *b, struct error *e)
{
    const size_t bytes = (TRIAL + 2 * TRIAL_PLANES * TRIAL * TRIAL) * sizeof(float);
    void *memory = NULL;
    int status = b->set_pointer_mode(b->handle, BLAS_ON_DEVICE);
    bool ok = status == BLAS_SUCCESS && cudaMalloc(&memory, bytes) == cudaSuccess &&
              cudaMemset(memory, 0, bytes) == cudaSuccess;
    if (ok)
        status = try_types(b, memory);
    ok = cudaDeviceSynchronize() == cudaSuccess && ok &&
         (b->operands.f32 || b->operands.f16 || b->operands.bf16);
    cudaFree(memory);
    cudaGetLastError(); /* clears the error of a refused type: the next launch's check would
                           report it as its own */
    if (!ok)
        error_set(e, ERROR_UNSUPPORTED, "cuBLAS fails at a first product: %.100s (%d)",
                  status == BLAS_SUCCESS ? "the device has no memory for it"
                                         : b->status_words(status),
                  status);
    return ok;
}

static struct cuda_blas *open_library(struct error *e)
{
    struct cuda_blas *b = calloc(1, sizeof *b);
    if (!b) {
        error_set(e, ERROR_MEMORY, "no memory for cuBLAS' functions");
        return NULL;
    }
    if (!find_library(b, e)) {
        free(b);
        return NULL;
    }
    if (!works(b, e)) {
        b->destroy(b->handle);
        free(b);
        return NULL;
    }
    return b;
}

enum error_code cuda_blas_open(struct device *d, struct device_blas *out, struct error *e)
{
    if (cuda_blas_given_up(d))
        return error_set(e, ERROR_UNSUPPORTED, "cuBLAS has been given up after an error");
    if (!d->blas && !(d->blas = open_library(e)))
        return e->code;
    *out = d->blas->operands;
    return ERROR_OK;
}

bool cuda_blas_given_up(const struct device *d)
{
    return d->blas && atomic_load_explicit(&d->blas->given_up, memory_order_relaxed);
}

struct device_blas cuda_blas_operands(const struct device *d)
{
    return d->blas ? d->blas->operands : (struct device_blas){false, false, false};
}

const char *cuda_blas_name(const struct device *d)
{
    return d->blas && !cuda_blas_given_up(d) ? d->blas->name : "";
}

void cuda_blas_close(struct device *d)
{
    if (d->blas)
        d->blas->destroy(d->blas->handle);
    free(d->blas);
    d->blas = NULL;
}

/* The product was not queued, and others would fail too. They are computed without the library. */
static void give_up(struct device *d, const char *what, int status)
{
    char words[300];
    cudaGetLastError(); /* the next launch's check would report it as its own */
    atomic_store_explicit(&d->blas->given_up, true, memory_order_relaxed);
    snprintf(words, sizeof words,
             "long prompts are computed without cuBLAS from now on, slower: %s: %.100s (%d)%s",
             what, d->blas->status_words(status), status,
             status == BLAS_NO_MEMORY
                 ? "; leave more of the device's memory free (reserve=), or lower --batch"
                 : "");
    cuda_report(words);
}

/* True: all is well. If false, the library is given up, or the device keeps an error. */
static bool check(struct device *d, int status, const char *what)
{
    if (status == BLAS_SUCCESS)
        return true;
    if (status == BLAS_NO_MEMORY || status == BLAS_NOT_SUPPORTED) {
        give_up(d, what, status);
        return false;
    }
    char words[160];
    snprintf(words, sizeof words, "%s: %.100s (%d)", what, d->blas->status_words(status), status);
    cuda_refuse(d, words, __FILE__, __LINE__);
    return false;
}

bool cuda_blas_multiply(struct device_stream *s, const struct cuda_blas_product *p)
{
    struct device *d = s->device;
    struct cuda_blas *b = d->blas;
    cudaStream_t stream = cuda_stream(s);
    if (!b || p->w_stride > INT_MAX || p->x_stride > INT_MAX || p->y_stride > INT_MAX ||
        p->rows > INT_MAX || p->n > INT_MAX || p->n_planes > INT_MAX) {
        cuda_refuse(d, b ? "a product too large for cuBLAS" : "cuBLAS was not loaded", __FILE__,
                    __LINE__);
        return true;
    }
    if (!cuda_blas_given_up(d) && check(d, b->set_stream(b->handle, stream), "cublasSetStream") &&
        check(d, b->set_pointer_mode(b->handle, BLAS_ON_DEVICE), "cublasSetPointerMode"))
        check(d, multiply(b, p), p->n_planes == 1 ? "cublasGemmEx" : "cublasGemmStridedBatchedEx");
    return !cuda_blas_given_up(d);
}
