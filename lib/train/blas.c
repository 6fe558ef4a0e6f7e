/* OpenBLAS, loaded at run time; see blas.h. */
#include "train/blas.h"

#include "base/arrays.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Constants and types of cblas.h; the program must not link to its symbols. */
enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };
typedef void sgemm_function(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                            const float *a, int lda, const float *b, int ldb, float beta, float *c,
                            int ldc);
typedef void threads_function(int n);
/* LAPACK's DSYEVR with Fortran's convention: all arguments by address, string lengths at the end.
 */
typedef void dsyevr_function(const char *jobz, const char *range, const char *uplo, const int *n,
                             double *a, const int *lda, const double *vl, const double *vu,
                             const int *il, const int *iu, const double *abstol, int *m, double *w,
                             double *z, const int *ldz, int *isuppz, double *work, const int *lwork,
                             int *iwork, const int *liwork, int *info, size_t, size_t, size_t);

static sgemm_function *sgemm;
static dsyevr_function *dsyevr;

/* Finds a function of the library. POSIX allows to store its address as an object pointer. */
static bool find(void *library, const char *name, void *function)
{
    void *address = dlsym(library, name);
    memcpy(function, &address, sizeof address);
    return address != NULL;
}

enum error_code blas_open(struct error *e)
{
    threads_function *set_threads;
    if (sgemm && dsyevr)
        return ERROR_OK;
    setenv("OPENBLAS_NUM_THREADS", "1", 1); /* else loading starts a thread per core */
    void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return error_set(e, ERROR_NOT_FOUND, "cannot load OpenBLAS (package libopenblas0): %s",
                         dlerror());
    if (!find(library, "cblas_sgemm", &sgemm) || !find(library, "dsyevr_", &dsyevr) ||
        !find(library, "openblas_set_num_threads", &set_threads))
        return error_set(e, ERROR_UNSUPPORTED, "this build of OpenBLAS lacks cblas or LAPACK");
    set_threads(1);
    return ERROR_OK;
}

void blas_product(bool a_transposed, bool b_transposed, size_t m, size_t n, size_t k,
                  const float *a, size_t a_stride, const float *b, size_t b_stride, float beta,
                  float *c, size_t c_stride)
{
    sgemm(ROW_MAJOR, a_transposed ? TRANSPOSED : PLAIN, b_transposed ? TRANSPOSED : PLAIN, (int)m,
          (int)n, (int)k, 1, a, (int)a_stride, b, (int)b_stride, beta, c, (int)c_stride);
}

enum error_code blas_eigen(double *matrix, size_t n, size_t n_wanted, double *values,
                           double *vectors, struct error *e)
{
    int order = (int)n, first = (int)(n - n_wanted + 1), last = (int)n, found = 0, info = 0;
    int n_work = 26 * order, n_iwork = 10 * order;
    double *ascending, *z, *work;
    int *iwork, *support;
    void *memory =
        ARRAYS_NEW(ARRAY(ascending, n), ARRAY(z, n * n_wanted), ARRAY(work, (size_t)n_work),
                   ARRAY(iwork, (size_t)n_iwork), ARRAY(support, 2 * n_wanted));
    enum error_code code = ERROR_OK;
    const double none = 0;
    if (!memory)
        code = error_set(e, ERROR_MEMORY, "no memory for the eigenvectors of a matrix");
    else
        dsyevr("V", "I", "U", &order, matrix, &order, &none, &none, &first, &last, &none, &found,
               ascending, z, &order, support, work, &n_work, iwork, &n_iwork, &info, 1, 1, 1);
    if (!code && (info || found != (int)n_wanted))
        code = error_set(e, ERROR_INTERNAL, "LAPACK found no eigenvectors (dsyevr: info %d)", info);
    for (size_t i = 0; !code && i < n_wanted; i++) {
        values[i] = ascending[n_wanted - 1 - i];
        memcpy(vectors + i * n, z + (n_wanted - 1 - i) * n, n * sizeof *z);
    }
    free(memory);
    return code;
}
