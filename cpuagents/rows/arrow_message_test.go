package rows

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/float16"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/cpuagents/internal/tabletest"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// arrowPart is one message of an Arrow stream.
type arrowPart struct{ meta, body []byte }

// bodyLength returns the length of the body that a message's metadata says.
func bodyLength(t *testing.T, meta []byte) int64 {
	t.Helper()
	v := batch.NewFlatVerifier(meta)
	pos, err := v.Root()
	if err == nil {
		err = v.Check(arrowMessage, pos)
	}
	if err != nil {
		t.Fatalf("v.Root: %v, want no error", err)
	}
	return v.Int64(pos, 3)
}

// arrowParts takes a stream apart.
func arrowParts(t *testing.T, data []byte) (all []arrowPart) {
	t.Helper()
	for len(data) >= 8 && binary.LittleEndian.Uint32(data[4:]) > 0 {
		n := int64(binary.LittleEndian.Uint32(data[4:]))
		p := arrowPart{meta: slices.Clone(data[8 : 8+n])}
		size := bodyLength(t, p.meta)
		p.body = slices.Clone(data[8+n : 8+n+size])
		all, data = append(all, p), data[8+n+size:]
	}
	return all
}

// arrowStream puts messages together, without an end mark.
func arrowStream(parts ...arrowPart) (data []byte) {
	for _, p := range parts {
		data = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(data, 0xFFFFFFFF), uint32(len(p.meta)))
		data = append(append(data, p.meta...), p.body...)
	}
	return data
}

// withBody returns a message whose metadata says that its body has n bytes.
func (p arrowPart) withBody(t *testing.T, n int64) arrowPart {
	t.Helper()
	old := bodyLength(t, p.meta)
	for at := 0; at+8 <= len(p.meta); at += 4 {
		meta := slices.Clone(p.meta)
		if int64(binary.LittleEndian.Uint64(meta[at:])) != old {
			continue
		}
		binary.LittleEndian.PutUint64(meta[at:], uint64(n))
		v := batch.NewFlatVerifier(meta)
		if pos, err := v.Root(); err == nil && v.Check(arrowMessage, pos) == nil && v.Int64(pos, 3) == n {
			return arrowPart{meta, p.body}
		}
	}
	t.Fatalf("no body of %d bytes", old)
	return p
}

func pairRows(n int) (rows []fixture.Row) {
	for i := range n {
		rows = append(rows, fixture.Row{
			Time:   fmt.Sprint(1700000000 + i),
			Values: []fixture.Cell{float64(i), -float64(i)},
		})
	}
	return rows
}

// readArrow reads a stream and returns the number of its rows.
func readArrow(t *testing.T, data []byte) (int, error) {
	t.Helper()
	rows, _, err := readWriting(t, fixture.File{Format: "arrow", Data: data}, pairSpec, fixture.Plenty)
	return len(rows), err
}

