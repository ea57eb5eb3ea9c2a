package rows

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// arrowReader reads an Arrow IPC stream or file. It holds one record batch at a time, whose memory
// the messages below it take from the hold.
type arrowReader struct {
	*ArrowMessages
	spec ColumnSpec
	file io.Closer
	ipc  *ipc.Reader
	// at are the positions of the timestamp and the features in the schema, and row is the next row
	// of record.
	at     []int
	record arrow.RecordBatch
	row    int64
}

// newArrowReader reads the schema. The reader owns src from here on, also when an error is
// returned.
func newArrowReader(name string, src io.ReadCloser, spec ColumnSpec, h *access.Hold) (Reader, error) {
	r := &arrowReader{ArrowMessages: NewArrowMessages(name, src, h), spec: spec, file: src}
	return openColumnar(name, spec, r)
}

// open reads the schema and finds the wanted columns. It checks their types, so that next need not.
// An error of the schema names the column and its type.
func (r *arrowReader) open() (err error) {
	defer damaged(r.name, &err)
	// The block lives as long as the reader, so its memory is taken once.
	if err := r.hold.Grow(blockBytes(len(r.spec.Features), len(r.spec.Key))); err != nil {
		return err
	}
	if r.ipc, err = ipc.NewReaderFromMessageReader(r.ArrowMessages); err != nil {
		return fmt.Errorf("no Arrow schema: %w", err)
	}
	schema := r.ipc.Schema()
	names := make([]string, schema.NumFields())
	for i := range names {
		names[i] = schema.Field(i).Name
	}
	if r.at, err = r.spec.Find(r.name, names); err != nil {
		return err
	}
	for i, at := range r.at {
		t, first := schema.Field(at).Type, r.spec.first()
		switch {
		case i < first:
			if !IsArrowTime(t) {
				return wrongType(r.name, r.spec.Timestamp, t.String(), wantTime)
			}
		case i >= first+len(r.spec.Features):
			if !isArrowKey(t) {
				return wrongType(r.name, r.spec.columns()[i], t.String(), wantKey)
			}
		case !IsArrowNumber(t):
			return wrongType(r.name, r.spec.Features[i-first], t.String(), wantNumber)
		}
	}
	return nil
}

// IsArrowNumber reports whether the values of a type can be a feature: integers and floats of 8 to
// 64 bits.
func IsArrowNumber(t arrow.DataType) bool {
	return arrow.IsInteger(t.ID()) || arrow.IsFloating(t.ID())
}

// isArrowKey reports whether the values of a type can be a part of a key.
func isArrowKey(t arrow.DataType) bool {
	switch t.ID() {
	case arrow.STRING, arrow.LARGE_STRING, arrow.BOOL:
		return true
	}
	return arrow.IsInteger(t.ID())
}

// arrowKey returns value i of a column of a type for which isArrowKey holds, as copyKey does.
func arrowKey(a arrow.Array, i int) (key string, size int) {
	switch a := a.(type) {
	case *array.String:
		return copyKey(a.Value(i))
	case *array.LargeString:
		return copyKey(a.Value(i))
	case *array.Boolean:
		key = strconv.FormatBool(a.Value(i))
	case *array.Int64:
		key = strconv.FormatInt(a.Value(i), 10)
	case *array.Uint64:
		key = strconv.FormatUint(a.Value(i), 10)
	default:
		key = strconv.FormatFloat(ArrowNumber(a, i), 'f', -1, 64)
	}
	return key, len(key)
}

// copyKey returns a copy of a value of a key, which does not keep the memory of the source, and the
// bytes of the value. It copies the start of a value that is too long.
func copyKey(s string) (key string, size int) {
	return strings.Clone(s[:min(len(s), MaxKey)]), len(s)
}

// IsArrowTime reports whether the values of a type can be a timestamp.
func IsArrowTime(t arrow.DataType) bool {
	switch t.ID() {
	case arrow.TIMESTAMP, arrow.DATE32, arrow.DATE64, arrow.STRING, arrow.LARGE_STRING:
		return true
	}
	return IsArrowNumber(t)
}

// close implements blockReader. It releases the record batch that is being read.
func (r *arrowReader) close() error {
	if r.record != nil {
		r.record.Release()
		r.record = nil
	}
	return r.file.Close()
}

// next implements blockReader. A block never spans two record batches. After the last batch it
// reads the rest of the file, to find out whether a packed file is complete.
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
			return false, r.Rest()
		}
		r.record = r.ipc.RecordBatch() // the library checks that its columns have the same number of rows
		r.record.Retain()
	}
	from := int(r.row)
	n := int(min(r.record.NumRows()-r.row, blockRows))
	r.row += int64(n)
	first, features := r.spec.first(), len(r.spec.Features)
	b.reset(features, len(r.spec.Key), n)
	// A null leaves its row as reset has made it: an empty text, or a value that nulls marks.
	if first > 0 {
		times := r.record.Column(r.at[0])
		for i := range n {
			if times.IsValid(from + i) {
				b.times[i] = ArrowTime(times, from+i)
			}
		}
	}
	for k, at := range r.at[first+features:] {
		c := r.record.Column(at)
		for i := range n {
			if b.nulls[features+k][i] = !c.IsValid(from + i); !b.nulls[features+k][i] {
				b.keys[k][i], b.sizes[k][i] = arrowKey(c, from+i)
			}
		}
	}
	for f, at := range r.at[first : first+features] {
		c := r.record.Column(at)
		for i := range n {
			if b.nulls[f][i] = !c.IsValid(from + i); !b.nulls[f][i] {
				b.values[f][i] = ArrowNumber(c, from+i)
			}
		}
	}
	return true, nil
}

