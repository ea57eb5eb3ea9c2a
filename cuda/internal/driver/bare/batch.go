//go:build cuda

package bare

/*
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

// What the headers of CUDA 12.8 say; ours may be older.
typedef struct { int type, id; } place;
typedef struct { int order; place from, to; unsigned flags; } manner;
typedef CUresult (*batch_fn)(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, manner *, size_t *, size_t,
                             size_t *, CUstream);

// batch times n scattered copies of a page each, given to the driver by one call, in
// milliseconds. 1 says that the driver has no such call.
static int batch(uintptr_t ctx, int up, size_t page, int n, int times, float *ms)
{
    batch_fn call = (batch_fn)dlsym(RTLD_DEFAULT, "cuMemcpyBatchAsync");
    void *host = NULL;
    CUdeviceptr on = 0;
    CUevent from, to;
    CUstream s;
    if (call == NULL)
        return 1;
    if (cuCtxSetCurrent((CUcontext)ctx) || cuStreamCreate(&s, CU_STREAM_NON_BLOCKING) ||
        cuEventCreate(&from, 0) || cuEventCreate(&to, 0) ||
        cuMemAlloc(&on, page * n) || cuMemHostAlloc(&host, page * n, CU_MEMHOSTALLOC_PORTABLE))
        return -1;
    CUdeviceptr *dst = malloc(n * sizeof *dst), *src = malloc(n * sizeof *src);
    size_t *size = malloc(n * sizeof *size), first = 0, failed = 0;
    for (int i = 0; i < n; i++) {
        const CUdeviceptr d = on + page * (i * 37 % n), h = (CUdeviceptr)(uintptr_t)host + page * i;
        dst[i] = up ? d : h;
        src[i] = up ? h : d;
        size[i] = page;
    }
    manner m = {.order = 1}; // as the stream has it
    int bad = 0;
    for (int i = -2; i < times && !bad; i++) {
        float t = 0;
        bad |= cuEventRecord(from, s);
        bad |= call(dst, src, size, n, &m, &first, 1, &failed, s);
        bad |= cuEventRecord(to, s);
        bad |= cuStreamSynchronize(s);
        bad |= cuEventElapsedTime(&t, from, to);
        if (i >= 0)
            ms[i] = t;
    }
    free(dst), free(src), free(size);
    cuMemFree(on);
    cuMemFreeHost(host);
    cuEventDestroy(from);
    cuEventDestroy(to);
    cuStreamDestroy(s);
    return bad ? -bad : 0;
}
*/
import "C"

import (
	"fmt"
	"slices"
	"time"
)

// Batch is the median time of n scattered copies of a page, given to the driver by one call,
// measured on the device.
func Batch(ctx uintptr, up bool, page int64, n, times int) (time.Duration, error) {
	ms := make([]C.float, times)
	direction := C.int(0)
	if up {
		direction = 1
	}
	switch r := C.batch(C.uintptr_t(ctx), direction, C.size_t(page), C.int(n), C.int(times), &ms[0]); {
	case r == 1:
		return 0, fmt.Errorf("cuMemcpyBatchAsync: this driver has none")
	case r != 0:
		return 0, fmt.Errorf("cuMemcpyBatchAsync: CUresults %d", int(-r))
	}
	slices.Sort(ms)
	return time.Duration(float64(ms[times/2]) * 1e6), nil
}
