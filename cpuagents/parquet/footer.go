package parquet

import (
	"errors"
	"fmt"
	"strings"
)

// Type is the physical type of a column. The numbers are from the format.
type Type int

// Physical types.
const (
	Boolean Type = iota
	Int32
	Int64
	Int96
	Float
	Double
	ByteArray
	FixedLenByteArray
)

// String returns the name of the type in the documents of the format.
func (t Type) String() string {
	names := []string{"BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"}
	if t < 0 || int(t) >= len(names) {
		return fmt.Sprintf("type %d", int(t))
	}
	return names[t]
}

// Logical is the meaning of the values of a column.
type Logical int

// Meanings that are read. Other is every meaning that is not in this list.
const (
	None Logical = iota
	Text
	Signed   // an integer with a sign
	Unsigned // an integer without a sign
	Date     // days since 1970-01-01
	Millis   // since 1970-01-01
	Micros
	Nanos
	Decimal // a number with Column.Scale digits behind the point
	UUID
	Other
)

// MaxScale bounds the digits of a Decimal behind its point.
const MaxScale = 76

// Column is a column of a file, which is a leaf of its schema.
type Column struct {
	Path    string // the names from the root, joined by points
	Type    Type
	Logical Logical
	Meaning string // the name of Logical in the documents of the format; empty for none
	Size    int    // bytes of a value of FixedLenByteArray
	Scale   int    // of a Decimal, 0 to MaxScale
	// Optional reports whether a value may be null. Nested reports whether the column is a list, or
	// lies in a structure that may be null or is a list.
	Optional, Nested bool
}

// Group is a row group with all columns of the file.
type Group struct {
	Rows   int64
	Chunks []ChunkMeta
}

// ChunkMeta says where the pages of a column of a row group are.
type ChunkMeta struct {
	Codec  Codec
	Values int64 // nulls included
	start  int64 // in the file
	size   int64

	foreign   bool // in another file
	encrypted bool
}

// Footer describes a file.
type Footer struct {
	Columns []Column
	Groups  []Group
}

// ReadFooter reads the footer of a file, as it is before its length at the end of the file. The
// caller has bounded its length, and has taken memory for it by CountStructs.
func ReadFooter(b []byte) (*Footer, error) {
	c, f, nodes := &thrift{b: b}, &Footer{}, []node(nil)
	err := c.fields(func(id int, kind byte) error {
		switch id {
		case 2:
			return c.each(kind, compactStruct, func() error {
				n, err := readNode(c)
				nodes = append(nodes, n)
				return err
			})
		case 4:
			return c.each(kind, compactStruct, func() error {
				g, err := readGroup(c)
				f.Groups = append(f.Groups, g)
				return err
			})
		}
		return c.skip(kind)
	})
	if err != nil {
		return nil, err
	}
	if f.Columns, err = leaves(nodes, len(b)); err != nil {
		return nil, err
	}
	for i, g := range f.Groups {
		if len(g.Chunks) != len(f.Columns) {
			return nil, fmt.Errorf("row group %d has %d columns, and the file has %d", i, len(g.Chunks), len(f.Columns))
		}
		if g.Rows < 0 {
			return nil, fmt.Errorf("row group %d has %d rows", i, g.Rows)
		}
	}
	return f, nil
}

// CountStructs verifies that a footer is whole, and returns the number of its structures and texts,
// by which a caller estimates the memory of a Footer. It allocates nothing.
func CountStructs(footer []byte) (int64, error) { return checkCompact(footer) }

// node is a node of the schema, which is a list in the order of a walk.
type node struct {
	Column
	repetition, children int
	leaf                 bool
}

// Repetitions of a node.
const (
	required = iota
	optional
	repeated
)

func readNode(c *thrift) (node, error) {
	n, converted, scale, logical := node{}, -1, 0, false
	err := c.fields(func(id int, kind byte) (err error) {
		switch id {
		case 1:
			n.leaf = true
			return c.int32(kind, (*int)(&n.Type))
		case 2:
			return c.int32(kind, &n.Size)
		case 3:
			return c.int32(kind, &n.repetition)
		case 4:
			n.Path, err = c.text(kind)
			return err
		case 5:
			return c.int32(kind, &n.children)
		case 6:
			return c.int32(kind, &converted)
		case 7:
			return c.int32(kind, &scale)
		case 10:
			logical = true
			return c.structure(kind, func(id int, kind byte) error {
				if id == 5 {
					n.Logical, n.Meaning = Decimal, "Decimal"
					return c.structure(kind, func(id int, kind byte) error {
						if id == 1 {
							return c.int32(kind, &scale)
						}
						return c.skip(kind)
					})
				}
				n.Logical, n.Meaning, err = readLogical(c, id, kind)
				return err
			})
		}
		return c.skip(kind)
	})
	// Older files have the converted type alone.
	if !logical && converted >= 0 && converted < len(convertedTypes) {
		n.Logical, n.Meaning = convertedTypes[converted].Logical, convertedTypes[converted].name
	}
	if n.Type != FixedLenByteArray {
		n.Size = 0
	}
	if n.Logical == Decimal {
		if n.Scale = scale; scale < 0 || scale > MaxScale {
			n.Logical = Other
		}
	}
	return n, err
}

