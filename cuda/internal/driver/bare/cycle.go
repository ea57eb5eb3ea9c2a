//go:build cuda

package bare

/*
#include <cuda.h>
#include <stdint.h>

// cycle makes a context, loads a module, allocates, copies, waits and destroys all of it, times
// over: what any program does that opens a device.
static int cycle(int index, const void *image, int times)
{
    static char data[6000];
    CUdevice chip;
    int bad = cuDeviceGet(&chip, index);
    for (int i = 0; i < times && !bad; i++) {
        CUcontext ctx;
        CUmodule module;
        CUstream stream;
        CUdeviceptr mem;
        bad |= cuCtxCreate(&ctx, 0, chip);
        if (bad)
            return bad;
        bad |= cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
        bad |= cuModuleLoadData(&module, image);
        bad |= cuMemAlloc(&mem, sizeof data);
        bad |= cuMemcpyHtoDAsync(mem, data, sizeof data, stream);
        bad |= cuStreamSynchronize(stream);
        bad |= cuMemFree(mem);
        bad |= cuModuleUnload(module);
        bad |= cuStreamDestroy(stream);
        bad |= cuCtxDestroy(ctx);
    }
    return bad;
}
*/
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"
)

// Cycles opens and closes a GPU so often, with a module from an image that ends with a zero byte,
// in C alone.
func Cycles(index int, image []byte, times int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if r := C.cycle(C.int(index), unsafe.Pointer(&image[0]), C.int(times)); r != 0 {
		return fmt.Errorf("cycle: CUresults %d", int(r))
	}
	return nil
}
