package parquet

import (
	"encoding/binary"
	"math"
)

// meaning is how the footer describes the values of a column that is written.
type meaning struct {
	converted int // for older readers; -1 for none
	logical   int // the field of the LogicalType; 0 for none
	bits      int // of an integer
}

func meaningOf(c Column) *meaning {
	if c.Optional || c.Nested {
		return nil
	}
	switch {
	case c.Type == ByteArray && c.Logical == Text:
		return &meaning{0, 1, 0}
	case c.Type == Int64 && c.Logical == Unsigned:
		return &meaning{14, 10, 64}
	case c.Type == Int32 && c.Logical == Unsigned:
		return &meaning{13, 10, 32}
	case (c.Type == Double || c.Type == Float) && c.Logical == None:
		return &meaning{-1, 0, 0}
	}
	return nil
}

// bounds are the smallest and the largest value of a column of a row group, as the footer has them,
// for programs that skip row groups. nil means that they are unknown.
type bounds struct{ low, high []byte }

// longestBound is the bytes of a text that is a bound.
const longestBound = 64

func textBounds(v []string) bounds {
	if len(v) == 0 {
		return bounds{}
	}
	low, high := v[0], v[0]
	for _, t := range v {
		low, high = min(low, t), max(high, t)
	}
	if len(low) > longestBound || len(high) > longestBound {
		return bounds{}
	}
	return bounds{[]byte(low), []byte(high)}
}

func intBounds[V uint32 | uint64](v []V, plain func([]byte, V) []byte) bounds {
	if len(v) == 0 {
		return bounds{}
	}
	low, high := v[0], v[0]
	for _, n := range v {
		low, high = min(low, n), max(high, n)
	}
	return bounds{plain(nil, low), plain(nil, high)}
}

// doubleBounds returns the bounds of numbers. NaN is left out, and a zero has the sign that
// includes the other zero, as the format demands.
func doubleBounds(v []float64) bounds {
	low, high := math.Inf(1), math.Inf(-1)
	for _, f := range v {
		if f == f {
			low, high = min(low, f), max(high, f)
		}
	}
	if low > high {
		return bounds{}
	}
	if low == 0 {
		low = math.Copysign(0, -1)
	}
	if high == 0 {
		high = 0
	}
	le := binary.LittleEndian
	return bounds{le.AppendUint64(nil, math.Float64bits(low)), le.AppendUint64(nil, math.Float64bits(high))}
}

// floatBounds is doubleBounds of smaller numbers.
func floatBounds(v []float32) bounds {
	b := doubleBounds(each(v, func(f float32) float64 { return float64(f) }))
	if b.low == nil {
		return b
	}
	le := binary.LittleEndian
	small := func(b []byte) []byte {
		return le.AppendUint32(nil, math.Float32bits(float32(math.Float64frombits(le.Uint64(b)))))
	}
	return bounds{small(b.low), small(b.high)}
}

func (w *Writer) footer() []byte {
	var t thriftWriter
	t.number(1, compactI32, 2) // the version of the format
	t.list(2, compactStruct, 1+len(w.columns))
	t.element()
	t.text(4, "schema")
	t.number(5, compactI32, len(w.columns))
	t.end()
	for _, c := range w.columns {
		writeNode(&t, c)
	}
	t.number(3, compactI64, int(w.rows))
	t.list(4, compactStruct, len(w.groups))
	for _, g := range w.groups {
		t.element()
		t.list(1, compactStruct, len(g.chunks))
		for i, c := range g.chunks {
			writeChunkMeta(&t, w.columns[i], g.rows, c)
		}
		t.number(2, compactI64, int(g.size))
		t.number(3, compactI64, g.rows)
		t.end()
	}
	t.text(6, w.creator)
	// The order of values, without which readers ignore their bounds.
	t.list(7, compactStruct, len(w.columns))
	for range w.columns {
		t.element()
		t.begin(1)
		t.end()
		t.end()
	}
	t.stop()
	return t.b
}

func writeNode(t *thriftWriter, c Column) {
	m := meaningOf(c)
	t.element()
	t.number(1, compactI32, int(c.Type))
	t.number(3, compactI32, required)
	t.text(4, c.Path)
	if m.converted >= 0 {
		t.number(6, compactI32, m.converted)
	}
	if m.logical > 0 {
		t.begin(10)
		t.begin(m.logical)
		if m.bits > 0 {
			t.byte(1, byte(m.bits))
			t.bool(2, false) // no sign
		}
		t.end()
		t.end()
	}
	t.end()
}

func writeChunkMeta(t *thriftWriter, column Column, rows int, c writtenChunk) {
	t.element()
	t.number(2, compactI64, 0) // where a copy of the following is: nowhere
	t.begin(3)
	t.number(1, compactI32, int(column.Type))
	encodings := []int{encPlain, encRLE}
	if c.dictionary > 0 {
		encodings = append(encodings, encRLEDictionary)
	}
	t.list(2, compactI32, len(encodings))
	for _, e := range encodings {
		t.varint(e)
	}
	t.list(3, compactBinary, 1)
	t.string(column.Path)
	t.number(4, compactI32, int(Zstd))
	t.number(5, compactI64, rows)
	t.number(6, compactI64, int(c.unpacked))
	t.number(7, compactI64, int(c.packed))
	t.number(9, compactI64, int(c.data))
	if c.dictionary > 0 {
		t.number(11, compactI64, int(c.dictionary))
	}
	t.begin(12)
	t.number(3, compactI64, 0) // nulls
	if c.bounds.low != nil {
		t.text(5, string(c.bounds.high))
		t.text(6, string(c.bounds.low))
	}
	t.end()
	t.end()
	t.end()
}
