//go:build cuda

#define _GNU_SOURCE
#include "nccl.h"

#include <dlfcn.h>
#include <stdlib.h>

struct exo_nccl {
    int (*version)(int *);
    int (*init)(void **, int, const int *);
    int (*destroy)(void *);
    int (*abort)(void *);
    int (*state)(void *, int *);
    int (*begin)(void);
    int (*end)(void);
    int (*reduce)(const void *, void *, size_t, int, int, void *, CUstream);
    int (*gather)(const void *, void *, size_t, int, void *, CUstream);
    const char *(*error)(int);
};

enum { TYPE_U8 = 1, TYPE_U32 = 3, TYPE_U64 = 5, SUM = 0 };

exo_nccl *exo_nccl_open(const char *name, int *version)
{
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    setenv("NCCL_SOCKET_IFNAME", "=lo", 0);
    void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (lib == NULL)
        return NULL;
    exo_nccl *n = malloc(sizeof *n);
    if (n == NULL)
        return NULL;
    const struct {
        const char *name;
        void *at;
    } entries[] = {
        {"ncclGetVersion", &n->version},   {"ncclCommInitAll", &n->init},  {"ncclCommDestroy", &n->destroy},
        {"ncclCommAbort", &n->abort},      {"ncclCommGetAsyncError", &n->state}, {"ncclGroupStart", &n->begin},
        {"ncclGroupEnd", &n->end},         {"ncclAllReduce", &n->reduce},  {"ncclAllGather", &n->gather},
        {"ncclGetErrorString", &n->error},
    };
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        void *at = dlsym(lib, entries[i].name);
        if (at == NULL) { // older than 2.4, where abort came
            free(n);
            dlclose(lib);
            return NULL;
        }
        *(void **)entries[i].at = at;
    }
    if (n->version(version) != 0) {
        free(n);
        return NULL;
    }
    return n;
}

const char *exo_nccl_error_name(const exo_nccl *lib, int result)
{
    const char *text = lib->error(result);
    return text != NULL ? text : "unknown";
}

int exo_nccl_init(const exo_nccl *lib, void **comms, int n, const int *gpus) { return lib->init(comms, n, gpus); }
int exo_nccl_destroy(const exo_nccl *lib, void *comm) { return lib->destroy(comm); }
int exo_nccl_abort(const exo_nccl *lib, void *comm) { return lib->abort(comm); }

int exo_nccl_state(const exo_nccl *lib, void *comm)
{
    int state = 0, r = lib->state(comm, &state);
    return r != 0 ? r : state;
}

CUresult exo_rank_open(exo_rank *r, int gpu, size_t staging)
{
    CUdevice chip = 0;
    CUresult e = cuDeviceGet(&chip, gpu);
    if (e == CUDA_SUCCESS)
        e = cuCtxSetCurrent(r->own);
    if (e == CUDA_SUCCESS)
        e = cuEventCreate(&r->begin, CU_EVENT_DISABLE_TIMING);
    if (e == CUDA_SUCCESS)
        e = cuDevicePrimaryCtxRetain(&r->primary, chip);
    if (e == CUDA_SUCCESS)
        e = cuCtxSetCurrent(r->primary);
    if (e == CUDA_SUCCESS)
        e = cuStreamCreate(&r->inner, CU_STREAM_NON_BLOCKING);
    if (e == CUDA_SUCCESS)
        e = cuEventCreate(&r->end, CU_EVENT_DISABLE_TIMING);
    if (e == CUDA_SUCCESS)
        e = cuMemAlloc(&r->staging, staging);
    return e;
}

static void keep(CUresult *first, CUresult e)
{
    if (*first == CUDA_SUCCESS)
        *first = e;
}

CUresult exo_rank_close(exo_rank *r, int gpu)
{
    CUdevice chip = 0;
    CUresult first = CUDA_SUCCESS;
    if (r->primary != NULL) {
        keep(&first, cuCtxSetCurrent(r->primary));
        if (r->staging != 0)
            keep(&first, cuMemFree(r->staging));
        if (r->end != NULL)
            keep(&first, cuEventDestroy(r->end));
        if (r->inner != NULL)
            keep(&first, cuStreamDestroy(r->inner));
        keep(&first, cuDeviceGet(&chip, gpu));
        keep(&first, cuDevicePrimaryCtxRelease(chip));
    }
    if (r->begin != NULL && r->own != NULL) {
        keep(&first, cuCtxSetCurrent(r->own));
        keep(&first, cuEventDestroy(r->begin));
    }
    *r = (exo_rank){0};
    return first;
}

