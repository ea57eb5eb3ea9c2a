package rows

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// Limits of a message of an Arrow source, in bytes. A record batch of 64 MiB has a million rows of
// eight columns; writers make them a tenth of that.
const (
	// maxArrowMetadata bounds a schema or the header of a record batch, maxArrowBody the stored
	// buffers of a batch, and maxArrowUnpacked its buffers after they are unpacked.
	maxArrowMetadata = 4 << 20
	maxArrowBody     = 64 << 20
	maxArrowUnpacked = 256 << 20
	// maxArrowWindow bounds the window of a packed buffer. Writers pack with level 1, whose windows
	// are below 1 MiB.
	maxArrowWindow = 8 << 20
)

// The tables of Arrow's Message.fbs and Schema.fbs, format version 1.5, that a source of flat
// columns is made of.
var (
	arrowText     = batch.FlatShape{Size: 1, Vector: true}
	arrowMetadata = batch.FlatShape{
		Vector: true,
		Table:  &batch.FlatTable{Name: "KeyValue", Slots: []batch.FlatShape{arrowText, arrowText}},
	}
	arrowField = &batch.FlatTable{Name: "Field", Choose: map[byte]*batch.FlatTable{
		2:  {Name: "Int", Slots: []batch.FlatShape{{Size: 4}, {Size: 1}}},
		3:  {Name: "FloatingPoint", Slots: []batch.FlatShape{{Size: 2}}},
		4:  {Name: "Binary"},
		5:  {Name: "Utf8"},
		6:  {Name: "Bool"},
		7:  {Name: "Decimal", Slots: []batch.FlatShape{{Size: 4}, {Size: 4}, {Size: 4}}},
		8:  {Name: "Date", Slots: []batch.FlatShape{{Size: 2}}},
		9:  {Name: "Time", Slots: []batch.FlatShape{{Size: 2}, {Size: 4}}},
		10: {Name: "Timestamp", Slots: []batch.FlatShape{{Size: 2}, arrowText}},
		15: {Name: "FixedSizeBinary", Slots: []batch.FlatShape{{Size: 4}}},
		18: {Name: "Duration", Slots: []batch.FlatShape{{Size: 2}}},
		19: {Name: "LargeBinary"},
		20: {Name: "LargeUtf8"},
	}}
	arrowCompression = &batch.FlatTable{Name: "BodyCompression", Slots: []batch.FlatShape{{Size: 1}, {Size: 1}}}
	arrowMessage     = &batch.FlatTable{
		Name: "Message", Slots: []batch.FlatShape{{Size: 2}, {Size: 1}, {Union: true}, {Size: 8}, arrowMetadata},
		Choose: map[byte]*batch.FlatTable{
			1: {
				Name: "Schema",
				Slots: []batch.FlatShape{
					{Size: 2},
					{Vector: true, Table: arrowField},
					arrowMetadata,
					{Size: 8, Vector: true},
				},
			},
			3: {
				Name: "RecordBatch",
				Slots: []batch.FlatShape{
					{Size: 8},
					{Size: 16, Vector: true},
					{Size: 16, Vector: true},
					{Table: arrowCompression},
					{Size: 8, Vector: true},
				},
			},
		},
	}
)

// arrowField refers to itself, which a composite literal of a variable cannot.
func init() { // slot 4, the dictionary, is refused
	arrowField.Slots = []batch.FlatShape{
		arrowText,
		{Size: 1},
		{Size: 1},
		{Union: true},
		{},
		{Vector: true, Table: arrowField},
		arrowMetadata,
	}
}

// ArrowMessages reads the messages of an Arrow IPC stream or file. It implements ipc.MessageReader
// and verifies every message before the Arrow library sees it. The library trusts lengths and
// offsets of a message, so an unverified one could make it allocate or read anything. One goroutine
// uses it.
type ArrowMessages struct {
	name string
	src  io.Reader
	hold *access.Hold
	held int64 // bytes of the last message in hold
	kind byte  // header type that the next message must have: a schema, then record batches
	msg  *ipc.Message
}

// NewArrowMessages returns the messages of src, which name names in errors. The memory of a message
// is taken from h. The caller closes src after the last message.
func NewArrowMessages(name string, src io.Reader, h *access.Hold) *ArrowMessages {
	return &ArrowMessages{name: name, src: src, kind: 1, hold: h}
}

// Retain implements ipc.MessageReader.
func (r *ArrowMessages) Retain() {}

// Release implements ipc.MessageReader.
func (r *ArrowMessages) Release() {}

// Message implements ipc.MessageReader. The message is valid until the next call, which gives its
// memory back to the hold. It returns io.EOF after the last message.
func (r *ArrowMessages) Message() (*ipc.Message, error) {
	if r.msg != nil {
		r.msg.Release()
		r.msg = nil
	}
	r.hold.Shrink(r.held) // the library has let go of the record batch before it asks for the next
	r.held = 0
	meta, body, err := r.message()
	if err != nil {
		return nil, err
	}
	r.kind = 3
	r.msg = ipc.NewMessage(memory.NewBufferBytes(meta), memory.NewBufferBytes(body))
	return r.msg, nil
}

