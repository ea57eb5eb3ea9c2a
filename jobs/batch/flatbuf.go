package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// FlatShape is what a field of a table holds. The zero value is a field that must not be there.
type FlatShape struct {
	Size   int        // bytes of a scalar, or of a vector's element that is a scalar or struct
	Vector bool       // a vector of elements of Size bytes, or of tables
	Table  *FlatTable // a table, or a vector's element
	Union  bool       // a table chosen by the byte in the slot before
}

// FlatTable describes a table by its fields.
type FlatTable struct {
	Name   string
	Slots  []FlatShape
	Choose map[byte]*FlatTable // for the union's slot: by type byte
}

const (
	maxDepth  = 8
	maxTables = 4096
	// maxShared is how often a byte may be part of a text or list: a library makes a copy of what
	// several tables refer to for each of them.
	maxShared = 4
)

var errShared = errors.New("its tables share more than is plausible")

var errShort = errors.New("an offset or length points outside the message")

// FlatVerifier checks the tables of one buffer. One goroutine uses it.
type FlatVerifier struct {
	b      []byte
	tables int
	held   int64 // bytes of the vectors so far; a vector that is referred to twice counts twice
}

// NewFlatVerifier returns a FlatVerifier of b, which must not change while it is used.
func NewFlatVerifier(b []byte) *FlatVerifier { return &FlatVerifier{b: b} }

// Root returns where the root table stands.
func (v *FlatVerifier) Root() (int64, error) {
	if len(v.b) < 4 {
		return 0, errShort
	}
	return int64(binary.LittleEndian.Uint32(v.b)), nil
}

// Check walks the table at pos and everything below it.
func (v *FlatVerifier) Check(t *FlatTable, pos int64) error { return v.table(t, pos, 0) }

// Sub returns where the table in a slot of a checked table stands, or 0 when it is absent.
func (v *FlatVerifier) Sub(pos int64, slot int) int64 {
	w, room, err := v.at(pos, slot)
	if err != nil || w == 0 || room < 4 {
		return 0
	}
	return w + int64(binary.LittleEndian.Uint32(v.b[w:]))
}

// Structs returns the elements of size bytes of the vector in a slot of a checked table.
func (v *FlatVerifier) Structs(pos int64, slot, size int) []byte {
	at := v.Sub(pos, slot)
	if at == 0 || at+4 > int64(len(v.b)) {
		return nil
	}
	n := int64(binary.LittleEndian.Uint32(v.b[at:]))
	if n > (int64(len(v.b))-at-4)/int64(size) {
		return nil
	}
	return v.b[at+4 : at+4+n*int64(size)]
}

// at returns where the field in a slot stands, or 0 when it is absent, and how many bytes its table
// has from there.
func (v *FlatVerifier) at(pos int64, slot int) (where, room int64, err error) {
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

// Byte returns the byte in a slot of a checked table, or 0 when it is absent.
func (v *FlatVerifier) Byte(pos int64, slot int) byte {
	if w, _, err := v.at(pos, slot); err == nil && w != 0 {
		return v.b[w]
	}
	return 0
}

// Int64 returns the integer in a slot of a checked table, or 0 when it is absent.
func (v *FlatVerifier) Int64(pos int64, slot int) int64 {
	if w, room, err := v.at(pos, slot); err == nil && w != 0 && room >= 8 {
		return int64(binary.LittleEndian.Uint64(v.b[w:]))
	}
	return 0
}

func (v *FlatVerifier) table(t *FlatTable, pos int64, depth int) error {
	v.tables++
	if depth > maxDepth || v.tables > maxTables {
		return fmt.Errorf("%s: nested too deep or too many", t.Name)
	}
	slots := max(len(t.Slots), 8)
	for i := range slots {
		where, room, err := v.at(pos, i)
		if err != nil {
			return fmt.Errorf("%s: %w", t.Name, err)
		}
		if where == 0 {
			continue
		}
		if i >= len(t.Slots) || t.Slots[i] == (FlatShape{}) {
			return fmt.Errorf("%s: field %d is not expected here", t.Name, i)
		}
		s := t.Slots[i]
		if s.Size > 0 && !s.Vector {
			if room < int64(s.Size) {
				return fmt.Errorf("%s: field %d: %w", t.Name, i, errShort)
			}
			continue
		}
		if room < 4 {
			return fmt.Errorf("%s: field %d: %w", t.Name, i, errShort)
		}
		target := where + int64(binary.LittleEndian.Uint32(v.b[where:]))
		elem := s.Table
		if s.Union {
			kind := v.Byte(pos, i-1)
			if elem = t.Choose[kind]; elem == nil {
				return fmt.Errorf("%s: type %d is not expected here", t.Name, kind)
			}
		}
		if s.Vector {
			err = v.vector(s, target, depth)
		} else {
			err = v.table(elem, target, depth+1)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", t.Name, err)
		}
	}
	return nil
}

func (v *FlatVerifier) vector(s FlatShape, pos int64, depth int) error {
	if pos < 0 || pos+4 > int64(len(v.b)) {
		return errShort
	}
	n, size := int64(binary.LittleEndian.Uint32(v.b[pos:])), int64(s.Size)
	if s.Table != nil {
		size = 4
	}
	if n > (int64(len(v.b))-pos-4)/size {
		return errShort
	}
	if v.held += n * size; v.held > maxShared*int64(len(v.b)) {
		return errShared
	}
	if s.Table == nil {
		return nil
	}
	for i := range n {
		at := pos + 4 + 4*i
		if err := v.table(s.Table, at+int64(binary.LittleEndian.Uint32(v.b[at:])), depth+1); err != nil {
			return err
		}
	}
	return nil
}
