package gguf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/quant"
)

func open(data []byte) (*File, error) { return Open(bytes.NewReader(data), int64(len(data))) }

// head returns the head of a file of version 3 with the given counts.
func head(tensors, keys uint64) []byte {
	return little.AppendUint64(little.AppendUint64([]byte("GGUF\x03\x00\x00\x00"), tensors), keys)
}

// key appends the name and the type of a key.
func key(b []byte, name string, t Type) []byte { return appendType(appendText(b, name), t) }

// tensor appends the description of a tensor.
func tensor(b []byte, name string, dims []uint64, kind uint32, first uint64) []byte {
	b = little.AppendUint32(appendText(b, name), uint32(len(dims)))
	for _, d := range dims {
		b = little.AppendUint64(b, d)
	}
	return little.AppendUint64(little.AppendUint32(b, kind), first)
}

// elements pads a head and appends n bytes of elements.
func elements(b []byte, n int) []byte {
	return append(append(b, make([]byte, padded(int64(len(b)))-int64(len(b)))...), make([]byte, n)...)
}

// aligned returns a file with an alignment.
func aligned(v uint32) []byte {
	return little.AppendUint32(key(head(0, 1), alignmentKey, Uint32), v)
}

// floats reads and decodes a tensor.
func (f *File) floats(t *testing.T, of Tensor) []float32 {
	t.Helper()
	data := make([]byte, of.Bytes)
	if _, err := f.r.ReadAt(data, of.First); err != nil && of.Bytes > 0 {
		t.Fatalf("read %q: %v", of.Name, err)
	}
	elements, bytes, _ := quant.Block(of.Type)
	values := make([]float32, of.Bytes/bytes*elements)
	if err := quant.Decode(of.Type, values, data); err != nil {
		t.Fatalf("decode %q: %v", of.Name, err)
	}
	return values
}

// hostile are files that are refused, and a part of the error.
var hostile = map[string]struct {
	data []byte
	want string
}{
	"empty":              {nil, "byte 0: 4 more bytes"},
	"short":              {[]byte("GGU"), "byte 0"},
	"magic":              {[]byte("GGML\x03\x00\x00\x00"), "begins with"},
	"version 1":          {[]byte("GGUF\x01\x00\x00\x00"), "version 1: versions 2 and 3"},
	"big-endian":         {[]byte("GGUF\x00\x00\x00\x03"), "big-endian"},
	"2^63 tensors":       {head(1<<63, 0), "9223372036854775808 tensors: at most 65536"},
	"65,537 keys":        {head(0, 65537), "65537 keys"},
	"keys without bytes": {head(0, 65536), "is it cut short"},
	"1 GiB string": {
		little.AppendUint64(key(head(0, 1), "a", String), 1<<30),
		"byte 45: a string of 1073741824 bytes",
	},
	"string past the end": {
		append(little.AppendUint64(key(head(0, 1), "a", String), 50), make([]byte, 10)...),
		"byte 45: 50 more bytes are needed, and the file has 55",
	},
	"2^64 string":   {little.AppendUint64(key(head(0, 1), "a", String), math.MaxUint64), "at most 16777216"},
	"long name":     {append(little.AppendUint64(head(0, 1), 513), make([]byte, 520)...), "a string of 513 bytes"},
	"NUL in a name": {append(key(head(0, 1), "a\x00b", Uint8), 1), "control characters"},
	"no UTF-8":      {append(key(head(0, 1), "a\xff", Uint8), 1), "not UTF-8"},
	"empty name":    {append(key(head(0, 1), "", Uint8), 1, 2, 3), "empty"},
	"twice": {
		append(key(append(key(head(0, 2), "k", Uint8), 1), "k", Uint8), 1),
		"key k: its name is there twice",
	},
	"unknown type":    {append(key(head(0, 1), "k", 13), 1), "unknown type 13"},
	"bool of 2":       {append(key(head(0, 1), "k", Bool), 2), "a bool is 2"},
	"nested arrays":   {appendArray(appendText(head(0, 1), "k"), Array, 1), "nested arrays"},
	"5M elements":     {appendArray(appendText(head(0, 1), "k"), Uint8, 5<<20), "5242880 elements"},
	"array cut short": {appendArray(appendText(head(0, 1), "k"), Float64, 4<<20), "33554432 more bytes"},
	"strings cut":     {appendArray(appendText(head(0, 1), "k"), String, 4<<20), "33554432 more bytes"},
	"element type":    {appendArray(appendText(head(0, 1), "k"), 77, 1), "unknown type 77"},
	"alignment 0":     {aligned(0), "alignment is 0: use a power of two"},
	"alignment 48":    {aligned(48), "alignment is 48"},
	"alignment 2^21":  {aligned(1 << 21), "alignment is 2097152"},
	"alignment 2^63":  {little.AppendUint64(key(head(0, 1), alignmentKey, Uint64), 1<<63), "9223372036854775808: use"},
	"alignment text":  {appendText(key(head(0, 1), alignmentKey, String), "32"), "alignment is 32: use"},
	"5 dims":          {tensor(head(1, 0), "t", []uint64{1, 1, 1, 1, 1}, 0, 0), "5 dimensions"},
	"2^32-1 dims": {
		elements(little.AppendUint32(appendText(head(1, 0), "t"), math.MaxUint32), 64),
		"4294967295 dimensions",
	},
	"dim 0":          {elements(tensor(head(1, 0), "t", []uint64{4, 0}, 0, 0), 64), "dimension 0"},
	"dims 2^42":      {elements(tensor(head(1, 0), "t", []uint64{1 << 42, 1 << 42}, 0, 0), 64), "more than a file"},
	"dims 2^64":      {elements(tensor(head(1, 0), "t", []uint64{1 << 32, 1 << 32, 4}, 0, 0), 64), "more than a file"},
	"bytes 2^64":     {elements(tensor(head(1, 0), "t", []uint64{1 << 62}, 0, 0), 64), "more than a file"},
	"half a block":   {elements(tensor(head(1, 0), "t", []uint64{33}, 8, 0), 64), "no whole blocks"},
	"type 11":        {elements(tensor(head(1, 0), "t", []uint64{256}, 11, 0), 256), "type 11 (Q3_K)"},
	"type 2^31":      {elements(tensor(head(1, 0), "t", []uint64{256}, 1<<31, 0), 256), "quantise it"},
	"unaligned":      {elements(tensor(head(1, 0), "t", []uint64{1}, 0, 4), 64), "no multiple of the alignment 32"},
	"offset 2^63":    {elements(tensor(head(1, 0), "t", []uint64{1}, 0, 1<<63), 64), "no multiple"},
	"after the file": {elements(tensor(head(1, 0), "t", []uint64{17}, 0, 0), 64), "end after the file"},
	"far after":      {elements(tensor(head(1, 0), "t", []uint64{1}, 0, 1<<62), 64), "end after the file"},
	"overlap": {
		elements(tensor(tensor(head(2, 0), "t", []uint64{16}, 0, 0), "u", []uint64{16}, 0, 32), 128),
		"tensors overlap",
	},
	"tensor twice": {
		elements(tensor(tensor(head(2, 0), "t", []uint64{1}, 0, 0), "t", []uint64{1}, 0, 32), 128),
		"tensor t: its name is there twice",
	},
}

