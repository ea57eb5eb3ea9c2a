package device

import (
	"context"
	"time"
)

// Stream runs what is put into it one after the other, in order, and apart from other streams. The
// calls that put something in check it and return; they do not wait for the work, except where so
// much is in the stream that the device accepts no more for the moment. The buffers of the work
// must stay open until it is done. A Stream is used by one goroutine at a time.
type Stream interface {
	// Launch puts a kernel into the stream. args are checked against the kernel's signature.
	Launch(k Kernel, g Geometry, args ...Arg) error
	// Upload copies n bytes of host memory from srcOff on to dst at dstOff. The host memory may be
	// changed when the copy is done.
	Upload(dst Buffer, dstOff int64, src HostBuffer, srcOff, n int64) error
	// Download copies n bytes of src from srcOff on into host memory at dstOff.
	Download(dst HostBuffer, dstOff int64, src Buffer, srcOff, n int64) error
	// UploadAll is Upload of many pieces, faster than one by one: they are under way together, in
	// no particular order, and stand in the stream's order as a whole. The destinations may not
	// overlap; it is not checked. The caller may reuse the slice. When one piece is refused, none
	// is copied.
	UploadAll(pieces []Piece) error
	// DownloadAll is Download of many pieces, in the same way.
	DownloadAll(pieces []Piece) error
	// Copy copies between device buffers, of which one may belong to another device of the same
	// kind. Within one buffer the ranges may not overlap.
	Copy(dst Buffer, dstOff int64, src Buffer, srcOff, n int64) error
	// Fill sets n bytes of b from off on to v.
	Fill(b Buffer, off, n int64, v byte) error

	// Alloc is Device.Alloc for memory that the work of this stream uses first: it may be what
	// Release has given up on this stream while its old work is still under way. Until the stream
	// is synced, only this stream may use the buffer.
	Alloc(n int64, purpose string) (Buffer, error)
	// Release closes a buffer of the stream's device as soon as everything put into the stream so
	// far is done, and does not wait for that. The handle is closed at once; the memory goes to the
	// next Alloc of this stream, later to any other. Work of other streams may not use it any more.
	// It cannot stand in a capture.
	Release(b Buffer) error

	// Gemm puts c = alpha*a*b + beta*c into the stream. The factors have one type of element; the
	// result has the same or F32. Sums are in fp32, in an order that may differ between devices and
	// sizes, and fp32 products are not shortened. Where beta is 0, c may hold anything. The result
	// may not overlap a factor.
	Gemm(alpha float32, a, b Matrix, beta float32, c Matrix) error

	// Record marks this point of the stream with the event, which is done when everything before it
	// is. An event can be recorded again; it then stands for the new point.
	Record(e Event) error
	// Wait lets what is put in later begin only when the point is done that the event marks at the
	// moment of the call. The event may be of another stream and another device of the same kind.
	// One that was never recorded is no hindrance.
	Wait(e Event) error

	// Capture records what fn puts into the stream by Launch, Upload, Download, Copy and Fill
	// instead of doing it, for any number of replays. The stream's other methods are errors inside
	// fn, and an error of fn, or of a call in it, is an error of Capture. The caller closes the
	// graph.
	Capture(fn func() error) (Graph, error)
	// Replay puts a captured sequence into the stream as a whole: for the host one call, for the
	// device less to do between its parts. The graph is one of this device; its buffers are those
	// of the capture, and must be open.
	Replay(g Graph) error

	// Await waits until the 32-bit word at off of host memory is want, a multiple of 4, which work
	// of the stream stores there. It sees the word sooner than Sync sees the end of that work. Work
	// that ends and leaves another word is ErrInvalidArgument, failed work its own error;
	// cancelling ctx ends the wait.
	Await(ctx context.Context, flag HostBuffer, off int64, want uint32) error
	// Sync waits until everything put into the stream so far is done, and returns the first error
	// of that work. Cancelling ctx ends the wait, not the work.
	Sync(ctx context.Context) error
	// Close waits for the work of the stream and releases it, and returns an error of that work
	// which no earlier call of the stream has returned. A second call does nothing.
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
	// Done says whether the point is reached; an event that was never recorded is done.
	Done() (bool, error)
	// Sync waits for the point. Cancelling ctx ends the wait.
	Sync(ctx context.Context) error
	// Since is the time on the device from an earlier event to this one, with a resolution of about
	// a microsecond. It is ErrInvalidArgument for one that was never recorded or is of another
	// device, and ErrTransient before both are done.
	Since(earlier Event) (time.Duration, error)
	// Close releases the event. A second call does nothing.
	Close() error
}

// Graph is a captured sequence of work; Stream.Capture makes it and Stream.Replay does it. Replays
// of one graph never run at the same time, whatever their streams.
type Graph interface {
	// Len is the number of operations in it.
	Len() int
	// Close releases the graph, of which no replay may be under way. A second call does nothing.
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
// dimensions are for kernels of the caller's own: a kernel of the set has one.
type Geometry struct {
	Grid, Block   int
	Shared        int
	GridY, BlockY int // 0: 1
	GridZ, BlockZ int // 0: 1
}

// Flat says that the launch has one dimension.
func (g Geometry) Flat() bool { return g.GridY <= 1 && g.GridZ <= 1 && g.BlockY <= 1 && g.BlockZ <= 1 }
