package cpuagents

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/exoswarm/exoswarm/cpuagents/fault"
	"github.com/exoswarm/exoswarm/cpuagents/inputmem"
	"github.com/exoswarm/exoswarm/internal/flatbuf"
)

// Limits of a message of an Arrow source, in bytes. A record batch of 64 MiB has a million rows of eight columns; writers
// make them a tenth of that.
const (
	maxArrowMetadata = 4 << 20
	maxArrowBody     = 64 << 20
	maxArrowUnpacked = 256 << 20
	// maxArrowWindow bounds the window of a packed buffer. Writers pack with level 1, whose windows are below 1 MiB.
	maxArrowWindow = 8 << 20
)

// The tables of Arrow's Message.fbs and Schema.fbs, format version 1.5, that a source of flat columns is made of.
var (
	arrowText     = flatbuf.Shape{Size: 1, Vector: true}
	arrowMetadata = flatbuf.Shape{Vector: true, Table: &flatbuf.Table{Name: "KeyValue", Slots: []flatbuf.Shape{arrowText, arrowText}}}
	arrowField    = &flatbuf.Table{Name: "Field", Choose: map[byte]*flatbuf.Table{
		2:  {Name: "Int", Slots: []flatbuf.Shape{{Size: 4}, {Size: 1}}},
		3:  {Name: "FloatingPoint", Slots: []flatbuf.Shape{{Size: 2}}},
		4:  {Name: "Binary"},
		5:  {Name: "Utf8"},
		6:  {Name: "Bool"},
		7:  {Name: "Decimal", Slots: []flatbuf.Shape{{Size: 4}, {Size: 4}, {Size: 4}}},
		8:  {Name: "Date", Slots: []flatbuf.Shape{{Size: 2}}},
		9:  {Name: "Time", Slots: []flatbuf.Shape{{Size: 2}, {Size: 4}}},
		10: {Name: "Timestamp", Slots: []flatbuf.Shape{{Size: 2}, arrowText}},
		15: {Name: "FixedSizeBinary", Slots: []flatbuf.Shape{{Size: 4}}},
		18: {Name: "Duration", Slots: []flatbuf.Shape{{Size: 2}}},
		19: {Name: "LargeBinary"},
		20: {Name: "LargeUtf8"},
	}}
	arrowCompression = &flatbuf.Table{Name: "BodyCompression", Slots: []flatbuf.Shape{{Size: 1}, {Size: 1}}}
	arrowMessage     = &flatbuf.Table{
		Name: "Message", Slots: []flatbuf.Shape{{Size: 2}, {Size: 1}, {Union: true}, {Size: 8}, arrowMetadata},
		Choose: map[byte]*flatbuf.Table{
			1: {Name: "Schema", Slots: []flatbuf.Shape{{Size: 2}, {Vector: true, Table: arrowField}, arrowMetadata, {Size: 8, Vector: true}}},
			3: {Name: "RecordBatch", Slots: []flatbuf.Shape{{Size: 8}, {Size: 16, Vector: true}, {Size: 16, Vector: true}, {Table: arrowCompression}, {Size: 8, Vector: true}}},
		},
	}
)

func init() { // slot 4, the dictionary, is refused
	arrowField.Slots = []flatbuf.Shape{arrowText, {Size: 1}, {Size: 1}, {Union: true}, {}, {Vector: true, Table: arrowField}, arrowMetadata}
}

// arrowReader reads an Arrow IPC stream or file message by message. It implements ipc.MessageReader: what the Arrow library
// sees has been verified.
type arrowReader struct {
	name   string
	src    io.ReadCloser
	spec   ColumnSpec
	hold   *inputmem.Hold
	held   int64 // of the last message, in hold
	kind   byte  // header type that the next message must have: a schema, then record batches
	msg    *ipc.Message
	ipc    *ipc.Reader
	at     []int
	record arrow.RecordBatch
	row    int64
}

// newArrowReader reads the schema. The reader owns src from here on, also when an error is returned.
func newArrowReader(name string, src io.ReadCloser, spec ColumnSpec, h *inputmem.Hold) (_ rowReader, err error) {
	r := &arrowReader{name: name, src: src, spec: spec, kind: 1, hold: h}
	defer func() {
		if err != nil {
			_ = r.close()
		}
	}()
	if err := r.open(); err != nil {
		return nil, err
	}
	return &columnarReader{name: name, spec: spec, src: r}, nil
}