// message reads and verifies one message, or returns io.EOF. It takes the memory of each part from
// the hold before it allocates the part. The order of the checks matters: the length of the
// metadata, the metadata, the length of the body, and then the buffers in the body.
func (r *ArrowMessages) message() (meta, body []byte, err error) {
	var head [8]byte
	first := r.kind == 1
	if _, err := io.ReadFull(r.src, head[:]); err != nil {
		if errors.Is(err, io.EOF) && !first {
			return nil, nil, io.EOF // a stream may end without its end mark
		}
		return nil, nil, r.short(err)
	}
	if first && string(head[:6]) == "ARROW1" { // a file is a stream between a mark and a footer
		if _, err := io.ReadFull(r.src, head[:]); err != nil {
			return nil, nil, r.short(err)
		}
	}
	if binary.LittleEndian.Uint32(head[:]) != 0xFFFFFFFF {
		return nil, nil, access.InputError(
			"%s: there is no Arrow message where one must start: is it an Arrow IPC file or stream?", r.name,
		)
	}
	n := int64(binary.LittleEndian.Uint32(head[4:]))
	if n == 0 && !first {
		return nil, nil, io.EOF
	}
	if n < 8 || n > maxArrowMetadata {
		return nil, nil, access.InputError(
			"%s: an Arrow message has metadata of %d bytes; 8 to %d are allowed", r.name, n, maxArrowMetadata,
		)
	}
	// The library keeps what it makes of the metadata: of a schema until the end, and of a record
	// batch as long as the batch.
	if err := r.take(arrowTables * n); err != nil {
		return nil, nil, err
	}
	// The memory for the schema stays with the reader, so the next message must not give it back.
	if first {
		r.held = 0
	}
	meta = make([]byte, n)
	if _, err := io.ReadFull(r.src, meta); err != nil {
		return nil, nil, r.short(err)
	}
	v := batch.NewFlatVerifier(meta)
	pos, err := v.Root()
	if err == nil {
		err = v.Check(arrowMessage, pos)
	}
	if err != nil {
		return nil, nil, access.InputError(
			"%s: it is not a table of flat columns (%v): write it without dictionaries, views and nested columns",
			r.name, err,
		)
	}
	// A second schema, or a dictionary, would change what the reader has checked.
	if got := v.Byte(pos, 1); got != r.kind {
		return nil, nil, access.InputError("%s: an Arrow message of type %d where type %d must be", r.name, got, r.kind)
	}
	size := v.Int64(pos, 3)
	if size < 0 || size > maxArrowBody {
		return nil, nil, access.InputError(
			"%s: an Arrow record batch of %d bytes; %d are allowed: write smaller batches", r.name, size, maxArrowBody,
		)
	}
	if err := r.take(size); err != nil {
		return nil, nil, err
	}
	if body, err = readN(r.src, size); err != nil {
		return nil, nil, r.short(err)
	}
	if r.kind == 3 {
		unpacked, err := checkBuffers(v, v.Sub(pos, 2), body)
		if err != nil {
			return nil, nil, access.InputError("%s: the file is damaged: %v", r.name, err)
		}
		if err := r.take(unpacked); err != nil {
			return nil, nil, err
		}
	}
	return meta, body, nil
}

// arrowTables is the most bytes that the library allocates for a byte of metadata. A field of 60
// bytes becomes several structures and a name.
const arrowTables = 8

func (r *ArrowMessages) take(n int64) error {
	if err := r.hold.Grow(n); err != nil {
		return err
	}
	r.held += n
	return nil
}

// short returns the error of a read within a message: the file is cut off, or the disk fails.
func (r *ArrowMessages) short(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return access.InputError("%s: the file is cut off: an Arrow message ends in its middle", r.name)
	}
	return access.IOError("read", r.name, err)
}

// readN reads n bytes. The kernel provides memory only when it is written, so a false length costs
// no more than the bytes that follow.
func readN(r io.Reader, n int64) ([]byte, error) {
	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, err
	}
	return data, nil
}

// checkBuffers returns the bytes that the library allocates to unpack the buffers of a record
// batch. Too many of them are an error. The sizes inside packed buffers come from the file, and the
// library would allocate whatever they say. A size of -1 marks a buffer that is stored as it is.
func checkBuffers(v *batch.FlatVerifier, batch int64, body []byte) (total int64, err error) {
	packed := v.Sub(batch, 3)
	var window int64
	for b := v.Structs(batch, 2, 16); len(b) > 0; b = b[16:] {
		off, n := int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:]))
		if off < 0 || n < 0 || off%8 != 0 || n > int64(len(body))-off {
			return 0, fmt.Errorf("a buffer of %d bytes at %d in a body of %d", n, off, len(body))
		}
		if packed == 0 || n == 0 {
			continue
		}
		if n < 8 {
			return 0, fmt.Errorf("a packed buffer of %d bytes", n)
		}
		size := int64(binary.LittleEndian.Uint64(body[off:]))
		if size == -1 {
			continue // this one is not
		}
		if size < 0 || size > maxArrowUnpacked-total {
			return 0, fmt.Errorf("its buffers unpack to more than %d bytes", maxArrowUnpacked)
		}
		total += size
		if v.Byte(packed, 0) == arrowZstd {
			if err := zstdWindows(body[off+8:off+n],
				func(n int64) error { window = max(window, n); return nil }); err != nil {
				return 0, err
			}
		}
	}
	if window > maxArrowWindow {
		return 0, fmt.Errorf("a packed buffer asks for a window of %d bytes; %d are allowed", window, maxArrowWindow)
	}
	if packed != 0 {
		total += arrowDecoders * (window + zstdRest)
	}
	return total, nil
}

// arrowZstd is the packing zstd in Arrow's metadata. The library decodes it with up to
// arrowDecoders blocks at a time.
const (
	arrowZstd     = 1
	arrowDecoders = 4
)

// Rest reads what follows the last message, such as the footer of a file. A packed file shows only
// at its end whether it is complete. It is called after the last record batch, and keeps nothing of
// what it reads.
func (r *ArrowMessages) Rest() error {
	if _, err := io.Copy(io.Discard, r.src); err != nil {
		return access.IOError("read", r.name, err)
	}
	return nil
}
