package rows

import (
	"encoding/binary"
	"reflect"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/cpuagents/internal/tabletest"
)

// TestArrowFooter: a file with its schema in the footer alone, as Arrow JS writes them, is read as
// one that begins with it.
func TestArrowFooter(t *testing.T) {
	data := tabletest.Arrow(t, tabletest.Record(pairRows(10)), true)
	spec := pairSpec
	want, _, err := readWriting(t, fixture.File{Format: "arrow", Data: data}, spec, fixture.Plenty)
	if err != nil || len(want) == 0 {
		t.Fatalf("%d rows, %v, want some", len(want), err)
	}
	n := 8 + int(binary.LittleEndian.Uint32(data[12:])) // of the message of the schema, which has no body
	late := append(append([]byte{}, data[:8]...), data[8+n:]...)
	got, _, err := readWriting(t, fixture.File{Format: "arrow", Data: late}, spec, fixture.Plenty)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v: %d rows of %d", err, len(got), len(want))
	}
	for cut := range len(late) { // damage is an error, not a panic
		if _, _, err := readWriting(t, fixture.File{Format: "arrow", Data: late[:cut]}, spec,
			fixture.Plenty); err == nil {
			t.Fatalf("the first %d bytes are read", cut)
		}
		if cut > len(late)-600 {
			broken := append([]byte{}, late...)
			broken[cut] ^= 0x81
			_, _, _ = readWriting(t, fixture.File{Format: "arrow", Data: broken}, spec, fixture.Plenty)
		}
	}
}
