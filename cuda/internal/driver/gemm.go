//go:build cuda

package driver

/*
#include <stdlib.h>
#cgo nocallback exo_cublas_gemm
#include "cublas.h"
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// cublasNames are the sonames of cuBLAS, newest first, then the names of an installation with
// headers.
var cublasNames = []string{
	"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublas.so",
	"/usr/local/cuda/lib64/libcublas.so.13", "/usr/local/cuda/lib64/libcublas.so.12",
	"/usr/local/cuda/lib64/libcublas.so",
}

// workBytes is the workspace of a stream's products: what the library asks for on a chip of compute
// capability 9, where less costs large products of bf16 some of their rate.
const workBytes = 32 << 20

// blas is a device's handle of cuBLAS. It is opened by the first product, which costs hundreds of
// milliseconds.
type blas struct {
	mu     sync.Mutex // the handle is used by one thread at a time
	tried  bool
	lib    *C.exo_cublas // nil: products run on kernels of the set
	handle unsafe.Pointer
}

// librariesOfBlas holds the opened library; it stays open for the life of the process.
var librariesOfBlas struct {
	sync.Mutex
	by map[string]*C.exo_cublas
}

func findBlas(names []string) *C.exo_cublas {
	librariesOfBlas.Lock()
	defer librariesOfBlas.Unlock()
	for _, name := range names {
		if lib := librariesOfBlas.by[name]; lib != nil {
			return lib
		}
		cname := C.CString(name)
		var version C.int
		lib := C.exo_cublas_open(cname, &version)
		C.free(unsafe.Pointer(cname))
		if lib != nil {
			if librariesOfBlas.by == nil {
				librariesOfBlas.by = map[string]*C.exo_cublas{}
			}
			librariesOfBlas.by[name] = lib
			return lib
		}
	}
	return nil
}

// openBlas opens the library once for a device and reports whether there is one. d.life is held.
func (d *Device) openBlas() bool {
	d.blas.mu.Lock()
	defer d.blas.mu.Unlock()
	if d.blas.tried {
		return d.blas.lib != nil
	}
	d.blas.tried = true
	lib := findBlas(d.blasNames)
	if lib == nil {
		d.log.Warn("no cuBLAS found: matrix products run on the kernels of the set", "device", d.props.Name,
			"looked_for", d.blasNames)
		return false
	}
	if status := C.exo_cublas_create(lib, d.raw, &d.blas.handle); status != 0 {
		d.log.Warn("cuBLAS does not start: matrix products run on the kernels of the set", "device", d.props.Name,
			"status", int(status))
		return false
	}
	d.blas.lib = lib
	return true
}

// closeBlas gives the handle up. d.life is held for writing.
func (d *Device) closeBlas() error {
	if d.blas.lib == nil {
		return nil
	}
	lib := d.blas.lib
	d.blas.lib = nil
	return d.failBlas(C.exo_cublas_destroy(lib, d.raw, d.blas.handle), "cublasDestroy")
}

func (d *Device) failBlas(status C.int, format string, args ...any) error {
	if status == 0 {
		return nil
	}
	if status < 0 {
		return d.fail(C.CUresult(-status), format, args...)
	}
	class := device.ErrTransient
	switch status {
	case 3: // ALLOC_FAILED
		class = device.ErrOutOfMemory
	case 7: // INVALID_VALUE
		class = device.ErrInvalidArgument
	case 8, 15: // ARCH_MISMATCH, NOT_SUPPORTED
		class = device.ErrNotSupported
	}
	return fmt.Errorf("%s on %s: cublasStatus %d: %w", fmt.Sprintf(format, args...), d.props.Name, int(status), class)
}

// Gemm puts a matrix product into the stream: of cuBLAS, or else a kernel of the set.
func (s *stream) Gemm(alpha float32, a, b device.Matrix, beta float32, c device.Matrix) error {
	return s.note(s.gemm(alpha, a, b, beta, c))
}

func (s *stream) gemm(alpha float32, a, b device.Matrix, beta float32, c device.Matrix) error {
	m, n, k, err := device.CheckGemm(a, b, c)
	if err != nil {
		return err
	}
	var at [3]C.exo_matrix
	var closed [3]*buffer
	for i, x := range []device.Matrix{a, b, c} {
		mem, err := deviceMemory(x.Buffer, s.dev)
		if err != nil {
			return fmt.Errorf("gemm: %w", err)
		}
		at[i] = C.exo_matrix{
			at: C.uint64_t(mem.ptr) + C.uint64_t(x.Off), step: C.int(max(x.Step(), 1)),
			transposed: flag(x.Transposed), bf16: flag(x.Elem == device.BF16),
		}
		closed[i] = mem
	}
	if m == 0 || n == 0 {
		return nil
	}
	if err := s.begin("gemm"); err != nil {
		return err
	}
	if k == 0 || !s.dev.openBlas() {
		s.end()
		kernel, err := s.dev.Kernel(kernels.GemmName(a.Elem, c.Elem))
		if err != nil {
			return err
		}
		return s.Launch(kernel, kernels.GemmGeometry(m, n), kernels.GemmArgs(alpha, a, b, beta, c)...)
	}
	defer s.end()
	work := s.workspace()
	for _, mem := range closed {
		s.use(&mem.closed)
	}
	if s.recording != nil {
		s.recording.ops -= len(closed) - 1 // one operation, three buffers
	}
	d := s.dev
	d.blas.mu.Lock()
	// The library's matrices stand column by column, which makes ours their transposes: c' = b' *
	// a'.
	status := C.exo_cublas_gemm(d.blas.lib, d.raw, d.blas.handle, s.raw, work.ptr, C.size_t(work.size), C.int(n),
		C.int(m), C.int(k),
		C.float(alpha), at[1], at[0], C.float(beta), at[2])
	d.blas.mu.Unlock()
	return s.tell(d.failBlas(status, "gemm of %d x %d x %d", m, n, k))
}

func flag(v bool) C.int {
	if v {
		return 1
	}
	return 0
}

// workspace is the stream's, or within a capture the graph's, whose replays may run concurrently
// with the stream's work. Without room it is empty, and the library uses its own. s.mu is held.
func (s *stream) workspace() block {
	at := &s.work
	if s.recording != nil {
		at = &s.recording.work
	}
	if at.size == 0 {
		if b, err := s.dev.pool.take(workBytes, nil); err == nil {
			*at = b
		}
	}
	return *at
}
