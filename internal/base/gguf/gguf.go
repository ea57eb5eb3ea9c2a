// Package gguf reads and writes model files in the format GGUF, versions 2 and 3, little-endian. A
// file has a head with two counts, typed keys, a description of each tensor, and the elements of
// the tensors behind it. The format is docs/gguf.md of github.com/ggml-org/ggml.
package gguf

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/internal/base/quant"
)

// Errors of this package.
var (
	// ErrFormat is input that is no file of this format, or one that breaks a rule of it.
	ErrFormat = errors.New("not a GGUF file that can be read")
	// ErrValue is a key or a tensor that cannot be read as asked.
	ErrValue = errors.New("no such value")
)

// Limits of a file.
const (
	maxCount  = 65536    // of keys, and of tensors
	maxName   = 512      // bytes of the name of a key or tensor
	maxString = 16 << 20 // bytes
	maxArray  = 4 << 20  // elements
	maxDims   = 4
	maxAlign  = 1 << 20
	minAlign  = 8
)

const (
	magic        = "GGUF"
	alignmentKey = "general.alignment"
	defaultAlign = 32
)

// Type is the type of the value of a key, by its number in the format.
type Type uint32

// Types of values.
const (
	Uint8 Type = iota
	Int8
	Uint16
	Int16
	Uint32
	Int32
	Float32
	Bool
	String
	Array
	Uint64
	Int64
	Float64
)

// sizes are the bytes of a value by its type; 0: its length is in the file.
var sizes = [...]int64{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}

var typeNames = [...]string{
	"uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "bool", "string", "array", "uint64", "int64",
	"float64",
}

func (t Type) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// tensorTypes are the types of tensors that are read, by their numbers in ggml.h, and the names of
// some others, for errors.
var tensorTypes = map[uint32]string{
	0: quant.F32, 1: quant.F16, 2: quant.Q4_0, 8: quant.Q8_0, 12: quant.Q4K, 14: quant.Q6K, 30: quant.BF16,
	3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 13: "Q5_K", 15: "Q8_K", 16: "IQ2_XXS",
	17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8",
	25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}

// Key is a key of a file.
type Key struct {
	Name string
	Type Type
	Elem Type  // of an array
	Len  int64 // elements of an array, bytes of a string
	bits uint64
	at   int64 // of the first element or byte in the file
	size int64 // bytes of an array in the file
}

// Tensor describes a tensor of a file.
type Tensor struct {
	Name  string
	Type  string  // a type of package quant
	Shape []int64 // row-major, the last dimension is contiguous: the reverse of the file's order
	First int64   // of its bytes in the file
	Bytes int64
}

// File describes a file. It does not change, and may be used concurrently if its reader may.
type File struct {
	Version uint32
	Keys    []Key    // in the order of the file
	Tensors []Tensor // in the order of their bytes
	r       io.ReaderAt
	byName  map[string]int // of Keys
}

// Open reads the head of a file of size bytes: it checks each count and length before it allocates,
// each key, and that each tensor is inside the file and apart from the others. The error is an
// ErrFormat with the byte, or an error of r. Strings and arrays stay in the file until they are
// asked for, so the memory is in proportion to the number of keys and tensors. The head is read
// once, in order. The File reads from r later on.
func Open(r io.ReaderAt, size int64) (*File, error) {
	s := newScanner(r, size)
	f := &File{r: r, byName: map[string]int{}}
	var head [4]byte
	s.read(head[:])
	if s.err == nil && string(head[:]) != magic {
		return nil, fmt.Errorf("%w: it begins with %q and not with %s: is it a GGUF file?", ErrFormat, head, magic)
	}
	f.Version = uint32(s.number(4))
	switch {
	case s.err != nil:
	case f.Version == 2 || f.Version == 3:
	case f.Version == 2<<24 || f.Version == 3<<24:
		s.fail("it is big-endian: convert it to little-endian")
	default:
		s.fail("version %d: versions 2 and 3 are read: convert it with a present llama.cpp", f.Version)
	}
	tensors, keys := s.count("tensors", 24), s.count("keys", 13)
	for range keys {
		s.key(f)
	}
	align := int64(defaultAlign)
	if v, err := f.Get(alignmentKey); s.err == nil && (v != nil || err != nil) {
		u, _ := v.(uint64)
		if err != nil || u < minAlign || u > maxAlign || u&(u-1) != 0 {
			s.fail("key %s is %.100s: use a power of two from %d to %d", alignmentKey, fmt.Sprint(v), minAlign,
				maxAlign)
		}
		align = int64(u)
	}
	names := map[string]bool{}
	for range tensors {
		s.tensor(f, names, align)
	}
	if s.err != nil {
		return nil, s.err
	}
	return f, f.place((s.at+align-1)/align*align, size)
}

