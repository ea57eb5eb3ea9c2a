package kernels

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestWeightedWordsAreCurrent holds tally_weighted_words.cuh to the Go constants that it repeats.
func TestWeightedWordsAreCurrent(t *testing.T) {
	var b strings.Builder
	b.WriteString("// The numbers of the tally kernels with sums of 64 bits, from the Go constants of this package " +
		"that say what each is.\n" +
		"// Written by: go test ./cuda/kernels -run TestWeightedWordsAreCurrent -update\n")
	for _, w := range []struct {
		name  string
		value int
	}{
		{"TALLY_WEIGHT", TallyWeight},
		{"TALLY_BAD", TallyBad},
		{"RESULT_BAD", ResultBad},
		{"WEIGHT_U8", WeightU8},
		{"WEIGHT_U32", WeightU32},
		{"WEIGHT_F32", WeightF32},
	} {
		fmt.Fprintf(&b, "#define %s %d\n", w.name, w.value)
	}
	if *update {
		if err := os.WriteFile("tally_weighted_words.cuh", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile("tally_weighted_words.cuh")
	if err != nil || string(have) != b.String() {
		t.Errorf("tally_weighted_words.cuh is not what the constants say (%v); write it anew with -update", err)
	}
}
