package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

func open(data []byte) (*File, error) { return Open(bytes.NewReader(data), int64(len(data))) }

// file returns a file with a header, and n bytes behind it.
func file(header string, n int) []byte {
	for len(header)%align != 0 {
		header += " "
	}
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), make([]byte, n)...)
}

// TestGolden reads what the Python package of the format has written, and writes the same bytes.
func TestGolden(t *testing.T) {
	golden, err := os.ReadFile("testdata/gru.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	f, err := open(golden)
	if err != nil {
		t.Fatalf("Open: %v, want no error", err)
	}
	var all []Values
	var got []string
	for _, of := range slices.Backward(f.Tensors) {
		values, err := f.Floats(of.Name)
		if err != nil {
			t.Fatalf("Floats: %v, want no error", err)
		}
		all = append(all, Values{of.Name, of.Shape, values})
		got = append(got, fmt.Sprint(of.Name, of.Type, of.Shape))
	}
	want := []string{
		"weight_ihF32[24 3]", "weight_hhF32[24 8]", "readout.weightF32[3 8]", "readout.biasF32[3]", "bias_ihF32[24]",
		"bias_hhF32[24]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the tensors are %q, want %q", got, want)
	}
	var again bytes.Buffer
	if err := Write(&again, all); err != nil || !bytes.Equal(again.Bytes(), golden) {
		t.Errorf("Write: other bytes than the golden file, %v\n%q", err, again.Bytes()[:200])
	}
}