// convertedTypes are the meanings in files of older writers, by their number.
var convertedTypes = []struct {
	Logical
	name string
}{
	{Text, "String"},
	{Other, "Map"},
	{Other, "MapKeyValue"},
	{Other, "List"},
	{Text, "Enum"},
	{Decimal, "Decimal"},
	{Date, "Date"},
	{Other, "Time"},
	{Other, "Time"},
	{Millis, "Timestamp"},
	{Micros, "Timestamp"},
	{Unsigned, "Int"},
	{Unsigned, "Int"},
	{Unsigned, "Int"},
	{Unsigned, "Int"},
	{Signed, "Int"},
	{Signed, "Int"},
	{Signed, "Int"},
	{Signed, "Int"},
	{Other, "JSON"},
	{Other, "BSON"},
	{Other, "Interval"},
}

// logicalTypes are the names of meanings that have no parameter, by their field in the union.
var logicalTypes = map[int]string{
	1: "String", 2: "Map", 3: "List", 4: "Enum", 5: "Decimal", 6: "Date", 7: "Time", 11: "Null", 12: "JSON",
	13: "BSON", 14: "UUID", 15: "Float16", 16: "Variant", 17: "Geometry", 18: "Geography",
}

// readLogical reads the field of a LogicalType. A meaning that this package does not know is None,
// as if it were not there.
func readLogical(c *thrift, id int, kind byte) (Logical, string, error) {
	switch id {
	case 8:
		unit := Other
		err := c.structure(kind, func(id int, kind byte) error {
			if id != 2 {
				return c.skip(kind)
			}
			return c.structure(kind, func(id int, kind byte) error {
				if id >= 1 && id <= 3 {
					unit = []Logical{Millis, Micros, Nanos}[id-1]
				}
				return c.skip(kind)
			})
		})
		return unit, "Timestamp", err
	case 10:
		signed := false
		err := c.structure(kind, func(id int, kind byte) error {
			if id == 2 {
				return c.bool(kind, &signed)
			}
			return c.skip(kind)
		})
		if signed {
			return Signed, "Int", err
		}
		return Unsigned, "Int", err
	}
	err := c.skip(kind)
	switch name := logicalTypes[id]; id {
	case 1:
		return Text, name, err
	case 4:
		return Text, name, err
	case 6:
		return Date, name, err
	case 14:
		return UUID, name, err
	default:
		if name == "" {
			return None, "", err
		}
		return Other, name, err
	}
}

// maxSchemaDepth bounds the structures around a column.
const maxSchemaDepth = 64

// leaves returns the columns of a schema in a footer of some bytes. The first node is the root.
func leaves(nodes []node, footer int) (all []Column, err error) {
	if len(nodes) == 0 {
		return nil, errors.New("it has no schema")
	}
	// open are the structures around the next node: how many children are to come, and what of them
	// follows for their columns.
	type structure struct {
		left   int
		path   []string
		nested bool
	}
	if nodes[0].children < 0 {
		return nil, errWrongType
	}
	open := []structure{{left: nodes[0].children}}
	// A footer has the path of each column, once more for each row group. So longer paths than that
	// are an attack: a long name around many columns.
	names := footer + 128*len(nodes)
	for _, n := range nodes[1:] {
		for len(open) > 0 && open[len(open)-1].left == 0 {
			open = open[:len(open)-1]
		}
		if len(open) == 0 {
			return nil, errors.New("its schema has more columns than its root says")
		}
		around := &open[len(open)-1]
		around.left--
		path := append(around.path[:len(around.path):len(around.path)], n.Path)
		switch {
		case n.leaf:
			for _, p := range path {
				names -= len(p) + 1
			}
			if names < 0 {
				return nil, errors.New("the names in its schema are too long")
			}
			n.Path, n.Optional = strings.Join(path, "."), n.repetition == optional
			n.Nested = around.nested || n.repetition == repeated
			all = append(all, n.Column)
		case n.children < 0 || len(open) > maxSchemaDepth:
			return nil, errors.New("its schema is nested too deep")
		default:
			open = append(open, structure{n.children, path, around.nested || n.repetition != required})
		}
	}
	for _, s := range open {
		if s.left != 0 {
			return nil, errors.New("its schema has fewer columns than it says")
		}
	}
	return all, nil
}

func readGroup(c *thrift) (g Group, err error) {
	err = c.fields(func(id int, kind byte) error {
		switch id {
		case 1:
			return c.each(kind, compactStruct, func() error {
				m, err := readChunkMeta(c)
				g.Chunks = append(g.Chunks, m)
				return err
			})
		case 3:
			return c.int64(kind, &g.Rows)
		}
		return c.skip(kind)
	})
	return g, err
}

func readChunkMeta(c *thrift) (m ChunkMeta, err error) {
	var data, dictionary int64
	err = c.fields(func(id int, kind byte) error {
		switch id {
		case 1:
			file, err := c.text(kind)
			m.foreign = file != ""
			return err
		case 3:
			return c.structure(kind, func(id int, kind byte) error {
				switch id {
				case 4:
					return c.int32(kind, (*int)(&m.Codec))
				case 5:
					return c.int64(kind, &m.Values)
				case 7:
					return c.int64(kind, &m.size)
				case 9:
					return c.int64(kind, &data)
				case 11:
					return c.int64(kind, &dictionary)
				}
				return c.skip(kind)
			})
		case 8:
			m.encrypted = true
		}
		return c.skip(kind)
	})
	m.start = data
	if dictionary > 0 && dictionary < data {
		m.start = dictionary
	}
	return m, err
}