// TestHostile: a hostile file is one sentence with its place, and takes no more memory than twice
// the file and what an empty one takes.
func TestHostile(t *testing.T) {
	allocated := func(data []byte) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = open(data)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	for name, of := range hostile {
		_, err := open(of.data)
		if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), of.want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want an ErrFormat with %q", name, err, of.want)
		}
		if got := allocated(of.data); got > 2*uint64(len(of.data))+16<<10 {
			t.Errorf("%s: %d bytes are allocated for a file of %d", name, got, len(of.data))
		}
	}
	if _, err := Open(bytes.NewReader(head(0, 0)), 1<<30); err != nil {
		t.Errorf("an empty file: %v, want no error", err)
	}
	if _, err := Open(bytes.NewReader(head(0, 1)), 1<<30); !errors.Is(err, ErrFormat) {
		t.Errorf("a reader that ends early: %v, want an ErrFormat", err)
	}
	broken := errors.New("broken disk")
	if _, err := Open(failing{broken}, 1<<30); !errors.Is(err, broken) || errors.Is(err, ErrFormat) {
		t.Errorf("a reader that fails: %v, want its error", err)
	}
}

type failing struct{ err error }

func (f failing) ReadAt([]byte, int64) (int, error) { return 0, f.err }

// TestStrings: an array of strings is two allocations of at most twice its bytes in the file.
func TestStrings(t *testing.T) {
	for _, texts := range [][]string{make([]string, 100_000), slices.Repeat([]string{"ab"}, 100_000)} {
		var b bytes.Buffer
		if err := Write(&b, []Pair{{"k", texts}}, nil); err != nil {
			t.Fatal(err)
		}
		f, err := open(b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := f.Get("k")
		runtime.ReadMemStats(&after)
		if err != nil || !reflect.DeepEqual(got, texts) {
			t.Fatalf("Get: %v, want %d strings", err, len(texts))
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 2*uint64(b.Len())+32<<10 {
			t.Errorf("%d bytes are allocated for a file of %d", n, b.Len())
		}
	}
}

// TestRandom: what is written is read again, also as version 2.
func TestRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		values := []any{
			r.Uint32(), r.Uint64(), int32(r.Uint32()), r.Float32(), r.IntN(2) == 0, "é\x00" + fmt.Sprint(r.Int()),
			[]string{},
			[]string{"", "a", "long " + fmt.Sprint(r.Int())},
			[]float32{r.Float32()},
			[]int32{-1, int32(r.Int())},
		}
		r.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
		var keys []Pair
		for i, v := range values[:r.IntN(len(values)+1)] {
			keys = append(keys, Pair{fmt.Sprintf("k%d", i), v})
		}
		var tensors []Values
		for i := range r.IntN(4) {
			v := Values{Name: fmt.Sprintf("t%d", i), Type: quant.F32, Shape: []int64{1 + r.Int64N(3), 1 + r.Int64N(40)}}
			if r.IntN(2) == 0 {
				v.Type, v.Shape[1] = quant.Q8_0, 32*(1+r.Int64N(3))
			}
			for range v.Shape[0] * v.Shape[1] {
				v.Of = append(v.Of, float32(int(r.Uint32()%255)-127))
			}
			if v.Type == quant.Q8_0 { // a scale of 1: the values are exact
				for i := 0; i < len(v.Of); i += 32 {
					v.Of[i] = 127
				}
			}
			tensors = append(tensors, v)
		}
		var b bytes.Buffer
		if err := Write(&b, keys, tensors); err != nil {
			t.Fatalf("Write: %v, want no error", err)
		}
		b.Bytes()[4] = byte(2 + r.IntN(2))
		f, err := open(b.Bytes())
		if err != nil || len(f.Keys) != len(keys) || len(f.Tensors) != len(tensors) {
			t.Fatalf("Open: %v, want %d keys and %d tensors", err, len(keys), len(tensors))
		}
		for _, k := range keys {
			want := k.Value
			switch v := want.(type) {
			case uint32:
				want = uint64(v)
			case int32:
				want = int64(v)
			case float32:
				want = float64(v)
			}
			if got, err := f.Get(k.Key); err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("Get of %s: %v, %v, want %v", k.Key, got, err, want)
			}
		}
		for i, v := range tensors {
			of := f.Tensors[i]
			if got := f.floats(t, of); of.Name != v.Name || !slices.Equal(got, v.Of) ||
				!slices.Equal(of.Shape, v.Shape) {
				t.Fatalf("%s: %v, want %v of %v", of.Name, got, v.Of, v.Shape)
			}
		}
	}
}