// enter has the inner streams begin behind the ranks' own, leave the ranks' own go on behind the inner ones.
static CUresult enter(exo_rank *ranks, int n)
{
    CUresult e = CUDA_SUCCESS;
    for (exo_rank *r = ranks; e == CUDA_SUCCESS && r < ranks + n; r++) {
        e = cuCtxSetCurrent(r->own);
        if (e == CUDA_SUCCESS)
            e = cuEventRecord(r->begin, r->stream);
        if (e == CUDA_SUCCESS)
            e = cuCtxSetCurrent(r->primary);
        if (e == CUDA_SUCCESS)
            e = cuStreamWaitEvent(r->inner, r->begin, 0);
    }
    return e;
}

static CUresult leave(exo_rank *ranks, int n)
{
    CUresult e = CUDA_SUCCESS;
    for (exo_rank *r = ranks; e == CUDA_SUCCESS && r < ranks + n; r++) {
        e = cuCtxSetCurrent(r->primary);
        if (e == CUDA_SUCCESS)
            e = cuEventRecord(r->end, r->inner);
        if (e == CUDA_SUCCESS)
            e = cuCtxSetCurrent(r->own);
        if (e == CUDA_SUCCESS)
            e = cuStreamWaitEvent(r->stream, r->end, 0);
    }
    return e;
}

// in and out copy between a rank's memory and its staging.
static CUresult in(exo_rank *r, size_t to, size_t from, size_t n)
{
    CUresult e = cuCtxSetCurrent(r->primary);
    return e == CUDA_SUCCESS ? cuMemcpyPeerAsync(r->staging + to, r->primary, r->at + from, r->own, n, r->inner) : e;
}

static CUresult out(exo_rank *r, size_t to, size_t from, size_t n)
{
    CUresult e = cuCtxSetCurrent(r->primary);
    return e == CUDA_SUCCESS ? cuMemcpyPeerAsync(r->at + to, r->own, r->staging + from, r->primary, n, r->inner) : e;
}

// calls makes the call of each rank for the n bytes in staging, all as a group: one thread serves all GPUs. A group is
// ended also where a call in it fails, or the thread would stay in it.
static int calls(const exo_nccl *lib, exo_rank *ranks, int n, size_t bytes, int element)
{
    int e = lib->begin();
    if (e != 0)
        return e;
    for (int i = 0; e == 0 && i < n; i++) {
        exo_rank *r = ranks + i;
        void *staging = (void *)(uintptr_t)r->staging;
        int c = cuCtxSetCurrent(r->primary);
        if (c != CUDA_SUCCESS)
            e = -c;
        else if (element == 0)
            e = lib->gather((char *)staging + i * bytes, staging, bytes, TYPE_U8, r->comm, r->inner);
        else
            e = lib->reduce(staging, staging, bytes / element, element == 8 ? TYPE_U64 : TYPE_U32, SUM, r->comm,
                r->inner);
    }
    int end = lib->end();
    return e != 0 ? e : end;
}

int exo_nccl_sum(const exo_nccl *lib, exo_rank *ranks, int n, size_t count, int element, size_t staging)
{
    int c = enter(ranks, n), e = 0;
    const size_t all = count * element;
    for (size_t off = 0; c == 0 && e == 0 && off < all; off += staging) {
        const size_t size = all - off < staging ? all - off : staging;
        for (int i = 0; c == 0 && i < n; i++)
            c = in(ranks + i, 0, off, size);
        if (c == 0)
            e = calls(lib, ranks, n, size, element);
        for (int i = 0; c == 0 && e == 0 && i < n; i++)
            c = out(ranks + i, off, 0, size);
    }
    if (c == 0 && e == 0)
        c = leave(ranks, n);
    return e != 0 ? e : -c;
}

int exo_nccl_gather(const exo_nccl *lib, exo_rank *ranks, int n, size_t count, size_t staging)
{
    int c = enter(ranks, n), e = 0;
    const size_t share = staging / n / 16 * 16;
    for (size_t off = 0; c == 0 && e == 0 && off < count; off += share) {
        const size_t size = count - off < share ? count - off : share;
        for (int i = 0; c == 0 && i < n; i++)
            c = in(ranks + i, i * size, i * count + off, size);
        if (c == 0)
            e = calls(lib, ranks, n, size, 0);
        for (int i = 0; c == 0 && e == 0 && i < n; i++)
            for (int from = 0; c == 0 && from < n; from++)
                if (from != i)
                    c = out(ranks + i, from * count + off, from * size, size);
    }
    if (c == 0 && e == 0)
        c = leave(ranks, n);
    return e != 0 ? e : -c;
}
