//go:build cuda

package driver

/*
#cgo LDFLAGS: -Wl,--as-needed -ldl -lpthread
#include "libcuda.h"
#include "supplement.h"
*/
import "C"

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"time"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// Options configure Open.
type Options struct {
	// MemoryLimit is the maximum of bytes that Alloc holds allocated; 0: what the device has.
	MemoryLimit int64
	// CacheDir is the directory of compiled kernels; empty: none.
	CacheDir string
	// NVRTC are the names under which the compiler is looked for, in order; nil: the installed
	// ones. An empty list is a machine without it.
	NVRTC []string
	// CUBLAS are the names under which cuBLAS is looked for, in order; nil: the installed ones. An
	// empty list is a machine without it.
	CUBLAS []string
	// Watchdog is how long a wait for work may last before it ends with ErrTimeout; 0: one minute,
	// less: for ever.
	Watchdog time.Duration
	// Logger; nil: slog.Default.
	Logger *slog.Logger
	// Requested and Reason go into the Properties.
	Requested, Reason string
}

// Init starts the driver, once in the process, and returns the number of its devices.
func Init() (int, error) {
	switch r := C.exo_driver_init(); {
	case r == -1:
		return 0, fmt.Errorf("no NVIDIA driver: libcuda.so.1 cannot be opened; install the driver or use the device "+
			"\"host\": %w", device.ErrNotSupported)
	case r == C.CUDA_ERROR_NO_DEVICE:
		return 0, callError("the NVIDIA driver sees no device; nvidia-smi and CUDA_VISIBLE_DEVICES say why: cuInit",
			C.CUresult(r))
	case r != C.CUDA_SUCCESS:
		return 0, callError("start the NVIDIA driver: cuInit", C.CUresult(r))
	}
	n, err := cu.NumDevices()
	if err != nil {
		return 0, callError("cuDeviceGetCount", codeOf(err))
	}
	return n, nil
}

