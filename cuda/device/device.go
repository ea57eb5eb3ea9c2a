// Package device is the contract of an accelerator: memory, streams and kernels, whatever
// implements them. The host device (cuda/host) and the CUDA device (cuda/internal/driver) implement
// it, and cuda/devicetest holds both to it. The package imports the standard library only.
package device

import "context"

// Device is one accelerator with its own memory. All methods may be called from several goroutines
// at once.
type Device interface {
	// Properties describes the device; it does not change while the device is open.
	Properties() Properties

	// Memory returns the free and the total bytes of device memory, as the device reports them.
	Memory() (free, total int64, err error)

	// Alloc reserves n bytes of device memory, n >= 0, for a purpose ("pages", "staging"), which
	// the accounting and the leak report name. The content is undefined. It fails with
	// ErrOutOfMemory when the device or its configured limit has no room. Memory of closed buffers
	// may be cached for the next Alloc of about their size. The cache is released before Alloc
	// fails.
	Alloc(n int64, purpose string) (Buffer, error)

	// Trim returns cached memory to the device and reports its size in bytes. It may wait for all
	// work in progress.
	Trim() (int64, error)

	// AllocHost reserves n bytes of pinned host memory, n >= 0. The device copies from and to it at
	// full rate and asynchronously, and kernels can address it. The content is undefined. It does
	// not count against the limit of device memory. Pinned pages are scarce: make few such buffers,
	// once.
	AllocHost(n int64, purpose string) (HostBuffer, error)

	// Kernel returns a kernel of the built-in set by its name, or ErrNotSupported.
	Kernel(name string) (Kernel, error)

	// Compile makes a kernel from the caller's CUDA C++ source, which declares it as __global__
	// void name(...). Its parameters are read from the source: pointers are buffers, and integers
	// of 32 and 64 bits and float are scalars. The given params must be equal to them and, where
	// the driver can tell, to the parameters of the compiled code. The compiler has its own
	// defaults, so it may fuse a multiplication and an addition; fast math is off. An error of the
	// source is a *SourceError, which is an ErrInvalidArgument, with the compiler's words and the
	// line. A device that compiles nothing, such as the host, or a machine without a compiler is
	// ErrNotSupported. The kernel lives as long as its device; the same source is compiled once.
	Compile(name, source string, params ...Param) (Kernel, error)

	// CompileExact is Compile for a kernel that rounds after every operation, as kernels of the set
	// do. Its results have the same bits on every chip and with every version of the compiler,
	// except for functions of the compiler's library.
	CompileExact(name, source string, params ...Param) (Kernel, error)

	// CompilePTX makes a kernel from the caller's PTX, in which it is the entry of that name.
	// params are compared with the .param list of the entry as CheckPTX does and, where the driver
	// can tell, with the compiled code. A text that the driver refuses is a *SourceError with the
	// driver's words. It needs only the driver's compiler; the host returns ErrNotSupported. The
	// kernel lives as long as its device; the same text is loaded once.
	CompilePTX(name, text string, params ...Param) (Kernel, error)

	// NewStream opens an ordered queue of work on the device. The caller closes it.
	NewStream() (Stream, error)

	// NewBackgroundStream is NewStream for launches that nobody waits for, such as a training's. Blocks
	// of launches of other streams begin before blocks of its launches; a block that runs is not
	// interrupted. The results are the same.
	NewBackgroundStream() (Stream, error)

	// NewEvent makes an event that nothing has recorded yet. The caller closes it.
	NewEvent() (Event, error)

	// Usage returns the allocated memory by purpose, in alphabetical order.
	Usage() []Usage

	// Health examines the device and its memory, and compares the claims with the content of the
	// device. It answers on a broken and on a closed device too. It runs concurrently with other
	// work, and costs milliseconds plus the reading of the claimed memory; ctx ends it early.
	Health(ctx context.Context, claims ...Claim) Health

	// Close releases the device. A buffer, stream, event or graph still open is released too and
	// reported as ErrLeak. A second call does nothing.
	Close() error
}

// Usage is the memory allocated for one purpose: on the device, and with AllocHost on the host.
type Usage struct {
	Purpose     string
	Buffers     int
	Bytes       int64
	HostBuffers int
	HostBytes   int64
}

// Properties describe a device.
type Properties struct {
	// Name is the name of the device: "host", "cuda:0".
	Name string
	// Requested is the name that Open was asked for: "auto" where the choice was Open's. Reason
	// then says why this device was taken.
	Requested, Reason string
	// Model is the maker's name of the chip, as in "NVIDIA H200".
	Model string
	// UUID identifies the physical device; empty for the host device.
	UUID string
	// ComputeMajor and ComputeMinor are CUDA's compute capability; 0 for the host device.
	ComputeMajor, ComputeMinor int
	// Multiprocessors is the number of SMs; for the host device the number of worker goroutines.
	Multiprocessors int
	// MemoryBytes is the size of device memory.
	MemoryBytes int64
	// L2Bytes is the size of the last-level cache; 0 where it is not known.
	L2Bytes int64
	// MaxThreadsPerBlock bounds Geometry.Block.
	MaxThreadsPerBlock int
	// PCIBus is the bus address of the device, as in "0000:1b:00.0"; empty for the host device.
	PCIBus string
	// PCIeGeneration and PCIeLanes are the fastest link that both the device and its slot support.
	// An idle device may use less. 0 means unknown, as for the host device.
	PCIeGeneration, PCIeLanes int
	// Peers are the other devices of the machine, in the order of their names. The slice is not
	// changed.
	Peers []Peer
	// DriverVersion is as the driver reports it (13000 for CUDA 13.0); 0 for the host device.
	DriverVersion int
	// CompilerVersion is the version of the kernel compiler found at run time, in the same form; 0
	// where there is none and kernels come from embedded PTX, and for the host device.
	CompilerVersion int
	// Generation distinguishes the devices that this process opens one after another: it is never
	// given twice. A handle of an earlier generation is refused by a later one, also when both
	// stand for the same chip.
	Generation uint64
}

// Peer is another device of the machine, as this one sees it.
type Peer struct {
	// Name is what Open takes: "cuda:1".
	Name string
	// Direct reports whether copies between the two devices bypass the host.
	Direct bool
	// Rank orders the links of a device: 0 is the fastest kind that the driver knows, -1 is
	// unknown.
	Rank int
}