// TestArrowMessages: a stream is a schema and record batches, in this order, each whole and of an
// allowed size, up to its end or an end mark.
func TestArrowMessages(t *testing.T) {
	parts := arrowParts(t, tabletest.Arrow(t, tabletest.Record(pairRows(10)), false))
	if len(parts) != 3 {
		t.Fatalf("%d messages", len(parts))
	}
	schema, first, second := parts[0], parts[1], parts[2]
	mark := []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}
	length := func(data []byte, n uint32) []byte {
		data = slices.Clone(data)
		binary.LittleEndian.PutUint32(data[4:], n)
		return data
	}
	head := len(arrowStream(schema))
	for name, c := range map[string]struct {
		data []byte
		rows int
		want string // of the error; empty for none
	}{
		"whole":         {arrowStream(parts...), 10, ""},
		"an end mark":   {append(arrowStream(parts...), mark...), 10, ""},
		"behind an end": {append(append(arrowStream(schema, first), mark...), arrowStream(second)...), 5, ""},
		"no batch":      {arrowStream(schema), 0, ""},
		"a file's mark": {append([]byte("ARROW1\x00\x00"), arrowStream(parts...)...), 10, ""},
		"a mark inside": {
			append(arrowStream(schema), append([]byte("ARROW1\x00\x00"), arrowStream(first)...)...),
			0, "no Arrow message where one must start",
		},
		"a mark alone":     {[]byte("ARROW1\x00\x00"), 0, "cut off"},
		"a mark, cut":      {append([]byte("ARROW1\x00\x00"), arrowStream(schema)[:7]...), 0, "cut off"},
		"nothing":          {nil, 0, "cut off"},
		"seven bytes":      {arrowStream(schema)[:7], 0, "cut off"},
		"seven bytes more": {arrowStream(parts...)[:head+7], 0, "cut off"},
		"no metadata":      {arrowStream(schema)[:8], 0, "cut off"},
		"no schema":        {arrowStream(first, second), 0, "of type 3 where type 1 must be"},
		"two schemas":      {arrowStream(schema, schema, first), 0, "of type 1 where type 3 must be"},
		"no message": {
			append(slices.Repeat([]byte{'x'}, 8), arrowStream(parts...)...), 0,
			"no Arrow message where one must start",
		},
		"no second message": {
			append(arrowStream(schema), slices.Repeat([]byte{0}, 8)...), 0,
			"no Arrow message where one must start",
		},
		"an end at once":    {mark, 0, "metadata of 0 bytes; 8 to 4194304 are allowed"},
		"metadata of 7":     {length(arrowStream(parts...), 7), 0, "metadata of 7 bytes"},
		"metadata of 8":     {length(arrowStream(parts...), 8), 0, "not a table of flat columns"},
		"the most metadata": {length(arrowStream(parts...), maxArrowMetadata), 0, "cut off"},
		"too much metadata": {length(arrowStream(parts...), maxArrowMetadata+1), 0, "metadata of 4194305 bytes; 8 " +
			"to 4194304 are allowed"},
		"the most body": {arrowStream(schema, first.withBody(t, maxArrowBody)), 0, "cut off"},
		"too much body": {arrowStream(schema, first.withBody(t, maxArrowBody+1)), 0, "a record batch of " +
			"67108865 bytes; 67108864 are allowed"},
		"a negative body": {arrowStream(schema, first.withBody(t, -1)), 0, "a record batch of -1 bytes"},
		"a body too short": {
			arrowStream(schema, first.withBody(t, int64(len(first.body)-8))), 0,
			"the file is damaged: a buffer of",
		},
	} {
		rows, err := readArrow(t, c.data)
		if rows != c.rows || (err == nil) != (c.want == "") || err != nil &&
			(!fixture.IsInput(err) || !strings.Contains(strings.Replace(err.Error(), "an Arrow record", "a record", 1),
				c.want)) {
			t.Errorf("%s: %d rows, %v; want %d, %q", name, rows, err, c.rows, c.want)
		}
	}
	if int(maxArrowMetadata) != 4<<20 || int(maxArrowBody) != 64<<20 {
		t.Error("the limits have changed: so does docs/sources.md")
	}
	// A body that is cut anywhere.
	whole := arrowStream(schema, first)
	for n := head + 1; n < len(whole); n++ {
		if rows, err := readArrow(t, whole[:n]); rows != 0 || !fixture.IsInput(err) ||
			!strings.Contains(err.Error(), "cut off") {
			t.Errorf("cut at %d of %d: %d rows, %v", n, len(whole), rows, err)
		}
	}
	// A column and the batch differ in their number of rows.
	lie := slices.Clone(first.meta)
	v := batch.NewFlatVerifier(lie)
	pos, _ := v.Root()
	binary.LittleEndian.PutUint64(v.Structs(v.Sub(pos, 2), 1, 16)[16:], 4)
	if rows, err := readArrow(t, arrowStream(schema, arrowPart{lie, first.body})); rows != 0 || !fixture.IsInput(err) ||
		!strings.Contains(err.Error(), "mismatch number of rows") {
		t.Errorf("a short column: %d rows, %v", rows, err)
	}
}

// failingReader fails when it has given its bytes.
type failingReader struct {
	io.Reader
	err    error
	closed int
}

func (f *failingReader) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = f.err
	}
	return n, err
}

func (f *failingReader) Close() error { f.closed++; return nil }

