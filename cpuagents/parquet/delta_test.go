package parquet

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/cpuagents/access"
)

// differences packs numbers in blocks of 128 with 4 miniblocks.
func differences(values ...int64) (b []byte) {
	b = binary.AppendUvarint(binary.AppendUvarint(b, 128), 4)
	b = binary.AppendUvarint(b, uint64(len(values)))
	if len(values) == 0 {
		return binary.AppendVarint(b, 0)
	}
	b = binary.AppendVarint(b, values[0])
	var all []int64
	for i := range values[1:] {
		all = append(all, values[i+1]-values[i])
	}
	for block := range slices.Chunk(all, 128) {
		least := slices.Min(block)
		b = binary.AppendVarint(b, least)
		var widths, packed []byte
		for part := range slices.Chunk(block, 32) {
			width := 0
			for _, d := range part {
				width = max(width, bits.Len64(uint64(d-least)))
			}
			widths = append(widths, byte(width))
			all := make([]byte, 4*width)
			for i, d := range part {
				for k := range width {
					if uint64(d-least)>>k&1 == 1 {
						all[(i*width+k)/8] |= 1 << ((i*width + k) % 8)
					}
				}
			}
			packed = append(packed, all...)
		}
		b = append(append(append(b, widths...), make([]byte, 4-len(widths))...), packed...)
	}
	return b
}

// TestDifferences: numbers come back, in reads of any length, and what follows them is found.
func TestDifferences(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.OneOf(rapid.Int64(), rapid.Int64Range(-3, 3)), 0, 400).Draw(t, "values")
		d, err := newDeltas(append(differences(want...), "rest"...), len(want))
		if err != nil {
			t.Fatal(err)
		}
		if rest, err := d.rest(); err != nil || string(rest) != "rest" {
			t.Fatalf("behind %d numbers is %q, %v", len(want), rest, err)
		}
		var got []int64
		for len(got) < len(want) {
			part := make([]int64, min(rapid.IntRange(1, 100).Draw(t, "read"), len(want)-len(got)))
			if err := d.read(part); err != nil {
				t.Fatal(err)
			}
			got = append(got, part...)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("read %v, want %v", got, want)
		}
		if d.read(make([]int64, 1)) == nil {
			t.Fatal("a number behind the last one is read")
		}
	})
}

