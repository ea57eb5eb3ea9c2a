package parquet

import "encoding/binary"

// thriftWriter writes a struct of Thrift's compact protocol. A field is written with the difference
// between its number and the number of the field before it, which is from 1 to 15 here.
type thriftWriter struct {
	b    []byte
	last []int // the number of the last field of each struct that is open, but the innermost one
	id   int   // of the innermost one
}

func (t *thriftWriter) field(id int, kind byte) {
	t.b = append(t.b, byte(id-t.id)<<4|kind)
	t.id = id
}

func (t *thriftWriter) varint(n int) { t.b = binary.AppendVarint(t.b, int64(n)) }

func (t *thriftWriter) string(s string) {
	t.b = append(binary.AppendUvarint(t.b, uint64(len(s))), s...)
}

func (t *thriftWriter) number(id int, kind byte, n int) {
	t.field(id, kind)
	t.varint(n)
}

func (t *thriftWriter) byte(id int, n byte) {
	t.field(id, compactByte)
	t.b = append(t.b, n)
}

func (t *thriftWriter) bool(id int, v bool) {
	kind := byte(compactFalse)
	if v {
		kind = compactTrue
	}
	t.field(id, kind)
}

func (t *thriftWriter) text(id int, s string) {
	t.field(id, compactBinary)
	t.string(s)
}

// list begins a field of n elements, which follow.
func (t *thriftWriter) list(id int, kind byte, n int) {
	t.field(id, compactList)
	if n < 15 {
		t.b = append(t.b, byte(n)<<4|kind)
		return
	}
	t.b = binary.AppendUvarint(append(t.b, 15<<4|kind), uint64(n))
}

// begin begins a field that is a struct, and element one that is an element of a list. end ends it.
func (t *thriftWriter) begin(id int) {
	t.field(id, compactStruct)
	t.element()
}

func (t *thriftWriter) element() { t.last, t.id = append(t.last, t.id), 0 }

func (t *thriftWriter) end() {
	t.stop()
	t.id, t.last = t.last[len(t.last)-1], t.last[:len(t.last)-1]
}

func (t *thriftWriter) stop() { t.b = append(t.b, compactStop) }