func (r *arrowReader) open() (err error) {
	defer damaged(r.name, &err)
	if err := r.hold.Grow(blockBytes(len(r.spec.Features))); err != nil {
		return err
	}
	if r.ipc, err = ipc.NewReaderFromMessageReader(r); err != nil {
		return fmt.Errorf("no Arrow schema: %w", err)
	}
	schema := r.ipc.Schema()
	names := make([]string, schema.NumFields())
	for i := range names {
		names[i] = schema.Field(i).Name
	}
	if r.at, err = r.spec.find(r.name, names); err != nil {
		return err
	}
	for i, at := range r.at {
		t := schema.Field(at).Type
		switch {
		case i == 0 && !isArrowTime(t):
			return wrongType(r.name, r.spec.Timestamp, t.String(), wantTime)
		case i > 0 && !isArrowNumber(t):
			return wrongType(r.name, r.spec.Features[i-1], t.String(), wantNumber)
		}
	}
	return nil
}

func isArrowNumber(t arrow.DataType) bool {
	return arrow.IsInteger(t.ID()) || arrow.IsFloating(t.ID())
}

func isArrowTime(t arrow.DataType) bool {
	switch t.ID() {
	case arrow.TIMESTAMP, arrow.DATE32, arrow.DATE64, arrow.STRING, arrow.LARGE_STRING:
		return true
	}
	return isArrowNumber(t)
}

func (r *arrowReader) close() error {
	if r.record != nil {
		r.record.Release()
		r.record = nil
	}
	return r.src.Close()
}

// Retain and Release implement ipc.MessageReader; the reader is closed by close.
func (r *arrowReader) Retain() {}

// Release implements ipc.MessageReader.
func (r *arrowReader) Release() {}

// Message implements ipc.MessageReader.
func (r *arrowReader) Message() (*ipc.Message, error) {
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

// message reads and verifies one message, or returns io.EOF.
func (r *arrowReader) message() (meta, body []byte, err error) {
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
		return nil, nil, fault.Input("%s: there is no Arrow message where one must start: is it an Arrow IPC file or stream?", r.name)
	}
	n := int64(binary.LittleEndian.Uint32(head[4:]))
	if n == 0 && !first {
		return nil, nil, io.EOF
	}
	if n < 8 || n > maxArrowMetadata {
		return nil, nil, fault.Input("%s: an Arrow message has metadata of %d bytes; 8 to %d are allowed", r.name, n, maxArrowMetadata)
	}
	// What the library makes of the metadata stays: of a schema for good, of a record batch as long as that.
	if err := r.take(arrowTables * n); err != nil {
		return nil, nil, err
	}
	if first {
		r.held = 0
	}
	meta = make([]byte, n)
	if _, err := io.ReadFull(r.src, meta); err != nil {
		return nil, nil, r.short(err)
	}
	v := flatbuf.New(meta)
	pos, err := v.Root()
	if err == nil {
		err = v.Check(arrowMessage, pos)
	}
	if err != nil {
		return nil, nil, fault.Input("%s: it is not a table of flat columns (%v): write it without dictionaries, views and nested columns", r.name, err)
	}
	if got := v.Byte(pos, 1); got != r.kind {
		return nil, nil, fault.Input("%s: an Arrow message of type %d where type %d must be", r.name, got, r.kind)
	}
	size := v.Int64(pos, 3)
	if size < 0 || size > maxArrowBody {
		return nil, nil, fault.Input("%s: an Arrow record batch of %d bytes; %d are allowed: write smaller batches", r.name, size, maxArrowBody)
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
			return nil, nil, fault.Input("%s: the file is damaged: %v", r.name, err)
		}
		if err := r.take(unpacked); err != nil {
			return nil, nil, err
		}
	}
	return meta, body, nil
}

// arrowTables is how many bytes the library makes of a byte of metadata at most: a field of 60 bytes has several structures and its name.
const arrowTables = 8

// take takes memory for the message that is read.
func (r *arrowReader) take(n int64) error {
	if err := r.hold.Grow(n); err != nil {
		return err
	}
	r.held += n
	return nil
}

// short is the error of a file that ends in the middle of a message.
func (r *arrowReader) short(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fault.Input("%s: the file is cut off: an Arrow message ends in its middle", r.name)
	}
	return fault.IO("read", r.name, err)
}

// readN reads n bytes. Memory that is not written to is none, so a length that is a lie takes as much as there is.
func readN(r io.Reader, n int64) ([]byte, error) {
	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, err
	}
	return data, nil
}

