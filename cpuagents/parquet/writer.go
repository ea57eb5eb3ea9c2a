package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
)

// Limits of what is written, in bytes: a page of plain values, and a dictionary. They are the usual
// defaults of writers.
const (
	writtenPage       = 1 << 20
	writtenDictionary = 1 << 20
)

// Writer writes a file of required columns. One goroutine calls its methods. After an error it only
// returns errors.
type Writer struct {
	to      io.Writer
	creator string
	columns []Column
	at      int64 // in the file
	groups  []writtenGroup
	rows    int64
	err     error
}

type writtenGroup struct {
	rows   int
	size   int64 // unpacked
	chunks []writtenChunk
}

// writtenChunk is what the footer says of a column of a row group. Sizes are in bytes, headers
// included.
type writtenChunk struct {
	dictionary, data int64 // where the pages begin; 0 for no dictionary
	unpacked, packed int64
	bounds           bounds
}

var errTypes = errors.New("the values have other types than the columns")

// NewWriter returns a writer of columns, which are of these types: ByteArray that is Text, Int64 or
// Int32 that is Unsigned, Double or Float that is None. creator names the program that writes.
func NewWriter(to io.Writer, creator string, columns []Column) (*Writer, error) {
	for _, c := range columns {
		if meaningOf(c) == nil {
			return nil, fmt.Errorf("column %q: %s is not written", c.Path, c.Type)
		}
	}
	return &Writer{to: to, creator: creator, columns: columns}, nil
}

// WriteGroup writes a row group. The values of a column are a []string, []uint64, []uint32,
// []float64 or []float32, as its type is, all of one length. They are not kept.
func (w *Writer) WriteGroup(values ...any) error {
	if w.err == nil {
		w.err = w.writeGroup(values)
	}
	return w.err
}

func (w *Writer) writeGroup(values []any) error {
	if len(values) != len(w.columns) {
		return errTypes
	}
	if w.at == 0 {
		if err := w.write([]byte(magic)); err != nil {
			return err
		}
	}
	g := writtenGroup{rows: -1}
	for i, c := range w.columns {
		var chunk writtenChunk
		var rows int
		var err error
		switch v := values[i].(type) {
		case []string:
			rows, chunk, err = writeChunk(w, c, v, ByteArray, appendText, textBounds(v))
		case []uint64:
			rows, chunk, err = writeChunk(w, c, v, Int64, appendInt64, intBounds(v, appendInt64))
		case []uint32:
			rows, chunk, err = writeChunk(w, c, v, Int32, appendInt32, intBounds(v, appendInt32))
		case []float64:
			rows, chunk, err = writeChunk(w, c, each(v, math.Float64bits), Double, appendInt64, doubleBounds(v))
		case []float32:
			rows, chunk, err = writeChunk(w, c, each(v, math.Float32bits), Float, appendInt32, floatBounds(v))
		default:
			err = errTypes
		}
		if err == nil && g.rows >= 0 && g.rows != rows {
			err = errTypes
		}
		if err != nil {
			return fmt.Errorf("column %q: %w", c.Path, err)
		}
		g.rows, g.size, g.chunks = rows, g.size+chunk.unpacked, append(g.chunks, chunk)
	}
	w.groups, w.rows = append(w.groups, g), w.rows+int64(max(g.rows, 0))
	return nil
}

func each[V, T any](values []V, fn func(V) T) []T {
	all := make([]T, len(values))
	for i, v := range values {
		all[i] = fn(v)
	}
	return all
}

func appendText(b []byte, v string) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(v))), v...)
}
func appendInt64(b []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(b, v) }
func appendInt32(b []byte, v uint32) []byte { return binary.LittleEndian.AppendUint32(b, v) }

func writeChunk[V comparable](
	w *Writer, c Column, values []V, of Type, plain func([]byte, V) []byte, b bounds,
) (rows int, chunk writtenChunk, err error) {
	if c.Type != of {
		return 0, chunk, errTypes
	}
	chunk.bounds = b
	distinct, indexes := dictionary(values, plain)
	encoding := encPlain
	if indexes != nil {
		chunk.dictionary, encoding = w.at, encRLEDictionary
		var page []byte
		for _, v := range distinct {
			page = plain(page, v)
		}
		if err := w.page(&chunk, pageDictionary, encPlain, len(distinct), page); err != nil {
			return 0, chunk, err
		}
	}
	chunk.data = w.at
	for from := 0; from == 0 || from < len(values); {
		to := len(values)
		var page []byte
		if indexes != nil {
			page = packIndexes(indexes, len(distinct))
		} else {
			for to = from; to < len(values) && len(page) < writtenPage; to++ {
				page = plain(page, values[to])
			}
		}
		if err := w.page(&chunk, pageData, encoding, to-from, page); err != nil {
			return 0, chunk, err
		}
		if from = to; from == 0 {
			break // no values
		}
	}
	return len(values), chunk, nil
}

