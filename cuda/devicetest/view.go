package devicetest

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
)

// testViews: a view is a typed buffer. Indexes count elements, ranges outside are
// device.ErrInvalidArgument, also where the index times the size of an element overflows, and a
// view of no elements is valid.
func testViews(t *testing.T, open launches.Opener) {
	d := launches.Open(t, open)
	data := []float64{1, -2, math.Pi, math.Inf(1), 5}
	v, err := device.From(d, data, "view")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := v.All(); err != nil || !slices.Equal(got, data) || v.Len() != 5 || v.Size() != 40 {
		t.Errorf("%v of %d: %v", got, v.Len(), err)
	}
	part := make([]float64, 2)
	if err := errors.Join(v.Set(3, []float64{7, 8}), v.Get(2, part), v.Get(5, nil)); err != nil || part[0] != math.Pi ||
		part[1] != 7 {
		t.Errorf("%v: %v", part, err)
	}
	for _, i := range []int64{-1, 4, 5, 6, math.MaxInt64, math.MaxInt64 / 8, 1 << 61, math.MinInt64} {
		launches.Want(t, "get outside", v.Get(i, part), device.ErrInvalidArgument)
		launches.Want(t, "set outside", v.Set(i, part), device.ErrInvalidArgument)
	}
	if err := v.Close(); err != nil {
		t.Error(err)
	}
	launches.Want(t, "closed", v.Set(0, data), device.ErrClosed)
	for _, n := range []int64{-1, math.MaxInt64, math.MaxInt64/4 + 1} {
		_, err := device.Make[uint32](d, n, "view")
		launches.Want(t, "make", err, device.ErrInvalidArgument)
	}
	empty, err := device.From(d, []int8(nil), "view")
	if err != nil || empty.Len() != 0 {
		t.Fatal(err)
	}
	if got, err := empty.All(); err != nil || len(got) != 0 {
		t.Errorf("%v: %v", got, err)
	}
	if err := empty.Close(); err != nil {
		t.Error(err)
	}
}
