//go:build cuda

package bare

/*
#include <cuda.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

extern CUresult cuGraphUpload(CUgraphExec, CUstream);
extern CUresult cuLaunchKernelEx(const CUlaunchConfig *, CUfunction, void **, void **);

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// rounds launches a graph times times and spins until its word has counted one further; ns gets the
// times.
static int rounds(uintptr_t ctx, uintptr_t stream, uintptr_t exec, volatile uint32_t *word, uint32_t count,
                  int times, int64_t *ns)
{
    if (cuCtxSetCurrent((CUcontext)ctx) != CUDA_SUCCESS)
        return -1;
    for (int i = 0; i < times; i++) {
        const int64_t start = now();
        if (cuGraphLaunch((CUgraphExec)exec, (CUstream)stream) != CUDA_SUCCESS)
            return -1;
        count++;
        while (*word != count)
            if (now() - start > 1000000000)
                return -1;
        ns[i] = now() - start;
    }
    return 0;
}

static int upload(uintptr_t ctx, uintptr_t stream, uintptr_t exec)
{
    return cuCtxSetCurrent((CUcontext)ctx) || cuGraphUpload((CUgraphExec)exec, (CUstream)stream);
}

static int memset32(uintptr_t ctx, uintptr_t stream, uint64_t at, size_t words)
{
    return cuCtxSetCurrent((CUcontext)ctx) || cuMemsetD32Async(at, 0, words, (CUstream)stream);
}

// early launches a kernel that may start before the one in front of it has ended.
static int early(uintptr_t ctx, uintptr_t fn, uintptr_t stream, unsigned grid, unsigned block,
                 const uint64_t *values, int n)
{
    void *at[64];
    for (int i = 0; i < n && i < 64; i++)
        at[i] = (void *)&values[i];
    CUlaunchAttribute a = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    a.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig c = {.gridDimX = grid, .gridDimY = 1, .gridDimZ = 1,
                        .blockDimX = block, .blockDimY = 1, .blockDimZ = 1,
                        .hStream = (CUstream)stream, .attrs = &a, .numAttrs = 1};
    CUresult r = cuCtxSetCurrent((CUcontext)ctx);
    return r != CUDA_SUCCESS ? r : cuLaunchKernelEx(&c, (CUfunction)fn, at, NULL);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"
)

// Rounds is the median time from the launch of a graph to the moment that C sees the word that its
// last node counts up.
func Rounds(ctx, stream, exec uintptr, word *uint32, times int) (time.Duration, error) {
	ns := make([]C.int64_t, times)
	if C.rounds(C.uintptr_t(ctx), C.uintptr_t(stream), C.uintptr_t(exec), (*C.uint32_t)(unsafe.Pointer(word)),
		C.uint32_t(*word), C.int(times), &ns[0]) != 0 {
		return 0, errors.New("bare graph failed")
	}
	slices.Sort(ns)
	return time.Duration(ns[times/2]), nil
}

// UploadGraph brings a graph onto the device before its first launch.
func UploadGraph(ctx, stream, exec uintptr) error {
	if r := C.upload(C.uintptr_t(ctx), C.uintptr_t(stream), C.uintptr_t(exec)); r != 0 {
		return fmt.Errorf("cuGraphUpload: %d", int(r))
	}
	return nil
}

// Clear sets words of 32 bits to zero.
func Clear(ctx, stream uintptr, at uint64, words int) error {
	if r := C.memset32(C.uintptr_t(ctx), C.uintptr_t(stream), C.uint64_t(at), C.size_t(words)); r != 0 {
		return fmt.Errorf("cuMemsetD32Async: %d", int(r))
	}
	return nil
}

// LaunchEarly launches a kernel that may start before the one in front of it in the stream has
// ended, and waits for it itself.
func LaunchEarly(ctx, fn, stream uintptr, grid, block int, values []uint64) error {
	if r := C.early(C.uintptr_t(ctx), C.uintptr_t(fn), C.uintptr_t(stream), C.uint(grid), C.uint(block),
		(*C.uint64_t)(&values[0]), C.int(len(values))); r != 0 {
		return fmt.Errorf("cuLaunchKernelEx: %d", int(r))
	}
	return nil
}
