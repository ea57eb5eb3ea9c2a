package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A message of a stranger is checked here before the Arrow library sees it: that library trusts the lengths inside the
// FlatBuffers metadata and allocates what they say, so that a message of a kilobyte can ask for terabytes, which ends
// the process and cannot be recovered. The check follows every offset once, bounds every length by the bytes that are
// there, and admits only what a batch is made of: one schema and one uncompressed record batch of flat columns and
// lists of fixed size. The encodings are those of the FlatBuffers internals page and of Arrow's Message.fbs and
// Schema.fbs, format version 1.5.

// shape is what a field of a FlatBuffers table holds.
type shape struct {
	size   int    // bytes of a scalar, or of a vector's element that is a scalar or struct
	vector bool   // a vector of elements of size bytes, or of tables
	table  *table // a table, or a vector's element
	union  bool   // a table chosen by the byte in the slot before
}

// table is the list of a table's fields by slot.
type table struct {
	name   string
	slots  []shape
	choose map[byte]*table // for the union slot: by type byte
}

var (
	str      = shape{size: 1, vector: true}
	keyValue = &table{name: "KeyValue", slots: []shape{str, str}}
	metadata = shape{vector: true, table: keyValue}

	field = &table{name: "Field", choose: map[byte]*table{
		2:  {name: "Int", slots: []shape{{size: 4}, {size: 1}}},
		3:  {name: "FloatingPoint", slots: []shape{{size: 2}}},
		5:  {name: "Utf8"},
		16: {name: "FixedSizeList", slots: []shape{{size: 4}}},
	}}
	schemaTable = &table{name: "Schema", slots: []shape{{size: 2}, {vector: true, table: field}, metadata, {size: 8, vector: true}}}
	// Slot 3 would be the compression: without a shape it is refused, so that no message unpacks to more than it is.
	recordBatch = &table{name: "RecordBatch", slots: []shape{{size: 8}, {size: 16, vector: true}, {size: 16, vector: true}}}
	message     = &table{
		name: "Message", slots: []shape{{size: 2}, {size: 1}, {union: true}, {size: 8}, metadata},
		choose: map[byte]*table{1: schemaTable, 3: recordBatch},
	}
)

func init() { // Field contains Fields
	field.slots = []shape{str, {size: 1}, {size: 1}, {union: true}, {}, {vector: true, table: field}, metadata}
}

const (
	maxDepth  = 8
	maxTables = 4096
)

var errShort = errors.New("an offset or length points outside the message")

// verifier walks the metadata of one message.
type verifier struct {
	b      []byte
	tables int
}

// verify checks a whole stream: a schema, one record batch, and the end mark or the end of the bytes.
func verify(data []byte) error {
	want := []byte{1, 3} // the header types of Schema and RecordBatch
	for _, kind := range want {
		if len(data) < 8 || binary.LittleEndian.Uint32(data) != 0xFFFFFFFF {
			return errors.New("no Arrow message where one must start")
		}
		n := int64(binary.LittleEndian.Uint32(data[4:]))
		if n < 8 || n > int64(len(data)-8) {
			return fmt.Errorf("metadata of %d bytes in a message of %d", n, len(data))
		}
		v := &verifier{b: data[8 : 8+n]}
		pos := int64(binary.LittleEndian.Uint32(v.b))
		if err := v.table(message, pos, 0); err != nil {
			return err
		}
		if got := v.byteAt(pos, 1); got != kind {
			return fmt.Errorf("message of type %d where type %d must be", got, kind)
		}
		data = data[8+n:]
		body := v.int64At(pos, 3)
		if body < 0 || body > int64(len(data)) {
			return fmt.Errorf("a body of %d bytes where %d are left", body, len(data))
		}
		data = data[body:]
	}
	return nil
}

// at returns where the field in a slot stands, or 0 when it is absent, and how many bytes its table has from there.
func (v *verifier) at(pos int64, slot int) (where, room int64, err error) {
	if pos < 4 || pos+4 > int64(len(v.b)) {
		return 0, 0, errShort
	}
	vt := pos - int64(int32(binary.LittleEndian.Uint32(v.b[pos:])))
	if vt < 0 || vt+4 > int64(len(v.b)) {
		return 0, 0, errShort
	}
	vtSize, size := int64(binary.LittleEndian.Uint16(v.b[vt:])), int64(binary.LittleEndian.Uint16(v.b[vt+2:]))
	if vtSize < 4 || vtSize%2 != 0 || vt+vtSize > int64(len(v.b)) || size < 4 || pos+size > int64(len(v.b)) {
		return 0, 0, errShort
	}
	if int64(slot) >= (vtSize-4)/2 {
		return 0, 0, nil
	}
	off := int64(binary.LittleEndian.Uint16(v.b[vt+4+2*int64(slot):]))
	if off == 0 {
		return 0, 0, nil
	}
	if off >= size {
		return 0, 0, errShort
	}
	return pos + off, size - off, nil
}

func (v *verifier) byteAt(pos int64, slot int) byte {
	if w, _, err := v.at(pos, slot); err == nil && w != 0 {
		return v.b[w]
	}
	return 0
}

func (v *verifier) int64At(pos int64, slot int) int64 {
	if w, room, err := v.at(pos, slot); err == nil && w != 0 && room >= 8 {
		return int64(binary.LittleEndian.Uint64(v.b[w:]))
	}
	return 0
}

func (v *verifier) table(t *table, pos int64, depth int) error {
	v.tables++
	if depth > maxDepth || v.tables > maxTables {
		return fmt.Errorf("%s: nested too deep or too many", t.name)
	}
	slots := max(len(t.slots), 8)
	for i := range slots {
		where, room, err := v.at(pos, i)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		if where == 0 {
			continue
		}
		if i >= len(t.slots) || t.slots[i] == (shape{}) {
			return fmt.Errorf("%s: field %d is not part of a batch", t.name, i)
		}
		s := t.slots[i]
		if s.size > 0 && !s.vector {
			if room < int64(s.size) {
				return fmt.Errorf("%s: field %d: %w", t.name, i, errShort)
			}
			continue
		}
		if room < 4 {
			return fmt.Errorf("%s: field %d: %w", t.name, i, errShort)
		}
		target := where + int64(binary.LittleEndian.Uint32(v.b[where:]))
		elem := s.table
		if s.union {
			kind := v.byteAt(pos, i-1)
			if elem = t.choose[kind]; elem == nil {
				return fmt.Errorf("%s: type %d is not part of a batch", t.name, kind)
			}
		}
		if s.vector {
			err = v.vector(s, target, depth)
		} else {
			err = v.table(elem, target, depth+1)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return nil
}

func (v *verifier) vector(s shape, pos int64, depth int) error {
	if pos < 0 || pos+4 > int64(len(v.b)) {
		return errShort
	}
	n, size := int64(binary.LittleEndian.Uint32(v.b[pos:])), int64(s.size)
	if s.table != nil {
		size = 4
	}
	if n > (int64(len(v.b))-pos-4)/size {
		return errShort
	}
	if s.table == nil {
		return nil
	}
	for i := range n {
		at := pos + 4 + 4*i
		if err := v.table(s.table, at+int64(binary.LittleEndian.Uint32(v.b[at:])), depth+1); err != nil {
			return err
		}
	}
	return nil
}
