//go:build cuda

#define _GNU_SOURCE
#include "supplement.h"

#include <string.h>
#include <sys/mman.h>
#include <time.h>

CUcontext exo_context(void)
{
    CUcontext ctx = NULL;
    return cuCtxGetCurrent(&ctx) == CUDA_SUCCESS ? ctx : NULL;
}

CUresult exo_launch(CUcontext ctx, CUfunction fn, exo_shape shape, CUstream stream, const uint64_t *values, int n)
{
    void *at[EXO_MAX_ARGS];
    CUresult r = cuCtxSetCurrent(ctx);
    if (r != CUDA_SUCCESS)
        return r;
    for (int i = 0; i < n; i++)
        at[i] = (void *)&values[i];
    return cuLaunchKernel(fn, shape.grid_x, shape.grid_y, shape.grid_z, shape.block_x, shape.block_y, shape.block_z,
                          shape.shared, stream, at, NULL);
}

CUresult exo_stream_sync(CUcontext ctx, CUstream stream)
{
    CUresult r = cuCtxSetCurrent(ctx);
    return r == CUDA_SUCCESS ? cuStreamSynchronize(stream) : r;
}

CUresult exo_stream_destroy(CUcontext ctx, CUstream stream)
{
    CUresult r = cuCtxSetCurrent(ctx);
    return r == CUDA_SUCCESS ? cuStreamDestroy(stream) : r;
}

CUresult exo_write(CUcontext ctx, CUstream stream, CUdeviceptr dst, const void *src, size_t n, void *staging)
{
    CUresult r = cuCtxSetCurrent(ctx);
    if (n <= EXO_STAGING)
        src = memcpy(staging, src, n);
    if (r == CUDA_SUCCESS)
        r = cuMemcpyHtoDAsync(dst, src, n, stream);
    // Pageable memory goes through the driver's staging; only the stream says when the last of it has arrived.
    return r == CUDA_SUCCESS ? cuStreamSynchronize(stream) : r;
}

CUresult exo_read(CUcontext ctx, CUstream stream, void *dst, CUdeviceptr src, size_t n, void *staging)
{
    CUresult r = cuCtxSetCurrent(ctx);
    if (r == CUDA_SUCCESS)
        r = cuMemcpyDtoHAsync(n <= EXO_STAGING ? staging : dst, src, n, stream);
    if (r == CUDA_SUCCESS)
        r = cuStreamSynchronize(stream);
    if (r == CUDA_SUCCESS && n <= EXO_STAGING)
        memcpy(dst, staging, n);
    return r;
}

CUresult exo_fill(CUcontext ctx, CUstream stream, CUdeviceptr dst, unsigned char value, size_t n)
{
    CUresult r = exo_memset(ctx, stream, dst, value, n);
    return r == CUDA_SUCCESS ? cuStreamSynchronize(stream) : r;
}

