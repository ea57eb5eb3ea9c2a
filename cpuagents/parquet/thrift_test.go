package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// nested returns n structs within one another, each in a field of the previous struct.
func nested(n int) []byte {
	return append(bytes.Repeat([]byte{0x1c}, n-1), make([]byte, n)...)
}

// TestCompact: a struct with a value of every type is walked to its end and no further, and is
// damaged where it is cut.
func TestCompact(t *testing.T) {
	long := bytes.Repeat([]byte{0x11}, 15)
	for name, c := range map[string]struct {
		b    []byte
		want int64 // structs and texts
	}{
		"empty":           {[]byte{0}, 1},
		"booleans":        {[]byte{0x11, 0x12, 0}, 1},
		"byte":            {[]byte{0x13, 0xff, 0}, 1},
		"integers":        {[]byte{0x14, 0x01, 0x15, 0x80, 0x01, 0x16, 0xff, 0xff, 0x7f, 0}, 1},
		"double":          {[]byte{0x17, 0x1f, 0x1f, 0x1f, 0x1f, 0x1f, 0x1f, 0x1f, 0x1f, 0}, 1},
		"uuid":            {append(append([]byte{0x1d}, bytes.Repeat([]byte{0x1f}, 16)...), 0), 1},
		"text":            {[]byte{0x18, 3, 0x1f, 0x1f, 0x1f, 0}, 2},
		"no text":         {[]byte{0x18, 0, 0}, 2},
		"far field":       {[]byte{0x03, 0x80, 0x01, 0x1f, 0}, 1},
		"struct":          {[]byte{0x1c, 0x13, 0x1f, 0, 0}, 2},
		"list":            {[]byte{0x19, 0x23, 0x1f, 0x1f, 0}, 1},
		"no list":         {[]byte{0x19, 0x0c, 0}, 1},
		"list of bools":   {[]byte{0x19, 0x31, 0x1f, 0x1f, 0x1f, 0x19, 0x12, 0x1f, 0}, 1},
		"list of texts":   {[]byte{0x19, 0x28, 1, 0x1f, 2, 0x1f, 0x1f, 0}, 3},
		"list of structs": {[]byte{0x19, 0x2c, 0, 0, 0}, 3},
		"list of 14":      {append(append([]byte{0x19, 0xe3}, long[:14]...), 0), 1},
		"list of 15":      {append(append([]byte{0x19, 0xf3, 15}, long...), 0), 1},
		"long, of 3":      {[]byte{0x19, 0xf3, 3, 0x1f, 0x1f, 0x1f, 0}, 1},
		"set":             {[]byte{0x1a, 0x18, 1, 0x1f, 0}, 2},
		"map":             {[]byte{0x1b, 2, 0x83, 1, 0x1f, 0x1f, 0, 0x1f, 0}, 3},
		"map of bools":    {[]byte{0x1b, 1, 0x12, 0x1f, 0x1f, 0}, 1},
		"no map":          {[]byte{0x1b, 0, 0}, 1},
	} {
		got, err := checkCompact(c.b)
		if err != nil || got != c.want {
			t.Errorf("%s: %d structs, %v; want %d", name, got, err, c.want)
		}
		w := &thrift{b: append(bytes.Clone(c.b), 0x1f, 0x1f)} // it ends where it ends
		if err := w.value(compactStruct, 0); err != nil || len(w.b) != 2 {
			t.Errorf("%s: %d bytes are left of 2, %v", name, len(w.b), err)
		}
		for n := range c.b {
			if _, err := checkCompact(c.b[:n]); !errors.Is(err, errCompactShort) {
				t.Errorf("%s, cut at %d: %v", name, n, err)
			}
		}
	}
}

// TestCompactDamage: a type that there is not, a length beyond the end and a depth beyond the limit
// are errors.
func TestCompactDamage(t *testing.T) {
	huge := binary.AppendUvarint(nil, 1<<62)
	over := bytes.Repeat([]byte{0xff}, 11) // no number of 64 bits
	for name, b := range map[string][]byte{
		"text": append([]byte{0x18}, huge...), "list": append([]byte{0x19, 0xf3}, huge...),
		"map":             append(append([]byte{0x1b}, huge...), 0x33, 0),
		"overlong number": append([]byte{0x16}, over...), "overlong field": append([]byte{0x03}, over...),
		// The length is refused before an element is looked at, of a type that there is not.
		"list of unknown": {0x19, 0x4f, 0, 0, 0}, "map of unknown": {0x1b, 4, 0xff, 0, 0, 0},
	} {
		if _, err := checkCompact(b); !errors.Is(err, errCompactShort) {
			t.Errorf("%s: checkCompact: %v, want %v", name, err, errCompactShort)
		}
	}
	for name, b := range map[string][]byte{
		"14": {0x1e, 0}, "15": {0x1f, 0}, "0 in a list": {0x19, 0x10, 0},
		"15 in a map": {0x1b, 1, 0x3f, 0, 0}, "14 as a key": {0x1b, 1, 0xe3, 0, 0},
	} {
		if _, err := checkCompact(b); err == nil || !strings.Contains(err.Error(), "unknown type") {
			t.Errorf("type %s: %v", name, err)
		}
	}
	// Lengths as long as the rest, and one longer.
	for n, want := range map[byte]bool{2: true, 3: false} {
		for name, b := range map[string][]byte{"list": {n<<4 | 3, 9, 9}, "long list": {0xf3, n, 9, 9}} {
			c := &thrift{b: b}
			if err := c.value(compactList, 0); (err == nil) != want || want && len(c.b) != 0 {
				t.Errorf("%s of %d in 2 bytes: %v", name, n, err)
			}
		}
		c := &thrift{b: []byte{n, 9, 9}}
		if err := c.value(compactBinary, 0); (err == nil) != want {
			t.Errorf("text of %d in 2 bytes: %v", n, err)
		}
	}
	if err := (&thrift{b: []byte{1, 0xf3, 9}}).value(compactMap, 0); err == nil || errors.Is(err, errCompactShort) {
		t.Errorf("a map of 1 with 1 byte: %v", err)
	}
	for depth, want := range map[int]bool{maxCompactDepth + 1: true, maxCompactDepth + 2: false} {
		wrap := func(head ...byte) []byte { return append(bytes.Repeat(head, depth-1), 0) }
		for name, b := range map[string][]byte{
			"structs": nested(depth),
			"lists":   append(append([]byte{0x19}, wrap(0x19)[:depth-2]...), 0x03, 0),
			"maps":    append(append([]byte{0x1b}, bytes.Repeat([]byte{1, 0x3b, 9}, depth-2)...), 0, 0),
		} {
			_, err := checkCompact(b)
			if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "deeper than 16") {
				t.Errorf("depth %d of %s: %v, want it accepted: %t", depth, name, err, want)
			}
		}
	}
}