// TestArrowDisk: a disk that fails is no damage of the file, wherever it fails, and what was opened
// is closed.
func TestArrowDisk(t *testing.T) {
	parts := arrowParts(t, tabletest.Arrow(t, tabletest.Record(pairRows(10)), false))
	data := append([]byte("ARROW1\x00\x00"), arrowStream(parts...)...)
	data = append(data, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0)
	broken := errors.New("input/output error")
	for n := 0; n <= len(data); n += 1 + n%3 {
		src := &failingReader{Reader: bytes.NewReader(data[:n]), err: broken}
		r, err := newArrowReader("s", src, pairSpec, nil)
		if err == nil {
			_, _, err = drainRows(t, r)
		}
		if err == nil || !strings.Contains(err.Error(), broken.Error()) || fixture.IsInput(err) ||
			strings.Contains(err.Error(), "cut off") {
			t.Errorf("after %d bytes of %d: %v", n, len(data), err)
		}
		if src.closed != 1 {
			t.Errorf("after %d bytes: closed %d times", n, src.closed)
		}
	}
}

// TestArrowMemory: the schema's memory stays, the memory of a record batch goes with the next one,
// and a batch that is packed takes what it unpacks to.
func TestArrowMemory(t *testing.T) {
	for name, opts := range map[string][]ipc.Option{"plain": nil, "zstd": {ipc.WithZstd()}} {
		parts := arrowParts(t, tabletest.Arrow(t, tabletest.Record(pairRows(10)), false, opts...))
		m := access.NewMemoryParts(1<<30, 1<<30)
		h := m.Hold(t.Context(), "s")
		r, err := newArrowReader("s", io.NopCloser(bytes.NewReader(arrowStream(parts...))), pairSpec, h)
		if err != nil {
			t.Fatalf("newArrowReader: %v, want no error", err)
		}
		base := blockBytes(2, 0) + 8*int64(len(parts[0].meta))
		if h.Bytes() != base {
			t.Errorf("%s: the schema takes %d bytes, want %d", name, h.Bytes(), base)
		}
		for i, p := range parts[1:] {
			for range 5 {
				if _, reject, err := r.Next(); err != nil || reject != nil {
					t.Fatalf("Next: reject %v, %v, want a row", reject, err)
				}
			}
			v := batch.NewFlatVerifier(p.meta)
			pos, _ := v.Root()
			unpacked, err := checkBuffers(v, v.Sub(pos, 2), p.body)
			if want := base + 8*int64(len(p.meta)) + int64(len(p.body)) + unpacked; err != nil || h.Bytes() != want ||
				(unpacked > 0) != (opts != nil) {
				t.Errorf("%s: batch %d takes %d bytes, want %d, %v", name, i, h.Bytes(), want, err)
			}
		}
		if _, _, err := r.Next(); !errors.Is(err, io.EOF) || h.Bytes() != base {
			t.Errorf("%s: at the end it takes %d bytes, want %d, %v", name, h.Bytes(), base, err)
		}
		if err := r.Close(); err != nil {
			t.Errorf("r.Close: %v, want no error", err)
		}
		h.Release()
		// Too little memory is said, at each of the places where some is taken.
		for at := int64(1); at < base; at += base/7 + 1 {
			h := access.NewMemoryParts(0, at).Hold(t.Context(), "s")
			r, err := newArrowReader("s", io.NopCloser(bytes.NewReader(arrowStream(parts...))), pairSpec, h)
			if err == nil {
				_, _, err = r.Next()
				_ = r.Close()
			}
			if !access.IsMemory(err) {
				t.Errorf("%s with %d bytes: %v", name, at, err)
			}
			h.Release()
		}
		for what, at := range map[string]int64{
			"the schema": base - 1,
			"metadata":   base + 8*int64(len(parts[1].meta)) - 1,
			"a body":     base + 8*int64(len(parts[1].meta)) + int64(len(parts[1].body)) - 1,
		} {
			h := access.NewMemoryParts(0, at).Hold(t.Context(), "s")
			r, err := newArrowReader("s", io.NopCloser(bytes.NewReader(arrowStream(parts...))), pairSpec, h)
			if (err == nil) != (what != "the schema") {
				t.Errorf("%s, %s: newArrowReader: %v, want an error for the schema only", name, what, err)
			}
			if err == nil {
				_, _, err = r.Next()
				_ = r.Close()
			}
			if !access.IsMemory(err) {
				t.Errorf("%s, %s: %v, want an error of memory", name, what, err)
			}
			h.Release()
		}
	}
}

