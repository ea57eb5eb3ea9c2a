package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Types of Thrift's compact protocol.
const (
	compactStop   = 0
	compactTrue   = 1
	compactFalse  = 2
	compactByte   = 3
	compactI16    = 4
	compactI32    = 5
	compactI64    = 6
	compactDouble = 7
	compactBinary = 8
	compactList   = 9
	compactSet    = 10
	compactMap    = 11
	compactStruct = 12
	compactUUID   = 13
)

// maxCompactDepth bounds the depth of structures. Parquet's footer needs less.
const maxCompactDepth = 16

// errCompactShort means that a length exceeds the bytes that are left.
var errCompactShort = errors.New("a length points behind its end")

// checkCompact verifies a struct of Thrift's compact protocol, in which the footer of a Parquet
// file is written. It allocates nothing. It bounds every length by the bytes that are left, since
// each element takes at least one byte. It returns the number of structs and texts, from which the
// caller estimates the memory of the decoder.
func checkCompact(b []byte) (structs int64, err error) {
	c := &thrift{b: b}
	err = c.value(compactStruct, 0)
	return c.structures, err
}

// thrift reads or skips values, and counts the skipped ones. b has the bytes that are left. Its
// methods fail at a damaged value, and b is then undefined.
type thrift struct {
	b          []byte
	structures int64
}

func (c *thrift) take(n uint64) error {
	if n > uint64(len(c.b)) {
		return errCompactShort
	}
	c.b = c.b[n:]
	return nil
}

func (c *thrift) byte() (byte, error) {
	if len(c.b) == 0 {
		return 0, errCompactShort
	}
	v := c.b[0]
	c.b = c.b[1:]
	return v, nil
}

func (c *thrift) varint() (uint64, error) {
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		return 0, errCompactShort
	}
	c.b = c.b[n:]
	return v, nil
}

// value skips a value of a type. depth is the number of structures around it.
func (c *thrift) value(kind byte, depth int) error {
	if depth > maxCompactDepth {
		return fmt.Errorf("nested deeper than %d", maxCompactDepth)
	}
	switch kind {
	case compactTrue, compactFalse:
		return nil // in the field's header
	case compactByte:
		return c.take(1)
	case compactI16, compactI32, compactI64:
		_, err := c.varint()
		return err
	case compactDouble:
		return c.take(8)
	case compactUUID:
		return c.take(16)
	case compactBinary:
		c.structures++
		n, err := c.varint()
		if err != nil {
			return err
		}
		return c.take(n)
	case compactList, compactSet:
		return c.list(depth)
	case compactMap:
		return c.maps(depth)
	case compactStruct:
		return c.structs(depth)
	}
	return fmt.Errorf("a value of unknown type %d", kind)
}

// list skips a list or a set: the count and the type of the elements, and then the elements.
func (c *thrift) list(depth int) error {
	kind, n, err := c.listHead()
	if err != nil {
		return err
	}
	for range n {
		if err := c.element(kind, depth); err != nil {
			return err
		}
	}
	return nil
}

// listHead reads the type and the count of the elements of a list. The count is at most the bytes
// that are left.
func (c *thrift) listHead() (kind byte, n int, err error) {
	head, err := c.byte()
	if err != nil {
		return 0, 0, err
	}
	// Four bits are the count; 15 means that a number follows.
	count := uint64(head >> 4)
	if count == 15 {
		if count, err = c.varint(); err != nil {
			return 0, 0, err
		}
	}
	if count > uint64(len(c.b)) {
		return 0, 0, errCompactShort
	}
	return head & 15, int(count), nil
}

// element skips a value of a list or map, in which a boolean takes one byte.
func (c *thrift) element(kind byte, depth int) error {
	if kind == compactTrue || kind == compactFalse {
		return c.take(1)
	}
	return c.value(kind, depth+1)
}

// maps skips a map: the count, the types of keys and values, and then the pairs.
func (c *thrift) maps(depth int) error {
	n, err := c.varint()
	if err != nil || n == 0 {
		return err
	}
	kinds, err := c.byte()
	if err != nil {
		return err
	}
	if n > uint64(len(c.b)) {
		return errCompactShort
	}
	for range n {
		if err := c.element(kinds>>4, depth); err != nil {
			return err
		}
		if err := c.element(kinds&15, depth); err != nil {
			return err
		}
	}
	return nil
}

func (c *thrift) structs(depth int) error {
	c.structures++
	for {
		head, err := c.byte()
		if err != nil {
			return err
		}
		if head == compactStop {
			return nil
		}
		if head>>4 == 0 { // the field's number does not fit
			if _, err := c.varint(); err != nil {
				return err
			}
		}
		if err := c.value(head&15, depth+1); err != nil {
			return err
		}
	}
}

// errWrongType means that a field has another type than the format gives it.
var errWrongType = errors.New("a field has a wrong type")

// fields reads a struct. It calls read for each field with its number and its type, and read
// consumes the value.
func (c *thrift) fields(read func(id int, kind byte) error) error {
	for id := 0; ; {
		head, err := c.byte()
		if err != nil {
			return err
		}
		if head == compactStop {
			return nil
		}
		if step := int(head >> 4); step > 0 {
			id += step
		} else {
			n, err := c.number(compactI16)
			if err != nil {
				return err
			}
			id = int(n)
		}
		if err := read(id, head&15); err != nil {
			return err
		}
	}
}

func (c *thrift) skip(kind byte) error { return c.value(kind, 0) }

func (c *thrift) structure(kind byte, read func(id int, kind byte) error) error {
	if kind != compactStruct {
		return errWrongType
	}
	return c.fields(read)
}

func (c *thrift) each(kind, of byte, read func() error) error {
	if kind != compactList {
		return errWrongType
	}
	got, n, err := c.listHead()
	if err != nil {
		return err
	}
	if n > 0 && got != of {
		return errWrongType
	}
	for range n {
		if err := read(); err != nil {
			return err
		}
	}
	return nil
}

// number reads an integer of up to 64 bits.
func (c *thrift) number(kind byte) (int64, error) {
	switch kind {
	case compactByte:
		b, err := c.byte()
		return int64(int8(b)), err
	case compactI16, compactI32, compactI64:
	default:
		return 0, errWrongType
	}
	v, err := c.varint()
	return int64(v>>1) ^ -int64(v&1), err
}

// int32 reads an integer of up to 32 bits.
func (c *thrift) int32(kind byte, to *int) error {
	v, err := c.number(kind)
	if err != nil {
		return err
	}
	if v < math.MinInt32 || v > math.MaxInt32 {
		return fmt.Errorf("a number of 32 bits is %d", v)
	}
	*to = int(v)
	return nil
}

func (c *thrift) int64(kind byte, to *int64) (err error) {
	*to, err = c.number(kind)
	return err
}

// bool reads a boolean, which is in the type of its field.
func (c *thrift) bool(kind byte, to *bool) error {
	if kind != compactTrue && kind != compactFalse {
		return errWrongType
	}
	*to = kind == compactTrue
	return nil
}

func (c *thrift) text(kind byte) (string, error) {
	if kind != compactBinary {
		return "", errWrongType
	}
	n, err := c.varint()
	if err != nil {
		return "", err
	}
	if n > uint64(len(c.b)) {
		return "", errCompactShort
	}
	text := string(c.b[:n])
	c.b = c.b[n:]
	return text, nil
}
