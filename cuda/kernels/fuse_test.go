package kernels

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestFuseWordsAreCurrent holds fuse_words.cuh to the Go constants that it repeats.
func TestFuseWordsAreCurrent(t *testing.T) {
	var b strings.Builder
	b.WriteString("// The numbers of the fusion kernels, from the Go constants of this package that say what each " +
		"is.\n" +
		"// Written by: go test ./cuda/kernels -run TestFuseWordsAreCurrent -update\n")
	for _, w := range []struct {
		name  string
		value int
	}{
		{"FUSE_TICKET", FuseTicket},
		{"FUSE_FUSED", FuseFused},
		{"FUSE_REFUSED", FuseRefused},
		{"FUSE_NOBODY", FuseNobody},
		{"FUSE_INVALID", FuseInvalid},
		{"FUSE_WEIGHT", FuseWeight},
		{"FUSE_WORDS", FuseWords},
		{"FUSE_ORDER", FuseOrder},
		{"FUSE_WEIGHTED", FuseWeighted},
		{"FUSE_PARTS", FuseParts},
		{"FUSE_FRESH", FuseFresh},
		{"FUSE_FIRST", FuseFirst},
		{"FUSE_LAST", FuseLast},
		{"FUSE_ONE", FuseOne},
		{"FUSE_RUN_PART", FuseRunPart},
		{"FUSE_MAX_BLOCK", FuseMaxBlock},
		{"FUSE_TILE", FuseTile},
		{"FUSE_SLOTS", FuseSlots},
		{"FUSE_SHARE", FuseShare},
	} {
		fmt.Fprintf(&b, "#define %s %d\n", w.name, w.value)
	}
	fmt.Fprintf(&b, "#define FUSE_NO_SLOT %#x\n#define FUSE_HEAD %#xu\n#define NO_NODE %#xu\n", FuseNoSlot,
		uint32(FuseHead), NoNode)
	if *update {
		if err := os.WriteFile("fuse_words.cuh", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile("fuse_words.cuh")
	if err != nil || string(have) != b.String() {
		t.Errorf("fuse_words.cuh is not what the constants say (%v); write it anew with -update", err)
	}
}