// TestArrowBuffers: a buffer lies in its body at a multiple of 8, and packed ones say a plausible
// size.
func TestArrowBuffers(t *testing.T) {
	open := func(opts ...ipc.Option) (v *batch.FlatVerifier, at int64, buffers, body []byte) {
		p := arrowParts(t, tabletest.Arrow(t, tabletest.Record(pairRows(5)), false, opts...))[1]
		v = batch.NewFlatVerifier(p.meta)
		pos, err := v.Root()
		if err != nil {
			t.Fatalf("v.Root: %v, want no error", err)
		}
		at = v.Sub(pos, 2)
		buffers = v.Structs(at, 2, 16)
		clear(buffers)
		return v, at, buffers, make([]byte, 64)
	}
	set := func(buffers []byte, i int, off, n int64) {
		binary.LittleEndian.PutUint64(buffers[16*i:], uint64(off))
		binary.LittleEndian.PutUint64(buffers[16*i+8:], uint64(n))
	}
	v, batch, buffers, body := open()
	for _, c := range []struct {
		off, n int64
		ok     bool
	}{
		{0, 0, true},
		{0, 64, true},
		{8, 56, true},
		{64, 0, true},
		{56, 8, true},
		{56, 1, true},
		{0, 65, false},
		{8, 57, false},
		{64, 1, false},
		{72, 0, false},
		{-8, 8, false},
		{8, -1, false},
		{4, 8, false},
		{1, 1, false},
		{math.MaxInt64 - 7, 8, false},
		{8, math.MaxInt64, false},
		{math.MinInt64, 0, false},
	} {
		for _, i := range []int{0, len(buffers)/16 - 1} { // the first and the last one
			clear(buffers)
			set(buffers, i, c.off, c.n)
			if total, err := checkBuffers(v, batch, body); (err == nil) != c.ok || total != 0 || err != nil &&
				!strings.Contains(err.Error(), fmt.Sprintf("a buffer of %d bytes at %d in a body of 64", c.n, c.off)) {
				t.Errorf("buffer %d of %d bytes at %d: %d, %v", i, c.n, c.off, total, err)
			}
		}
	}
	const most, rest = 256 << 20, 4 << 20 // what the buffers unpack to, and four decoders of 1 MiB
	for name, opts := range map[string]ipc.Option{"lz4": ipc.WithLZ4(), "zstd": ipc.WithZstd()} {
		v, batch, buffers, body := open(opts)
		for _, c := range []struct {
			n     int64
			sizes []int64
			want  int64
			err   string
		}{
			{8, nil, rest, ""},
			{8, []int64{100}, 100 + rest, ""},
			{8, []int64{100, 200}, 300 + rest, ""},
			{8, []int64{-1, 7}, 7 + rest, ""},
			{8, []int64{7, -1}, 7 + rest, ""},
			{8, []int64{-1}, rest, ""},
			{8, []int64{0}, rest, ""},
			{7, []int64{100}, 0, "a packed buffer of 7 bytes"},
			{1, []int64{100}, 0, "a packed buffer of 1 bytes"},
			{8, []int64{-2}, 0, "unpack to more than 268435456 bytes"},
			{8, []int64{most}, most + rest, ""},
			{8, []int64{most + 1}, 0, "unpack to more"},
			{8, []int64{most - 5, 5}, most + rest, ""},
			{8, []int64{most - 5, 6}, 0, "unpack to more"},
			{8, []int64{5, math.MaxInt64}, 0, "unpack to more"},
			{0, []int64{math.MaxInt64}, rest, ""},
		} {
			clear(buffers)
			clear(body)
			for i, size := range c.sizes {
				set(buffers, i, int64(8*i), c.n)
				binary.LittleEndian.PutUint64(body[8*i:], uint64(size))
			}
			got, err := checkBuffers(v, batch, body)
			if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s, sizes %v in %d bytes: %d, %v; want %d %q", name, c.sizes, c.n, got, err, c.want, c.err)
			}
		}
	}
	// The window of each packed buffer of zstd: here the window of a frame of one segment, which is
	// as large as its contents say.
	frame := func(window uint32) []byte {
		return append(binary.LittleEndian.AppendUint32([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0}, window), 1, 0, 0)
	}
	for window, want := range map[int64]bool{1 << 20: true, 8 << 20: true, 8<<20 + 1: false} {
		for _, windows := range [][]int64{{window, 1 << 10}, {1 << 10, window}} {
			v, batch, buffers, _ := open(ipc.WithZstd())
			var body []byte
			for i, w := range windows {
				set(buffers, i, int64(len(body)), 8+12)
				body = append(append(binary.LittleEndian.AppendUint64(body, 7), frame(uint32(w))...),
					make([]byte, 4)...)
			}
			got, err := checkBuffers(v, batch, body)
			if total := 2*7 + 4*(window+1<<20); (err == nil) != want || want && got != total || err != nil &&
				!strings.Contains(err.Error(), fmt.Sprintf("window of %d bytes; 8388608 are allowed", window)) {
				t.Errorf("a window of %d bytes: %d, want %d, %v", window, got, total, err)
			}
			// A frame that is cut in its head is damaged.
			copy(body[8:], "none")
			if got, err := checkBuffers(v, batch, body); err == nil || got != 0 {
				t.Errorf("a buffer that is no frame: %d, %v", got, err)
			}
		}
	}
}