// Open makes a context on the GPU of that index. The caller closes the device. ctx is checked
// before the slow steps, which take well under a second each.
func Open(ctx context.Context, index int, opts Options) (*Device, error) {
	name := fmt.Sprintf("cuda:%d", index)
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.Requested == "" {
		opts.Requested = name
	}
	count, err := Init()
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	if index < 0 || index >= count || opts.MemoryLimit < 0 {
		return nil, fmt.Errorf("open %s: %d devices, memory limit %d: %w", name, count, opts.MemoryLimit,
			device.ErrInvalidArgument)
	}
	chip, err := cu.GetDevice(index)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, callError("cuDeviceGet", codeOf(err)))
	}
	props, sharedOptin, err := describe(chip, index, count)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	props.Name, props.Requested, props.Reason, props.Generation = name, opts.Requested, opts.Reason,
		device.NextGeneration()
	d := &Device{
		props:       props,
		index:       index,
		limit:       opts.MemoryLimit,
		sharedOptin: sharedOptin,
		watchdog:    opts.Watchdog,
		log:         opts.Logger,
		kernels:     map[string]*kernel{},
		buffers:     map[*buffer]struct{}{},
		pinned:      map[*hostBuffer]struct{}{},
		handles:     map[io.Closer]string{},
		stuck:       map[*stream]time.Time{},
	}
	d.pool.dev = d
	if d.watchdog == 0 {
		d.watchdog = defaultWatchdog
	}
	if d.limit == 0 || d.limit > props.MemoryBytes {
		d.limit = props.MemoryBytes
	}
	if opts.NVRTC == nil {
		opts.NVRTC = nvrtcNames
	}
	if opts.CUBLAS == nil {
		opts.CUBLAS = cublasNames
	}
	d.blasNames = opts.CUBLAS
	d.compiler = findNVRTC(opts.NVRTC)
	if d.compiler == nil {
		d.log.Warn("no NVRTC found: kernels come from embedded PTX", "device", name, "looked_for", opts.NVRTC)
	} else {
		d.props.CompilerVersion = d.compiler.version
	}
	if opts.CacheDir != "" {
		if d.cache, err = openCache(opts.CacheDir); err != nil {
			d.log.Warn("kernels are compiled at each start", "device", name, "err", err)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	d.askLink()
	if err := d.join(chip); err != nil {
		d.closeSensors()
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return d, nil
}

// peers queries the links from the chip to the other chips.
func peers(chip cu.Device, index, count int) ([]device.Peer, error) {
	var all []device.Peer
	for i := range count {
		if i == index {
			continue
		}
		other, err := cu.GetDevice(i)
		if err != nil {
			return nil, callError("cuDeviceGet", codeOf(err))
		}
		p := device.Peer{Name: fmt.Sprintf("cuda:%d", i), Rank: -1}
		var v C.int
		if r := C.cuDeviceCanAccessPeer(&v, C.CUdevice(chip), C.CUdevice(other)); r != C.CUDA_SUCCESS {
			return nil, callError("cuDeviceCanAccessPeer", r)
		}
		p.Direct = v != 0
		if C.cuDeviceGetP2PAttribute(&v, C.CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, C.CUdevice(chip),
			C.CUdevice(other)) == C.CUDA_SUCCESS {
			p.Rank = int(v)
		}
		all = append(all, p)
	}
	return all, nil
}

// describe reads the facts of a chip, and how much shared memory a block may have there in all.
func describe(chip cu.Device, index, count int) (p device.Properties, sharedOptin int, err error) {
	if p.Model, err = chip.Name(); err != nil {
		return p, 0, callError("cuDeviceGetName", codeOf(err))
	}
	if p.MemoryBytes, err = chip.TotalMem(); err != nil {
		return p, 0, callError("cuDeviceTotalMem", codeOf(err))
	}
	id, err := chip.UUID()
	if err != nil {
		return p, 0, callError("cuDeviceGetUuid", codeOf(err))
	}
	p.UUID = "GPU-" + id.String()
	var bus [32]C.char
	if r := C.cuDeviceGetPCIBusId(&bus[0], C.int(len(bus)), C.CUdevice(chip)); r != C.CUDA_SUCCESS {
		return p, 0, callError("cuDeviceGetPCIBusId", r)
	}
	p.PCIBus = C.GoString(&bus[0])
	var l2 int
	for attribute, at := range map[cu.DeviceAttribute]*int{
		cu.ComputeCapabilityMajor: &p.ComputeMajor,
		cu.ComputeCapabilityMinor: &p.ComputeMinor,
		cu.MultiprocessorCount:    &p.Multiprocessors,
		cu.MaxThreadsPerBlock:     &p.MaxThreadsPerBlock,
		cu.L2CacheSize:            &l2,
		cu.DeviceAttribute(C.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN): &sharedOptin,
	} {
		if *at, err = chip.Attribute(attribute); err != nil {
			return p, 0, callError(fmt.Sprintf("cuDeviceGetAttribute(%d)", attribute), codeOf(err))
		}
	}
	p.L2Bytes = int64(l2)
	if p.Peers, err = peers(chip, index, count); err != nil {
		return p, 0, err
	}
	p.DriverVersion = cu.Version()
	return p, sharedOptin, nil
}

// laneCount is the number of streams that copies outside any stream share: one each way keeps both
// copy engines busy, and two more hide the start of the next.
const laneCount = 4

// makeContext makes the device's context and its lanes. On an error nothing is left.
func (d *Device) makeContext(chip cu.Device) error {
	runtime.LockOSThread() // a new context is current on the thread that made it, until it is popped
	defer runtime.UnlockOSThread()
	c, err := chip.MakeContext(cu.SchedAuto | cu.MapHost)
	if err != nil {
		return callError("cuCtxCreate", codeOf(err))
	}
	d.ctx, d.raw = c, C.exo_context()
	d.lanes = make(chan lane, laneCount)
	err = d.makeLanes()
	if _, pop := cu.PopCurrentCtx(); pop != nil && err == nil {
		err = callError("cuCtxPopCurrent", codeOf(pop))
	}
	if err != nil {
		// The first error is the one to tell.
		_ = d.unpin()
		_ = d.ctx.Destroy()
	}
	return err
}

func (d *Device) makeLanes() error {
	for range laneCount {
		var l lane
		s, err := cu.MakeStream(cu.NonBlocking)
		if err != nil {
			return callError("cuStreamCreate", codeOf(err))
		}
		l.stream = C.CUstream(unsafe.Pointer(s.C()))
		l.staging = &hostBuffer{dev: d, purpose: "staging", size: C.EXO_STAGING, whole: C.EXO_STAGING}
		if r := C.exo_pin(d.raw, &l.staging.whole, &l.staging.host, &l.staging.mapped); r != C.CUDA_SUCCESS {
			return callError("cuMemHostRegister of staging memory", r)
		}
		d.lanes <- l
	}
	return nil
}
