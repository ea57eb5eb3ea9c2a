package kernels

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestRasterWordsAreCurrent holds raster_words.cuh to the Go constants that it repeats.
func TestRasterWordsAreCurrent(t *testing.T) {
	var b strings.Builder
	b.WriteString("// The numbers of raster, from the Go constants of this package that say what each is.\n" +
		"// Written by: go test ./cuda/kernels -run TestRasterWordsAreCurrent -update\n#pragma once\n\n")
	for _, w := range []struct {
		name  string
		value uint32
	}{
		{"RASTER_F32", uint32(F32)},
		{"RASTER_U32", uint32(U32)},
		{"RASTER_U64", uint32(U64)},
		{"RASTER_U8", uint32(U8)},
		{"RASTER_BF16", uint32(BF16)},
		{"RASTER_I64", uint32(I64)},
		{"RASTER_ABSENT", RasterAbsent},
	} {
		fmt.Fprintf(&b, "#define %s %du\n", w.name, w.value)
	}
	const file = "raster_words.cuh"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(file)
	if err != nil || string(have) != b.String() {
		t.Errorf("%s is not of the present constants (%v): run this test with -update", file, err)
	}
}
