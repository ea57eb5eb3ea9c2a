//go:build cuda

#define _GNU_SOURCE
#include "cublas.h"

#include <dlfcn.h>
#include <stdlib.h>

struct exo_cublas {
    int (*create)(void **);
    int (*destroy)(void *);
    int (*version)(void *, int *);
    int (*set_stream)(void *, CUstream);
    int (*set_workspace)(void *, void *, size_t);
    int (*gemm)(void *, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int,
                const void *, void *, int, int, int, int);
};

enum { TYPE_F32 = 0, TYPE_BF16 = 14, COMPUTE_32F = 68, ALGO_DEFAULT = -1 };

exo_cublas *exo_cublas_open(const char *name, int *version)
{
    void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (lib == NULL)
        return NULL;
    exo_cublas *n = calloc(1, sizeof *n);
    if (n == NULL)
        return NULL;
    int (*property)(int, int *) = (int (*)(int, int *))dlsym(lib, "cublasGetProperty");
    *(void **)&n->create = dlsym(lib, "cublasCreate_v2");
    *(void **)&n->destroy = dlsym(lib, "cublasDestroy_v2");
    *(void **)&n->set_stream = dlsym(lib, "cublasSetStream_v2");
    *(void **)&n->set_workspace = dlsym(lib, "cublasSetWorkspace_v2"); // since 11.2
    *(void **)&n->gemm = dlsym(lib, "cublasGemmEx");
    int major = 0, minor = 0;
    if (n->create == NULL || n->destroy == NULL || n->set_stream == NULL || n->set_workspace == NULL ||
        n->gemm == NULL || property == NULL ||
        // before 11, the type of the sums is another enum
        property(0, &major) != 0 || property(1, &minor) != 0 || major < 11) {
        free(n);
        dlclose(lib);
        return NULL;
    }
    *version = 1000 * major + 10 * minor;
    return n;
}

int exo_cublas_create(const exo_cublas *lib, CUcontext ctx, void **handle)
{
    CUresult r = cuCtxSetCurrent(ctx);
    return r == CUDA_SUCCESS ? lib->create(handle) : -(int)r;
}

int exo_cublas_destroy(const exo_cublas *lib, CUcontext ctx, void *handle)
{
    CUresult r = cuCtxSetCurrent(ctx);
    return r == CUDA_SUCCESS ? lib->destroy(handle) : -(int)r;
}

int exo_cublas_gemm(const exo_cublas *lib, CUcontext ctx, void *handle, CUstream stream, CUdeviceptr work,
                    size_t work_size, int m, int n, int k, float alpha, exo_matrix a, exo_matrix b, float beta,
                    exo_matrix c)
{
    CUresult r = cuCtxSetCurrent(ctx);
    if (r != CUDA_SUCCESS)
        return -(int)r;
    int e = lib->set_stream(handle, stream);
    if (e == 0 && work_size > 0) // without one, the library has its own
        e = lib->set_workspace(handle, (void *)(uintptr_t)work, work_size);
    if (e != 0)
        return e;
    return lib->gemm(handle, a.transposed, b.transposed, m, n, k, &alpha, (void *)a.at, a.bf16 ? TYPE_BF16 : TYPE_F32,
                     a.step, (void *)b.at, b.bf16 ? TYPE_BF16 : TYPE_F32, b.step, &beta, (void *)c.at,
                     c.bf16 ? TYPE_BF16 : TYPE_F32, c.step, COMPUTE_32F, ALGO_DEFAULT);
}
