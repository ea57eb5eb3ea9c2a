// cuBLAS, opened at run time under whatever name it is installed. Its few types are written out here, so that building
// needs no cublas.h.
#ifndef EXO_CUBLAS_H
#define EXO_CUBLAS_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

typedef struct exo_cublas exo_cublas;

// exo_cublas_open opens the library and finds its entries; NULL when that fails. It is never closed.
exo_cublas *exo_cublas_open(const char *name, int *version);

// exo_cublas_create makes a handle in a context. A handle is used by one thread at a time. A result is a
// cublasStatus_t, where 0 is success, or the negative of a CUresult, which is an error of the driver.
int exo_cublas_create(const exo_cublas *lib, CUcontext ctx, void **handle);
int exo_cublas_destroy(const exo_cublas *lib, CUcontext ctx, void *handle);

// exo_matrix is a matrix in memory whose columns stand one after the other.
typedef struct {
    uint64_t at;
    int step, transposed, bf16;
} exo_matrix;

// exo_cublas_gemm puts c = alpha*a*b + beta*c, m x n x k, into the stream, with sums in fp32 and the given workspace.
int exo_cublas_gemm(const exo_cublas *lib, CUcontext ctx, void *handle, CUstream stream, CUdeviceptr work,
                    size_t work_size, int m, int n, int k, float alpha, exo_matrix a, exo_matrix b, float beta,
                    exo_matrix c);

#endif
