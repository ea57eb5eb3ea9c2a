package batch

import (
	"encoding/binary"
	"errors"
	"testing"
)

// sharing is a table with a vector of n references to one table, whose text has size bytes.
func sharing(n, size int) []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(nil, 12)         // 0: the root table stands at 12
	b = append(b, 6, 0, 8, 0, 4, 0, 0, 0) // 4: the layout of both tables: 6 bytes, tables of 8, field 0 at 4
	// 12: the root: its layout is 8 bytes before, its vector 4 behind the field
	b = le.AppendUint32(le.AppendUint32(b, 8), 4)
	b = le.AppendUint32(b, uint32(n)) // 20
	for i := range n {
		b = le.AppendUint32(b, uint32(4*(n-i))) // to the table behind the vector
	}
	at := len(b)
	b = le.AppendUint32(le.AppendUint32(b, uint32(at-4)), 4)
	b = le.AppendUint32(b, uint32(size))
	return append(b, make([]byte, size)...)
}

// TestShared admits a text that two tables share, and refuses one that a library would copy a
// thousand times.
func TestShared(t *testing.T) {
	elem := &FlatTable{Name: "Element", Slots: []FlatShape{{Size: 1, Vector: true}}}
	list := &FlatTable{Name: "List", Slots: []FlatShape{{Vector: true, Table: elem}}}
	for n, want := range map[int]error{1: nil, 2: nil, 1000: errShared} {
		v := NewFlatVerifier(sharing(n, 100_000))
		pos, err := v.Root()
		if err == nil {
			err = v.Check(list, pos)
		}
		if !errors.Is(err, want) {
			t.Errorf("%d tables with one text: %v, want %v", n, err, want)
		}
	}
}