// TestTypes reads tensors of several types, with a scalar and one without elements.
func TestTypes(t *testing.T) {
	golden, err := os.ReadFile("testdata/mixed.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	f, err := open(golden)
	if err != nil {
		t.Fatalf("Open: %v, want no error", err)
	}
	if v, err := f.Floats("scalar"); err != nil || !slices.Equal(v, []float32{1.5}) {
		t.Errorf("Floats of a scalar: %v, %v, want 1.5", v, err)
	}
	if v, err := f.Floats("zeros"); err != nil || len(v) != 0 {
		t.Errorf("Floats of no element: %v, %v, want none", v, err)
	}
	for name, n := range map[string]int{"half": 3, "brain": 4} {
		if v, err := f.Floats(name); err != nil || !slices.Equal(v, slices.Repeat([]float32{1}, n)) {
			t.Errorf("Floats of %s: %v, %v, want %d ones", name, v, err, n)
		}
	}
	for name, want := range map[string]string{"wide": "it is of I64, convert it", "bytes": "U8", "gone": "gone"} {
		if _, err := f.Floats(name); !errors.Is(err, ErrTensor) || !strings.Contains(err.Error(), want) {
			t.Errorf("Floats of %s: %v, want an ErrTensor with %q", name, err, want)
		}
	}
}

// TestRandom: what is written is read again.
func TestRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var all []Values
		for i := range r.IntN(6) {
			v := Values{Name: fmt.Sprintf("t%d.é", i)}
			n := int64(1)
			for range r.IntN(4) {
				v.Shape = append(v.Shape, r.Int64N(5))
				n *= v.Shape[len(v.Shape)-1]
			}
			for range n {
				v.Of = append(v.Of, math.Float32frombits(r.Uint32()&0x7f7fffff))
			}
			all = append(all, v)
		}
		var b bytes.Buffer
		if err := Write(&b, all); err != nil {
			t.Fatalf("Write of %v: %v, want no error", all, err)
		}
		f, err := open(b.Bytes())
		if err != nil || len(f.Tensors) != len(all) {
			t.Fatalf("Open of %q: %v, want %d tensors", b.Bytes(), err, len(all))
		}
		for _, v := range all {
			if got, err := f.Floats(v.Name); err != nil || !slices.Equal(got, v.Of) {
				t.Fatalf("Floats of %s: %v, %v, want %v", v.Name, got, err, v.Of)
			}
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	one := Values{"a", []int64{1}, []float32{1}}
	for _, all := range [][]Values{
		{one, one},
		{{"", []int64{1}, []float32{1}}},
		{{"a", []int64{2}, []float32{1}}},
		{{"a", []int64{-1}, nil}},
		{{"a", []int64{1 << 40, 1 << 40}, nil}},
	} {
		if err := Write(&bytes.Buffer{}, all); !errors.Is(err, ErrTensor) {
			t.Errorf("Write of %v: %v, want an ErrTensor", all, err)
		}
	}
}

// damaged are files that are refused, and a part of the error.
var damaged = map[string]struct {
	data []byte
	want string
}{
	"empty":        {nil, "0 bytes"},
	"short length": {[]byte{1, 2, 3}, "3 bytes"},
	"long header":  {append(binary.LittleEndian.AppendUint64(nil, 1<<62), '{'), "a header of"},
	"past the end": {append(binary.LittleEndian.AppendUint64(nil, 100), "{}"...), "a header of 100"},
	"16 MiB":       {binary.LittleEndian.AppendUint64(nil, maxHeader+1), "a header of"},
	"no JSON":      {file("x", 0), "no JSON object"},
	"array":        {file("[]", 0), "no JSON object"},
	"UTF-8":        {file("{\"\xff\":1}", 0), "UTF-8"},
	"cut":          {file(`{"a":{"dtype":"F32"`, 0), "tensor a"},
	"two objects":  {file(`{} {}`, 0), "follow the object"},
	"depth":        {file(`{"a":`+strings.Repeat("[", 20000), 0), "tensor a"},
	"unknown key":  {file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}}`, 4), "unknown field"},
	"unknown type": {file(`{"a":{"dtype":"Q4","shape":[1],"data_offsets":[0,4]}}`, 4), `unknown type "Q4"`},
	"no shape":     {file(`{"a":{"dtype":"F32","data_offsets":[0,4]}}`, 4), "a shape of 0"},
	"dims": {file(`{"a":{"dtype":"F32","shape":[1`+strings.Repeat(",1", maxDims)+`],"data_offsets":[0,4]}}`,
		4), "17 dim"},
	"no offsets":  {file(`{"a":{"dtype":"F32","shape":[1]}}`, 4), "data_offsets"},
	"backward":    {file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}`, 4), "data_offsets"},
	"other bytes": {file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, 4), "are not the bytes"},
	"overflow": {
		file(`{"a":{"dtype":"F32","shape":[4398046511104,4398046511104],"data_offsets":[0,4]}}`, 4),
		"are not the bytes",
	},
	"negative": {file(`{"a":{"dtype":"F32","shape":[-1,-1],"data_offsets":[0,4]}}`, 4), "are not the bytes"},
	"unaligned": {file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},`+
		`"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}}`, 6), "no multiple of 4"},
	"overlap": {file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},`+
		`"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}`, 12), "overlap"},
	"gap": {file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},`+
		`"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}`, 12), "gap"},
	"after the file": {file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 4), "after the file"},
	"rest":           {file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 8), "4 bytes follow"},
	"twice": {file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},`+
		`"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8), "twice"},
	"NUL":        {file(`{"a\u0000":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4), "control"},
	"metadata":   {file(`{"__metadata__":{"a":1}}`, 0), "__metadata__"},
	"odd header": {append(binary.LittleEndian.AppendUint64(nil, 2), "{}"...), "no multiple of 8"},
}

func TestDamaged(t *testing.T) {
	for name, of := range damaged {
		if _, err := open(of.data); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), of.want) {
			t.Errorf("%s: %v, want an ErrFormat with %q", name, err, of.want)
		}
	}
	if _, err := Open(bytes.NewReader(file("{}", 0)[:9]), 16); !errors.Is(err, ErrFormat) {
		t.Errorf("a reader that ends early: %v, want an ErrFormat", err)
	}
}

// FuzzOpen: any bytes are an ErrFormat, or tensors that tile the file and can be read.
func FuzzOpen(f *testing.F) {
	for _, of := range damaged {
		f.Add(of.data)
	}
	for _, name := range []string{"gru", "mixed"} {
		data, err := os.ReadFile("testdata/" + name + ".safetensors")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		of, err := open(data)
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatalf("Open: %v, want an ErrFormat", err)
			}
			return
		}
		n := int64(8) + int64(binary.LittleEndian.Uint64(data))
		for _, tensor := range of.Tensors {
			if tensor.First != n {
				t.Fatalf("tensor %q begins at byte %d, want %d", tensor.Name, tensor.First, n)
			}
			n += tensor.Bytes
			if _, err := of.Floats(tensor.Name); err != nil && slices.Contains([]string{F32, "F16", "BF16"},
				tensor.Type) {
				t.Fatalf("Floats: %v, want no error", err)
			}
		}
		if n != int64(len(data)) {
			t.Fatalf("the tensors end at byte %d of %d", n, len(data))
		}
	})
}
