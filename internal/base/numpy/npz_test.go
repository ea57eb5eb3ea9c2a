package numpy

import (
	"archive/zip"
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

// TestArchive: what is written is read again, with its types and shapes.
func TestArchive(t *testing.T) {
	var b bytes.Buffer
	w := NewArchive(&b)
	w.Array("time", []int64{-1, 1 << 60}, 0)
	w.Array("x", []float32{1, 2, 3, float32(math.Inf(1))}, 2)
	w.Array("none", []uint32{}, 0)
	w.JSON("about", map[string]int{"rows": 2})
	if err := w.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	a, err := ReadArchive(b.Bytes(), 1<<20)
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	times, width, err := Values[int64](a, "time")
	if err != nil || width != 1 || !slices.Equal(times, []int64{-1, 1 << 60}) {
		t.Errorf("time is %v of width %d: %v", times, width, err)
	}
	x, width, err := Values[float32](a, "x")
	if err != nil || width != 2 || !slices.Equal(x, []float32{1, 2, 3, float32(math.Inf(1))}) {
		t.Errorf("x is %v of width %d: %v", x, width, err)
	}
	if none, _, err := Values[uint32](a, "none"); err != nil || len(none) != 0 {
		t.Errorf("none is %v: %v", none, err)
	}
	var about struct{ Rows int }
	if err := a.JSON("about", &about); err != nil || about.Rows != 2 {
		t.Errorf("about is %+v: %v", about, err)
	}
	if a.Has("about") || !a.Has("x") {
		t.Error("Has takes a document for an array, or does not find one")
	}
}

// TestDamage: input that is no archive, or another one than the caller wants, is refused with the
// name of the member.
func TestDamage(t *testing.T) {
	var b bytes.Buffer
	w := NewArchive(&b)
	w.Array("x", []float32{1, 2, 3, 4}, 2)
	if err := w.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	good := b.Bytes()
	if _, err := ReadArchive(good[:len(good)/2], 1<<20); !errors.Is(err, ErrArchive) {
		t.Errorf("a half: %v", err)
	}
	if _, err := ReadArchive(good, 8); !errors.Is(err, ErrArchive) || !strings.Contains(err.Error(), "x.npy") {
		t.Errorf("more than the limit: %v", err)
	}
	a, err := ReadArchive(good, 16)
	if err != nil {
		t.Fatalf("just within the limit: %v", err)
	}
	if _, _, err := Values[float64](a, "x"); !errors.Is(err, ErrArchive) || !strings.Contains(err.Error(), "<f8") {
		t.Errorf("another type: %v", err)
	}
	if _, _, err := Values[float32](a, "y"); !errors.Is(err, ErrArchive) || !strings.Contains(err.Error(), "array y") {
		t.Errorf("a missing array: %v", err)
	}
	if err := a.JSON("x", &struct{}{}); !errors.Is(err, ErrArchive) {
		t.Errorf("an array as a document: %v", err)
	}
	b.Reset()
	z := zip.NewWriter(&b)
	if _, err := z.Create("program.exe"); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = ReadArchive(b.Bytes(), 1<<20)
	if !errors.Is(err, ErrArchive) || !strings.Contains(err.Error(), "program.exe") {
		t.Errorf("a member of another kind: %v", err)
	}
}