// checkBuffers returns what the library allocates to unpack the buffers of a record batch, and bounds it.
func checkBuffers(v *flatbuf.Verifier, batch int64, body []byte) (total int64, err error) {
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
			if err := zstdWindows(body[off+8:off+n], func(n int64) error { window = max(window, n); return nil }); err != nil {
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

// arrowZstd is the packing zstd in Arrow's metadata. The library decodes it with up to arrowDecoders blocks at a time.
const (
	arrowZstd     = 1
	arrowDecoders = 4
)

// next implements blockReader.
func (r *arrowReader) next(b *block) (more bool, err error) {
	for r.record == nil || r.row == r.record.NumRows() {
		if r.record != nil {
			r.record.Release()
			r.record, r.row = nil, 0
		}
		if !r.ipc.Next() {
			if err := r.ipc.Err(); err != nil {
				return false, err
			}
			return false, r.rest()
		}
		r.record = r.ipc.RecordBatch() // whose columns have as many rows as it says: the library refuses others
		r.record.Retain()
	}
	from := int(r.row)
	n := int(min(r.record.NumRows()-r.row, blockRows))
	r.row += int64(n)
	b.reset(len(r.spec.Features), n)
	times := r.record.Column(r.at[0])
	for i := range n {
		if times.IsValid(from + i) {
			b.times[i] = arrowTime(times, from+i)
		}
	}
	for f, at := range r.at[1:] {
		c := r.record.Column(at)
		for i := range n {
			if b.nulls[f][i] = !c.IsValid(from + i); !b.nulls[f][i] {
				b.values[f][i] = arrowNumber(c, from+i)
			}
		}
	}
	return true, nil
}

// rest reads what stands behind the last message, the footer of a file for one: whether a packed file is whole shows at its
// end.
func (r *arrowReader) rest() error {
	if _, err := io.Copy(io.Discard, r.src); err != nil {
		return fault.IO("read", r.name, err)
	}
	return nil
}

// blockRows is how many rows of a columnar source are made ready at a time: as many as a batch has at most.
const blockRows = defaultBatchRows

func arrowNumber(a arrow.Array, i int) float64 {
	switch a := a.(type) {
	case *array.Float64:
		return a.Value(i)
	case *array.Float32:
		return float64(a.Value(i))
	case *array.Float16:
		return float64(a.Value(i).Float32())
	case *array.Int8:
		return float64(a.Value(i))
	case *array.Int16:
		return float64(a.Value(i))
	case *array.Int32:
		return float64(a.Value(i))
	case *array.Int64:
		return float64(a.Value(i))
	case *array.Uint8:
		return float64(a.Value(i))
	case *array.Uint16:
		return float64(a.Value(i))
	case *array.Uint32:
		return float64(a.Value(i))
	}
	return float64(a.(*array.Uint64).Value(i))
}

// arrowTime is the text of a time: what is text stays as it is.
func arrowTime(a arrow.Array, i int) string {
	switch a := a.(type) {
	case *array.String:
		return copyTime(a.Value(i))
	case *array.LargeString:
		return copyTime(a.Value(i))
	case *array.Timestamp:
		return timeText(int64(a.Value(i)), unitsPerSecond[a.DataType().(*arrow.TimestampType).Unit])
	case *array.Date32:
		return timeText(int64(a.Value(i))*86400, 1)
	case *array.Date64:
		return timeText(int64(a.Value(i)), 1e3)
	case *array.Int64:
		return strconv.FormatInt(a.Value(i), 10)
	case *array.Uint64:
		return strconv.FormatUint(a.Value(i), 10)
	}
	return strconv.FormatFloat(arrowNumber(a, i), 'f', -1, 64)
}

var unitsPerSecond = map[arrow.TimeUnit]int64{arrow.Second: 1, arrow.Millisecond: 1e3, arrow.Microsecond: 1e6, arrow.Nanosecond: 1e9}

// timeText writes a time that is a number of units since 1970 as RFC 3339 in UTC.
func timeText(v, perSecond int64) string {
	s, rest := v/perSecond, v%perSecond
	return time.Unix(s, rest*(1e9/perSecond)).UTC().Format(time.RFC3339Nano)
}

// copyTime copies the text of a time out of its source's memory, and of one that is too long as much as says so.
func copyTime(s string) string {
	return string([]byte(s[:min(len(s), maxTimestamp+1)]))
}
