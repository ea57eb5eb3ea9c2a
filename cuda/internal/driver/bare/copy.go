//go:build cuda

package bare

/*
#include <cuda.h>
#include <stdint.h>

// copies measures copies of n bytes, each between two events, in milliseconds. kind: 0 host to
// device, 1 device to host, 2 on the device. The host memory is the driver's own, cuMemHostAlloc.
static int copies(uintptr_t ctx, int kind, size_t n, int times, float *ms)
{
    void *host = NULL;
    CUdeviceptr a = 0, b = 0;
    CUevent from, to;
    CUstream s;
    if (cuCtxSetCurrent((CUcontext)ctx) || cuStreamCreate(&s, CU_STREAM_NON_BLOCKING) ||
        cuEventCreate(&from, 0) || cuEventCreate(&to, 0) ||
        cuMemAlloc(&a, n) || (kind == 2 ? cuMemAlloc(&b, n) : cuMemHostAlloc(&host, n, CU_MEMHOSTALLOC_PORTABLE)))
        return -1;
    int bad = 0;
    for (int i = -2; i < times && !bad; i++) {
        float t = 0;
        bad |= cuEventRecord(from, s);
        bad |= kind == 0   ? cuMemcpyHtoDAsync(a, host, n, s)
               : kind == 1 ? cuMemcpyDtoHAsync(host, a, n, s)
                           : cuMemcpyDtoDAsync(b, a, n, s);
        bad |= cuEventRecord(to, s);
        bad |= cuStreamSynchronize(s);
        bad |= cuEventElapsedTime(&t, from, to);
        if (i >= 0)
            ms[i] = t;
    }
    cuMemFree(a);
    if (b)
        cuMemFree(b);
    if (host)
        cuMemFreeHost(host);
    cuEventDestroy(from);
    cuEventDestroy(to);
    cuStreamDestroy(s);
    return bad ? -1 : 0;
}
*/
import "C"

import (
	"errors"
	"slices"
	"time"
)

// The directions of Copies.
const (
	HostToDevice = iota
	DeviceToHost
	OnDevice
)

// Copies is the median time of a copy of n bytes with memory of the driver's own, measured on the
// device.
func Copies(ctx uintptr, direction int, n int64, times int) (time.Duration, error) {
	ms := make([]C.float, times)
	if C.copies(C.uintptr_t(ctx), C.int(direction), C.size_t(n), C.int(times), &ms[0]) != 0 {
		return 0, errors.New("bare copy failed")
	}
	slices.Sort(ms)
	return time.Duration(float64(ms[times/2]) * 1e6), nil
}