// TestArrowSchemas: metadata of a schema is passed over, and a type that there is not is a fault of
// the file.
func TestArrowSchemas(t *testing.T) {
	md := arrow.NewMetadata([]string{"k", "l"}, []string{"v", strings.Repeat("w", 100)})
	fields := []arrow.Field{
		{Name: "timestamp", Type: arrow.PrimitiveTypes.Int64, Nullable: true, Metadata: md},
		{Name: "value", Type: arrow.PrimitiveTypes.Float64},
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, &md))
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues([]int64{1700000000, 0, 1700000002}, []bool{true, false, true})
	b.Field(1).(*array.Float64Builder).AppendValues([]float64{1, 2, 3}, nil)
	data := tabletest.Arrow(t, b.NewRecordBatch(), false)
	rows, rejects, err := readWriting(t, fixture.File{Format: "arrow", Data: data}, valueSpec, fixture.Plenty)
	if err != nil || len(rows) != 2 || len(rejects) != 1 || rejects[0].Reason != "its timestamp is null or empty" {
		t.Errorf("rows %v, rejects %v, %v, want two rows and the one without a time", rows, rejects, err)
	}
	meta := len(arrowParts(t, data)[0].meta)
	tried := 0
	for at := 8; at+4 <= 8+meta; at += 4 {
		if binary.LittleEndian.Uint32(data[at:]) != 64 { // a width in bits
			continue
		}
		lie := slices.Clone(data)
		binary.LittleEndian.PutUint32(lie[at:], 63)
		if _, _, err := readWriting(t, fixture.File{Format: "arrow", Data: lie}, valueSpec,
			fixture.Plenty); !fixture.IsInput(err) {
			t.Errorf("a number of 63 bits: %v", err)
		}
		tried++
	}
	if tried == 0 {
		t.Error("no width was changed")
	}
}

// column returns a column that add builds.
func column(dt arrow.DataType, add func(array.Builder)) arrow.Array {
	b := array.NewBuilder(memory.DefaultAllocator, dt)
	defer b.Release()
	add(b)
	return b.NewArray()
}