// TestGet: absent keys, small signed types and arrays that are not read.
func TestGet(t *testing.T) {
	b := append(key(head(0, 4), "small", Int8), 0xff)
	b = little.AppendUint16(key(b, "short", Int16), 0x8000)
	b = little.AppendUint64(key(b, "double", Float64), math.Float64bits(0.1))
	b = append(appendArray(appendText(b, "bytes"), Uint8, 2), 1, 2)
	f, err := open(b)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{"small": int64(-1), "short": int64(-32768), "double": 0.1, "gone": nil} {
		if got, err := f.Get(name); err != nil || got != want {
			t.Errorf("Get of %s: %v, %v, want %v", name, got, err, want)
		}
	}
	if _, err := f.Get("bytes"); !errors.Is(err, ErrValue) || !strings.Contains(err.Error(), "array of uint8") {
		t.Errorf("Get of an array of bytes: %v, want an ErrValue", err)
	}
	if got := f.Unknown("s", []string{"mall"}); got != "short" {
		t.Errorf("Unknown: %q, want short", got)
	}
}

func TestWriteRefuses(t *testing.T) {
	for _, v := range []Values{
		{"t", "Q4_K", []int64{256}, make([]float32, 256)},
		{"t", "Q8_0", []int64{33}, make([]float32, 33)},
		{"t", "F32", []int64{2}, make([]float32, 3)},
		{"t", "F32", nil, make([]float32, 1)},
	} {
		if err := Write(io.Discard, nil, []Values{v}); !errors.Is(err, ErrValue) {
			t.Errorf("Write of %s %v: %v, want an ErrValue", v.Type, v.Shape, err)
		}
	}
	if err := Write(io.Discard, []Pair{{"k", 1}}, nil); !errors.Is(err, ErrValue) {
		t.Errorf("Write of an int: %v, want an ErrValue", err)
	}
}

// FuzzOpen: any bytes are an ErrFormat, or a file whose values and tensors can be read, and lie
// inside the file and apart.
func FuzzOpen(f *testing.F) {
	for _, of := range hostile {
		f.Add(of.data)
	}
	var b bytes.Buffer
	if err := Write(&b, []Pair{{"general.alignment", uint32(32)}, {"k", []string{"a", "b"}}, {"s", "x"}}, []Values{
		{"t", quant.Q8_0, []int64{1, 32}, make([]float32, 32)}, {"u", quant.F32, []int64{2}, []float32{1, 2}},
	}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		of, err := open(data)
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatalf("Open: %v, want an ErrFormat", err)
			}
			return
		}
		for _, k := range of.Keys {
			if _, err := of.Get(k.Name); err != nil && !errors.Is(err, ErrValue) {
				t.Fatalf("Get of %q: %v", k.Name, err)
			}
		}
		end := int64(0)
		for _, tensor := range of.Tensors {
			if tensor.First < end || tensor.Bytes < 0 || tensor.Bytes > int64(len(data))-tensor.First {
				t.Fatalf("tensor %q has bytes %d to %d of %d", tensor.Name, tensor.First, tensor.First+tensor.Bytes,
					len(data))
			}
			end = tensor.First + tensor.Bytes
			of.floats(t, tensor)
		}
	})
}
