//go:build cuda

// Package bare calls the driver from C without the CUDA device: launches and copies in a loop,
// which benchmarks compare the device with, and experiments with faults. Only tests import it.
package bare

/*
#include <cuda.h>
#include <stdint.h>
#include <time.h>

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// launches returns the nanoseconds of times launches, each followed by a synchronisation when sync
// is set, or -1.
static int64_t launches(uintptr_t ctx, uintptr_t fn, uintptr_t stream, unsigned grid, unsigned block,
                        const uint64_t *values, int n, int times, int sync)
{
    void *at[64];
    for (int i = 0; i < n && i < 64; i++)
        at[i] = (void *)&values[i];
    if (cuCtxSetCurrent((CUcontext)ctx) != CUDA_SUCCESS)
        return -1;
    const int64_t start = now_ns();
    for (int i = 0; i < times; i++) {
        if (cuLaunchKernel((CUfunction)fn, grid, 1, 1, block, 1, 1, 0, (CUstream)stream, at, NULL) != CUDA_SUCCESS)
            return -1;
        if (sync && cuStreamSynchronize((CUstream)stream) != CUDA_SUCCESS)
            return -1;
    }
    return now_ns() - start;
}
*/
import "C"

import (
	"errors"
	"time"
)

// Launches is how long a number of launches of one kernel takes in C, with a synchronisation after
// each launch if sync is set. The handles are handles of CUDA.
func Launches(ctx, fn, stream uintptr, grid, block int, values []uint64, times int, sync bool) (time.Duration, error) {
	wait := C.int(0)
	if sync {
		wait = 1
	}
	ns := C.launches(C.uintptr_t(ctx), C.uintptr_t(fn), C.uintptr_t(stream), C.uint(grid), C.uint(block),
		(*C.uint64_t)(&values[0]), C.int(len(values)), C.int(times), wait)
	if ns < 0 {
		return 0, errors.New("bare launch failed")
	}
	return time.Duration(ns), nil
}
