package batch_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// stream returns an Arrow IPC stream with the columns x of float32, y of int64 with a null, and z
// of lists of two uint32, written by the library in the given number of record batches.
func stream(t testing.TB, batches int) []byte {
	t.Helper()
	s := arrow.NewSchema([]arrow.Field{
		{Name: "x", Type: arrow.PrimitiveTypes.Float32},
		{Name: "y", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "z", Type: arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Uint32)},
		{Name: "s", Type: arrow.BinaryTypes.String},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, s)
	defer b.Release()
	b.Field(0).(*array.Float32Builder).AppendValues([]float32{1, 2.5, -3}, nil)
	b.Field(1).(*array.Int64Builder).AppendValues([]int64{1, 2, 3}, []bool{true, false, true})
	list := b.Field(2).(*array.FixedSizeListBuilder)
	for i := range 3 {
		list.Append(true)
		list.ValueBuilder().(*array.Uint32Builder).AppendValues([]uint32{uint32(i), 9}, nil)
	}
	b.Field(3).(*array.StringBuilder).AppendValues([]string{"a", "b", "c"}, nil)
	r := b.NewRecordBatch()
	defer r.Release()
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(s))
	for range batches {
		if err := w.Write(r); err != nil {
			t.Fatalf("write: %v", err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	return out.Bytes()
}

// TestReadNumbers: columns of numbers and of lists are read, and others are refused with their
// reason.
func TestReadNumbers(t *testing.T) {
	data := stream(t, 1)
	x, err := batch.ReadNumbers(data, "x")
	if err != nil || x.Type != "float32" || !slices.Equal(x.Shape, []int64{3}) ||
		!bytes.Equal(x.Data, []byte{0, 0, 0x80, 0x3f, 0, 0, 0x20, 0x40, 0, 0, 0x40, 0xc0}) {
		t.Errorf("x: %+v, %v", x, err)
	}
	z, err := batch.ReadNumbers(data, "z")
	if err != nil || z.Type != "uint32" || !slices.Equal(z.Shape, []int64{3, 2}) || len(z.Data) != 24 ||
		z.Data[8] != 1 {
		t.Errorf("z: %+v, %v", z, err)
	}
	for want, c := range map[string]struct {
		data []byte
		name string
	}{
		"has nulls":              {data, "y"},
		"name one":               {data, ""},
		`no column "none"`:       {data, "none"},
		"use numbers of 32":      {data, "s"},
		"more than one record":   {stream(t, 2), "x"},
		"no Arrow message where": {[]byte("ARROW1\x00\x00 and more"), "x"},
	} {
		if _, err := batch.ReadNumbers(c.data, c.name); err == nil || jobs.AsError(err).Code != jobs.CodeInvalid ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v; want code invalid and %q", err, want)
		}
	}
}

// TestReadNumbersDamaged: a damaged stream is an error or numbers, and no panic.
func TestReadNumbersDamaged(t *testing.T) {
	good := stream(t, 1)
	r := rand.New(rand.NewPCG(1, 2))
	for range testkit.Of(3000, 600) {
		data := slices.Clone(good)
		for range 1 + r.IntN(3) {
			data[r.IntN(len(data))] = byte(r.Uint32())
		}
		if _, err := batch.ReadNumbers(data[:len(data)-r.IntN(20)], "x"); err != nil &&
			jobs.AsError(err).Code != jobs.CodeInvalid {
			t.Fatalf("%v; want code invalid", err)
		}
	}
}