// TestArrowTypes: which types of a column are a time or a number, and the value of each.
func TestArrowTypes(t *testing.T) {
	stamp := column(arrow.PrimitiveTypes.Int64, func(b array.Builder) { b.(*array.Int64Builder).Append(1700000000) })
	value := column(arrow.PrimitiveTypes.Float64, func(b array.Builder) { b.(*array.Float64Builder).Append(1.5) })
	read := func(ts, v arrow.Array) ([]Row, []Reject, error) {
		s := arrow.NewSchema([]arrow.Field{
			{Name: "timestamp", Type: ts.DataType(), Nullable: true},
			{Name: "value", Type: v.DataType(), Nullable: true},
		}, nil)
		return readWriting(t, fixture.File{
			Format: "arrow",
			Data:   tabletest.Arrow(t, array.NewRecordBatch(s, []arrow.Array{ts, v}, 1), false),
		}, valueSpec, fixture.Plenty)
	}
	for _, c := range []struct {
		arr    arrow.Array
		number bool
		value  float64
		time   string // empty: it is none
	}{
		{
			column(arrow.PrimitiveTypes.Int8, func(b array.Builder) { b.(*array.Int8Builder).Append(100) }), true, 100,
			"100",
		},
		{
			column(arrow.PrimitiveTypes.Int16, func(b array.Builder) { b.(*array.Int16Builder).Append(30000) }), true,
			30000, "30000",
		},
		{
			column(arrow.PrimitiveTypes.Int32, func(b array.Builder) { b.(*array.Int32Builder).Append(1700000000) }),
			true,
			1700000000, "1700000000",
		},
		{
			column(arrow.PrimitiveTypes.Int64, func(b array.Builder) { b.(*array.Int64Builder).Append(1700000000123) }),
			true, 1700000000123, "1700000000123",
		},
		{
			column(arrow.PrimitiveTypes.Uint8, func(b array.Builder) { b.(*array.Uint8Builder).Append(200) }), true,
			200,
			"200",
		},
		{
			column(arrow.PrimitiveTypes.Uint16, func(b array.Builder) { b.(*array.Uint16Builder).Append(60000) }), true,
			60000, "60000",
		},
		{
			column(arrow.PrimitiveTypes.Uint32, func(b array.Builder) { b.(*array.Uint32Builder).Append(4000000000) }),
			true, 4000000000, "4000000000",
		},
		{
			column(arrow.PrimitiveTypes.Uint64, func(b array.Builder) {
				b.(*array.Uint64Builder).Append(1700000000123)
			}),
			true, 1700000000123, "1700000000123",
		},
		{column(arrow.FixedWidthTypes.Float16, func(b array.Builder) {
			b.(*array.Float16Builder).Append(float16.New(2.5))
		}), true, 2.5, "2.5"},
		{
			column(arrow.PrimitiveTypes.Float32, func(b array.Builder) { b.(*array.Float32Builder).Append(16777216) }),
			true, 16777216, "16777216",
		},
		{column(arrow.PrimitiveTypes.Float64, func(b array.Builder) {
			b.(*array.Float64Builder).Append(1700000000.25)
		}), true, 1700000000.25, "1700000000.25"},
		{
			column(arrow.BinaryTypes.String, func(b array.Builder) { b.(*array.StringBuilder).Append("2026-01-02") }),
			false, 0, "2026-01-02",
		},
		{column(arrow.BinaryTypes.LargeString, func(b array.Builder) {
			b.(*array.LargeStringBuilder).Append("2026-01-02")
		}), false, 0, "2026-01-02"},
		{
			column(arrow.FixedWidthTypes.Date32, func(b array.Builder) { b.(*array.Date32Builder).Append(1) }), false,
			0,
			"1970-01-02T00:00:00Z",
		},
		{
			column(arrow.FixedWidthTypes.Date64, func(b array.Builder) { b.(*array.Date64Builder).Append(86400_001) }),
			false, 0, "1970-01-02T00:00:00.001Z",
		},
		{
			column(arrow.FixedWidthTypes.Timestamp_s, func(b array.Builder) { b.(*array.TimestampBuilder).Append(-1) }),
			false, 0, "1969-12-31T23:59:59Z",
		},
		{
			column(arrow.FixedWidthTypes.Timestamp_us, func(b array.Builder) { b.(*array.TimestampBuilder).Append(1) }),
			false, 0, "1970-01-01T00:00:00.000001Z",
		},
		{
			column(arrow.FixedWidthTypes.Timestamp_ns, func(b array.Builder) { b.(*array.TimestampBuilder).Append(1) }),
			false, 0, "1970-01-01T00:00:00.000000001Z",
		},
		{
			column(arrow.FixedWidthTypes.Boolean, func(b array.Builder) { b.(*array.BooleanBuilder).Append(true) }),
			false,
			0, "",
		},
		{
			column(arrow.BinaryTypes.Binary, func(b array.Builder) { b.(*array.BinaryBuilder).Append([]byte("x")) }),
			false, 0, "",
		},
		{
			column(arrow.FixedWidthTypes.Time32s, func(b array.Builder) { b.(*array.Time32Builder).Append(1) }), false,
			0,
			"",
		},
		{
			column(arrow.FixedWidthTypes.Duration_s, func(b array.Builder) { b.(*array.DurationBuilder).Append(1) }),
			false, 0, "",
		},
		{column(&arrow.FixedSizeBinaryType{ByteWidth: 2},
			func(b array.Builder) { b.(*array.FixedSizeBinaryBuilder).Append([]byte("xy")) }), false, 0, ""},
	} {
		name := c.arr.DataType().String()
		rows, rejects, err := read(stamp, c.arr)
		switch {
		case c.number && (err != nil || len(rows) != 1 || rows[0].Values[0] != c.value):
			t.Errorf("%s as a number: %v %v %v", name, rows, rejects, err)
		case !c.number && (!fixture.IsInput(err) || !strings.Contains(err.Error(), `column "value" is `) ||
			!strings.Contains(err.Error(), wantNumber)):
			t.Errorf("%s as a number: %v", name, err)
		}
		rows, rejects, err = read(c.arr, value)
		switch {
		case c.time != "" && (err != nil || len(rows) == 1 && rows[0].Timestamp != c.time ||
			len(rows)+len(rejects) != 1):
			t.Errorf("%s as a time: %v %v %v", name, rows, rejects, err)
		case c.time == "" && (!fixture.IsInput(err) || !strings.Contains(err.Error(), `column "timestamp" is `) ||
			!strings.Contains(err.Error(), wantTime)):
			t.Errorf("%s as a time: %v", name, err)
		}
	}
}

