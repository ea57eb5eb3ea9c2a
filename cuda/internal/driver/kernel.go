//go:build cuda

package driver

/*
#include <stdlib.h>
#include "supplement.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/arrayset"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/cuda/kernels/gridset"
	"github.com/exoswarm/exoswarm/cuda/kernels/languageset"
	"github.com/exoswarm/exoswarm/cuda/kernels/quantumset"
	"github.com/exoswarm/exoswarm/cuda/kernels/spaceset"
	"github.com/exoswarm/exoswarm/cuda/kernels/swarmset"
	"github.com/exoswarm/exoswarm/cuda/kernels/trainset"
)

// kernel is a loaded function. It lives as long as its device's context.
type kernel struct {
	dev  *Device
	name string
	sig  []device.Param
	fn   C.CUfunction
	// maxThreads and maxShared bound a block: registers and static shared memory leave so much.
	maxThreads, maxShared int
	// block is the size of block that fills the chip best; 0 where the driver does not say.
	block int
	// own reports whether it is a caller's kernel, which may have more than one dimension.
	own bool
	// registers and local are a thread's: what a launch is tuned by, and the bytes it spills.
	registers, local int
	src              kernels.Source
}

func (k *kernel) Name() string              { return k.name }
func (k *kernel) Signature() []device.Param { return k.sig }

// check refuses a launch that the driver would refuse, or that would leave its buffers.
func (k *kernel) check(g device.Geometry, args []device.Arg) error {
	fits := device.CheckFlat
	if k.own {
		fits = device.CheckGeometry
	}
	if err := fits(k.name, g, &k.dev.props); err != nil {
		return err
	}
	if g.Block*max(g.BlockY, 1)*max(g.BlockZ, 1) > k.maxThreads || g.Shared > k.maxShared {
		return fmt.Errorf("launch %s: blocks of %d threads with %d bytes of shared memory: at most %d threads and "+
			"%d bytes fit: %w",
			k.name, g.Block*max(g.BlockY, 1)*max(g.BlockZ, 1), g.Shared, k.maxThreads, k.maxShared,
			device.ErrInvalidArgument)
	}
	if err := k.src.Fits(g); err != nil {
		return err
	}
	return device.CheckArgs(k.name, k.sig, args)
}

// Cover takes the block that the driver finds best, or the table's, and a smaller one where few
// elements would leave multiprocessors without a block.
func (k *kernel) Cover(n int64) device.Geometry {
	block := k.block
	if block == 0 {
		block = device.TableBlock(n)
	}
	block = min(block, k.maxThreads)
	for block >= 128 && block%64 == 0 && n/int64(block) < int64(k.dev.props.Multiprocessors) {
		block /= 2
	}
	return device.Cover(n, block)
}

// Compile makes a kernel from a caller's source, once a device and source.
func (d *Device) Compile(name, source string, params ...device.Param) (device.Kernel, error) {
	return d.compileOwn(kernels.Source{Name: name, Code: source, FMA: true}, params)
}

// CompileExact is Compile without fused multiplications and additions.
func (d *Device) CompileExact(name, source string, params ...device.Param) (device.Kernel, error) {
	return d.compileOwn(kernels.Source{Name: name, Code: source}, params)
}

func (d *Device) compileOwn(src kernels.Source, params []device.Param) (device.Kernel, error) {
	name := src.Name
	found, code, err := device.ParseKernel(name, src.Code)
	if err != nil {
		return nil, err
	}
	if params != nil {
		if err := device.CheckDeclared(name, params, found); err != nil {
			return nil, err
		}
		found = slices.Clone(params)
	}
	if err := d.acquire("compile " + name); err != nil {
		return nil, err
	}
	defer d.life.RUnlock()
	if d.compiler == nil {
		return nil, fmt.Errorf("compile %s on %s: no NVRTC on this machine; install libnvrtc of a CUDA toolkit: %w",
			name, d.props.Name, device.ErrNotSupported)
	}
	key := cubinKey(append(src.Options(), "own", name, code)...)
	src.Params, src.File, src.Code = found, name+".cu", code
	k, err := d.compileOnce(key, src)
	if err != nil {
		return nil, fmt.Errorf("compile %s on %s: %w", name, d.props.Name, err)
	}
	return k, nil
}

// compileOnce compiles a caller's source unless its kernel is there. Different sources are compiled
// at the same time: the compiler needs no context, and takes 0.1 to 0.5 s. Callers of one source
// wait for the first of them, and try themselves if it fails.
func (d *Device) compileOnce(key string, src kernels.Source) (*kernel, error) {
	for {
		d.loading.Lock()
		if k := d.kernels[key]; k != nil {
			d.loading.Unlock()
			return k, nil
		}
		other := d.compiling[key]
		if other == nil {
			break
		}
		d.loading.Unlock()
		<-other
	}
	if d.compiling == nil {
		d.compiling = map[string]chan struct{}{}
	}
	done := make(chan struct{})
	d.compiling[key] = done
	d.loading.Unlock()
	image, fresh, err := d.image(src)
	d.loading.Lock()
	defer d.loading.Unlock()
	defer close(done)
	defer delete(d.compiling, key)
	if err != nil {
		return nil, err
	}
	k, err := d.loadCompiled(src, image, fresh)
	if err != nil {
		return nil, err
	}
	k.own = true
	d.kernels[key] = k
	return k, nil
}

// CompilePTX loads a caller's PTX, once a device and text.
func (d *Device) CompilePTX(name, text string, params ...device.Param) (device.Kernel, error) {
	if err := device.CheckPTX(name, text, params); err != nil {
		return nil, err
	}
	if err := d.acquire("load PTX " + name); err != nil {
		return nil, err
	}
	defer d.life.RUnlock()
	what := fmt.Sprintf("load PTX %s on %s", name, d.props.Name)
	if len(params) > C.EXO_MAX_ARGS {
		return nil, fmt.Errorf("%s: %d parameters, at most %d: %w", what, len(params), C.EXO_MAX_ARGS,
			device.ErrInvalidArgument)
	}
	d.loading.Lock()
	defer d.loading.Unlock()
	key := cubinKey("ptx", name, text, fmt.Sprint(params)) // two declarations may fit one text
	if k := d.kernels[key]; k != nil {
		return k, nil
	}
	src := kernels.Source{Name: name, Params: slices.Clone(params), File: name + ".ptx", Code: text}
	k, err := d.loadImage(src, append([]byte(text), 0))
	if errors.Is(err, device.ErrNotSupported) { // the driver's word for PTX that it refuses
		return nil, &device.SourceError{What: what, Log: err.Error()}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	k.own = true
	d.kernels[key] = k
	return k, nil
}

// Kernel compiles and loads a kernel of the set, once a device.
func (d *Device) Kernel(name string) (device.Kernel, error) {
	if err := d.acquire("kernel " + name); err != nil {
		return nil, err
	}
	defer d.life.RUnlock()
	src, ok := kernels.Lookup(name)
	if !ok {
		return nil, fmt.Errorf("kernel %q is not in the set: %w", name, device.ErrNotSupported)
	}
	d.loading.Lock()
	defer d.loading.Unlock()
	if k := d.kernels[name]; k != nil {
		return k, nil
	}
	k, err := d.load(src)
	if err != nil {
		return nil, fmt.Errorf("kernel %s: %w", name, err)
	}
	d.kernels[name] = k
	return k, nil
}

// load brings a kernel of the set onto the device: from the cache, else from NVRTC, else from
// embedded PTX. The caller holds d.loading.
func (d *Device) load(src kernels.Source) (*kernel, error) {
	if d.compiler == nil || len(src.Params) > C.EXO_MAX_ARGS {
		return d.loadPTX(src)
	}
	image, fresh, err := d.image(src)
	if errors.Is(err, device.ErrNotSupported) { // NVRTC does not know this chip
		d.log.Warn("kernel comes from embedded PTX", "kernel", src.Name, "err", err)
		return d.loadPTX(src)
	}
	if err != nil {
		return nil, err
	}
	return d.loadCompiled(src, image, fresh)
}

// image returns the code of a source: from the cache, or from NVRTC, which fresh says. It uses no
// context of the device.
func (d *Device) image(src kernels.Source) (image []byte, fresh bool, err error) {
	if len(src.Params) > C.EXO_MAX_ARGS {
		err := fmt.Errorf("%d parameters, at most %d: %w", len(src.Params), C.EXO_MAX_ARGS, device.ErrNotSupported)
		return nil, false, err
	}
	options := d.compilerOptions(src)
	image, err = d.cache.Get(d.cacheKey(src, options))
	if err == nil {
		return image, false, nil
	}
	if !errors.Is(err, errMissing) {
		d.log.Warn("cached kernel is compiled again", "kernel", src.Name, "err", err)
	}
	image, err = d.compiler.compile(src, options)
	return image, true, err
}

// loadCompiled loads the code of a source, and keeps fresh code in the cache. Cached code that the
// driver refuses, though it is whole, is compiled again. The caller holds d.loading.
func (d *Device) loadCompiled(src kernels.Source, image []byte, fresh bool) (*kernel, error) {
	k, err := d.loadImage(src, image)
	options := d.compilerOptions(src)
	if err != nil && !fresh && d.broken.Load() == nil {
		d.log.Warn("cached kernel is compiled again", "kernel", src.Name, "err", "the driver refuses it")
		if image, err = d.compiler.compile(src, options); err != nil {
			return nil, err
		}
		fresh = true
		k, err = d.loadImage(src, image)
	}
	if err != nil {
		return nil, err
	}
	if !fresh {
		return k, nil
	}
	if err := d.cache.Put(d.cacheKey(src, options), image); err != nil {
		d.log.Warn("compiled kernel is not kept", "kernel", src.Name, "err", err)
	}
	return k, nil
}

// chip is the name of the device's architecture for the compiler.
func (d *Device) chip() string {
	return fmt.Sprintf("sm_%d%d", d.props.ComputeMajor, d.props.ComputeMinor)
}

func (d *Device) compilerOptions(src kernels.Source) []string {
	return append([]string{"--gpu-architecture=" + d.chip(), "--std=c++17", "--generate-line-info"}, src.Options()...)
}

// cacheKey names what the compiler makes of a source: everything that could change it is part of
// the key.
func (d *Device) cacheKey(src kernels.Source, options []string) string {
	parts := []string{src.Name, src.Code, fmt.Sprint(d.props.CompilerVersion), fmt.Sprint(d.props.DriverVersion)}
	return cubinKey(append(parts, options...)...)
}

func ptx(name string) (text string, ok bool) {
	for _, of := range []func(string) (string, bool){
		kernels.PTX, arrayset.PTX, graphset.PTX, gridset.PTX, languageset.PTX, quantumset.PTX, spaceset.PTX,
		swarmset.PTX, trainset.PTX,
	} {
		if text, ok = of(name); ok {
			break
		}
	}
	return text, ok
}

func (d *Device) loadPTX(src kernels.Source) (*kernel, error) {
	text, ok := ptx(src.Name)
	if !ok {
		return nil, fmt.Errorf("no NVRTC on this machine and no embedded PTX for the kernel: %w",
			device.ErrNotSupported)
	}
	return d.loadImage(src, append([]byte(text), 0))
}

// loadImage loads a cubin, or PTX that ends in a zero byte, and finds the kernel in it.
func (d *Device) loadImage(src kernels.Source, image []byte) (*kernel, error) {
	const logSize = 8192
	log := (*C.char)(C.malloc(logSize))
	defer C.free(unsafe.Pointer(log))
	var module C.CUmodule
	if len(image) == 0 {
		return nil, fmt.Errorf("empty image: %w", device.ErrNotSupported)
	}
	r := C.exo_module_load(d.raw, &module, unsafe.Pointer(unsafe.SliceData(image)), log, logSize)
	if err := d.fail(r, "load %d bytes of code", len(image)); err != nil {
		if text := C.GoString(log); text != "" {
			return nil, fmt.Errorf("%w\n%s", err, text)
		}
		return nil, err
	}
	name := C.CString(src.Name)
	defer C.free(unsafe.Pointer(name))
	k := &kernel{dev: d, name: src.Name, sig: src.Params, src: src}
	var attributes [4]C.int
	r = C.exo_function(d.raw, &k.fn, module, name, C.int(d.sharedOptin), &attributes[0])
	if err := d.fail(r, "find the kernel in its code"); err != nil {
		return nil, err
	}
	k.maxThreads, k.maxShared = int(attributes[0]), int(attributes[1])
	k.registers, k.local = int(attributes[2]), int(attributes[3])
	k.block = int(C.exo_best_block(d.raw, k.fn))
	if err := d.checkParams(k); err != nil {
		return nil, err
	}
	return k, nil
}

// checkParams compares the signature with the compiled kernel: the sizes of the parameters and
// their number. Drivers before CUDA 12.4 cannot tell.
func (d *Device) checkParams(k *kernel) error {
	for i, p := range k.sig {
		var size C.size_t
		switch r := C.exo_param_size(d.raw, k.fn, C.int(i), &size); {
		case r == C.CUDA_ERROR_INVALID_VALUE:
			return fmt.Errorf("the compiled kernel has %d parameters, its signature %d: %w", i, len(k.sig),
				device.ErrInvalidArgument)
		case r != C.CUDA_SUCCESS:
			return nil
		case int(size) != p.Kind.Bytes():
			return fmt.Errorf("parameter %d (%s) takes %d bytes in the compiled kernel, a %v has %d: %w", i, p.Name,
				size, p.Kind, p.Kind.Bytes(), device.ErrInvalidArgument)
		}
	}
	var size C.size_t
	if C.exo_param_size(d.raw, k.fn, C.int(len(k.sig)), &size) == C.CUDA_SUCCESS {
		return fmt.Errorf("the compiled kernel has more parameters than its signature, %d: %w", len(k.sig),
			device.ErrInvalidArgument)
	}
	return nil
}

// Registers returns the registers that a thread uses, and the bytes of its values that did not fit
// them and are in local memory.
func (k *kernel) Registers() (used, spilled int) { return k.registers, k.local }