// ArrowNumber returns value i of a column of a type for which IsArrowNumber holds. Integers of more
// than 53 bits are rounded to a float64. Any other type is a panic.
func ArrowNumber(a arrow.Array, i int) float64 {
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

// ArrowTime returns value i of a column of a type for which IsArrowTime holds, as the text of a
// timestamp. A text stays as it is, and a time is RFC 3339 in UTC.
func ArrowTime(a arrow.Array, i int) string {
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
	return strconv.FormatFloat(ArrowNumber(a, i), 'f', -1, 64)
}

// unitsPerSecond has the units of a timestamp in a second.
var unitsPerSecond = map[arrow.TimeUnit]int64{
	arrow.Second:      1,
	arrow.Millisecond: 1e3,
	arrow.Microsecond: 1e6,
	arrow.Nanosecond:  1e9,
}

// timeText writes a time that is a number of units since 1970 as RFC 3339 in UTC. v may be
// negative.
func timeText(v, perSecond int64) string {
	s, rest := v/perSecond, v%perSecond
	return time.Unix(s, rest*(1e9/perSecond)).UTC().Format(time.RFC3339Nano)
}

// copyTime returns a copy of the text of a time, which does not keep the memory of the source. It
// copies enough of a text that is too long to show that.
func copyTime(s string) string {
	return string([]byte(s[:min(len(s), maxTimestamp+1)]))
}

// arrowFooter is the table at the end of an Arrow IPC file, as of Arrow's File.fbs.
var arrowFooter = &batch.FlatTable{Name: "Footer", Slots: []batch.FlatShape{
	{Size: 2}, {Table: arrowMessage.Choose[1]}, {Size: 24, Vector: true}, {Size: 24, Vector: true}, arrowMetadata,
}}

const (
	arrowMagic = "ARROW1"
	arrowBegin = 8  // bytes before the first message of a file
	arrowEnd   = 10 // bytes behind the footer: its length and the mark
)

// footerSchema returns the message of the schema of an Arrow IPC file that has its schema only in
// the footer, as Arrow JS writes files. Then the file is after its opening mark. For any other file
// it returns nothing, and the file is at its beginning.
func footerSchema(name string, f *os.File) (message []byte, err error) {
	defer damaged(name, &err)
	if only, err := schemaIsLast(f); err != nil || !only {
		_, serr := f.Seek(0, io.SeekStart)
		if serr != nil {
			return nil, access.IOError("read", name, serr)
		}
		return nil, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, access.IOError("read", name, err)
	}
	var end [arrowEnd]byte
	if _, err := f.ReadAt(end[:], size-arrowEnd); err != nil || string(end[4:]) != arrowMagic {
		return nil, access.InputError(
			"%s: the Arrow file has neither a schema at its beginning nor a footer: it is cut off", name,
		)
	}
	// The length stands before the closing mark. It is compared with the file before anything of
	// its size is allocated.
	n := int64(binary.LittleEndian.Uint32(end[:]))
	if n < 8 || n > maxArrowMetadata || n > size-arrowEnd-arrowBegin {
		return nil, access.InputError("%s: the Arrow file has a footer of %d bytes in %d", name, n, size)
	}
	footer := make([]byte, n)
	if _, err := f.ReadAt(footer, size-arrowEnd-n); err != nil {
		return nil, access.IOError("read", name, err)
	}
	v := batch.NewFlatVerifier(footer) // before the library sees it
	pos, err := v.Root()
	if err == nil {
		err = v.Check(arrowFooter, pos)
	}
	if err != nil {
		return nil, access.InputError(
			"%s: the footer does not describe a table of flat columns (%v): write it without dictionaries, views and "+
				"nested columns",
			name, err,
		)
	}
	r, err := ipc.NewFileReader(io.NewSectionReader(f, 0, size))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	// The library writes the schema as a stream would begin, so the rest of the file can follow as
	// a stream.
	var b bytes.Buffer
	if err := ipc.NewWriter(&b, ipc.WithSchema(r.Schema())).Close(); err != nil {
		return nil, err
	}
	if _, err := f.Seek(arrowBegin, io.SeekStart); err != nil {
		return nil, access.IOError("read", name, err)
	}
	return b.Bytes()[:b.Len()-8], nil // without the end mark
}

// schemaIsLast reports whether the first message of an Arrow IPC file is not its schema. It leaves
// the position of the file as it is. It returns false for a damaged file, whose reader reports the
// damage.
func schemaIsLast(f *os.File) (bool, error) {
	var head [arrowBegin + 8]byte
	if n, err := f.ReadAt(head[:], 0); n < len(head) || string(head[:len(arrowMagic)]) != arrowMagic ||
		binary.LittleEndian.Uint32(head[arrowBegin:]) != 0xFFFFFFFF {
		if err == io.EOF {
			err = nil // its reader says what is wrong
		}
		return false, err
	}
	n := int64(binary.LittleEndian.Uint32(head[arrowBegin+4:]))
	if n == 0 {
		return true, nil // no record batch
	}
	if n < 8 || n > maxArrowMetadata {
		return false, nil
	}
	meta := make([]byte, n)
	if _, err := f.ReadAt(meta, int64(len(head))); err != nil {
		return false, nil
	}
	v := batch.NewFlatVerifier(meta)
	pos, err := v.Root()
	if err != nil || v.Check(arrowMessage, pos) != nil {
		return false, nil
	}
	return v.Byte(pos, 1) == 3, nil
}

// prefixed reads a prefix, and then the file that it closes.
type prefixed struct {
	io.Reader
	io.Closer
}

func newPrefixed(first []byte, src io.ReadCloser) io.ReadCloser {
	return prefixed{io.MultiReader(bytes.NewReader(first), src), src}
}