// TestBadDifferences: streams that promise more than they have are refused, without time and memory
// for what they promise.
func TestBadDifferences(t *testing.T) {
	head := func(all ...uint64) (b []byte) {
		for _, v := range all {
			b = binary.AppendUvarint(b, v)
		}
		return append(b, 0)
	}
	for name, b := range map[string][]byte{
		"empty": {}, "cut": {128}, "no blocks": head(0, 4, 1), "no parts": head(128, 0, 1), "uneven": head(128, 3, 1),
		"small parts": head(128, 64, 1), "a huge block": head(1<<62, 4, 1), "more than the page": head(128, 4, 101),
	} {
		if _, err := newDeltas(b, 100); err == nil {
			t.Errorf("%s: it is read", name)
		}
	}
	for name, b := range map[string][]byte{
		"no block": head(128, 4, 100), "wide": append(head(128, 4, 100), 0, 65, 0, 0, 0),
		"no data": append(head(128, 4, 100), 0, 64, 0, 0, 0), "no widths": append(head(128, 4, 100), 0, 1),
	} {
		d, err := newDeltas(b, 100)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d.read(make([]int64, 100)) == nil {
			t.Errorf("%s: it is read", name)
		}
		if _, err := d.rest(); err == nil {
			t.Errorf("%s: its end is found", name)
		}
	}
	// 2^40 lengths of 0 in 2 MiB: a walk over the numbers would not end, and one over the blocks does.
	bomb := head(1<<20, 1, 1<<40)
	for range 1 << 20 {
		bomb = append(bomb, 0, 0)
	}
	if _, err := newTexts(bomb, 1<<40, false, &texts{}); err != nil {
		t.Errorf("a page of empty texts: %v", err)
	}
	// Texts that share a long begin grow beyond the page, up to a bound.
	long := strings.Repeat("x", 1<<20)
	shared := make([]int64, 1000)
	lengths := make([]int64, 1000)
	lengths[0] = int64(len(long))
	for i := 1; i < len(shared); i++ {
		shared[i] = int64(len(long))
	}
	page := append(append(differences(shared...), differences(lengths...)...), long...)
	many, err := newTexts(page, 1000, true, &texts{})
	if err != nil {
		t.Fatal(err)
	}
	h := access.NewMemoryParts(1<<30, 1<<30).Hold(t.Context(), "s")
	if err := many.read(make([][]byte, 1000), true, h); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("1,000 texts of 1 MiB: %v", err)
	}
	if h.Bytes() != 0 {
		t.Errorf("%d bytes are held", h.Bytes())
	}
	for name, page := range map[string][]byte{
		"shares nothing": append(append(differences(1), differences(1)...), 'a'),
		"negative":       append(append(differences(0), differences(-1)...), 'a'),
		"long":           append(append(differences(0), differences(2)...), 'a'),
		"shares less":    append(append(differences(0, -1), differences(1, 0)...), 'a'),
	} {
		bad, err := newTexts(page, 2, true, &texts{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if bad.read(make([][]byte, bad.lengths.left), true, noLimit) == nil {
			t.Errorf("%s: it is read", name)
		}
	}
}

// TestSharedTexts: texts that share their begins come back, over reads, and the chunk gives their
// memory back.
func TestSharedTexts(t *testing.T) {
	want := []string{"abc", "abd", "", "abd", "abdef", "b", "bb", "bbb"}
	var shared, lengths []int64
	var suffixes, last string
	for _, w := range want {
		n := 0
		for n < min(len(w), len(last)) && w[n] == last[n] {
			n++
		}
		shared, lengths, suffixes, last = append(shared, int64(n)), append(lengths, int64(len(w)-n)), suffixes+w[n:], w
	}
	body := append(append(differences(shared...), differences(lengths...)...), suffixes...)
	page := made{kind: pageDataV2, values: len(want), encoding: encDeltaTexts, body: body}
	h := access.NewMemoryParts(1<<20, 1<<20).Hold(t.Context(), "s")
	for step := 1; step < 9; step++ {
		c := chunkOf(t, Column{Type: ByteArray}, Plain, h, page, page)
		var got []string
		var v Values
		for len(got) < 2*len(want) {
			_, n, err := c.Read(make([]bool, step), &v)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range v.Texts[:n] {
				got = append(got, string(text))
			}
		}
		if !slices.Equal(got, append(slices.Clone(want), want...)) {
			t.Errorf("in steps of %d: %q", step, got)
		}
		c.Close()
		if h.Bytes() != 0 {
			t.Fatalf("%d bytes are held", h.Bytes())
		}
	}
	// Values of one size, and one of another.
	fixed := append(append(differences(0, 1, 0), differences(2, 1, 2)...), "abcde"...)
	c := chunkOf(t, Column{Type: FixedLenByteArray, Size: 2}, Plain, noLimit,
		made{kind: pageData, values: 3, encoding: encDeltaTexts, body: fixed})
	var v Values
	if _, _, err := c.Read(make([]bool, 3), &v); err != nil || string(v.Texts[1]) != "ac" ||
		string(v.Texts[2]) != "de" {
		t.Errorf("values of two bytes: %q, %v", v.Texts, err)
	}
	c = chunkOf(t, Column{Type: FixedLenByteArray, Size: 3}, Plain, noLimit,
		made{kind: pageData, values: 3, encoding: encDeltaTexts, body: fixed})
	if _, _, err := c.Read(make([]bool, 3), &v); err == nil {
		t.Error("values of two bytes are read as three")
	}
	// Booleans in runs.
	c = chunkOf(t, Column{Type: Boolean}, Plain, noLimit,
		made{kind: pageDataV2, values: 5, encoding: encRLE, body: []byte{4, 0, 0, 0, 3 << 1, 1, 2 << 1, 0}})
	if _, n, err := c.Read(make([]bool, 5), &v); err != nil ||
		!slices.Equal(v.Bools[:n], []bool{true, true, true, false, false}) {
		t.Errorf("booleans in runs: %v, %v", v.Bools, err)
	}
	for _, of := range []Type{Boolean, Double, ByteArray} {
		c = chunkOf(
			t,
			Column{Type: of},
			Plain,
			noLimit,
			made{kind: pageData, values: 1, encoding: encDelta, body: fixed},
		)
		if _, _, err := c.Read(make([]bool, 1), &v); err == nil {
			t.Errorf("%s is read with differences", of)
		}
	}
}