// place moves the tensors behind the head, which ends at byte from, and checks that they are inside
// the file and apart.
func (f *File) place(from, size int64) error {
	slices.SortFunc(f.Tensors, func(a, b Tensor) int { return cmp.Compare(a.First, b.First) })
	end, before := int64(0), ""
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if t.First < end {
			return fmt.Errorf("%w: tensor %s: it begins at byte %d of the elements, before tensor %s ends at byte %d: "+
				"tensors overlap", ErrFormat, t.Name, t.First, before, end)
		}
		if t.First > size-from || t.Bytes > size-from-t.First {
			return fmt.Errorf("%w: tensor %s: its %d bytes from byte %d of the elements on end after the file, which "+
				"has %d bytes: is it cut short?", ErrFormat, t.Name, t.Bytes, t.First, size)
		}
		end, before = t.First+t.Bytes, t.Name
		t.First += from
	}
	return nil
}

// Get returns the value of a key: a uint64, int64, float64, bool or string, or a []string,
// []float32, []int32 or []uint32; nil without the key. Other arrays are an ErrValue. A string of an
// array is part of one allocation with the others.
func (f *File) Get(key string) (any, error) {
	i, there := f.byName[key]
	if !there {
		return nil, nil
	}
	k := f.Keys[i]
	switch k.Type {
	case Uint8, Uint16, Uint32, Uint64:
		return k.bits, nil
	case Int8, Int16, Int32, Int64:
		shift := 64 - 8*sizes[k.Type]
		return int64(k.bits<<shift) >> shift, nil
	case Float32:
		return float64(math.Float32frombits(uint32(k.bits))), nil
	case Float64:
		return math.Float64frombits(k.bits), nil
	case Bool:
		return k.bits == 1, nil
	}
	s := newScanner(f.r, k.at+k.size)
	s.skip(k.at)
	var value any
	switch {
	case k.Type == String:
		value = s.text(k.Len)
	case k.Elem == String:
		value = s.texts(k)
	case k.Elem == Float32:
		all := make([]float32, k.Len)
		for i := range all {
			all[i] = math.Float32frombits(uint32(s.number(4)))
		}
		value = all
	case k.Elem == Int32:
		all := make([]int32, k.Len)
		for i := range all {
			all[i] = int32(uint32(s.number(4)))
		}
		value = all
	case k.Elem == Uint32:
		all := make([]uint32, k.Len)
		for i := range all {
			all[i] = uint32(s.number(4))
		}
		value = all
	default:
		return nil, fmt.Errorf("key %s: %w: it is an array of %v: string, float32, int32 and uint32 are read",
			key, ErrValue, k.Elem)
	}
	if s.err != nil {
		return nil, fmt.Errorf("key %s: %w", key, s.err)
	}
	return value, nil
}

// Unknown returns the name of the first key that begins with prefix and goes on with none of the
// known ends, or nothing.
func (f *File) Unknown(prefix string, known []string) string {
	for _, k := range f.Keys {
		if rest, is := strings.CutPrefix(k.Name, prefix); is && !slices.Contains(known, rest) {
			return k.Name
		}
	}
	return ""
}

// little is the byte order of all files that are read.
var little = binary.LittleEndian