// TestArrowBlocks: a record batch of more rows than a block has is read block by block.
func TestArrowBlocks(t *testing.T) {
	for _, n := range []int{blockRows - 1, blockRows, blockRows + 1, 2*blockRows + 1} {
		rec := tabletest.Record(pairRows(n))
		var out bytes.Buffer
		w := ipc.NewWriter(&out, ipc.WithSchema(rec.Schema()))
		if err := errors.Join(w.Write(rec), w.Write(rec.NewSlice(0, 0)), w.Write(rec.NewSlice(int64(n-1), int64(n))),
			w.Close()); err != nil {
			t.Fatalf("joined errors: %v, want no error", err)
		}
		rows, rejects, err := readWriting(t, fixture.File{Format: "arrow", Data: out.Bytes()}, pairSpec, fixture.Plenty)
		if err != nil || len(rejects) != 0 || len(rows) != n+1 {
			t.Fatalf("%d rows: %d, %d rejects, %v", n, len(rows), len(rejects), err)
		}
		for i, r := range rows {
			if want := float64(min(i, n-1)); r.Values[0] != want || r.Values[1] != -want {
				t.Fatalf("row %d of %d: %v", i, n, r.Values)
			}
		}
	}
}

// TestTimeText: a number of units since 1970 as text, and the bound of a text that is copied.
func TestTimeText(t *testing.T) {
	for _, c := range []struct {
		v, per int64
		want   string
	}{
		{0, 1, "1970-01-01T00:00:00Z"},
		{1, 1e3, "1970-01-01T00:00:00.001Z"},
		{-1, 1e9, "1969-12-31T23:59:59.999999999Z"},
		{1500, 1e3, "1970-01-01T00:00:01.5Z"},
		{-1500, 1e3, "1969-12-31T23:59:58.5Z"},
		{1_000_001, 1e6, "1970-01-01T00:00:01.000001Z"},
	} {
		if got := timeText(c.v, c.per); got != c.want {
			t.Errorf("%d/%d: %s, want %s", c.v, c.per, got, c.want)
		}
	}
	for n, want := range map[int]int{
		0: 0, maxTimestamp: maxTimestamp, maxTimestamp + 1: maxTimestamp + 1,
		maxTimestamp + 2: maxTimestamp + 1,
	} {
		if got := copyTime(strings.Repeat("9", n)); len(got) != want {
			t.Errorf("a text of %d bytes is copied as %d", n, len(got))
		}
	}
}
