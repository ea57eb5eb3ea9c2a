//go:build cgo

package main

// #include "worker_cuda.h"
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
		store(text, maxText, fmt.Sprintf("%s: %v", name, err))
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

// store writes a text into n bytes of C, n >= 1. It cuts a text that is too long, and ends it with
// 0.
func store(to *C.char, n int, text string) {
	b := unsafe.Slice((*byte)(unsafe.Pointer(to)), n)
	b[copy(b[:n-1], text)] = 0
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

//export workerLoadModel
func workerLoadModel(session C.uint64_t, path *C.char, handle, bytes *C.uint64_t, text *C.char) C.int {
	return call("cuda_load_model", worker.ModelLoadFailed, text, func() error {
		h, info, err := library.LoadModel(context.Background(), uint64(session), C.GoString(path))
		*handle, *bytes = C.uint64_t(h), C.uint64_t(info.Bytes)
		return err
	})
}

//export workerFreeModel
func workerFreeModel(handle C.uint64_t, text *C.char) C.int {
	return call("cuda_model_free", worker.Unknown, text, func() error {
		return library.FreeModel(uint64(handle))
	})
}

//export workerModelInfo
func workerModelInfo(handle C.uint64_t, info *C.CudaModelInfo, text *C.char) C.int {
	return call("cuda_model_info", worker.QueryFailed, text, func() error {
		i, err := library.ModelInfo(uint64(handle))
		if err != nil {
			return err
		}
		p := i.Parameters
		*info = C.CudaModelInfo{
			context_length: C.uint32_t(p.Context), vocab_size: C.uint32_t(p.Vocabulary),
			embedding_length: C.uint32_t(p.Width), num_layers: C.uint32_t(p.Layers), num_heads: C.uint32_t(p.Heads),
			num_kv_heads: C.uint32_t(p.KVHeads), vram_bytes: C.uint64_t(i.Bytes),
		}
		store(&info.name[0], len(info.name), i.Name)
		store(&info.architecture[0], len(info.architecture), p.Family)
		return nil
	})
}

//export workerStart
func workerStart(model C.uint64_t, prompt *C.char, tokens C.int, temperature C.float, seed C.uint64_t,
	handle *C.uint64_t, text *C.char,
) C.int {
	return call("cuda_inference_start", worker.InferenceFailed, text, func() error {
		h, err := library.Start(uint64(model), C.GoString(prompt), int(tokens), float32(temperature), uint64(seed))
		*handle = C.uint64_t(h)
		return err
	})
}

//export workerNext
func workerNext(handle C.uint64_t, to *C.char, size C.int, number, more *C.int, text *C.char) C.int {
	return call("cuda_inference_next", worker.InferenceFailed, text, func() error {
		token, n, is, err := library.Next(uint64(handle), int(size)-1)
		if is {
			store(to, int(size), token)
			*number, *more = C.int(n), 1
		}
		return err
	})
}

//export workerCancel
func workerCancel(handle C.uint64_t, text *C.char) C.int {
	return call("cuda_inference_cancel", worker.Unknown, text, func() error {
		return library.Cancel(uint64(handle))
	})
}

//export workerFreeInference
func workerFreeInference(handle C.uint64_t, text *C.char) C.int {
	return call("cuda_inference_free", worker.Unknown, text, func() error {
		return library.FreeInference(uint64(handle))
	})
}

//export workerCheckResidency
func workerCheckResidency(handle C.uint64_t, text *C.char) C.int {
	return call("cuda_check_vram_residency", worker.QueryFailed, text, func() error {
		return library.CheckResidency(context.Background(), uint64(handle))
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
