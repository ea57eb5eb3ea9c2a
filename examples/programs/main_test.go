package main

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWindows: each window of the past is followed by the value that is to be forecast.
func TestWindows(t *testing.T) {
	folder := t.TempDir()
	if err := write(filepath.Join("..", series), folder); err != nil {
		t.Fatal(err)
	}
	load := func(name, shape string) (values []float32) {
		data, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		head := 10 + int(binary.LittleEndian.Uint16(data[8:]))
		if !strings.Contains(string(data[:head]), shape) || head%64 != 0 {
			t.Errorf("%s begins with %q, want %s", name, data[:head], shape)
		}
		for at := head; at < len(data); at += 4 {
			values = append(values, math.Float32frombits(binary.LittleEndian.Uint32(data[at:])))
		}
		return values
	}
	load("x.npy", "(2849, 32)")
	load("test_x.npy", "(1121, 32)")
	before, after := load("past.npy", "(2856, 24)"), load("next.npy", "(2856, 1)")
	for i := range 1000 { // the next value ends the window behind
		if after[i] != before[24*(i+1)+23] {
			t.Fatalf("window %d is followed by %v, the one behind it ends with %v", i, after[i], before[24*(i+1)+23])
		}
	}
	if n, m := len(load("test_past.npy", "24)")), len(load("test_next.npy", "1)")); n != 24*m {
		t.Errorf("%d values before %d", n, m)
	}
}