CUresult exo_pin(CUcontext ctx, size_t *n, void **host, CUdeviceptr *mapped)
{
    const size_t huge = 2 << 20, page = 4096, align = *n >= huge ? huge : page;
    *n = (*n + page - 1) / page * page;
    CUresult r = cuCtxSetCurrent(ctx);
    if (r != CUDA_SUCCESS)
        return r;
    // Map more, and give back what stands before and behind the aligned part.
    char *at = mmap(NULL, *n + align, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    char *start = (char *)(((uintptr_t)at + align - 1) / align * align);
    if (start > at)
        munmap(at, start - at);
    if (at + align > start)
        munmap(start + *n, at + align - start);
    madvise(start, *n, MADV_HUGEPAGE); // fewer entries for the device to look up; a system without them does as well
    r = cuMemHostRegister(start, *n, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (r == CUDA_SUCCESS) {
        r = cuMemHostGetDevicePointer(mapped, start, 0);
        if (r != CUDA_SUCCESS)
            cuMemHostUnregister(start);
    }
    if (r != CUDA_SUCCESS)
        munmap(start, *n);
    else
        *host = start;
    return r;
}

CUresult exo_unpin(CUcontext ctx, void *host, size_t n)
{
    CUresult r = CUDA_SUCCESS;
    if (ctx != NULL) {
        r = cuCtxSetCurrent(ctx);
        if (r == CUDA_SUCCESS)
            r = cuMemHostUnregister(host);
    }
    munmap(host, n);
    return r;
}

CUresult exo_upload(CUcontext ctx, CUstream stream, CUdeviceptr dst, uint64_t src, size_t n)
{
    CUresult r = cuCtxSetCurrent(ctx);
    return r == CUDA_SUCCESS ? cuMemcpyHtoDAsync(dst, (const void *)src, n, stream) : r;
}

CUresult exo_download(CUcontext ctx, CUstream stream, uint64_t dst, CUdeviceptr src, size_t n)
{
    CUresult r = cuCtxSetCurrent(ctx);
    return r == CUDA_SUCCESS ? cuMemcpyDtoHAsync((void *)dst, src, n, stream) : r;
}

CUresult exo_copy(CUcontext ctx, CUstream stream, CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src,
                  CUcontext src_ctx, size_t n)
{
    CUresult r = cuCtxSetCurrent(ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (dst_ctx == src_ctx)
        return cuMemcpyDtoDAsync(dst, src, n, stream);
    return cuMemcpyPeerAsync(dst, dst_ctx, src, src_ctx, n, stream);
}

CUresult exo_memset(CUcontext ctx, CUstream stream, CUdeviceptr dst, unsigned char value, size_t n)
{
    CUresult r = cuCtxSetCurrent(ctx);
    return r == CUDA_SUCCESS ? cuMemsetD8Async(dst, value, n, stream) : r;
}

void exo_befriend(CUcontext ctx, CUcontext peer)
{
    if (cuCtxSetCurrent(ctx) == CUDA_SUCCESS)
        cuCtxEnablePeerAccess(peer, 0); // already enabled, or impossible: copies are right all the same
}

// What the headers of CUDA 12.8 say of a batch of copies; ours may be older. The driver keeps this entry beside the
// entry of CUDA 13, which has no place for the index of the copy that failed.
typedef struct {
    int type, id;
} location;
typedef struct {
    int order;
    location from, to;
    unsigned int flags;
} manner;
enum { ORDER_STREAM = 1 };
CUresult cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t n, manner *manners, size_t *first,
                            size_t count, size_t *failed, CUstream stream);

CUresult exo_batch(CUcontext ctx, CUstream stream, int up, uint64_t *on, uint64_t *off, uint64_t *size, int n)
{
    CUresult r = cuCtxSetCurrent(ctx);
    if (r != CUDA_SUCCESS)
        return r;
    manner m = {.order = ORDER_STREAM};
    size_t first = 0, failed = 0;
    CUdeviceptr *d = (CUdeviceptr *)on, *h = (CUdeviceptr *)off; // both are addresses of 64 bits
    r = cuMemcpyBatchAsync(up ? d : h, up ? h : d, (size_t *)size, n, &m, &first, 1, &failed, stream);
    // Only a missing entry says that the driver is not initialised: the context is current.
    return r == CUDA_ERROR_NOT_INITIALIZED ? CUDA_ERROR_NOT_SUPPORTED : r;
}

CUresult exo_move(CUcontext ctx, CUstream *streams, CUevent *events, int lanes, int up, const uint64_t *on,
                  const uint64_t *off, const uint64_t *size, int n)
{
    CUresult r = cuCtxSetCurrent(ctx);
    if (lanes > 1 && r == CUDA_SUCCESS)
        r = cuEventRecord(events[0], streams[0]);
    for (int l = 1; l < lanes && r == CUDA_SUCCESS; l++)
        r = cuStreamWaitEvent(streams[l], events[0], 0);
    for (int i = 0; i < n && r == CUDA_SUCCESS; i++)
        r = up ? cuMemcpyHtoDAsync(on[i], (const void *)off[i], size[i], streams[i % lanes])
               : cuMemcpyDtoHAsync((void *)off[i], on[i], size[i], streams[i % lanes]);
    // Also after an error: what is under way stays before the stream's later work.
    for (int l = 1; l < lanes; l++) {
        CUresult e = cuEventRecord(events[l], streams[l]);
        if (e == CUDA_SUCCESS)
            e = cuStreamWaitEvent(streams[0], events[l], 0);
        if (r == CUDA_SUCCESS)
            r = e;
    }
    return r;
}

CUresult exo_event_create(CUcontext ctx, CUevent *event)
{
    CUresult r = cuCtxSetCurrent(ctx);
    return r == CUDA_SUCCESS ? cuEventCreate(event, CU_EVENT_DEFAULT) : r;
}

CUresult exo_event_create_plain(CUcontext ctx, CUevent *event)
{
    CUresult r = cuCtxSetCurrent(ctx);
    return r == CUDA_SUCCESS ? cuEventCreate(event, CU_EVENT_DISABLE_TIMING) : r;
}

CUresult exo_event_query(CUcontext ctx, CUevent event)
{
    CUresult r = cuCtxSetCurrent(ctx);
    return r == CUDA_SUCCESS ? cuEventQuery(event) : r;
}

CUresult exo_event_destroy(CUcontext ctx, CUevent event)
{
    CUresult r = cuCtxSetCurrent(ctx);
    return r == CUDA_SUCCESS ? cuEventDestroy(event) : r;
}

CUresult exo_event_record(CUcontext ctx, CUevent event, CUstream stream)
{
    CUresult r = cuCtxSetCurrent(ctx);
    return r == CUDA_SUCCESS ? cuEventRecord(event, stream) : r;
}

CUresult exo_event_wait(CUcontext ctx, CUstream stream, CUevent event)
{
    CUresult r = cuCtxSetCurrent(ctx);
    return r == CUDA_SUCCESS ? cuStreamWaitEvent(stream, event, 0) : r;
}

CUresult exo_event_time(CUcontext ctx, float *ms, CUevent from, CUevent to)
{
    CUresult r = cuCtxSetCurrent(ctx);
    return r == CUDA_SUCCESS ? cuEventElapsedTime(ms, from, to) : r;
}

CUresult exo_capture_begin(CUcontext ctx, CUstream stream)
{
    CUresult r = cuCtxSetCurrent(ctx);
    // Relaxed: other threads go on allocating, and the capture may end on another thread than it began on.
    return r == CUDA_SUCCESS ? cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) : r;
}

CUresult exo_capture_end(CUcontext ctx, CUstream stream, CUgraphExec *exec)
{
    CUgraph graph = NULL;
    *exec = NULL;
    CUresult r = cuCtxSetCurrent(ctx);
    if (r == CUDA_SUCCESS)
        r = cuStreamEndCapture(stream, &graph);
    if (r == CUDA_SUCCESS)
        r = cuGraphInstantiateWithFlags(exec, graph, 0);
    if (graph != NULL)
        cuGraphDestroy(graph);
    if (r != CUDA_SUCCESS)
        *exec = NULL;
    return r;
}

CUresult exo_graph_launch(CUcontext ctx, CUgraphExec exec, CUstream stream)
{
    CUresult r = cuCtxSetCurrent(ctx);
    return r == CUDA_SUCCESS ? cuGraphLaunch(exec, stream) : r;
}

CUresult exo_graph_destroy(CUcontext ctx, CUgraphExec exec)
{
    CUresult r = cuCtxSetCurrent(ctx);
    return r == CUDA_SUCCESS ? cuGraphExecDestroy(exec) : r;
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static const struct timespec pause_20us = {0, 20000};

CUresult exo_wait(CUcontext ctx, CUstream stream, int64_t spin_ns, int64_t limit_ns)
{
    CUresult r = cuCtxSetCurrent(ctx);
    if (r != CUDA_SUCCESS)
        return r;
    const int64_t start = now_ns();
    while ((r = cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY) {
        const int64_t passed = now_ns() - start;
        if (passed >= limit_ns)
            break;
        if (passed >= spin_ns)
            nanosleep(&pause_20us, NULL);
    }
    return r;
}

CUresult exo_event_poll(CUcontext ctx, CUevent event, int64_t spin_ns, int64_t limit_ns)
{
    CUresult r = cuCtxSetCurrent(ctx);
    if (r != CUDA_SUCCESS)
        return r;
    const int64_t start = now_ns();
    while ((r = cuEventQuery(event)) == CUDA_ERROR_NOT_READY) {
        const int64_t passed = now_ns() - start;
        if (passed >= limit_ns)
            break;
        if (passed >= spin_ns)
            nanosleep(&pause_20us, NULL);
    }
    return r;
}

// A query of the stream costs as much as seeing the word is meant to save, so it is asked rarely.
enum { AWAIT_QUERY_NS = 100000 };

CUresult exo_await(CUcontext ctx, CUstream stream, uint64_t word, uint32_t want, int64_t spin_ns, int64_t limit_ns,
    int *done)
{
    const uint32_t *at = (const uint32_t *)word;
    *done = 0;
    const int64_t start = now_ns();
    int64_t asked = start;
    for (;;) {
        for (int i = 0; i < 64; i++) {
            if (__atomic_load_n(at, __ATOMIC_ACQUIRE) == want)
                return CUDA_SUCCESS;
            __builtin_ia32_pause();
        }
        const int64_t now = now_ns();
        if (now - asked >= AWAIT_QUERY_NS) {
            asked = now;
            CUresult r = cuCtxSetCurrent(ctx);
            if (r == CUDA_SUCCESS)
                r = cuStreamQuery(stream);
            if (r == CUDA_SUCCESS) // what the work stored is visible now
                *done = __atomic_load_n(at, __ATOMIC_ACQUIRE) != want;
            if (r != CUDA_ERROR_NOT_READY)
                return r;
            if (now - start >= limit_ns)
                return CUDA_ERROR_NOT_READY;
        }
        if (now - start >= spin_ns)
            nanosleep(&pause_20us, NULL);
    }
}

CUresult exo_module_load(CUcontext ctx, CUmodule *module, const void *image, char *log, size_t size)
{
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)size};
    log[0] = 0;
    CUresult r = cuCtxSetCurrent(ctx);
    if (r == CUDA_SUCCESS)
        r = cuModuleLoadDataEx(module, image, 2, options, values);
    log[size - 1] = 0;
    return r;
}

CUresult exo_function(CUcontext ctx, CUfunction *fn, CUmodule module, const char *name, int shared_optin,
    int attributes[4])
{
    int fixed = 0;
    CUresult r = cuCtxSetCurrent(ctx);
    if (r == CUDA_SUCCESS)
        r = cuModuleGetFunction(fn, module, name);
    if (r == CUDA_SUCCESS)
        r = cuFuncGetAttribute(&attributes[0], CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, *fn);
    if (r == CUDA_SUCCESS)
        r = cuFuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, *fn);
    if (r == CUDA_SUCCESS)
        r = cuFuncGetAttribute(&attributes[2], CU_FUNC_ATTRIBUTE_NUM_REGS, *fn);
    if (r == CUDA_SUCCESS)
        r = cuFuncGetAttribute(&attributes[3], CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, *fn);
#if CUDA_VERSION >= 11080
    if (r == CUDA_SUCCESS) // without effect on a kernel that has no cluster, an error on a chip that knows none
        cuFuncSetAttribute(*fn, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
#endif
    attributes[1] = shared_optin - fixed;
    if (r == CUDA_SUCCESS && attributes[1] > 0)
        r = cuFuncSetAttribute(*fn, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, attributes[1]);
    return r;
}

int exo_best_block(CUcontext ctx, CUfunction fn)
{
    int grid = 0, block = 0;
    CUresult r = cuCtxSetCurrent(ctx);
    if (r == CUDA_SUCCESS)
        r = cuOccupancyMaxPotentialBlockSize(&grid, &block, fn, NULL, 0, 0);
    return r == CUDA_SUCCESS ? block : 0;
}

// Since CUDA 12.4; the headers that this is built with may be older.
extern CUresult cuFuncGetParamInfo(CUfunction fn, size_t i, size_t *offset, size_t *size);

CUresult exo_param_size(CUcontext ctx, CUfunction fn, int i, size_t *size)
{
    size_t offset = 0;
    CUresult r = cuCtxSetCurrent(ctx);
    return r == CUDA_SUCCESS ? cuFuncGetParamInfo(fn, i, &offset, size) : r;
}

const char *exo_error_name(CUresult r)
{
    const char *name = NULL;
    if (cuGetErrorName(r, &name) != CUDA_SUCCESS || name == NULL)
        return "an error unknown to the driver";
    return name;
}
