//go:build cgo

package main

// #include <stdint.h>
import "C"

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/exoswarm/exoswarm/cmd/internal/worker"
)

// maxText is the size of the buffers for the text of an error: TEXT in worker_cuda.c.
const maxText = 1024

// library is all that the process has made. No function of C closes it: the process ends with it.
var library worker.Library

// call makes a call of the library that C has asked for. It returns the code of its error, which is
// otherwise unless the error has a class, and writes the sentence into text. A panic is an error
// too: C has no way to recover from one.
func call(name string, otherwise worker.Code, text *C.char, fn func() error) (code C.int) {
	fail := func(err error, code worker.Code) C.int {
		to := unsafe.Slice((*byte)(unsafe.Pointer(text)), maxText)
		to[copy(to[:maxText-1], fmt.Sprintf("%s: %v", name, err))] = 0
		return C.int(code)
	}
	defer func() {
		if p := recover(); p != nil {
			code = fail(fmt.Errorf("a defect of the library: %v", p), worker.Unknown)
		}
	}()
	if err := fn(); err != nil {
		return fail(err, worker.CodeOf(err, otherwise))
	}
	return C.int(worker.Success)
}

//export workerInit
func workerInit(device C.int, handle *C.uint64_t, text *C.char) C.int {
	return call("cuda_init", worker.InitializationFailed, text, func() error {
		h, err := library.Init(context.Background(), int(device))
		*handle = C.uint64_t(h)
		return err
	})
}

//export workerFreeContext
func workerFreeContext(handle C.uint64_t, text *C.char) C.int {
	return call("cuda_context_free", worker.Unknown, text, func() error {
		return library.FreeContext(uint64(handle))
	})
}

//export workerUsage
func workerUsage(handle C.uint64_t, bytes *C.uint64_t, text *C.char) C.int {
	return call("cuda_get_process_vram_usage", worker.QueryFailed, text, func() error {
		n, err := library.Usage(uint64(handle))
		*bytes = C.uint64_t(n)
		return err
	})
}

//export workerCheckHealth
func workerCheckHealth(handle C.uint64_t, text *C.char) C.int {
	return call("cuda_check_device_health", worker.QueryFailed, text, func() error {
		return library.CheckHealth(context.Background(), uint64(handle))
	})
}

//export workerCheckDevice
func workerCheckDevice(device C.int, text *C.char) C.int {
	return call("vram_set_device", worker.QueryFailed, text, func() error {
		return worker.CheckDevice(int(device))
	})
}

//export workerDevices
func workerDevices() C.int { return C.int(worker.Devices()) }

//export workerInfo
func workerInfo(device C.int, free, total *C.uint64_t, text *C.char) C.int {
	return call("vram_get_info", worker.QueryFailed, text, func() error {
		f, t, err := library.Info(context.Background(), int(device))
		*free, *total = C.uint64_t(f), C.uint64_t(t)
		return err
	})
}

//export workerMalloc
func workerMalloc(device C.int, bytes C.uint64_t, handle *C.uint64_t, text *C.char) C.int {
	return call("vram_malloc", worker.InitializationFailed, text, func() error {
		h, err := library.Malloc(context.Background(), int(device), uint64(bytes))
		*handle = C.uint64_t(h)
		return err
	})
}

//export workerFree
func workerFree(handle C.uint64_t, text *C.char) C.int {
	return call("vram_free", worker.Unknown, text, func() error { return library.Free(uint64(handle)) })
}

//export workerWrite
func workerWrite(handle C.uint64_t, src unsafe.Pointer, bytes C.uint64_t, text *C.char) C.int {
	return call("vram_memcpy_h2d", worker.MemcpyFailed, text, func() error {
		return library.Write(uint64(handle), src, uint64(bytes))
	})
}

//export workerRead
func workerRead(dst unsafe.Pointer, handle, bytes C.uint64_t, text *C.char) C.int {
	return call("vram_memcpy_d2h", worker.MemcpyFailed, text, func() error {
		return library.Read(dst, uint64(handle), uint64(bytes))
	})
}