// dictionary returns the values that differ and the index of each value among them. It returns no
// indexes if more than half of the values differ, or the dictionary is too large.
func dictionary[V comparable](values []V, plain func([]byte, V) []byte) (distinct []V, indexes []uint32) {
	at := map[V]uint32{}
	size := 0
	var scratch []byte
	for _, v := range values {
		i, is := at[v]
		if !is {
			scratch = plain(scratch[:0], v)
			size += len(scratch)
			if i = uint32(len(at)); size > writtenDictionary || int(i) >= 16+len(values)/2 {
				return nil, nil
			}
			at[v], distinct = i, append(distinct, v)
		}
		indexes = append(indexes, i)
	}
	return distinct, indexes
}

// packIndexes returns the indexes into a dictionary as a page has them: the bits of an index, runs
// of one index, and packed indexes in groups of eight.
func packIndexes(indexes []uint32, distinct int) []byte {
	width := bits.Len32(uint32(max(distinct, 1) - 1))
	b := []byte{byte(width)}
	for from, i := 0, 0; from < len(indexes); {
		run := 0
		for i+run < len(indexes) && indexes[i+run] == indexes[min(i, len(indexes)-1)] {
			run++
		}
		switch {
		case i < len(indexes) && run < 8:
			i = min(i+8, len(indexes)) // packed, in whole groups but the last
		case i > from:
			b = packed(b, indexes[from:i], width)
			from = i
		default:
			b = binary.AppendUvarint(b, uint64(run)<<1)
			for n := range (width + 7) / 8 {
				b = append(b, byte(indexes[i]>>(8*n)))
			}
			i += run
			from = i
		}
	}
	return b
}

// packed appends a run of packed indexes, filled up to groups of eight.
func packed(b []byte, indexes []uint32, width int) []byte {
	groups := (len(indexes) + 7) / 8
	b = binary.AppendUvarint(b, uint64(groups)<<1|1)
	var word uint64
	filled := 0
	for i := range groups * 8 {
		if i < len(indexes) {
			word |= uint64(indexes[i]) << filled
		}
		for filled += width; filled >= 8; filled -= 8 {
			b = append(b, byte(word))
			word >>= 8
		}
	}
	return b
}

func (w *Writer) page(c *writtenChunk, kind, encoding, values int, body []byte) error {
	enc, err := pageEncoder()
	if err != nil {
		return err
	}
	small := enc.EncodeAll(body, nil)
	var t thriftWriter
	t.number(1, compactI32, kind)
	t.number(2, compactI32, len(body))
	t.number(3, compactI32, len(small))
	if kind == pageDictionary {
		t.begin(7)
		t.number(1, compactI32, values)
		t.number(2, compactI32, encoding)
	} else {
		t.begin(5)
		t.number(1, compactI32, values)
		t.number(2, compactI32, encoding)
		t.number(3, compactI32, encRLE)
		t.number(4, compactI32, encRLE)
	}
	t.end()
	t.stop()
	c.unpacked += int64(len(t.b) + len(body))
	c.packed += int64(len(t.b) + len(small))
	if err := w.write(t.b); err != nil {
		return err
	}
	return w.write(small)
}

func (w *Writer) write(b []byte) error {
	n, err := w.to.Write(b)
	w.at += int64(n)
	return err
}

// Close writes the footer. It does not close the file.
func (w *Writer) Close() error {
	if w.err != nil {
		return w.err
	}
	if w.at == 0 {
		if err := w.write([]byte(magic)); err != nil {
			return err
		}
	}
	b := w.footer()
	b = binary.LittleEndian.AppendUint32(b, uint32(len(b)))
	w.err = w.write(append(b, magic...))
	if w.err == nil {
		w.err = errors.New("the file is closed")
		return nil
	}
	return w.err
}

// magic begins and ends a file.
const magic = "PAR1"
