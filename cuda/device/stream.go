package device

import (
	"context"
	"time"
)

// Stream is an ordered queue of work; streams are independent of each other. A call that queues
// work checks it and returns. It blocks only while the queue of the device is full. The buffers of
// the work must stay open until the work is done. A Stream is used by one goroutine at a time.
type Stream interface {
	// Launch queues a kernel. args are checked against the kernel's signature.
	Launch(k Kernel, g Geometry, args ...Arg) error
	// Upload copies n bytes of host memory from srcOff on to dst at dstOff. The host memory may be
	// changed when the copy is done.
	Upload(dst Buffer, dstOff int64, src HostBuffer, srcOff, n int64) error
	// Download copies n bytes of src from srcOff on into host memory at dstOff.
	Download(dst HostBuffer, dstOff int64, src Buffer, srcOff, n int64) error
	// UploadAll is Upload of many pieces, and faster. The pieces are copied concurrently, in no
	// particular order, and are one operation in the order of the stream. The destinations may not
	// overlap, which is not checked. The caller may reuse the slice. If one piece is refused, none
	// is copied.
	UploadAll(pieces []Piece) error
	// DownloadAll is Download of many pieces, in the same way.
	DownloadAll(pieces []Piece) error
	// Copy copies between device buffers. One buffer may belong to another device of the same kind.
	// Within one buffer the ranges may not overlap.
	Copy(dst Buffer, dstOff int64, src Buffer, srcOff, n int64) error
	// Fill sets n bytes of b from off on to v.
	Fill(b Buffer, off, n int64, v byte) error

	// Alloc is Device.Alloc for memory that the work of this stream uses first: it may reuse memory
	// of a Release on this stream whose old work is not done yet. Until the stream is synced, only
	// this stream may use the buffer.
	Alloc(n int64, purpose string) (Buffer, error)
	// Release closes a buffer of the stream's device when all queued work is done, and does not
	// wait for that. The handle is closed at once. The memory goes to the next Alloc of this
	// stream, and later to any other stream. Work of other streams may no longer use it. Release
	// cannot be captured.
	Release(b Buffer) error

	// Gemm queues c = alpha*a*b + beta*c. The factors have one type of element; the result has the
	// same or F32. Sums are in fp32, in an order that may differ between devices and sizes, and
	// fp32 products keep all bits (no TF32). Where beta is 0, c may hold anything. The result may
	// not overlap a factor.
	Gemm(alpha float32, a, b Matrix, beta float32, c Matrix) error

	// Record marks this point of the stream with the event, which is done when all earlier work is
	// done. An event can be recorded again and then marks the new point.
	Record(e Event) error
	// Wait delays later work until the point is done that the event marks at the time of the call.
	// The event may belong to another stream, and to another device of the same kind. An event that
	// was never recorded is done.
	Wait(e Event) error

	// Capture records the work that fn queues by Launch, Upload, Download, Copy and Fill, without
	// executing it, for any number of replays. The stream's other methods are errors inside fn, and
	// an error of fn, or of a call in it, is an error of Capture. The caller closes the graph.
	Capture(fn func() error) (Graph, error)
	// Replay queues a captured sequence as a whole: one call for the host, and shorter gaps on the
	// device. The graph must belong to this device, and the buffers of the capture must be open.
	Replay(g Graph) error

	// Await waits until the 32-bit word at off of host memory, a multiple of 4, is want. Work of
	// the stream stores the word. Await returns sooner than Sync. It returns ErrInvalidArgument if
	// the work ends with another word, and the error of failed work. Cancelling ctx ends the wait.
	Await(ctx context.Context, flag HostBuffer, off int64, want uint32) error
	// Sync waits until all queued work is done and returns its first error. Cancelling ctx ends the
	// wait, not the work.
	Sync(ctx context.Context) error
	// Close waits for the work of the stream and releases the stream. It returns an error of the
	// work that no earlier call has returned. A second call does nothing.
	Close() error
}

// Piece is one copy of UploadAll or DownloadAll: Bytes bytes between Off of a device buffer and
// HostOff of host memory.
type Piece struct {
	Buffer  Buffer
	Off     int64
	Host    HostBuffer
	HostOff int64
	Bytes   int64
}

// Event marks a point of a stream. Its methods may be called from several goroutines at once.
type Event interface {
	// Done reports whether the point is reached. An event that was never recorded is done.
	Done() (bool, error)
	// Sync waits for the point. Cancelling ctx ends the wait.
	Sync(ctx context.Context) error
	// Since is the time on the device from an earlier event to this one, with a resolution of about
	// a microsecond. It is ErrInvalidArgument for an event that was never recorded or belongs to
	// another device, and ErrTransient before both events are done.
	Since(earlier Event) (time.Duration, error)
	// Close releases the event. A second call does nothing.
	Close() error
}

// Graph is a captured sequence of work. Stream.Capture makes it and Stream.Replay executes it.
// Replays of one graph never run at the same time, whatever their streams.
type Graph interface {
	// Len is the number of operations in it.
	Len() int
	// Close releases the graph. No replay of it may be in progress. A second call does nothing.
	Close() error
}

// Kernel is a function of the device that many threads run at once.
type Kernel interface {
	Name() string
	// Signature is what Launch checks its arguments against. The caller does not change it.
	Signature() []Param
	// Cover is a launch of one dimension with at least one thread for each of n elements, n >= 1,
	// in the blocks that suit the device.
	Cover(n int64) Geometry
}

// Geometry is the shape of a launch: Grid blocks of Block threads each, both >= 1. Shared is the
// number of bytes of dynamic shared memory a block; the host device ignores it. The other
// dimensions are for kernels of callers: kernels of the set have one dimension.
type Geometry struct {
	Grid, Block   int
	Shared        int
	GridY, BlockY int // 0: 1
	GridZ, BlockZ int // 0: 1
}

// Flat reports whether the launch has one dimension.
func (g Geometry) Flat() bool { return g.GridY <= 1 && g.GridZ <= 1 && g.BlockY <= 1 && g.BlockZ <= 1 }
